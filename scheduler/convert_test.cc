// What the engine reads from the objects of the API.
#include "scheduler/convert.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "scheduler/testing.h"

namespace sublet::scheduler {
namespace {

TEST(ConvertTest, PodsNodesQueuesAndGroups) {
  const auto pod = kube::ParseJson(
      R"({"metadata":{"name":"p","namespace":"ns","uid":"u1","labels":{"kai.scheduler/subgroup-name":"w"},
    "annotations":{"pod-group-name":"pg","gpu-fraction":"0.5","gpu-fraction-num-devices":"2"}},
    "spec":{"schedulerName":"kai-scheduler","nodeSelector":{"a":"b"},
      "initContainers":[{"resources":{"requests":{"cpu":"3"}}},{"restartPolicy":"Always","resources":{"requests":{"cpu":"500m"}}}],
      "containers":[{"resources":{"requests":{"cpu":"1","memory":"1Gi"},"limits":{"example.com/x":"2"}},"ports":[{"hostPort":80}]},{"resources":{"limits":{"cpu":"250m"}}}],
      "tolerations":[{"operator":"Exists"}],
      "affinity":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[{"matchExpressions":[{"key":"z","operator":"In","values":["1"]}]}]}}}}})");
  ASSERT_TRUE(pod.ok());
  const PodSpec spec = PodFromJson(*pod);
  EXPECT_EQ(spec.group, "ns/pg");
  EXPECT_EQ(spec.sub_group, "w");
  EXPECT_EQ(spec.request.cpu,
            3000);  // the first init container asks for more than all others together
  EXPECT_EQ(spec.request.memory, INT64_C(1) << 30);
  EXPECT_EQ(spec.request.gpu, GpuKind::kFraction);
  EXPECT_EQ(spec.request.gpu_count, 2);
  EXPECT_EQ(spec.request.scalars.size(), 1u);
  EXPECT_EQ(spec.constraints.ports.size(), 1u);
  EXPECT_TRUE(spec.constraints.has_affinity);
  EXPECT_TRUE(spec.constraints.tolerations[0].exists);
  EXPECT_EQ(spec.phase, Phase::kPending);
  const auto node =
      kube::ParseJson(R"({"metadata":{"name":"n","labels":{"x":"y"}},"spec":{"unschedulable":true},
    "status":{"allocatable":{"cpu":"4","memory":"8Gi","pods":"110","nvidia.com/gpu":"2"},"conditions":[{"type":"Ready","status":"True"}]}})");
  const NodeSpec n = NodeFromJson(*node);
  EXPECT_EQ(n.cpu, 4000);
  EXPECT_EQ(n.gpus, 2);
  EXPECT_TRUE(n.unschedulable);
  EXPECT_TRUE(n.ready);
  const auto queue = kube::ParseJson(
      R"({"metadata":{"name":"q"},"spec":{"parentQueue":"p","resources":{"gpu":{"quota":2,"limit":-1,"overQuotaWeight":3},
    "memory":{"quota":5,"limit":-1}},"reclaimMinRuntime":"90s"}})");
  const QueueSpec q = QueueFromJson(*queue);
  EXPECT_EQ(q.gpu.quota, 2);
  EXPECT_EQ(q.gpu.limit, kUnlimited);
  EXPECT_EQ(q.memory.quota, 5e6);
  EXPECT_EQ(q.cpu.limit, 0);
  EXPECT_EQ(q.reclaim_min_runtime, 90'000);
  const auto group = kube::ParseJson(
      R"({"metadata":{"name":"g","namespace":"ns","uid":"u2"},"spec":{"queue":"q","priorityClassName":"train",
    "subGroups":[{"name":"top","minSubGroup":1},{"name":"x","parent":"top","minMember":2},{"name":"y","parent":"top","minMember":3}]}})");
  const PodGroupSpec g = PodGroupFromJson(*group, [](const std::string& name) {
    return name == "train" ? std::optional<int>(50) : std::nullopt;
  });
  EXPECT_EQ(g.priority, 50);
  ASSERT_EQ(g.root.groups.size(), 1u);
  EXPECT_EQ(g.root.groups[0].min_sub_group, 1);
  EXPECT_EQ(g.root.groups[0].pod_sets[1].min_available, 3);
}

TEST(ConvertTest, ARefusalIsReadFromThePod) {
  kube::Json pod = {
      {"metadata", {{"name", "x"}, {"annotations", {{"sublet.dev/rejections", "3"}}}}},
      {"status",
       {{"conditions",
         {{{"type", "PodScheduled"},
           {"status", "False"},
           {"reason", "RejectedByHost"},
           {"lastTransitionTime", "1970-01-01T00:00:07Z"}}}}}}};
  EXPECT_EQ(PodFromJson(pod).refused, 7000);
  EXPECT_EQ(PodFromJson(pod).refusals, 3);
  pod["status"]["conditions"][0]["reason"] = "Unschedulable";
  EXPECT_EQ(PodFromJson(pod).refused, 0);
}

TEST(ConvertTest, WhatAPodMountsMustExist) {
  const auto pod = kube::ParseJson(R"({"metadata":{"name":"p","namespace":"ns"},"spec":{
    "volumes":[{"name":"d","persistentVolumeClaim":{"claimName":"disk"}},{"name":"e","ephemeral":{}},
      {"name":"m","configMap":{"name":"map"}},{"name":"unused","configMap":{"name":"nobody"}},
      {"name":"j","projected":{"sources":[{"configMap":{"name":"maybe","optional":true}},{"configMap":{"name":"part"}}]}}],
    "containers":[{"volumeMounts":[{"name":"m"},{"name":"j"}],"envFrom":[{"configMapRef":{"name":"env"}}],
      "env":[{"name":"A","valueFrom":{"configMapKeyRef":{"name":"key"}}}]}]}})");
  ASSERT_TRUE(pod.ok());
  const VolumeRefs refs = VolumesOf(*pod);
  EXPECT_EQ(refs.claims, (std::vector<std::string>{"disk", "p-e"}));
  EXPECT_EQ(refs.config_maps, (std::vector<std::string>{"env", "key", "map", "part"}));
  const auto reason = [&](std::optional<VolumeClaimFacts> claim,
                          std::optional<StorageClassFacts> storage) {
    PodLookups lookups;
    lookups.volume_claim = [&](const std::string&, const std::string&) { return claim; };
    lookups.storage_class = [&](const std::string&) { return storage; };
    lookups.volume = [](const std::string&) {
      return std::optional(VolumeFacts{{NodeTerm{}}, "", ""});
    };
    PodSpec spec;
    ResolveVolumes({{"disk"}, {}}, lookups, &spec);
    return spec.unschedulable_reason + (spec.constraints.volumes.empty() ? "" : "node terms");
  };
  EXPECT_EQ(reason(std::nullopt, {}), "persistentvolumeclaim \"disk\" not found");
  EXPECT_EQ(reason(VolumeClaimFacts{true, false, "v", ""}, {}),
            "persistentvolumeclaim \"disk\" is being deleted");
  EXPECT_EQ(reason(VolumeClaimFacts{false, true, "v", ""}, {}),
            "persistentvolumeclaim \"disk\" bound to non-existent persistentvolume \"v\"");
  EXPECT_EQ(reason(VolumeClaimFacts{false, false, "", "s"}, StorageClassFacts{false, {}}),
            "pod has unbound immediate PersistentVolumeClaims");
  EXPECT_EQ(reason(VolumeClaimFacts{false, false, "", "s"}, StorageClassFacts{true, {NodeTerm{}}}),
            "node terms");
  EXPECT_EQ(reason(VolumeClaimFacts{false, false, "", "s"}, std::nullopt),
            "pod has unbound immediate PersistentVolumeClaims");
  EXPECT_EQ(reason(VolumeClaimFacts{false, false, "v", "s"}, StorageClassFacts{false, {}}),
            "node terms");
  // A tenant that is not shown its host's classes leaves the binding to the host.
  PodLookups blind;
  blind.volume_claim = [](const std::string&, const std::string&) {
    return std::optional(VolumeClaimFacts{false, false, "", "s", "u"});
  };
  blind.storage_class = [](const std::string&) { return std::optional<StorageClassFacts>(); };
  blind.classes_known = false;
  PodSpec waits_for_nothing;
  ResolveVolumes({{"disk"}, {}}, blind, &waits_for_nothing);
  EXPECT_EQ(waits_for_nothing.unschedulable_reason, "");
  PodLookups none;
  none.config_map_exists = [](const std::string&, const std::string& name) {
    return name == "map";
  };
  PodSpec spec;
  ResolveVolumes(refs, none, &spec);
  EXPECT_EQ(spec.unschedulable_reason, "Missing required configmaps: [env key part]");
}

}  // namespace
}  // namespace sublet::scheduler
