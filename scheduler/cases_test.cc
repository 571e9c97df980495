// The case runner, and the project's own cases.
#include "scheduler/cases.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "scheduler/bench.h"
#include "scheduler/testing.h"

namespace sublet::scheduler {
namespace {

using ::testing::HasSubstr;

TEST(CasesTest, OwnCasesPass) {
  const auto outcomes =
      RunCases(testing::ReadFile(testing::SourceFile("scheduler/testdata/cases.json")),
               *NamedProfile("kai-0.13"));
  ASSERT_TRUE(outcomes.ok()) << outcomes.error().message();
  EXPECT_GT(outcomes->size(), 30u);
  for (const CaseOutcome& outcome : *outcomes) {
    EXPECT_TRUE(outcome.problems.empty()) << outcome.id << ": " << outcome.problems[0];
  }
}

TEST(CasesTest, BadInputIsReportedNotTrusted) {
  EXPECT_FALSE(RunCases("{", *NamedProfile("kai-0.13")).ok());
  EXPECT_FALSE(RunCases("{}", *NamedProfile("kai-0.13")).ok());
  EXPECT_FALSE(RunTable("nonsense", "[]").ok());
  const auto broken = RunCases(R"([{"id":"x","mode":"single"}, 5])", *NamedProfile("kai-0.13"));
  ASSERT_TRUE(broken.ok());
  EXPECT_FALSE((*broken)[0].problems.empty());
  EXPECT_FALSE((*broken)[1].problems.empty());
  EXPECT_EQ(RunCasesCommand({}), 2);
  EXPECT_EQ(RunCasesCommand({"--profile", "kai-9", "x"}), 2);
  EXPECT_EQ(RunBenchCommand({"--shape", "nonsense"}), 2);
}

TEST(CasesTest, UnknownWordsFailTheCase) {
  const std::string text = testing::ReadFile(testing::SourceFile("scheduler/testdata/cases.json"));
  const auto problem = [&](std::string from, const std::string& to) {
    std::string changed = text;
    changed.replace(changed.find(from), from.size(), to);
    const auto outcomes = RunCases(changed, *NamedProfile("kai-0.13"));
    return outcomes.ok() && !outcomes->front().problems.empty() ? outcomes->front().problems.front()
                                                                : "";
  };
  EXPECT_THAT(problem("[\"allocate\"]", "[\"alocate\"]"), HasSubstr("unknown action \"alocate\""));
  EXPECT_THAT(problem("\"mode\":\"single\"", "\"mode\":\"twice\""), HasSubstr("unknown mode"));
  EXPECT_THAT(problem("\"state\":\"Pending\"", "\"state\":\"Waiting\""),
              HasSubstr("unknown state \"Waiting\" of task solo-0"));
}

}  // namespace
}  // namespace sublet::scheduler
