#include "syncer/kinds/pod_translate.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace sublet::syncer {
namespace {

using kube::Json;

class PodTranslate : public ::testing::Test {
 protected:
  PodTranslate() {
    context_.tenant = {"team-a", "sublet-team-a"};
    context_.policy = &policy_;
    context_.workload_service_account = "sublet-workload-team-a";
    context_.api_address = "10.96.0.77";
    context_.dns_address = "10.96.0.78";
    context_.namespace_labels = &namespace_labels_;
  }

  static Json Pod(Json spec) {
    if (spec.is_null()) {
      spec = Json::object();
    }
    spec["containers"] = spec.value("containers", Json::array({{{"name", "c"}, {"image", "i"}}}));
    return {{"apiVersion", "v1"},
            {"kind", "Pod"},
            {"metadata", {{"name", "web-0"}, {"namespace", "default"}, {"uid", "u-1"}}},
            {"spec", std::move(spec)}};
  }
  HostPod Translate(Json spec) {
    auto result = TranslatePod(Pod(std::move(spec)), context_);
    EXPECT_TRUE(result.ok()) << (result.ok() ? "" : result.error().message());
    return std::move(result).value();
  }
  static std::string Env(const Json& container, const std::string& name) {
    for (const Json& variable : container["env"]) {
      if (variable["name"] == name) {
        return variable.value("value", "(from)");
      }
    }
    return "(absent)";
  }

  PodPolicy policy_;
  Json namespace_labels_ = {{"team", "blue"}};
  PodContext context_;
};

TEST_F(PodTranslate, NetworkVolumesAreRebuiltAndBringNoCredentialOfTheNode) {
  const HostPod host = Translate(
      {{"volumes",
        {{{"name", "a"},
          {"csi",
           {{"driver", "d.example"}, {"nodePublishSecretRef", {{"name", "s"}}}, {"odd", "x"}}}},
         {{"name", "b"},
          {"iscsi", {{"targetPortal", "p"}, {"iqn", "q"}, {"lun", 1}, {"odd", "x"}}}}}}});
  const Json& volumes = host.pod["spec"]["volumes"];
  EXPECT_EQ(volumes[0]["csi"],
            (Json{{"driver", "d.example"},
                  {"nodePublishSecretRef", {{"name", "s-x-default-x-team-a"}}}}));
  EXPECT_EQ(volumes[1]["iscsi"], (Json{{"targetPortal", "p"}, {"iqn", "q"}, {"lun", 1}}));
  for (const char* kind : {"rbd", "cephfs"}) {
    const auto refused = TranslatePod(
        Pod({{"volumes", Json::array({{{"name", "c"}, {kind, {{"user", "admin"}}}}})}}), context_);
    ASSERT_FALSE(refused.ok()) << kind;
    EXPECT_NE(refused.error().message().find("which does not reach the host"), std::string::npos);
  }
}

TEST_F(PodTranslate, NamesMarksAndPlacesThePod) {
  const HostPod host = Translate({{"nodeName", "n1"}, {"schedulerName", "kai-scheduler"}});
  EXPECT_EQ(host.pod["metadata"]["name"], "web-0-x-default-x-team-a");
  EXPECT_EQ(host.pod["metadata"]["namespace"], "sublet-team-a");
  EXPECT_EQ(host.pod["metadata"]["labels"]["sublet.dev/ns-label-team-a-x-ca8b22d0db"], "blue");
  EXPECT_EQ(host.pod["spec"]["nodeName"], "n1");
  EXPECT_EQ(host.pod["spec"]["schedulerName"], "kai-scheduler");
  EXPECT_EQ(host.pod["spec"]["serviceAccountName"], "sublet-workload-team-a");
  EXPECT_EQ(host.pod["spec"]["automountServiceAccountToken"], false);
  EXPECT_FALSE(host.pod["metadata"].contains("ownerReferences"));
}

TEST_F(PodTranslate, OnlyAllowListedSpecFieldsArrive) {
  const HostPod host = Translate({{"somethingNew", 1}, {"priority", 2000001000}, {"overhead", {}}});
  EXPECT_FALSE(host.pod["spec"].contains("somethingNew"));
  EXPECT_FALSE(host.pod["spec"].contains("priority"));
  EXPECT_FALSE(host.pod["spec"].contains("overhead"));
}

TEST_F(PodTranslate, OwnerReferenceIsTheCallersChoice) {
  context_.owner_reference = {
      {"apiVersion", "v1"}, {"kind", "Service"}, {"name", "team-a"}, {"uid", "s"}};
  const HostPod host = Translate({});
  EXPECT_EQ(host.pod["metadata"]["ownerReferences"][0]["name"], "team-a");
  EXPECT_EQ(host.pod["metadata"]["ownerReferences"][0]["controller"], false);
}

TEST_F(PodTranslate, UsersVariablesWinOverServiceVariables) {
  const HostPod host =
      Translate({{"containers",
                  {{{"name", "c"},
                    {"image", "i"},
                    {"env",
                     {{{"name", "KUBERNETES_SERVICE_HOST"}, {"value", "mine"}},
                      {{"name", "K"},
                       {"valueFrom", {{"secretKeyRef", {{"name", "s"}, {"key", "k"}}}}}}}}}}}});
  const Json& container = host.pod["spec"]["containers"][0];
  EXPECT_EQ(Env(container, "KUBERNETES_SERVICE_HOST"), "mine");
  EXPECT_EQ(Env(container, "KUBERNETES_PORT_443_TCP_ADDR"), "10.96.0.77");
  for (const Json& variable : container["env"]) {
    if (variable["name"] == "K") {
      EXPECT_EQ(variable["valueFrom"]["secretKeyRef"]["name"], "s-x-default-x-team-a");
    }
  }
}

TEST_F(PodTranslate, DownwardApiReadsTheVirtualValues) {
  Json pod =
      Pod({{"containers",
            {{{"name", "c"},
              {"image", "i"},
              {"env",
               {{{"name", "N"}, {"valueFrom", {{"fieldRef", {{"fieldPath", "metadata.name"}}}}}},
                {{"name", "I"},
                 {"valueFrom",
                  {{"fieldRef", {{"fieldPath", "metadata.annotations['cdi.k8s.io/x']"}}}}}}}}}}}});
  pod["metadata"]["annotations"] = {{"cdi.k8s.io/x", "secret-device"}};
  const auto host = TranslatePod(pod, context_);
  ASSERT_TRUE(host.ok());
  const Json& metadata = host->pod["metadata"];
  const Json& env = host->pod["spec"]["containers"][0]["env"];
  std::map<std::string, std::string> paths;
  for (const Json& variable : env) {
    if (variable.contains("valueFrom")) {
      paths[variable["name"].get<std::string>()] =
          variable["valueFrom"]["fieldRef"]["fieldPath"].get<std::string>();
    }
  }
  EXPECT_EQ(paths["N"], "metadata.annotations['sublet.dev/name']");
  EXPECT_EQ(metadata["annotations"]["sublet.dev/name"], "web-0");
  const std::string carrier = "sublet.dev/annotation-" + Hash10("cdi.k8s.io/x");
  EXPECT_EQ(paths["I"], "metadata.annotations['" + carrier + "']");
  EXPECT_EQ(metadata["annotations"][carrier], "secret-device");
  EXPECT_FALSE(metadata["annotations"].contains("cdi.k8s.io/x"));
}

TEST_F(PodTranslate, TokensMoveIntoASecretWithTheAskedLife) {
  const HostPod host =
      Translate({{"volumes",
                  {{{"name", "t"},
                    {"projected",
                     {{"sources",
                       {{{"serviceAccountToken",
                          {{"path", "token"}, {"expirationSeconds", 3607}, {"audience", "vault"}}}},
                        {{"configMap", {{"name", "kube-root-ca.crt"}}}}}}}}}}}});
  ASSERT_EQ(host.tokens.size(), 1u);
  EXPECT_EQ(host.tokens[0].expiration_seconds, 3607);
  EXPECT_EQ(host.tokens[0].audiences, std::vector<std::string>{"vault"});
  EXPECT_EQ(host.token_secret, "web-0-sa-token-x-default-x-team-a");
  const Json& sources = host.pod["spec"]["volumes"][0]["projected"]["sources"];
  EXPECT_EQ(sources[0]["secret"]["name"], host.token_secret);
  EXPECT_EQ(sources[0]["secret"]["items"][0]["path"], "token");
  EXPECT_EQ(sources[1]["configMap"]["name"], "kube-root-ca.crt-x-default-x-team-a");
}

TEST_F(PodTranslate, HostPathIsRefusedWithTheVolumesName) {
  const auto host = TranslatePod(
      Pod({{"volumes", {{{"name", "root"}, {"hostPath", {{"path", "/"}}}}}}}), context_);
  ASSERT_FALSE(host.ok());
  EXPECT_EQ(host.error().reason(), Reason::kForbidden);
  EXPECT_NE(host.error().message().find("volume \"root\" is of kind hostPath"), std::string::npos);
}

TEST_F(PodTranslate, ClusterFirstBecomesTheTenantsNameserverAndKeepsOptions) {
  const HostPod host =
      Translate({{"dnsConfig",
                  {{"options", {{{"name", "timeout"}, {"value", "1"}}}}, {"searches", {"x.y"}}}}});
  const Json& dns = host.pod["spec"]["dnsConfig"];
  EXPECT_EQ(host.pod["spec"]["dnsPolicy"], "None");
  EXPECT_EQ(dns["nameservers"][0], "10.96.0.78");
  EXPECT_EQ(dns["searches"],
            Json({"default.svc.cluster.local", "svc.cluster.local", "cluster.local", "x.y"}));
  EXPECT_EQ(dns["options"].size(), 2u);
  EXPECT_EQ(Translate({{"dnsPolicy", "Default"}}).pod["spec"]["dnsPolicy"], "Default");
}

TEST_F(PodTranslate, ASliceReplacesTheGpuResource) {
  context_.gpu_slice = "u-1";
  const HostPod host =
      Translate({{"containers",
                  {{{"name", "c"},
                    {"image", "i"},
                    {"resources", {{"limits", {{"nvidia.com/gpu", "1"}, {"cpu", "1"}}}}}}}}});
  EXPECT_EQ(host.pod["metadata"]["annotations"]["cdi.k8s.io/sublet"], "sublet.dev/gpu=u-1");
  EXPECT_EQ(host.pod["metadata"]["annotations"]["gpu.sublet.dev/containers"], "c");
  EXPECT_EQ(host.pod["spec"]["containers"][0]["resources"]["limits"], Json({{"cpu", "1"}}));
}

// Row 33: an image or an envFrom that says "all" gets nothing.
TEST_F(PodTranslate, APodWithoutAGpuSeesNoneOnAHostThatHasSome) {
  const Json spec = {{"containers",
                      {{{"name", "c"},
                        {"image", "i"},
                        {"env", {{{"name", "NVIDIA_VISIBLE_DEVICES"}, {"value", "none"}}}},
                        {"envFrom", {{{"configMapRef", {{"name", "all"}}}}}}}}}};
  context_.hide_gpus = true;
  const HostPod host = Translate(spec);
  const Json& env = host.pod["spec"]["containers"][0]["env"];
  EXPECT_EQ(env.back(), Json({{"name", "NVIDIA_VISIBLE_DEVICES"}, {"value", "void"}}));
  EXPECT_EQ(std::count_if(env.begin(), env.end(),
                          [](const Json& one) { return one["name"] == "NVIDIA_VISIBLE_DEVICES"; }),
            1);
  context_.hide_gpus = false;
  EXPECT_EQ(Translate(spec).pod["spec"]["containers"][0]["env"].back()["value"], "none");
}

TEST_F(PodTranslate, AffinityStaysWithinTheTenantWhenTheHostSchedules) {
  context_.scheduled_by_tenant = false;
  const Json spec = {{"affinity",
                      {{"podAntiAffinity",
                        {{"requiredDuringSchedulingIgnoredDuringExecution",
                          {{{"topologyKey", "kubernetes.io/hostname"},
                            {"labelSelector", {{"matchLabels", {{"app", "web"}}}}},
                            {"namespaces", {"a", "b"}}}}}}}}}};
  const Json term = Translate(spec).pod["spec"]["affinity"]["podAntiAffinity"]
                                       ["requiredDuringSchedulingIgnoredDuringExecution"][0];
  EXPECT_EQ(term["labelSelector"]["matchLabels"]["sublet.dev/managed-by"], "team-a");
  EXPECT_EQ(term["labelSelector"]["matchExpressions"][0]["values"], Json({"a", "b"}));
  EXPECT_FALSE(term.contains("namespaces"));
  context_.scheduled_by_tenant = true;
  EXPECT_FALSE(Translate(spec).pod["spec"].contains("affinity"));
}

TEST_F(PodTranslate, ImagesAreMappedByExactName) {
  policy_.translate_images = {{"i", "local/i:1"}};
  EXPECT_EQ(Translate({}).pod["spec"]["containers"][0]["image"], "local/i:1");
}

TEST_F(PodTranslate, PatchCarriesOnlyWhatChanged) {
  HostPod before = Translate({});
  EXPECT_TRUE(HostPodPatch(before.pod, before.pod).is_null());
  Json wanted = before.pod;
  wanted["spec"]["containers"][0]["image"] = "j";
  wanted["metadata"]["annotations"][std::string(kImagesAnnotation)] = "of j";
  wanted["metadata"]["labels"]["app"] = "x";
  const Json patch = HostPodPatch(before.pod, wanted);
  EXPECT_EQ(patch["spec"]["containers"][0]["image"], "j");
  EXPECT_EQ(patch["metadata"]["labels"], Json({{"app", "x"}}));
}

TEST_F(PodTranslate, StatusLeavesOutInjectedContainersAndKeepsOwnConditions) {
  Json virtual_pod = Pod({});
  virtual_pod["status"] = {{"qosClass", "Burstable"},
                           {"conditions", {{{"type", "gate"}, {"status", "True"}}}}};
  const Json host = {{"status",
                      {{"phase", "Running"},
                       {"qosClass", "BestEffort"},
                       {"conditions", {{{"type", "Ready"}, {"status", "True"}}}},
                       {"containerStatuses", {{{"name", "c"}}, {{"name", "sidecar"}}}}}}};
  const Json status = VirtualStatus(virtual_pod, host);
  EXPECT_EQ(status["phase"], "Running");
  EXPECT_EQ(status["qosClass"], "Burstable");
  EXPECT_EQ(status["containerStatuses"].size(), 1u);
  EXPECT_EQ(status["conditions"].size(), 2u);
}

TEST_F(PodTranslate, WhatTheHostChangedIsNotFought) {
  const Json spec = {
      {"containers",
       {{{"name", "c"}, {"image", "i"}, {"resources", {{"requests", {{"cpu", "1"}}}}}}}}};
  const HostPod wanted = Translate(spec);
  Json host = wanted.pod;
  host["spec"]["containers"][0]["image"] = "mirror/i";
  host["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "2";
  EXPECT_TRUE(HostPodPatch(host, wanted.pod).is_null());
  EXPECT_TRUE(HostPodResize(host, wanted.pod).is_null());
  Json changed = spec;
  changed["containers"][0]["image"] = "j";
  changed["containers"][0]["resources"]["requests"]["cpu"] = "3";
  const HostPod next = Translate(changed);
  EXPECT_EQ(HostPodPatch(host, next.pod)["spec"]["containers"][0]["image"], "j");
  EXPECT_EQ(HostPodResize(host, next.pod)["spec"]["containers"][0]["resources"]["requests"]["cpu"],
            "3");
}

TEST_F(PodTranslate, ReadinessGatesAreTheTenantsToSet) {
  Json pod = Pod({{"readinessGates", {{{"conditionType", "example.com/go"}}}}});
  pod["status"]["conditions"] = {{{"type", "example.com/go"}, {"status", "False"}}};
  Json host = {{"status",
                {{"conditions",
                  {{{"type", "example.com/go"}, {"status", "True"}},
                   {{"type", "Ready"}, {"status", "True"}}}}}}};
  const Json patch = GatesPatch(pod, host);
  EXPECT_EQ(patch["status"]["conditions"].size(), 1u);
  EXPECT_EQ(patch["status"]["conditions"][0]["status"], "False");
  const Json shown = VirtualStatus(pod, host);
  EXPECT_EQ(shown["conditions"][0]["status"], "False");
  host["status"]["conditions"][0]["status"] = "False";
  EXPECT_TRUE(GatesPatch(pod, host).is_null());
}

TEST_F(PodTranslate, ReferencesNameEveryObjectOnce) {
  const PodReferences references = ReferencesOfPod(Pod(
      {{"volumes",
        {{{"name", "v"}, {"configMap", {{"name", "a"}}}},
         {{"name", "w"}, {"persistentVolumeClaim", {{"claimName", "p"}}}},
         {{"name", "e"}, {"ephemeral", Json::object()}},
         {{"name", "x"}, {"projected", {{"sources", {{{"secret", {{"name", "s"}}}}}}}}}}},
       {"containers",
        {{{"name", "c"},
          {"image", "i"},
          {"envFrom", {{{"configMapRef", {{"name", "a"}}}}, {{"secretRef", {{"name", "t"}}}}}}}}},
       {"imagePullSecrets", {{{"name", "pull"}}}}}));
  EXPECT_EQ(references.config_maps, std::vector<std::string>({"a"}));
  EXPECT_EQ(references.secrets, std::vector<std::string>({"pull", "s", "t"}));
  EXPECT_EQ(references.claims, std::vector<std::string>({"p", "web-0-e"}));
}

}  // namespace
}  // namespace sublet::syncer
