// JobSync: one reconcile of one Job. Private to the job controller.
//
// Every pod of a Job carries a finalizer until it has been counted, and it is counted exactly once
// although the process may die anywhere: (1) its uid is written into
// status.uncountedTerminatedPods,
// (2) the finalizer goes, (3) the next write moves it from the list into the counter.
//
// With backoffLimitPerIndex a failed pod carries the failures of its index: it is held, uncounted,
// until the pod that takes its place carries them on.
// Source: kube-controller-manager pkg/controller/job.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "controllers/job_indexes.h"
#include "controllers/job_policy.h"
#include "controllers/pod_control.h"

namespace sublet::controllers {

inline constexpr std::string_view kJobFinalizer = "batch.kubernetes.io/job-tracking";
inline constexpr std::string_view kIndexAnnotation = "batch.kubernetes.io/job-completion-index";
inline constexpr std::string_view kIndexFailuresAnnotation =
    "batch.kubernetes.io/job-index-failure-count";
inline constexpr std::string_view kIndexIgnoredAnnotation =
    "batch.kubernetes.io/job-index-ignored-failure-count";

// "Complete" or "Failed" when that condition is True, else "".
std::string_view FinishedCondition(const kube::Json& job);

class JobSync {
 public:
  struct Parts {
    const Collection& jobs;
    const PodControl& control;
    const Clock& clock;
  };
  JobSync(const Parts& parts, kube::Json job, std::vector<client::ObjectPtr> pods);

  Result<client::Outcome> Run();

 private:
  struct Ending {
    const char* type = nullptr;  // "FailureTarget" or "SuccessCriteriaMet"
    std::string reason;
    std::string message;
  };

  bool Indexed() const { return indexed_; }
  bool IsFailed(const client::CachedObject& pod) const;
  bool HasFinalizer(const client::CachedObject& pod) const;
  std::int64_t IndexOf(const client::CachedObject& pod) const;
  void ReadCounters();
  void CountFinished();
  void CountOne(const client::ObjectPtr& pod);
  void CountFailure(const client::ObjectPtr& pod);
  bool Hold(const client::ObjectPtr& pod);
  void CountHeld();
  std::vector<std::int64_t> DueIndexes(std::vector<std::int64_t> indexes);
  void FindEnding();
  void CheckFailure();
  bool RestartsExceeded() const;
  bool DeadlinePassed() const;
  Result<void> Manage();
  Result<void> DeleteActive(std::vector<client::ObjectPtr> pods, std::int64_t count);
  Result<void> CreatePods(std::int64_t count);
  std::optional<std::chrono::nanoseconds> BackoffLeft();
  std::vector<std::int64_t> PendingIndexes(std::int64_t count) const;
  kube::Json NewPod(std::optional<std::int64_t> index) const;
  void PutSuspension();
  void PutConditions();
  void PutCondition(const char* type, const char* status, const std::string& reason,
                    const std::string& message);
  Result<bool> WriteStatus();
  Result<void> RemoveFinalizers();
  void TellEnd(const char* type, const std::string& reason, const std::string& message);
  void Later(std::chrono::nanoseconds wait);

  Parts parts_;
  kube::Json job_;
  std::vector<client::ObjectPtr> pods_;
  const bool indexed_;
  const bool suspended_;
  const bool only_replace_failed_;
  const std::optional<std::int64_t> limit_per_index_;
  const std::int64_t completions_;  // -1 = none given
  const std::int64_t parallelism_;

  std::int64_t succeeded_ = 0;  // with what is uncounted
  std::int64_t failed_ = 0;
  std::int64_t active_ = 0;
  std::int64_t ready_ = 0;
  std::int64_t terminating_ = 0;
  std::vector<std::string> uncounted_succeeded_;
  std::vector<std::string> uncounted_failed_;
  std::vector<client::ObjectPtr> to_release_;  // finalizers to remove after the status was written
  IndexSet completed_;
  IndexSet failed_indexes_;
  std::set<std::int64_t> active_indexes_;
  std::map<std::int64_t, client::ObjectPtr> held_;  // by index: failed, not replaced yet
  std::optional<std::string> fail_job_;
  std::optional<Ending> ending_;
  std::chrono::nanoseconds wait_{0};
  kube::Json status_;
};

}  // namespace sublet::controllers
