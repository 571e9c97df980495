// The life of a pod as decisions: what is done next, given what is known.
#include "node/pod/decide.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace sublet::node {
namespace {

using Kind = Action::Kind;

class DecideTest : public testing::Test {
 protected:
  void Pod(const std::string& spec_yaml) {
    auto spec = kube::ParseYaml(spec_yaml);
    ASSERT_TRUE(spec.ok()) << spec.error().message();
    for (const char* list : {"containers", "initContainers"}) {
      for (std::size_t i = 0; spec->contains(list) && i < (*spec)[list].size(); ++i) {
        (*spec)[list][i]["image"] = "i";
      }
    }
    kube::Json pod = {{"metadata", {{"name", "p"}, {"namespace", "n"}, {"uid", "u"}}},
                      {"spec", std::move(spec).value()}};
    plan_ = ParsePod(std::make_shared<const kube::Json>(std::move(pod)));
  }
  void Ready() {
    record_.volumes_ready = true;
    record_.start_time = now_.wall;
    record_.sandbox = SandboxRecord{"s0", ContainerPhase::kRunning, 1, "10.0.0.2", 0};
  }
  ContainerRecord& Run(const std::string& name) {
    ContainerRecord& state = record_.containers[name];
    Incarnation run;
    run.id = name + "-id";
    run.sandbox_id = "s0";
    run.phase = ContainerPhase::kRunning;
    run.image_hash = name + "|i";
    run.attempt = state.current ? state.current->attempt + 1 : 0;
    state.current = run;
    state.startup_passed = true;
    state.ready = true;
    return state;
  }
  void End(const std::string& name, int code) {
    Run(name);
    Incarnation& run = *record_.containers[name].current;
    run.phase = ContainerPhase::kExited;
    run.exit_code = code;
    run.finished_at = now_.wall;
    run.reason = code == 0 ? "Completed" : "Error";
  }
  Decision Next() const { return Decide(*plan_, record_, now_); }
  // The only action, or a failure.
  Action Only() const {
    const Decision decision = Next();
    EXPECT_EQ(decision.actions.size(), 1u);
    return decision.actions.empty() ? Action{} : decision.actions[0];
  }
  void Delete(int grace) {
    auto copy = std::make_shared<PodPlan>(*plan_);
    copy->deleting = true;
    copy->deletion_grace = seconds(grace);
    plan_ = copy;
    record_.termination_started = now_.monotonic;
  }
  void Advance(seconds by) {
    now_.wall += by;
    now_.monotonic += by;
  }

  std::shared_ptr<const PodPlan> plan_;
  PodRecord record_;
  Now now_{WallTime(seconds(1000000)), MonotonicTime(seconds(1000))};
};

TEST_F(DecideTest, VolumesThenSandboxThenContainersOneByOne) {
  Pod("{containers: [{name: a}, {name: b}]}");
  EXPECT_EQ(Only().kind, Kind::kSetUpVolumes);
  record_.is_volume_job = true;
  EXPECT_TRUE(Next().actions.empty());
  record_.is_volume_job = false;
  record_.volumes_ready = true;
  EXPECT_EQ(Only().kind, Kind::kCreateSandbox);
  Ready();
  EXPECT_EQ(Only().container, "a");
  record_.containers["a"].is_starting = true;
  EXPECT_TRUE(Next().actions.empty());
  record_.containers["a"].is_starting = false;
  Run("a");
  EXPECT_EQ(Only().container, "b");
  Run("b");
  EXPECT_TRUE(Next().actions.empty());
}

TEST_F(DecideTest, FailedSetUpWaitsForItsBackOff) {
  Pod("{containers: [{name: a}]}");
  record_.volumes_retry_at = now_.monotonic + seconds(3);
  const Decision decision = Next();
  EXPECT_TRUE(decision.actions.empty());
  EXPECT_EQ(decision.again_at, now_.monotonic + seconds(3));
}

TEST_F(DecideTest, AFailedStartDoesNotHoldTheOthersBack) {
  Pod("{containers: [{name: a}, {name: b}]}");
  Ready();
  record_.containers["a"].retry_at = now_.monotonic + seconds(10);
  EXPECT_EQ(Only().container, "b");
}

TEST_F(DecideTest, FirstRestartIsImmediateLaterOnesBackOff) {
  Pod("{containers: [{name: a}]}");
  Ready();
  End("a", 1);
  EXPECT_EQ(Only().kind, Kind::kStartContainer);
  ContainerRecord& state = record_.containers["a"];
  state.crash_backoff = NextCrashBackoff(state, now_.wall);
  state.crash_backoff_set = now_.wall;
  EXPECT_EQ(state.crash_backoff, seconds(10));
  End("a", 1);
  EXPECT_TRUE(Next().actions.empty());
  EXPECT_EQ(Next().again_at, now_.monotonic + seconds(10));
  Advance(seconds(10));
  EXPECT_EQ(Only().kind, Kind::kStartContainer);
  for (const int expected : {20, 40, 80, 160, 300, 300}) {
    state.crash_backoff = NextCrashBackoff(state, now_.wall);
    state.crash_backoff_set = now_.wall;
    EXPECT_EQ(state.crash_backoff, seconds(expected));
  }
  // Ten minutes of running forget the past.
  Advance(seconds(700));
  End("a", 1);
  EXPECT_EQ(Only().kind, Kind::kStartContainer);
  EXPECT_EQ(NextCrashBackoff(state, now_.wall), seconds(10));
}

TEST_F(DecideTest, RestartPoliciesAndRules) {
  Pod(R"({restartPolicy: OnFailure, containers: [{name: a},
      {name: b, restartPolicy: Never, restartPolicyRules: [{action: Restart, exitCodes: {operator: In, values: [42]}}]}]})");
  Incarnation run;
  run.exit_code = 0;
  EXPECT_FALSE(ShouldRestart(plan_->containers[0], run));
  run.exit_code = 1;
  EXPECT_TRUE(ShouldRestart(plan_->containers[0], run));
  EXPECT_FALSE(ShouldRestart(plan_->containers[1], run));
  run.exit_code = 42;
  EXPECT_TRUE(ShouldRestart(plan_->containers[1], run));
}

TEST_F(DecideTest, InitContainersRunInOrderAndSidecarsMustHaveStarted) {
  Pod(R"({initContainers: [{name: i1}, {name: s, restartPolicy: Always}, {name: i2}],
          containers: [{name: m}]})");
  Ready();
  EXPECT_EQ(Only().container, "i1");
  Run("i1");
  EXPECT_TRUE(Next().actions.empty());
  End("i1", 0);
  EXPECT_EQ(Only().container, "s");
  Run("s").startup_passed = false;
  EXPECT_TRUE(Next().actions.empty());
  record_.containers["s"].startup_passed = true;
  EXPECT_EQ(Only().container, "i2");
  End("i2", 0);
  EXPECT_EQ(Only().container, "m");
  Run("m");
  // A sidecar is kept running beside the main containers; init containers are not repeated.
  End("s", 0);
  EXPECT_EQ(Only().container, "s");
}

TEST_F(DecideTest, AFailedInitContainerIsRepeatedOrEndsThePod) {
  Pod("{initContainers: [{name: i}], containers: [{name: m}]}");
  Ready();
  End("i", 1);
  EXPECT_EQ(Only().container, "i");
  Pod("{restartPolicy: Never, initContainers: [{name: i}], containers: [{name: m}]}");
  EXPECT_TRUE(HasFinished(*plan_, record_));
  EXPECT_EQ(Only().kind, Kind::kStopSandbox);
}

TEST_F(DecideTest, ProbesAndChangedImagesReplaceAContainer) {
  Pod("{terminationGracePeriodSeconds: 7, containers: [{name: a}]}");
  Ready();
  Run("a").kill_reason = "failed liveness";
  record_.containers["a"].kill_grace = seconds(3);
  Action action = Only();
  EXPECT_EQ(action.kind, Kind::kStopContainer);
  EXPECT_EQ(action.grace, seconds(3));
  EXPECT_EQ(action.message, "failed liveness");
  record_.containers["a"].kill_reason.reset();
  record_.containers["a"].current->image_hash = "a|old";
  EXPECT_EQ(Only().grace, seconds(7));
}

TEST_F(DecideTest, ADeadSandboxTakesItsMembersAlongAndComesBack) {
  Pod("{containers: [{name: a}]}");
  Ready();
  Run("a");
  record_.sandbox->phase = ContainerPhase::kExited;
  EXPECT_EQ(Only().kind, Kind::kStopContainer);
  record_.containers["a"].is_stopping = true;
  EXPECT_TRUE(Next().actions.empty());
  record_.containers["a"].is_stopping = false;
  End("a", 137);
  EXPECT_EQ(Only().kind, Kind::kCreateSandbox);
  record_.sandbox = SandboxRecord{"s1", ContainerPhase::kRunning, 1, "10.0.0.2", 1};
  // No back-off: the container did not crash in this sandbox.
  record_.containers["a"].crash_backoff = seconds(300);
  record_.containers["a"].crash_backoff_set = now_.wall;
  EXPECT_EQ(Only().kind, Kind::kStartContainer);
}

TEST_F(DecideTest, InitContainersRunAgainInANewSandbox) {
  Pod("{initContainers: [{name: i}], containers: [{name: m}]}");
  Ready();
  End("i", 0);
  Run("m");
  End("m", 137);
  record_.sandbox = SandboxRecord{"s1", ContainerPhase::kRunning, 1, "10.0.0.2", 1};
  EXPECT_EQ(Only().container, "i");
}

TEST_F(DecideTest, DeletionStopsMainContainersThenSidecarsBackwards) {
  Pod(R"({initContainers: [{name: s1, restartPolicy: Always}, {name: s2, restartPolicy: Always}],
          containers: [{name: a}, {name: b}]})");
  Ready();
  for (const char* name : {"s1", "s2", "a", "b"}) {
    Run(name);
  }
  Delete(20);
  Decision decision = Next();
  ASSERT_EQ(decision.actions.size(), 2u);
  EXPECT_EQ(decision.actions[0].container, "a");
  EXPECT_EQ(decision.actions[0].grace, seconds(20));
  End("a", 0);
  End("b", 0);
  Advance(seconds(5));
  Action action = Only();
  EXPECT_EQ(action.container, "s2");
  EXPECT_EQ(action.grace, seconds(15));
  End("s2", 0);
  Advance(seconds(30));
  action = Only();
  EXPECT_EQ(action.container, "s1");
  EXPECT_EQ(action.grace, seconds(2)) << "the last one gets two seconds in any case";
  End("s1", 0);
  EXPECT_EQ(Only().kind, Kind::kStopSandbox);
  record_.sandbox->phase = ContainerPhase::kExited;
  EXPECT_EQ(Only().kind, Kind::kTearDown);
  record_.torn_down = true;
  EXPECT_TRUE(Next().actions.empty());
}

TEST_F(DecideTest, DeletionWaitsForAStartThatIsUnderWay) {
  Pod("{containers: [{name: a}]}");
  Ready();
  record_.containers["a"].is_starting = true;
  Delete(0);
  EXPECT_TRUE(Next().actions.empty());
  record_.containers["a"].is_starting = false;
  EXPECT_EQ(Only().kind, Kind::kStopSandbox);
}

TEST_F(DecideTest, DeadlineIsAVerdictAndANextTime) {
  Pod("{activeDeadlineSeconds: 60, containers: [{name: a}]}");
  Ready();
  Run("a");
  EXPECT_EQ(Next().again_at, now_.monotonic + seconds(60));
  Advance(seconds(60));
  const Action action = Only();
  EXPECT_EQ(action.kind, Kind::kGiveVerdict);
  EXPECT_EQ(action.reason, "DeadlineExceeded");
}

TEST_F(DecideTest, AFinishedPodStaysFinishedWhenTheEngineForgot) {
  Pod("{restartPolicy: Never, containers: [{name: a}]}");
  record_.finished_before = true;
  EXPECT_EQ(Only().kind, Kind::kTearDown);
  record_.torn_down = true;
  EXPECT_TRUE(Next().actions.empty());
}

}  // namespace
}  // namespace sublet::node
