// Kubernetes' structures and their differences in messages: what is printed, and what it may cost.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "kube/kinds/go_diff.h"
#include "kube/kinds/go_shown.h"

namespace sublet::kube {
namespace {

// A pod with `count` variables, whose values are those of `value(i)`.
template <typename ValueOf>
Json PodOf(int count, ValueOf value) {
  Json env = Json::array();
  for (int i = 0; i < count; ++i) {
    env.push_back({{"name", "NAME_" + std::to_string(i)}, {"value", value(i)}});
  }
  return {{"containers", Json::array({{{"name", "c"}, {"image", "i"}, {"env", std::move(env)}}})}};
}

TEST(GoText, FieldsThatGoLeavesOutAreLeftOut) {
  const Json taint = {{"key", "k"}, {"effect", "NoSchedule"}};
  EXPECT_EQ(ShownAsGo("Taint", taint),
            R"({"Key":"k","Value":"","Effect":"NoSchedule","TimeAdded":null})");
  const Json condition = {
      {"type", "Approved"}, {"status", "True"}, {"reason", ""}, {"message", "<a>"}};
  EXPECT_EQ(ShownAsGo("[]CertificateSigningRequestCondition", Json::array({condition})),
            R"([{"Type":"Approved","Status":"True","Reason":"","Message":"\u003ca\u003e",)"
            R"("LastUpdateTime":null,"LastTransitionTime":null}])");
}

TEST(GoText, ADifferenceHasThreeLinesAroundIt) {
  const Json old = Json::array({"a", "b", "c", "d", "e", "f", "g", "h"});
  Json now = old;
  now[5] = "x";
  EXPECT_EQ(
      GoDiff("[]s", old, now),
      "@@ -4,7 +4,7 @@\n  \"c\",\n  \"d\",\n  \"e\",\n- \"f\",\n+ \"x\",\n  \"g\",\n  \"h\"\n ]\n");
  EXPECT_EQ(GoDiff("[]s", old, old), "");
  now = old;
  now.erase(0);
  EXPECT_EQ(GoDiff("[]s", old, now),
            "@@ -1,5 +1,4 @@\n [\n- \"a\",\n  \"b\",\n  \"c\",\n  \"d\",\n");
}

TEST(GoText, ALargeObjectWithOneChangeIsCompared) {
  const Json old = PodOf(3000, [](int) { return "same"; });
  Json now = old;
  now["containers"][0]["env"][1500]["value"] = "other";
  GoTextCost cost;
  EXPECT_EQ(GoDiff("PodSpec", old, now, &cost),
            "@@ -7513,7 +7513,7 @@\n     },\n     {\n      \"Name\": \"NAME_1500\",\n"
            "-     \"Value\": \"same\",\n+     \"Value\": \"other\",\n"
            "      \"ValueFrom\": null\n     },\n     {\n");
  EXPECT_FALSE(cost.Spent());
}

TEST(GoText, WhatWouldCostTooMuchShowsTheFirstLinesThatDiffer) {
  constexpr char kStart[] = "too large to be compared";
  Json pods_a = {{"containers", Json::array()}};
  for (int i = 0; i < 100'000; ++i) {
    pods_a["containers"].push_back({{"name", "a"}});
  }
  Json pods_b = pods_a;
  pods_b["containers"][99'999]["name"] = "b";
  // Each of 20 values 40 times on both sides, in another order: a run of equal lines everywhere.
  const Json few_a = PodOf(800, [](int i) { return "v" + std::to_string(i / 40); });
  const Json few_b = PodOf(800, [](int i) { return "v" + std::to_string(i * 7 % 20); });
  // Every value changes and no name does: as many short runs as there are variables.
  const Json short_a = PodOf(3000, [](int) { return "a"; });
  const Json short_b = PodOf(3000, [](int) { return "b"; });
  struct Row {
    const Json &old, &now;
    std::string shown;
  };
  const std::string first = "; the first lines that differ:\n-     \"Value\": ";
  for (const Row& row : {Row{pods_a, pods_b, "\n"},
                         {few_a, few_b, first + "\"v0\",\n"},
                         {short_a, short_b, first + "\"a\",\n"}}) {
    GoTextCost cost;
    const std::string text = GoDiff("PodSpec", row.old, row.now, &cost);
    EXPECT_TRUE(text.starts_with(std::string(kStart) + row.shown)) << text.substr(0, 300);
    EXPECT_LT(text.size(), 1000u);
    EXPECT_LT(cost.taken, cost.max + 100) << "it goes on after it has spent what it may";
  }
  GoTextCost spent{10, 10};
  EXPECT_EQ(GoDiff("PodSpec", few_a, few_b, &spent), "too large to be compared\n");
  EXPECT_LT(spent.taken, 20u);
}

TEST(GoText, ATooLargeValueIsCut) {
  Json pod = {{"containers", Json::array()}};
  for (int i = 0; i < 100'000; ++i) {
    pod["containers"].push_back({{"name", "a"}});
  }
  const std::string text = ShownAsGo("PodSpec", pod);
  EXPECT_TRUE(text.ends_with("..."));
  EXPECT_LT(text.size(), 2u << 20)
      << "of an object of 1.2 MiB, three times as long as Go prints it";
}

TEST(GoText, LinesAreCutBetweenCharacters) {
  const Json old = Json::array({std::string(196, 'x') + "\u00e9\u00e9\u00e9"});
  GoTextCost cost{10, 0};
  EXPECT_EQ(GoDiff("[]s", old, Json::array({"y"}), &cost),
            "too large to be compared; the first lines that differ:\n- \"" + std::string(196, 'x') +
                "\u00e9...\n+ \"y\"\n");
}

}  // namespace
}  // namespace sublet::kube
