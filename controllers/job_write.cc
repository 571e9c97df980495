// What a Job's reconcile writes: pods, status, finalizers.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "controllers/job_sync.h"
#include "kube/name_generator.h"
#include "kube/object.h"
#include "kube/timestamp.h"

namespace sublet::controllers {
namespace {

using client::ObjectPtr;
using client::Outcome;
using kube::Json;

constexpr std::int64_t kJobBurst = 500;
constexpr std::chrono::seconds kBackoffFirst{10};
constexpr std::chrono::minutes kBackoffMost{10};

// What is left of the wait after the `failures`-th failure at `last`; nullopt when it is over.
std::optional<std::chrono::nanoseconds> WaitAfter(std::int64_t failures, WallTime last,
                                                  WallTime now) {
  const auto wait = std::min<std::chrono::seconds>(
      kBackoffFirst * (1LL << std::min<std::int64_t>(failures - 1, 10)), kBackoffMost);
  const auto left = last + wait - now;
  return left.count() > 0 ? std::optional<std::chrono::nanoseconds>(left) : std::nullopt;
}

}  // namespace

Result<void> JobSync::Manage() {
  std::vector<ObjectPtr> active;
  for (const ObjectPtr& pod : pods_) {
    if (IsActive(*pod)) {
      active.push_back(pod);
    }
  }
  if (ending_ || suspended_) {
    return DeleteActive(std::move(active), active_);
  }
  std::int64_t wanted = parallelism_;
  if (completions_ < 0) {
    if (succeeded_ > 0) {
      wanted = active_;  // one succeeded: let the rest finish, start none
    }
  } else {
    wanted = std::min(parallelism_, std::max<std::int64_t>(0, completions_ - succeeded_));
  }
  if (active_ > wanted) {
    return DeleteActive(std::move(active), active_ - wanted);
  }
  const std::int64_t occupied = active_ + (only_replace_failed_ ? terminating_ : 0);
  if (wanted <= occupied) {
    return Ok();
  }
  if (const auto left = BackoffLeft()) {
    Later(*left);
    return Ok();
  }
  return CreatePods(std::min(wanted - occupied, kJobBurst));
}

Result<void> JobSync::DeleteActive(std::vector<ObjectPtr> pods, std::int64_t count) {
  SortForDeletion(&pods, nullptr);
  std::optional<Status> error;
  for (std::int64_t i = 0;
       i < std::min<std::int64_t>(count, static_cast<std::int64_t>(pods.size())); ++i) {
    const ObjectPtr& pod = pods[static_cast<std::size_t>(i)];
    if (auto deleted = parts_.control.Delete(job_, *pod); !deleted.ok()) {
      error = std::move(deleted).error();
      continue;
    }
    --active_;
    ready_ -= PodOf(pod).ready ? 1 : 0;
    ++terminating_;
  }
  if (error) {
    return std::move(*error);
  }
  return Ok();
}

// After failures the next pods wait 10 s, doubling, counted from the last failure.
std::optional<std::chrono::nanoseconds> JobSync::BackoffLeft() {
  std::int64_t failures = 0;
  std::optional<WallTime> last_success;
  std::vector<WallTime> failed_at;
  for (const ObjectPtr& pod : pods_) {
    const PodRecord& record = PodOf(pod);
    if (record.phase == "Succeeded" && record.finished_at) {
      last_success = std::max(last_success.value_or(*record.finished_at), *record.finished_at);
    } else if (record.phase == "Failed") {
      failed_at.push_back(record.finished_at.value_or(record.start_time.value_or(WallTime())));
    }
  }
  WallTime last{};
  for (const WallTime& when : failed_at) {
    if (!last_success || when > *last_success) {
      ++failures;
      last = std::max(last, when);
    }
  }
  if (failures == 0 || limit_per_index_) {
    return std::nullopt;
  }
  return WaitAfter(failures, last, parts_.clock.Now());
}

// Those of `indexes` whose last failure is long enough ago; wakes for the next when there is none.
std::vector<std::int64_t> JobSync::DueIndexes(std::vector<std::int64_t> indexes) {
  std::optional<std::chrono::nanoseconds> nearest;
  const WallTime now = parts_.clock.Now();
  std::erase_if(indexes, [&](std::int64_t index) {
    const auto held = held_.find(index);
    if (held == held_.end()) {
      return false;
    }
    const PodRecord& record = PodOf(held->second);
    const auto left =
        WaitAfter(record.failed_count + record.ignored_count + 1,
                  record.finished_at.value_or(record.start_time.value_or(WallTime())), now);
    if (left) {
      nearest = std::min(*left, nearest.value_or(*left));
    }
    return left.has_value();
  });
  if (nearest) {
    Later(*nearest);
  }
  return indexes;
}

std::vector<std::int64_t> JobSync::PendingIndexes(std::int64_t count) const {
  std::set<std::int64_t> taken;
  for (const ObjectPtr& pod : pods_) {
    const bool occupies =
        IsActive(*pod) || (only_replace_failed_ && pod->deleting() && !PodOf(pod).Finished());
    if (occupies) {
      taken.insert(IndexOf(*pod));
    }
  }
  std::vector<std::int64_t> out;
  for (std::int64_t index = 0;
       index < completions_ && static_cast<std::int64_t>(out.size()) < count; ++index) {
    if (!completed_.Has(index) && !failed_indexes_.Has(index) && !taken.contains(index)) {
      out.push_back(index);
    }
  }
  return out;
}

Json JobSync::NewPod(std::optional<std::int64_t> index) const {
  Json pod = PodFromTemplate(job_["spec"]["template"], job_);
  kube::AddFinalizer(&pod, kJobFinalizer);
  if (!index) {
    return pod;
  }
  const std::string number = std::to_string(*index);
  const std::string base = std::string(kube::NameOf(job_)) + "-" + number;
  pod["metadata"].erase("generateName");
  pod["metadata"]["name"] = kube::GenerateName(base + "-");
  kube::SetAnnotation(&pod, kIndexAnnotation, number);
  kube::SetLabel(&pod, kIndexAnnotation, number);
  if (limit_per_index_) {
    std::int64_t failures = 0;
    std::int64_t ignored = 0;
    if (const auto held = held_.find(*index); held != held_.end()) {
      failures = PodOf(held->second).failed_count;
      ignored = PodOf(held->second).ignored_count;
      ++(JudgeFailure(job_, *held->second).action == FailureAction::kIgnore ? ignored : failures);
    }
    kube::SetAnnotation(&pod, kIndexFailuresAnnotation, std::to_string(failures));
    if (ignored > 0) {
      kube::SetAnnotation(&pod, kIndexIgnoredAnnotation, std::to_string(ignored));
    }
  }
  if (kube::FindString(pod, {"spec", "hostname"}).empty()) {
    pod["spec"]["hostname"] = base;
  }
  const Json variable = {
      {"name", "JOB_COMPLETION_INDEX"},
      {"valueFrom",
       {{"fieldRef",
         {{"fieldPath", "metadata.labels['" + std::string(kIndexAnnotation) + "']"}}}}}};
  for (const char* list : {"containers", "initContainers"}) {
    Json* containers = kube::Find(pod, {"spec", list});
    if (containers == nullptr || !containers->is_array()) {
      continue;
    }
    for (Json& container : *containers) {
      Json& env = kube::EnsureArray(&container, "env");
      const bool given = std::any_of(env.begin(), env.end(), [](const Json& entry) {
        return kube::FindString(entry, {"name"}) == "JOB_COMPLETION_INDEX";
      });
      if (!given) {
        env.push_back(variable);
      }
    }
  }
  return pod;
}

Result<void> JobSync::CreatePods(std::int64_t count) {
  std::vector<std::int64_t> indexes;
  if (indexed_) {
    indexes = DueIndexes(PendingIndexes(count));
    count = static_cast<std::int64_t>(indexes.size());
  }
  const Json plain = indexed_ ? Json() : NewPod(std::nullopt);
  BatchResult made = SlowStart(static_cast<int>(count), [&](int i) {
    auto created = parts_.control.Create(
        job_, indexed_ ? NewPod(indexes[static_cast<std::size_t>(i)]) : plain);
    return created.ok() ? Ok() : Result<void>(std::move(created).error());
  });
  active_ += made.succeeded;
  if (made.error) {
    return std::move(*made.error);
  }
  return Ok();
}

void JobSync::PutCondition(const char* type, const char* status, const std::string& reason,
                           const std::string& message) {
  const std::string now = kube::FormatTime(parts_.clock.Now());
  Json holder = {{"status", status_}};
  const bool changed = kube::SetCondition(
      &holder, {.type = type, .status = status, .reason = reason, .message = message}, now);
  if (changed) {
    for (Json& condition : holder["status"]["conditions"]) {
      if (condition["type"] == type) {
        condition["lastProbeTime"] = now;
      }
    }
    status_ = std::move(holder["status"]);
  }
}

void JobSync::PutSuspension() {
  const Json* present = kube::FindCondition(job_, "Suspended");
  const bool was = present != nullptr && kube::FindString(*present, {"status"}) == "True";
  const client::EventTarget about = client::EventTargetOf(job_);
  if (suspended_) {
    status_.erase("startTime");
    if (!was) {
      PutCondition("Suspended", "True", "JobSuspended", "Job suspended");
      parts_.control.events().Event(about, "Normal", "Suspended", "Job suspended");
    }
    return;
  }
  if (was) {
    PutCondition("Suspended", "False", "JobResumed", "Job resumed");
    parts_.control.events().Event(about, "Normal", "Resumed", "Job resumed");
  }
  if (kube::FindString(status_, {"startTime"}).empty()) {
    status_["startTime"] = kube::FormatTime(parts_.clock.Now());
  }
}

void JobSync::TellEnd(const char* type, const std::string& reason, const std::string& message) {
  if (std::string_view(type) == "Complete") {
    parts_.control.events().Event(client::EventTargetOf(job_), "Normal", "Completed",
                                  "Job completed");
  } else {
    parts_.control.events().Event(client::EventTargetOf(job_), "Warning", reason, message);
  }
}

// An ending is announced at once and carried out when the last pod is gone and counted.
void JobSync::PutConditions() {
  if (!ending_) {
    return;
  }
  PutCondition(ending_->type, "True", ending_->reason, ending_->message);
  if (active_ > 0 || terminating_ > 0 || !uncounted_succeeded_.empty() ||
      !uncounted_failed_.empty() || !to_release_.empty()) {
    return;
  }
  const bool success = std::string_view(ending_->type) == "SuccessCriteriaMet";
  const char* type = success ? "Complete" : "Failed";
  PutCondition(type, "True", ending_->reason, ending_->message);
  if (success) {
    status_["completionTime"] = kube::FormatTime(parts_.clock.Now());
  }
  TellEnd(type, ending_->reason, ending_->message);
}

Result<bool> JobSync::WriteStatus() {
  const auto put = [this](const char* key, std::int64_t value) {
    if (value != 0) {
      status_[key] = value;
    } else {
      status_.erase(key);
    }
  };
  put("active", active_);
  if (indexed_) {
    status_["succeeded"] = completed_.size();
    kube::PutString(&status_, "completedIndexes", completed_.Text());
    if (limit_per_index_) {
      status_["failedIndexes"] = failed_indexes_.Text();
    }
  }
  put("succeeded", kube::FindInt(status_, {"succeeded"}));
  put("failed", kube::FindInt(status_, {"failed"}));
  status_["ready"] = ready_;
  status_["terminating"] = terminating_;
  Json uncounted = Json::object();
  if (!uncounted_succeeded_.empty()) {
    uncounted["succeeded"] = uncounted_succeeded_;
  }
  if (!uncounted_failed_.empty()) {
    uncounted["failed"] = uncounted_failed_;
  }
  status_["uncountedTerminatedPods"] = std::move(uncounted);
  if (job_.value("status", Json()) == status_) {
    return false;
  }
  Json updated = job_;
  updated["status"] = status_;
  auto written = parts_.jobs.UpdateStatus(updated);
  if (!written.ok()) {
    if (written.error().Is(Reason::kNotFound)) {
      return false;
    }
    return std::move(written).error();
  }
  job_ = std::move(*written);
  return true;
}

Result<void> JobSync::RemoveFinalizers() {
  for (const ObjectPtr& pod : to_release_) {
    Json rest = Json::array();
    for (const std::string& finalizer : pod->finalizers) {
      if (finalizer != kJobFinalizer) {
        rest.push_back(finalizer);
      }
    }
    const auto patched = parts_.control.pods().Patch(pod->key, client::PatchType::kMerge,
                                                     {{"metadata",
                                                       {{"uid", pod->uid},
                                                        {"resourceVersion", pod->resource_version},
                                                        {"finalizers", std::move(rest)}}}});
    if (!patched.ok() && !patched.error().Is(Reason::kNotFound)) {
      return patched.error();
    }
  }
  // The counters move with the next reconcile, which the pods' events bring.
  return Ok();
}

}  // namespace sublet::controllers
