// Counting and deciding; pods and status are written in job_write.cc.
#include "controllers/job_sync.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>
#include <utility>

#include "kube/json_lists.h"
#include "kube/object.h"
#include "kube/timestamp.h"

namespace sublet::controllers {
namespace {

using client::ObjectPtr;
using client::Outcome;
using kube::Json;

constexpr std::size_t kUncountedMax = 500;  // per status write, so that it stays small

std::int64_t CompletionsOf(const Json& job) {
  const Json* value = kube::Find(job, {"spec", "completions"});
  return value != nullptr && value->is_number_integer() ? value->get<std::int64_t>() : -1;
}

bool OnlyReplaceFailed(const Json& job) {
  const std::string_view policy = kube::FindString(job, {"spec", "podReplacementPolicy"});
  return policy == "Failed" ||
         (policy.empty() && kube::Find(job, {"spec", "podFailurePolicy"}) != nullptr);
}

std::optional<std::int64_t> LimitPerIndex(const Json& job) {
  const Json* limit = kube::Find(job, {"spec", "backoffLimitPerIndex"});
  return limit != nullptr && limit->is_number_integer() ? std::optional(limit->get<std::int64_t>())
                                                        : std::nullopt;
}

// Of two failed pods of one index: the one that has seen more.
bool IsLaterFailure(const PodRecord& a, const PodRecord& b) {
  return std::tuple(a.failed_count + a.ignored_count, a.finished_at) >
         std::tuple(b.failed_count + b.ignored_count, b.finished_at);
}

}  // namespace

std::string_view FinishedCondition(const Json& job) {
  if (kube::IsConditionTrue(job, "Complete")) {
    return "Complete";
  }
  return kube::IsConditionTrue(job, "Failed") ? "Failed" : "";
}

JobSync::JobSync(const Parts& parts, Json job, std::vector<ObjectPtr> pods)
    : parts_(parts),
      job_(std::move(job)),
      pods_(std::move(pods)),
      indexed_(kube::FindString(job_, {"spec", "completionMode"}) == "Indexed"),
      suspended_(kube::FindBool(job_, {"spec", "suspend"})),
      only_replace_failed_(OnlyReplaceFailed(job_)),
      limit_per_index_(LimitPerIndex(job_)),
      completions_(CompletionsOf(job_)),
      parallelism_(kube::FindInt(job_, {"spec", "parallelism"}, 1)),
      status_(job_.value("status", Json::object())) {
  if (status_.is_null()) {
    status_ = Json::object();
  }
}

Result<Outcome> JobSync::Run() {
  const bool finished = !FinishedCondition(job_).empty();
  Result<void> managed = Ok();
  ReadCounters();
  CountFinished();
  if (!finished) {
    PutSuspension();
    FindEnding();
    if (ending_ || kube::IsDeleting(job_)) {
      CountHeld();
    }
    if (!kube::IsDeleting(job_)) {
      managed = Manage();
    }
    PutConditions();
  } else {
    CountHeld();
  }
  SUBLET_TRY(const bool written, WriteStatus());
  static_cast<void>(written);
  SUBLET_RETURN_IF_ERROR(RemoveFinalizers());
  // Pods that cannot be made (a quota, a namespace that ends) keep none that ended waiting.
  SUBLET_RETURN_IF_ERROR(std::move(managed));
  return Outcome::After(wait_);
}

void JobSync::Later(std::chrono::nanoseconds wait) {
  if (wait.count() > 0 && (wait_.count() == 0 || wait < wait_)) {
    wait_ = wait;
  }
}

bool JobSync::HasFinalizer(const client::CachedObject& pod) const {
  return std::find(pod.finalizers.begin(), pod.finalizers.end(), kJobFinalizer) !=
         pod.finalizers.end();
}

std::int64_t JobSync::IndexOf(const client::CachedObject& pod) const {
  const auto index = pod.As<PodRecord>().completion_index;
  return index && *index < completions_ ? *index : -1;
}

bool JobSync::IsFailed(const client::CachedObject& pod) const {
  const auto& record = pod.As<PodRecord>();
  if (record.phase == "Failed") {
    return true;
  }
  // A pod that is being deleted counts as failed at once, unless replacements wait for its end.
  return !only_replace_failed_ && pod.deleting() && record.phase != "Succeeded";
}

void JobSync::ReadCounters() {
  uncounted_succeeded_ =
      kube::TextsOf(kube::Find(status_, {"uncountedTerminatedPods", "succeeded"}));
  uncounted_failed_ = kube::TextsOf(kube::Find(status_, {"uncountedTerminatedPods", "failed"}));
  succeeded_ = kube::FindInt(status_, {"succeeded"});
  failed_ = kube::FindInt(status_, {"failed"});
  if (indexed_) {
    completed_ = IndexSet::Parse(kube::FindString(status_, {"completedIndexes"}), completions_);
    failed_indexes_ = IndexSet::Parse(kube::FindString(status_, {"failedIndexes"}), completions_);
  }
  // Step 3 for those whose finalizer is gone (the pod may be gone too).
  std::set<std::string> held;
  for (const ObjectPtr& pod : pods_) {
    if (HasFinalizer(*pod)) {
      held.insert(pod->uid);
    }
  }
  const auto settle = [&](std::vector<std::string>* uids, std::int64_t* counter) {
    std::vector<std::string> rest;
    for (std::string& uid : *uids) {
      if (held.contains(uid)) {
        rest.push_back(std::move(uid));
      } else {
        ++*counter;
      }
    }
    *uids = std::move(rest);
  };
  settle(&uncounted_succeeded_, &succeeded_);
  settle(&uncounted_failed_, &failed_);
  status_["succeeded"] = succeeded_;
  status_["failed"] = failed_;
  succeeded_ += static_cast<std::int64_t>(uncounted_succeeded_.size());
  failed_ += static_cast<std::int64_t>(uncounted_failed_.size());
}

void JobSync::CountFinished() {
  for (const ObjectPtr& pod : pods_) {
    if (limit_per_index_ && IsActive(*pod)) {
      active_indexes_.insert(IndexOf(*pod));
    }
  }
  for (const ObjectPtr& pod : pods_) {
    CountOne(pod);
  }
  if (indexed_) {
    succeeded_ = completed_.size();
  }
}

void JobSync::CountOne(const ObjectPtr& pod) {
  const PodRecord& record = PodOf(pod);
  if (IsActive(*pod)) {
    ++active_;
    ready_ += record.ready ? 1 : 0;
    return;
  }
  terminating_ += pod->deleting() && !record.Finished() ? 1 : 0;
  if (!HasFinalizer(*pod)) {
    return;
  }
  const auto listed = [&](const std::vector<std::string>& uids) {
    return std::find(uids.begin(), uids.end(), pod->uid) != uids.end();
  };
  if (listed(uncounted_succeeded_) || listed(uncounted_failed_)) {
    to_release_.push_back(pod);
    return;
  }
  if (uncounted_succeeded_.size() + uncounted_failed_.size() >= kUncountedMax) {
    Later(std::chrono::milliseconds(1));
    return;
  }
  if (record.phase == "Succeeded") {
    to_release_.push_back(pod);
    if (indexed_) {
      if (const std::int64_t index = IndexOf(*pod); index >= 0) {
        completed_.Add(index);
      }
      return;
    }
    uncounted_succeeded_.push_back(pod->uid);
    ++succeeded_;
  } else if (IsFailed(*pod) && !Hold(pod)) {
    CountFailure(pod);
  }
}

// True when `pod` has to stay until its index has another one.
bool JobSync::Hold(const ObjectPtr& pod) {
  const std::int64_t index = IndexOf(*pod);
  if (!limit_per_index_ || index < 0 || completed_.Has(index) || failed_indexes_.Has(index) ||
      active_indexes_.contains(index)) {
    return false;
  }
  const FailureAction action = JudgeFailure(job_, *pod).action;
  const bool counts = action != FailureAction::kIgnore;
  if (action == FailureAction::kFailJob || action == FailureAction::kFailIndex ||
      (counts && PodOf(pod).failed_count + 1 > *limit_per_index_)) {
    return false;
  }
  ObjectPtr& held = held_[index];
  if (!held) {
    held = pod;
    return true;
  }
  if (!IsLaterFailure(PodOf(pod), PodOf(held))) {
    return false;
  }
  CountFailure(std::exchange(held, pod));
  return true;
}

void JobSync::CountHeld() {
  for (const auto& [index, pod] : held_) {
    CountFailure(pod);
  }
  held_.clear();
}

void JobSync::CountFailure(const ObjectPtr& pod) {
  const FailureVerdict verdict = JudgeFailure(job_, *pod);
  to_release_.push_back(pod);
  if (verdict.action == FailureAction::kIgnore) {
    return;
  }
  if (verdict.action == FailureAction::kFailJob && !fail_job_) {
    fail_job_ = verdict.message;
  }
  if (const std::int64_t index = IndexOf(*pod); index >= 0 && limit_per_index_) {
    if (verdict.action == FailureAction::kFailIndex ||
        PodOf(pod).failed_count + 1 > *limit_per_index_) {
      failed_indexes_.Add(index);
    }
  }
  uncounted_failed_.push_back(pod->uid);
  ++failed_;
}

bool JobSync::RestartsExceeded() const {
  if (kube::FindString(job_, {"spec", "template", "spec", "restartPolicy"}) != "OnFailure") {
    return false;
  }
  std::int64_t restarts = 0;
  for (const ObjectPtr& pod : pods_) {
    const PodRecord& record = PodOf(pod);
    if (record.phase == "Running" || record.phase == "Pending") {
      restarts += record.restarts;
    }
  }
  const std::int64_t limit = kube::FindInt(job_, {"spec", "backoffLimit"}, 6);
  return limit == 0 ? restarts > 0 : restarts >= limit;
}

bool JobSync::DeadlinePassed() const {
  const Json* deadline = kube::Find(job_, {"spec", "activeDeadlineSeconds"});
  const auto start = kube::FindTime(kube::FindString(status_, {"startTime"}));
  return deadline != nullptr && deadline->is_number_integer() && start && !suspended_ &&
         parts_.clock.Now() >= *start + std::chrono::seconds(deadline->get<std::int64_t>());
}

void JobSync::CheckFailure() {
  if (fail_job_) {
    ending_ = {"FailureTarget", "PodFailurePolicy", *fail_job_};
  } else if (failed_ >
                 kube::FindInt(job_, {"spec", "backoffLimit"}, limit_per_index_ ? INT32_MAX : 6) ||
             RestartsExceeded()) {
    ending_ = {"FailureTarget", "BackoffLimitExceeded",
               "Job has reached the specified backoff limit"};
  } else if (DeadlinePassed()) {
    ending_ = {"FailureTarget", "DeadlineExceeded",
               "Job was active longer than specified deadline"};
  } else if (limit_per_index_) {
    const Json* most = kube::Find(job_, {"spec", "maxFailedIndexes"});
    if (most != nullptr && most->is_number_integer() &&
        failed_indexes_.size() > most->get<std::int64_t>()) {
      ending_ = {"FailureTarget", "MaxFailedIndexesExceeded",
                 "Job has exceeded the specified maximal number of failed indexes"};
    } else if (!failed_indexes_.empty() &&
               failed_indexes_.size() + completed_.size() >= completions_) {
      ending_ = {"FailureTarget", "FailedIndexes", "Job has failed indexes"};
    }
  }
}

void JobSync::FindEnding() {
  // An ending that was announced stands, whatever happens while the last pods go.
  for (const char* type : {"FailureTarget", "SuccessCriteriaMet"}) {
    if (const Json* condition = kube::FindCondition(job_, type);
        condition != nullptr && kube::FindString(*condition, {"status"}) == "True") {
      ending_ = {type, std::string(kube::FindString(*condition, {"reason"})),
                 std::string(kube::FindString(*condition, {"message"}))};
      return;
    }
  }
  CheckFailure();
  if (ending_) {
    return;
  }
  if (indexed_) {
    if (const auto met = SuccessPolicyMet(job_, completed_)) {
      ending_ = {"SuccessCriteriaMet", "SuccessPolicy", *met};
      return;
    }
  }
  const bool complete = completions_ < 0 ? succeeded_ > 0 && active_ == 0
                                         : succeeded_ >= completions_ && active_ == 0;
  if (complete && !suspended_) {
    ending_ = {"SuccessCriteriaMet", "CompletionsReached",
               "Reached expected number of succeeded pods"};
  }
  if (const Json* deadline = kube::Find(job_, {"spec", "activeDeadlineSeconds"});
      !ending_ && !suspended_ && deadline != nullptr && deadline->is_number_integer()) {
    const auto start = kube::FindTime(kube::FindString(status_, {"startTime"}));
    Later(start.value_or(parts_.clock.Now()) + std::chrono::seconds(deadline->get<std::int64_t>()) -
          parts_.clock.Now());
  }
}

}  // namespace sublet::controllers
