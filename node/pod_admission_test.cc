// A node's last word on its pods, with a kubelet's reasons.
#include "node/pod_admission.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace sublet::node {
namespace {

using kube::Json;

class Admission : public ::testing::Test {
 protected:
  static Json Pod(const Json& requests, const Json& spec = Json::object()) {
    Json pod = {{"spec",
                 {{"containers",
                   Json::array({{{"name", "c"}, {"resources", {{"requests", requests}}}}})}}}};
    pod["spec"].update(spec);
    return pod;
  }
  static Json Port(int number, const char* ip = "") {
    return {{"containers",
             Json::array({{{"name", "c"},
                           {"ports", Json::array({{{"hostPort", number}, {"hostIP", ip}}})}}})}};
  }
  // "" when the pod is admitted, else reason and message.
  std::string Try(const std::string& uid, const Json& pod, bool runs_already = false) {
    const auto rejection =
        admission_.Admit(uid, ReadPodDemand(pod), ReadNodeOffer(node_), runs_already);
    return rejection ? rejection->reason + ": " + rejection->message : "";
  }
  Json node_ = {{"metadata", {{"name", "n"}, {"labels", {{"disk", "ssd"}, {"zone", "a"}}}}},
                {"status",
                 {{"allocatable",
                   {{"cpu", "2"}, {"memory", "1Gi"}, {"nvidia.com/gpu", "1"}, {"pods", "3"}}}}}};
  PodAdmission admission_;
};

TEST_F(Admission, ResourcesRunOutAndComeBack) {
  EXPECT_EQ(Try("a", Pod({{"cpu", "1500m"}})), "");
  EXPECT_EQ(Try("a", Pod({{"cpu", "1500m"}})), "") << "counted once";
  EXPECT_EQ(Try("b", Pod({{"cpu", "1"}})),
            "OutOfcpu: Node didn't have enough resource: cpu, requested: 1000, used: 1500, "
            "capacity: 2000");
  EXPECT_EQ(Try("b", Pod({{"memory", "2Gi"}})),
            "OutOfmemory: Node didn't have enough resource: memory, requested: 2147483648, used: "
            "0, capacity: 1073741824");
  EXPECT_EQ(Try("b", Pod({{"example.com/x", "1"}})),
            "OutOfexample.com/x: Node didn't have enough resource: example.com/x, requested: 1, "
            "used: 0, capacity: 0");
  EXPECT_EQ(Try("b", Pod({{"nvidia.com/gpu", "1"}})), "");
  EXPECT_EQ(Try("c", Pod({{"nvidia.com/gpu", "1"}})),
            "OutOfnvidia.com/gpu: Node didn't have enough resource: nvidia.com/gpu, requested: 1, "
            "used: 1, capacity: 1");
  admission_.Release("b");
  admission_.Release("b");
  EXPECT_EQ(Try("c", Pod({{"nvidia.com/gpu", "1"}})), "");
  EXPECT_EQ(Try("d", Pod(Json::object())), "");
  EXPECT_EQ(
      Try("e", Pod(Json::object())),
      "OutOfpods: Node didn't have enough resource: pods, requested: 1, used: 3, capacity: 3");
}

TEST_F(Admission, WhatRanBeforeIsCountedWhateverIsLeft) {
  EXPECT_EQ(Try("a", Pod({{"cpu", "3"}}), true), "");
  EXPECT_EQ(Try("b", Pod({{"cpu", "1m"}})).substr(0, 8), "OutOfcpu");
}

TEST_F(Admission, HostPortsClashByAddress) {
  EXPECT_EQ(Try("a", Pod({}, Port(80, "127.0.0.1"))), "");
  EXPECT_EQ(Try("b", Pod({}, Port(80, "127.0.0.2"))), "");
  EXPECT_EQ(Try("c", Pod({}, Port(80))),
            "NodePorts: Predicate NodePorts failed: node(s) didn't have free ports for the "
            "requested pod ports");
  EXPECT_EQ(Try("c", Pod({}, Port(81))), "");
}

TEST_F(Admission, LabelsAndTaintsOfTheNodeAreHeld) {
  EXPECT_EQ(Try("a", Pod({}, {{"nodeSelector", {{"disk", "hdd"}}}})),
            "NodeAffinity: Predicate NodeAffinity failed: node(s) didn't match Pod's node "
            "affinity/selector");
  const auto zone = [](const char* value) {
    return Json{
        {"affinity",
         {{"nodeAffinity",
           {{"requiredDuringSchedulingIgnoredDuringExecution",
             {{"nodeSelectorTerms",
               Json::array({{{"matchExpressions", Json::array({{{"key", "zone"},
                                                                {"operator", "In"},
                                                                {"values", {value}}}})}}})}}}}}}}};
  };
  EXPECT_EQ(Try("a", Pod({}, zone("b"))).substr(0, 12), "NodeAffinity");
  EXPECT_EQ(Try("a", Pod({}, zone("a"))), "");
  node_["spec"]["taints"] = Json::array({{{"key", "full"}, {"effect", "NoSchedule"}}});
  EXPECT_EQ(Try("b", Pod(Json::object())), "") << "only NoExecute concerns the node";
  node_["spec"]["taints"].push_back({{"key", "broken"}, {"effect", "NoExecute"}});
  EXPECT_EQ(Try("c", Pod(Json::object())),
            "TaintToleration: Predicate TaintToleration failed: node(s) had taints that the pod "
            "didn't tolerate");
  EXPECT_EQ(
      Try("c",
          Pod({}, {{"tolerations", Json::array({{{"key", "broken"}, {"operator", "Exists"}}})}})),
      "");
}

}  // namespace
}  // namespace sublet::node
