// What keeps a pod off a node besides its resources.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "scheduler/convert.h"
#include "scheduler/testing.h"

namespace sublet::scheduler {
namespace {

using testing::DecisionText;
using ::testing::HasSubstr;
using testing::kNow;
using testing::MakeGroup;
using testing::MakeKubePod;
using testing::MakeNode;
using testing::MakeQueue;

TEST(VolumeLimitTest, ANodeAttachesAsManyVolumesAsItsDriverAllows) {
  for (const char* name : {"default", "kai-0.13"}) {
    Engine engine({*NamedProfile(name)});
    NodeSpec node = MakeNode("n1", 0);
    node.volume_limits["csi.example.com"] = 2;
    engine.Apply(node);
    engine.Apply(MakeQueue("a", "", kUnlimited));
    PodSpec there = MakeKubePod("there", "n1");
    there.attachments = {{"csi.example.com", "v1"}, {"csi.example.com", "v2"}};
    engine.Apply(there);
    PodSpec shares = MakeKubePod("shares");
    shares.attachments = {{"csi.example.com", "v2"}, {"other.example.com", "v9"}};
    PodSpec more = MakeKubePod("more");
    more.attachments = {{"csi.example.com", "v3"}};
    for (PodSpec pod : {shares, more}) {
      if (std::string(name) != "default") {
        pod.scheduler_name = "kai-scheduler";
        pod.group = "t/" + pod.name.substr(0, pod.name.find('-'));
        engine.Apply(MakeGroup(pod.name.substr(0, pod.name.find('-')), "a", 1));
      }
      engine.Apply(pod);
    }
    const CycleResult result = engine.Run(kNow);
    if (std::string(name) == "default") {
      EXPECT_EQ(DecisionText(result), "bind shares-0 n1\n");
      ASSERT_EQ(result.verdicts.size(), 1u);
      EXPECT_THAT(result.verdicts[0].message, HasSubstr("node(s) exceed max volume count"));
    } else {
      EXPECT_EQ(DecisionText(result), "bind more-0 n1\nbind shares-0 n1\n") << "KAI counts none";
    }
  }
}

TEST(NamespaceSelectorTest, AffinityTermsFollowTheLabelsOfNamespaces) {
  const auto object = kube::ParseJson(R"({"metadata":{"name":"p","namespace":"t","uid":"p"},"spec":{
    "schedulerName":"default-scheduler","affinity":{"podAntiAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":[
      {"topologyKey":"kubernetes.io/hostname","labelSelector":{},"namespaceSelector":{"matchLabels":{"team":"red"}}}]}}}})");
  ASSERT_TRUE(object.ok());
  Engine engine({*NamedProfile("default")});
  engine.Apply(MakeNode("n1", 0));
  engine.Apply(NamespaceSpec{"other", {{"team", "red"}}});
  PodSpec there = MakeKubePod("there", "n1");
  there.ns = "other";
  engine.Apply(there);
  engine.Apply(PodFromJson(*object));
  const CycleResult waits = engine.Run(kNow);
  EXPECT_EQ(DecisionText(waits), "");
  ASSERT_EQ(waits.verdicts.size(), 1u);
  EXPECT_THAT(waits.verdicts[0].message, HasSubstr("pod anti-affinity rules"));
  // The same through the pod that is there, and a copy of the engine knows it too.
  EXPECT_EQ(DecisionText(engine.Clone()->Run(kNow + 1)), "");
  engine.Apply(NamespaceSpec{"other", {{"team", "blue"}}});
  EXPECT_EQ(DecisionText(engine.Run(kNow + 2)), "bind p n1\n");
}

}  // namespace
}  // namespace sublet::scheduler
