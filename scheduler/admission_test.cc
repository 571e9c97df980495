// What the scheduler's admission rules refuse, and the field they name.
#include "scheduler/admission.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace sublet::scheduler {
namespace {

using kube::Json;
using ::testing::HasSubstr;

Json Pod(const Json& annotations, const Json& limits = Json::object()) {
  return {
      {"metadata", {{"name", "p"}, {"namespace", "n"}, {"annotations", annotations}}},
      {"spec",
       {{"containers", Json::array({{{"name", "main"}, {"resources", {{"limits", limits}}}}})}}}};
}

std::string Refusal(const Result<void>& result) {
  if (result.ok()) {
    return "";
  }
  std::string fields;
  for (const StatusCause& cause : result.error().details().causes) {
    fields += cause.field + ": " + cause.message + "\n";
  }
  return fields.empty() ? result.error().message() : fields;
}

TEST(AdmissionTest, BadNumbersAreRefusedByField) {
  for (const char* value :
       {"",     "0",    "-0.5", "1",    "1.0",    "1.5", "NaN", "nan", "inf",  "1e308",
        "1e-1", "0.5 ", " 0.5", "+0.5", "0x1p-1", ".5",  "0.",  "0,5", "half", "0.0000000001"}) {
    EXPECT_THAT(Refusal(CheckSharingRequest(Pod({{"gpu-fraction", value}}), nullptr)),
                HasSubstr("metadata.annotations[gpu-fraction]: Invalid value"))
        << '"' << value << '"';
  }
  for (const char* value : {"0", "-1", "1.5", "4Gi", "1e3", "99999999999999999999", " 100"}) {
    EXPECT_THAT(Refusal(CheckSharingRequest(Pod({{"gpu-memory", value}}), nullptr)),
                HasSubstr("metadata.annotations[gpu-memory]: Invalid value"))
        << '"' << value << '"';
  }
  for (const char* value : {"0", "-1", "1.5", "17", "x"}) {
    EXPECT_THAT(Refusal(CheckSharingRequest(
                    Pod({{"gpu-fraction", "0.5"}, {"gpu-fraction-num-devices", value}}), nullptr)),
                HasSubstr("metadata.annotations[gpu-fraction-num-devices]: Invalid value"))
        << '"' << value << '"';
  }
  for (const char* value : {"0.5", "0.001", "0.999999999", "0.25"}) {
    EXPECT_EQ(Refusal(CheckSharingRequest(Pod({{"gpu-fraction", value}}), nullptr)), "") << value;
  }
}

TEST(AdmissionTest, CombinationsThatMakeNoSense) {
  const Json whole = {{"nvidia.com/gpu", "1"}};
  const auto refused = [](const Json& pod) { return Refusal(CheckSharingRequest(pod, nullptr)); };
  EXPECT_THAT(refused(Pod({{"mps", "true"}})), HasSubstr("annotations[mps]: Forbidden: MPS"));
  EXPECT_EQ(refused(Pod({{"mps", "true"}, {"gpu-fraction", "0.5"}})), "");
  EXPECT_EQ(refused(Pod({{"mps", "false"}})), "");
  EXPECT_THAT(refused(Pod({{"gpu-fraction", "0.5"}}, whole)), HasSubstr("cannot have both"));
  EXPECT_THAT(refused(Pod({{"gpu-fraction", "0.5"}}, {{"nvidia.com/mig-1g.5gb", 1}})),
              HasSubstr("cannot have both"));
  EXPECT_THAT(refused(Pod({{"gpu-memory", "100"}}, whole)),
              HasSubstr("cannot request both GPU and GPU memory"));
  EXPECT_THAT(refused(Pod({{"gpu-memory", "100"}, {"gpu-fraction", "0.5"}})),
              HasSubstr("annotations[gpu-memory]: Forbidden: cannot request both"));
  EXPECT_THAT(refused(Pod({{"gpu-fraction-num-devices", "2"}})),
              HasSubstr("annotations[gpu-fraction-num-devices]: Forbidden"));
  EXPECT_THAT(refused(Pod({{"gpu-fraction", "0.5"}, {"gpu-fraction-container-name", "other"}})),
              HasSubstr("Not found: \"other\""));
  EXPECT_EQ(refused(Pod({{"gpu-fraction", "0.5"}, {"gpu-fraction-container-name", "main"}})), "");
  EXPECT_EQ(refused(Pod(Json::object(), whole)), "");
}

TEST(AdmissionTest, ARequestOfAPlacedPodStays) {
  Json old = Pod({{"gpu-fraction", "0.9"}});
  const Json changed = Pod({{"gpu-fraction", "0.1"}});
  EXPECT_TRUE(CheckSharingRequest(changed, &old).ok());
  old["spec"]["nodeName"] = "n1";
  EXPECT_THAT(
      Refusal(CheckSharingRequest(changed, &old)),
      HasSubstr("annotations[gpu-fraction]: Forbidden: the GPU request of a pod that has a node"));
  EXPECT_FALSE(CheckSharingRequest(Pod(Json::object()), &old).ok());
  EXPECT_TRUE(CheckSharingRequest(Pod({{"gpu-fraction", "0.9"}, {"note", "x"}}), &old).ok());
}

TEST(AdmissionTest, Queues) {
  const auto queue = [](const Json& spec) {
    return Json{{"metadata", {{"name", "q"}}}, {"spec", spec}};
  };
  EXPECT_THAT(Refusal(CheckQueue(queue(Json::object()))),
              HasSubstr("spec.resources: Required value"));
  EXPECT_TRUE(CheckQueue(queue({{"resources", {{"gpu", {{"quota", -1}, {"limit", 4}}}}}})).ok());
  EXPECT_THAT(Refusal(CheckQueue(queue({{"resources", {{"gpu", {{"quota", -2}}}}}}))),
              HasSubstr("spec.resources.gpu.quota"));
  EXPECT_THAT(Refusal(CheckQueue(queue({{"resources", {{"cpu", {{"overQuotaWeight", -1}}}}}}))),
              HasSubstr("overQuotaWeight"));
  EXPECT_THAT(Refusal(CheckQueue(queue({{"parentQueue", "q"}, {"resources", Json::object()}}))),
              HasSubstr("own parent"));
  const std::vector<Json> all{queue({{"parentQueue", "top"}})};
  EXPECT_THAT(Refusal(CheckQueueDelete("top", all)), HasSubstr("child queues: q"));
  EXPECT_TRUE(CheckQueueDelete("q", all).ok());
}

TEST(AdmissionTest, PodGroupsAndTopologies) {
  std::vector<std::string> warnings;
  const auto check = [&warnings](const Json& subs) {
    return Refusal(CheckPodGroup({{"metadata", {{"name", "g"}}}, {"spec", {{"subGroups", subs}}}},
                                 nullptr, &warnings));
  };
  EXPECT_EQ(check(Json::array({{{"name", "a"}, {"minMember", 1}},
                               {{"name", "b"}, {"parent", "a"}, {"minMember", 2}}})),
            "");
  EXPECT_EQ(warnings.size(), 1u);
  EXPECT_THAT(check(Json::array({{{"name", "a"}}, {{"name", "a"}}})),
              HasSubstr("spec.subGroups[1].name: Duplicate value"));
  EXPECT_THAT(check(Json::array({{{"name", "a"}, {"parent", "x"}}})),
              HasSubstr("spec.subGroups[0].parent: Not found"));
  EXPECT_THAT(
      check(Json::array({{{"name", "a"}, {"parent", "b"}}, {{"name", "b"}, {"parent", "a"}}})),
      HasSubstr("cycle"));
  EXPECT_THAT(check(Json::array({{{"name", "a"}, {"minSubGroup", 1}}})), HasSubstr("no children"));
  const auto topology = [](std::vector<std::string> labels) {
    Json levels = Json::array();
    for (const std::string& label : labels) {
      levels.push_back({{"nodeLabel", label}});
    }
    return Json{{"metadata", {{"name", "t"}}}, {"spec", {{"levels", levels}}}};
  };
  const Json old = topology({"zone", "rack"});
  EXPECT_TRUE(CheckTopology(topology({"zone", "kubernetes.io/hostname"}), nullptr).ok());
  EXPECT_THAT(Refusal(CheckTopology(topology({"kubernetes.io/hostname", "zone"}), nullptr)),
              HasSubstr("lowest level"));
  EXPECT_THAT(Refusal(CheckTopology(topology({"zone", "zone"}), nullptr)), HasSubstr("unique"));
  EXPECT_THAT(Refusal(CheckTopology(topology({"zone"}), &old)), HasSubstr("immutable"));
}

}  // namespace
}  // namespace sublet::scheduler
