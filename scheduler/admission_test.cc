// What the scheduler's admission rules refuse, and the field they name.
#include "scheduler/admission.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace sublet::scheduler {
namespace {

using kube::Json;
using ::testing::HasSubstr;

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
  Json named = old;
  named["spec"]["levels"][1]["alias"] = "cabinet";
  EXPECT_TRUE(CheckTopology(named, &old).ok());
  named["spec"]["levels"][0]["alias"] = "cabinet";
  EXPECT_THAT(Refusal(CheckTopology(named, &old)), HasSubstr("spec.levels[1].alias"));
  named["spec"]["levels"][0]["alias"] = "rack";
  EXPECT_THAT(Refusal(CheckTopology(named, &old)), HasSubstr("spec.levels[0].alias"));
}

}  // namespace
}  // namespace sublet::scheduler
