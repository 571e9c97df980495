// The profiles and their arguments.
#include <gtest/gtest.h>

#include "scheduler/cases.h"
#include "scheduler/testing.h"

namespace sublet::scheduler {
namespace {

TEST(ProfileTest, EachPairDiffersInThreeCases) {
  const std::string text =
      testing::ReadFile(testing::SourceFile("scheduler/testdata/profiles.json"));
  std::map<std::string, std::vector<std::string>> states;
  for (const std::string& name : ProfileNames()) {
    auto lines = CaseStates(text, *NamedProfile(name));
    ASSERT_TRUE(lines.ok());
    states[name] = *lines;
  }
  for (auto left = states.begin(); left != states.end(); ++left) {
    for (auto right = std::next(left); right != states.end(); ++right) {
      int different = 0;
      for (std::size_t i = 0; i < left->second.size(); ++i) {
        different += left->second[i] != right->second[i] ? 1 : 0;
      }
      EXPECT_GE(different, 3) << left->first << " and " << right->first;
    }
  }
}

TEST(ProfileTest, UnknownNamesAndValuesAreErrors) {
  EXPECT_FALSE(NamedProfile("kai-1.0").ok());
  Profile profile = *NamedProfile("kai-0.13");
  EXPECT_TRUE(SetArgument(profile, "kValue", "0.5").ok());
  EXPECT_EQ(profile.k, 0.5);
  EXPECT_TRUE(SetArgument(profile, "placementStrategy.gpu", "spread").ok());
  EXPECT_EQ(std::count(profile.actions.begin(), profile.actions.end(), Action::kConsolidation), 0);
  EXPECT_TRUE(SetArgument(profile, "preemptMinRuntime", "1h30m").ok());
  EXPECT_EQ(profile.preempt_min_runtime, 5'400'000);
  for (const auto& [value, millis] :
       std::vector<std::pair<std::string, Millis>>{{"1.5h", 5'400'000},
                                                   {"2500us", 2},
                                                   {"2500\xc2\xb5s", 2},
                                                   {"3ms999999ns", 3},
                                                   {"+.5s", 500},
                                                   {"9223372036854775807ns", 9'223'372'036'854}}) {
    EXPECT_TRUE(SetArgument(profile, "preemptMinRuntime", value).ok()) << value;
    EXPECT_EQ(profile.preempt_min_runtime, millis) << value;
  }
  EXPECT_TRUE(SetArgument(profile, "queueDepthPerAction.reclaim", "7").ok());
  EXPECT_EQ(profile.queue_depth.at("reclaim"), 7);
  for (const auto& [key, value] :
       std::vector<std::pair<std::string, std::string>>{{"kvalue", "1"},
                                                        {"kValue", "x"},
                                                        {"kValue", "-1"},
                                                        {"kValue", "nan"},
                                                        {"placementStrategy.gpu", "pack"},
                                                        {"preemptMinRuntime", "5"},
                                                        {"preemptMinRuntime", "-1e300h"},
                                                        {"preemptMinRuntime", "1e300h"},
                                                        {"preemptMinRuntime", "2562048h"},
                                                        {"preemptMinRuntime", "0x1s"},
                                                        {"preemptMinRuntime", "inf"},
                                                        {"preemptMinRuntime", " 1s"},
                                                        {"queueDepthPerAction.reclaim", "1e12"},
                                                        {"useSchedulingSignatures", "yes"},
                                                        {"searchSteps", "1.5"},
                                                        {"queueDepthPerAction.run", "5"}}) {
    EXPECT_FALSE(SetArgument(profile, key, value).ok()) << key << "=" << value;
  }
}

}  // namespace
}  // namespace sublet::scheduler
