// The status of a Deployment: counts and conditions, as helm and kubectl wait for them.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "controllers/deployment_sync.h"
#include "kube/object.h"
#include "kube/timestamp.h"

namespace sublet::controllers {
namespace {

using client::Outcome;
using kube::Json;

constexpr std::string_view kAvailable = "NewReplicaSetAvailable";
constexpr std::string_view kTimedOut = "ProgressDeadlineExceeded";

std::int64_t Sum(const std::vector<SetView*>& sets, std::int64_t (SetView::*count)() const) {
  std::int64_t out = 0;
  for (const SetView* set : sets) {
    out += (set->*count)();
  }
  return out;
}

}  // namespace

const Json* FindIn(const Json& status, std::string_view type) {
  const Json* conditions = kube::Find(status, {"conditions"});
  if (conditions != nullptr && conditions->is_array()) {
    for (const Json& condition : *conditions) {
      if (kube::FindString(condition, {"type"}) == type) {
        return &condition;
      }
    }
  }
  return nullptr;
}

void PutIn(Json* status, Json condition) {
  Json& conditions = kube::EnsureArray(status, "conditions");
  for (Json& present : conditions) {
    if (present["type"] != condition["type"]) {
      continue;
    }
    if (present["status"] == condition["status"] && present["reason"] == condition["reason"] &&
        present["message"] == condition["message"]) {
      return;  // nothing new: the times stay
    }
    if (present["status"] == condition["status"]) {
      condition["lastTransitionTime"] = present["lastTransitionTime"];
    }
    present = std::move(condition);
    return;
  }
  conditions.push_back(std::move(condition));
}

void DropFrom(Json* status, std::string_view type) {
  Json* conditions = kube::Find(*status, {"conditions"});
  if (conditions == nullptr || !conditions->is_array()) {
    return;
  }
  for (auto at = conditions->begin(); at != conditions->end();) {
    at = kube::FindString(*at, {"type"}) == type ? conditions->erase(at) : at + 1;
  }
}

Json DeploymentSync::ConditionNow(std::string_view type, std::string_view status,
                                  std::string_view reason, const std::string& message) const {
  return {{"type", type},       {"status", status},       {"reason", reason},
          {"message", message}, {"lastUpdateTime", now_}, {"lastTransitionTime", now_}};
}

bool DeploymentSync::HasDeadline() const {
  const Json* deadline = kube::Find(deployment_, {"spec", "progressDeadlineSeconds"});
  return deadline != nullptr && deadline->is_number_integer() &&
         deadline->get<std::int64_t>() != INT32_MAX;
}

std::optional<Json> DeploymentSync::PausedCondition() const {
  if (!HasDeadline()) {
    return std::nullopt;
  }
  const Json* status = kube::Find(deployment_, {"status"});
  const Json* present = status != nullptr ? FindIn(*status, "Progressing") : nullptr;
  const std::string_view reason =
      present != nullptr ? kube::FindString(*present, {"reason"}) : std::string_view();
  const bool paused = kube::FindBool(deployment_, {"spec", "paused"});
  if (reason == kTimedOut) {
    return std::nullopt;
  }
  if (paused && reason != "DeploymentPaused") {
    return ConditionNow("Progressing", "Unknown", "DeploymentPaused", "Deployment is paused");
  }
  if (!paused && reason == "DeploymentPaused") {
    return ConditionNow("Progressing", "Unknown", "DeploymentResumed", "Deployment is resumed");
  }
  return std::nullopt;
}

Json DeploymentSync::CountStatus() {
  const Json* before = kube::Find(deployment_, {"status"});
  Json status = before != nullptr ? *before : Json::object();
  const std::vector<SetView*> all = All();
  const std::int64_t available = Sum(all, &SetView::available);
  const auto put = [&status](const char* key, std::int64_t value) {
    if (value != 0) {
      status[key] = value;
    } else {
      status.erase(key);
    }
  };
  put("observedGeneration", kube::GenerationOf(deployment_));
  put("replicas", Sum(all, &SetView::status_replicas));
  put("updatedReplicas", new_set_ != nullptr ? new_set_->status_replicas() : 0);
  put("readyReplicas", Sum(all, &SetView::ready));
  put("availableReplicas", available);
  put("unavailableReplicas", std::max<std::int64_t>(0, SumReplicas(all) - available));
  status["terminatingReplicas"] = Sum(all, &SetView::terminating);
  if (collision_count_) {
    status["collisionCount"] = *collision_count_;
  }
  if (available >= limits_.replicas - limits_.unavailable) {
    PutIn(&status, ConditionNow("Available", "True", "MinimumReplicasAvailable",
                                "Deployment has minimum availability."));
  } else {
    PutIn(&status, ConditionNow("Available", "False", "MinimumReplicasUnavailable",
                                "Deployment does not have minimum availability."));
  }
  for (Json& condition : extra_conditions_) {
    PutIn(&status, std::move(condition));
  }
  extra_conditions_.clear();
  PutFailure(&status);
  return status;
}

bool DeploymentSync::IsComplete(const Json& status) const {
  return kube::FindInt(status, {"updatedReplicas"}) == limits_.replicas &&
         kube::FindInt(status, {"replicas"}) == limits_.replicas &&
         kube::FindInt(status, {"availableReplicas"}) == limits_.replicas &&
         kube::FindInt(status, {"observedGeneration"}) >= kube::GenerationOf(deployment_);
}

void DeploymentSync::PutFailure(Json* status) {
  const Json* failure = nullptr;
  for (const SetView* set : All()) {
    const Json* set_status = kube::Find(set->object, {"status"});
    if (const Json* found =
            set_status != nullptr ? FindIn(*set_status, "ReplicaFailure") : nullptr) {
      failure = found;  // the new set, last in All(), wins
    }
  }
  if (failure != nullptr) {
    PutIn(status, ConditionNow("ReplicaFailure", kube::FindString(*failure, {"status"}),
                               kube::FindString(*failure, {"reason"}),
                               std::string(kube::FindString(*failure, {"message"}))));
  } else {
    DropFrom(status, "ReplicaFailure");
  }
}

bool DeploymentSync::TimedOut(const Json& status) const {
  const Json* progress = FindIn(status, "Progressing");
  if (progress == nullptr) {
    return false;
  }
  const std::string_view reason = kube::FindString(*progress, {"reason"});
  if (reason == kAvailable) {
    return false;
  }
  if (reason == kTimedOut) {
    return true;
  }
  const auto from = kube::FindTime(kube::FindString(*progress, {"lastUpdateTime"}));
  const auto deadline =
      std::chrono::seconds(kube::FindInt(deployment_, {"spec", "progressDeadlineSeconds"}));
  return from && *from + deadline < parts_.clock.Now();
}

void DeploymentSync::PutProgress(Json* status) {
  if (!HasDeadline()) {
    DropFrom(status, "Progressing");
    return;
  }
  const Json before = deployment_.value("status", Json::object());
  const Json* present = FindIn(*status, "Progressing");
  const bool was_complete =
      present != nullptr && kube::FindString(*present, {"reason"}) == kAvailable &&
      kube::FindInt(*status, {"replicas"}) == kube::FindInt(*status, {"updatedReplicas"});
  if (was_complete) {
    return;
  }
  const std::string subject = new_set_ != nullptr
                                  ? "ReplicaSet \"" + new_set_->name() + "\""
                                  : "Deployment \"" + std::string(kube::NameOf(deployment_)) + "\"";
  const auto grew = [&](const char* key) {
    return kube::FindInt(*status, {key}) > kube::FindInt(before, {key});
  };
  const std::int64_t old_before =
      kube::FindInt(before, {"replicas"}) - kube::FindInt(before, {"updatedReplicas"});
  const std::int64_t old_now =
      kube::FindInt(*status, {"replicas"}) - kube::FindInt(*status, {"updatedReplicas"});
  if (IsComplete(*status)) {
    PutIn(status, ConditionNow("Progressing", "True", kAvailable,
                               subject + " has successfully progressed."));
  } else if (grew("updatedReplicas") || grew("readyReplicas") || grew("availableReplicas") ||
             old_before > old_now) {
    Json condition =
        ConditionNow("Progressing", "True", "ReplicaSetUpdated", subject + " is progressing.");
    if (present != nullptr && kube::FindString(*present, {"status"}) == "True") {
      condition["lastTransitionTime"] = (*present)["lastTransitionTime"];
    }
    DropFrom(status, "Progressing");  // progress renews lastUpdateTime even when the text stays
    PutIn(status, std::move(condition));
  } else if (TimedOut(*status)) {
    PutIn(status,
          ConditionNow("Progressing", "False", kTimedOut, subject + " has timed out progressing."));
  }
}

Result<Outcome> DeploymentSync::WriteStatus(Json status) {
  const Json* before = kube::Find(deployment_, {"status"});
  if (before == nullptr || *before != status) {
    Json updated = deployment_;
    updated["status"] = std::move(status);
    auto written = parts_.deployments.UpdateStatus(updated);
    if (!written.ok()) {
      if (written.error().Is(Reason::kNotFound)) {
        return Outcome::Done();
      }
      return std::move(written).error();
    }
    deployment_ = std::move(*written);
  }
  return NextCheck();
}

// When the progress deadline could pass without anything changing.
Outcome DeploymentSync::NextCheck() const {
  const Json* status = kube::Find(deployment_, {"status"});
  const Json* progress = status != nullptr ? FindIn(*status, "Progressing") : nullptr;
  if (!HasDeadline() || progress == nullptr || IsComplete(*status) ||
      kube::FindString(*progress, {"reason"}) == kTimedOut ||
      kube::FindBool(deployment_, {"spec", "paused"})) {
    return Outcome::Done();
  }
  const auto from = kube::FindTime(kube::FindString(*progress, {"lastUpdateTime"}));
  const auto deadline =
      std::chrono::seconds(kube::FindInt(deployment_, {"spec", "progressDeadlineSeconds"}));
  const auto left =
      from.value_or(parts_.clock.Now()) + deadline - parts_.clock.Now() + std::chrono::seconds(1);
  return Outcome::After(std::max<std::chrono::nanoseconds>(left, std::chrono::seconds(1)));
}

}  // namespace sublet::controllers
