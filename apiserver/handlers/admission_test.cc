#include "apiserver/handlers/testing/api_fixture.h"

namespace sublet::apiserver {
namespace {

using kube::Json;
using testing::ApiFixture;

constexpr const char* kPods = "/api/v1/namespaces/ns/pods";
constexpr const char* kServices = "/api/v1/namespaces/ns/services";

class Admission : public ApiFixture {
 protected:
  Admission() {
    MakeNamespace("ns");
    EXPECT_EQ(
        Post("/api/v1/namespaces/ns/serviceaccounts", {{"metadata", {{"name", "default"}}}}).code,
        201);
  }
  static Json Pod(const std::string& name, Json resources = Json::object()) {
    return {
        {"metadata", {{"name", name}}},
        {"spec",
         {{"containers",
           Json::array({{{"name", "c"}, {"image", "i"}, {"resources", std::move(resources)}}})}}}};
  }
  static Json Service(const std::string& name, Json spec = Json::object()) {
    spec["ports"] = Json::array({{{"port", 80}}});
    spec["selector"] = {{"a", "b"}};
    return {{"metadata", {{"name", name}}}, {"spec", std::move(spec)}};
  }
};

TEST_F(Admission, APodGetsItsAccountTokenPriorityAndTolerations) {
  const auto answer = Post(kPods, Pod("p"));
  ASSERT_EQ(answer.code, 201) << answer.body;
  const Json spec = answer.Tree()["spec"];
  EXPECT_EQ(spec["serviceAccountName"], "default");
  EXPECT_EQ(spec["priority"], 0);
  EXPECT_EQ(spec["preemptionPolicy"], "PreemptLowerPriority");
  EXPECT_EQ(spec["tolerations"].size(), 2u);
  ASSERT_EQ(spec["volumes"].size(), 1u);
  EXPECT_TRUE(spec["volumes"][0]["name"].get<std::string>().starts_with("kube-api-access-"));
  EXPECT_EQ(spec["volumes"][0]["projected"]["sources"].size(), 3u);
  EXPECT_EQ(spec["containers"][0]["volumeMounts"][0]["mountPath"],
            "/var/run/secrets/kubernetes.io/serviceaccount");
  Json other = Pod("q");
  other["spec"]["serviceAccountName"] = "absent";
  const auto refused = Post(kPods, other);
  EXPECT_EQ(refused.code, 403);
  EXPECT_EQ(refused.message(),
            "pods \"q\" is forbidden: error looking up service account ns/absent: serviceaccount "
            "\"absent\" not found");
  other = Pod("r");
  other["spec"]["priorityClassName"] = "none";
  EXPECT_EQ(Post(kPods, other).message(),
            "pods \"r\" is forbidden: no PriorityClass with name none was found");
}

TEST_F(Admission, TheDefaultNamespaceStays) {
  MakeNamespace("default");
  const auto answer = Do("DELETE", "/api/v1/namespaces/default");
  EXPECT_EQ(answer.code, 403);
  EXPECT_EQ(answer.message(),
            "namespaces \"default\" is forbidden: this namespace may not be deleted");
}

TEST_F(Admission, NothingIsCreatedInATerminatingNamespace) {
  ASSERT_EQ(Post("/api/v1/namespaces",
                 {{"metadata", {{"name", "ending"}}}, {"spec", {{"finalizers", {"kubernetes"}}}}})
                .code,
            201);
  const auto deleting = Do("DELETE", "/api/v1/namespaces/ending");
  ASSERT_EQ(deleting.code, 200) << deleting.body;
  EXPECT_EQ(deleting.Tree()["status"]["phase"], "Terminating");
  const auto refused =
      Post("/api/v1/namespaces/ending/configmaps", {{"metadata", {{"name", "a"}}}});
  EXPECT_EQ(refused.code, 403);
  EXPECT_EQ(
      refused.message(),
      "configmaps \"a\" is forbidden: unable to create new content in namespace ending because "
      "it is being terminated");
  EXPECT_EQ(refused.Tree()["details"]["causes"][0]["reason"], "NamespaceTerminating");
}

TEST_F(Admission, PodSecurityIsEnforcedByLabel) {
  const auto labelled = Patch("/api/v1/namespaces/ns", "application/merge-patch+json",
                              {{"metadata",
                                {{"labels",
                                  {{"pod-security.kubernetes.io/enforce", "baseline"},
                                   {"pod-security.kubernetes.io/warn", "restricted"}}}}}});
  ASSERT_EQ(labelled.code, 200) << labelled.body;
  const auto warned = Post(kPods, Pod("p"));
  EXPECT_EQ(warned.code, 201);
  EXPECT_NE(warned.Header("Warning").find("would violate PodSecurity \\\"restricted:latest\\\""),
            std::string::npos)
      << warned.Header("Warning");
  Json privileged = Pod("q");
  privileged["spec"]["containers"][0]["securityContext"] = {{"privileged", true}};
  const auto refused = Post(kPods, privileged);
  EXPECT_EQ(refused.code, 403);
  EXPECT_NE(refused.message().find("violates PodSecurity \"baseline:latest\": privileged"),
            std::string::npos)
      << refused.message();
}

TEST_F(Admission, AQuotaHoldsAgainstRacingPods) {
  ASSERT_EQ(Post("/api/v1/namespaces/ns/resourcequotas",
                 {{"metadata", {{"name", "q"}}}, {"spec", {{"hard", {{"pods", "3"}}}}}})
                .code,
            201);
  Json quota = Get("/api/v1/namespaces/ns/resourcequotas/q").Tree();
  quota["status"] = {{"hard", {{"pods", "3"}}}, {"used", {{"pods", "0"}}}};
  ASSERT_EQ(Put("/api/v1/namespaces/ns/resourcequotas/q/status", quota).code, 200);
  std::vector<std::thread> threads;
  std::atomic<int> created{0};
  std::atomic<int> refused{0};
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([this, i, &created, &refused] {
      const auto answer = Post(kPods, Pod("p" + std::to_string(i)));
      (answer.code == 201 ? created : refused)++;
      if (answer.code != 201) {
        EXPECT_NE(answer.message().find("exceeded quota: q, requested: pods=1, used: pods=3, "
                                        "limited: pods=3"),
                  std::string::npos)
            << answer.message();
      }
    });
  }
  for (auto& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(created, 3);
  EXPECT_EQ(refused, 5);
  EXPECT_EQ(Get("/api/v1/namespaces/ns/resourcequotas/q").Tree()["status"]["used"]["pods"], "3");
}

TEST_F(Admission, LimitRangesFillAndBound) {
  ASSERT_EQ(Post("/api/v1/namespaces/ns/limitranges",
                 {{"metadata", {{"name", "l"}}},
                  {"spec",
                   {{"limits", Json::array({{{"type", "Container"},
                                             {"default", {{"cpu", "500m"}}},
                                             {"defaultRequest", {{"cpu", "100m"}}},
                                             {"max", {{"cpu", "1"}}}}})}}}})
                .code,
            201);
  const Json pod = Post(kPods, Pod("p")).Tree();
  EXPECT_EQ(pod["spec"]["containers"][0]["resources"]["limits"]["cpu"], "500m");
  EXPECT_EQ(pod["spec"]["containers"][0]["resources"]["requests"]["cpu"], "100m");
  const auto refused = Post(kPods, Pod("q", {{"limits", {{"cpu", "2"}}}}));
  EXPECT_EQ(refused.code, 403);
  EXPECT_NE(refused.message().find("maximum cpu usage per Container is 1, but limit is 2"),
            std::string::npos)
      << refused.message();
}

TEST_F(Admission, ServicesGetAddressesAndPorts) {
  const auto answer = Post(kServices, Service("a", {{"type", "NodePort"}}));
  ASSERT_EQ(answer.code, 201) << answer.body;
  const Json spec = answer.Tree()["spec"];
  const std::string ip = spec["clusterIP"].get<std::string>();
  EXPECT_TRUE(ip.starts_with("10."));
  EXPECT_EQ(spec["clusterIPs"], Json::array({ip}));
  EXPECT_EQ(spec["ipFamilies"], Json::array({"IPv4"}));
  const int port = spec["ports"][0]["nodePort"].get<int>();
  EXPECT_GE(port, 30000);
  EXPECT_EQ(Get("/apis/networking.k8s.io/v1/ipaddresses/" + ip).code, 200);
  const auto same_ip = Post(kServices, Service("b", {{"clusterIP", ip}}));
  EXPECT_EQ(same_ip.code, 422);
  EXPECT_NE(same_ip.message().find("provided IP is already allocated"), std::string::npos);
  Json same_port = Service("c", {{"type", "NodePort"}});
  same_port["spec"]["ports"][0]["nodePort"] = port;
  EXPECT_NE(Post(kServices, same_port).message().find("provided port is already allocated"),
            std::string::npos);
  ASSERT_EQ(Do("DELETE", std::string(kServices) + "/a").code, 200);
  EXPECT_EQ(Get("/apis/networking.k8s.io/v1/ipaddresses/" + ip).code, 404);
  EXPECT_EQ(Post(kServices, Service("b", {{"clusterIP", ip}})).code, 201);
  EXPECT_EQ(Post(kServices, same_port).code, 201);
}

TEST_F(Admission, BindingPutsAPodOnANodeOnce) {
  ASSERT_EQ(Post(kPods, Pod("p")).code, 201);
  const Json binding = {{"metadata", {{"name", "p"}}},
                        {"target", {{"kind", "Node"}, {"name", "n1"}}}};
  const auto bound = Post(std::string(kPods) + "/p/binding", binding);
  EXPECT_EQ(bound.code, 201) << bound.body;
  EXPECT_EQ(Get(std::string(kPods) + "/p").Tree()["spec"]["nodeName"], "n1");
  const auto again = Post(std::string(kPods) + "/p/binding", binding);
  EXPECT_EQ(again.code, 409);
  EXPECT_EQ(again.message(),
            "Operation cannot be fulfilled on pods/binding \"p\": pod p is already assigned to "
            "node \"n1\"");
}

TEST_F(Admission, EvictionAsksTheDisruptionBudget) {
  Json pod = Pod("p");
  pod["metadata"]["labels"] = {{"app", "x"}};
  ASSERT_EQ(Post(kPods, pod).code, 201);
  Json live = Get(std::string(kPods) + "/p").Tree();
  live["status"]["phase"] = "Running";
  live["status"]["conditions"] = Json::array({{{"type", "Ready"}, {"status", "True"}}});
  ASSERT_EQ(Put(std::string(kPods) + "/p/status", live).code, 200);
  const std::string budgets = "/apis/policy/v1/namespaces/ns/poddisruptionbudgets";
  ASSERT_EQ(Post(budgets,
                 {{"metadata", {{"name", "b"}}},
                  {"spec", {{"minAvailable", 1}, {"selector", {{"matchLabels", {{"app", "x"}}}}}}}})
                .code,
            201);
  Json budget = Get(budgets + "/b").Tree();
  budget["status"] = {{"observedGeneration", 1},
                      {"disruptionsAllowed", 0},
                      {"currentHealthy", 1},
                      {"desiredHealthy", 1},
                      {"expectedPods", 1}};
  ASSERT_EQ(Put(budgets + "/b/status", budget).code, 200);
  const Json eviction = {{"metadata", {{"name", "p"}}}};
  const auto refused = Post(std::string(kPods) + "/p/eviction", eviction);
  EXPECT_EQ(refused.code, 429) << refused.body;
  EXPECT_EQ(refused.message(), "Cannot evict pod as it would violate the pod's disruption budget.");
  budget = Get(budgets + "/b").Tree();
  budget["status"]["disruptionsAllowed"] = 1;
  ASSERT_EQ(Put(budgets + "/b/status", budget).code, 200);
  EXPECT_EQ(Post(std::string(kPods) + "/p/eviction", eviction).code, 201);
  EXPECT_EQ(Get(budgets + "/b").Tree()["status"]["disruptionsAllowed"], 0);
}

TEST_F(Admission, APodOnANodeIsDeletedWithGrace) {
  Json pod = Pod("p");
  pod["spec"]["nodeName"] = "n1";
  ASSERT_EQ(Post(kPods, pod).code, 201);
  const auto deleting = Do("DELETE", std::string(kPods) + "/p");
  EXPECT_EQ(deleting.code, 200);
  EXPECT_EQ(deleting.Tree()["metadata"]["deletionGracePeriodSeconds"], 30);
  const auto shorter = Do("DELETE", std::string(kPods) + "/p?gracePeriodSeconds=5");
  EXPECT_EQ(shorter.Tree()["metadata"]["deletionGracePeriodSeconds"], 5);
  EXPECT_EQ(Do("DELETE", std::string(kPods) + "/p?gracePeriodSeconds=0").code, 200);
  EXPECT_EQ(Get(std::string(kPods) + "/p").code, 404);
}

}  // namespace
}  // namespace sublet::apiserver
