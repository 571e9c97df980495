#include "controllers/stateful_set_sync.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "kube/int_or_string.h"
#include "kube/object.h"

namespace sublet::controllers {
namespace {

using client::ObjectPtr;
using client::Outcome;
using kube::Json;

std::string_view RevisionOf(const ObjectPtr& pod) { return pod->Label(kRevisionHashLabel); }

bool IsRunningAndReady(const ObjectPtr& pod) {
  return PodOf(pod).phase == "Running" && PodOf(pod).ready;
}

}  // namespace

StatefulSetSync::StatefulSetSync(const Parts& parts, Json set, std::vector<ObjectPtr> pods)
    : parts_(parts), set_(std::move(set)), pods_(std::move(pods)) {
  start_ = kube::FindInt(set_, {"spec", "ordinals", "start"});
  replicas_ = kube::FindInt(set_, {"spec", "replicas"}, 1);
  parallel_ = kube::FindString(set_, {"spec", "podManagementPolicy"}) == "Parallel";
  collision_count_ = kube::FindInt(set_, {"status", "collisionCount"});
}

Result<Outcome> StatefulSetSync::Run(const kube::LabelSelector& selector) {
  SUBLET_RETURN_IF_ERROR(Revisions(selector));
  SortPods();
  Result<void> moved = Ok();
  if (!kube::IsDeleting(set_)) {
    moved = MovePods();
    // What was just created or deleted belongs into the status as well.
    pods_ = parts_.control.pods().informer().ByIndex(client::kControllerIndex, kube::UidOf(set_));
  }
  SUBLET_RETURN_IF_ERROR(WriteStatus());
  if (!moved.ok()) {
    return std::move(moved).error();
  }
  std::vector<std::string> live = {current_revision_, update_revision_};
  for (const ObjectPtr& pod : pods_) {
    live.emplace_back(RevisionOf(pod));
  }
  SUBLET_RETURN_IF_ERROR(parts_.history.Truncate(set_, revisions_, live));
  return Outcome::After(wait_);
}

Result<void> StatefulSetSync::Revisions(const kube::LabelSelector& selector) {
  SUBLET_TRY(revisions_, parts_.history.List(parts_.sets, set_, selector));
  SUBLET_TRY(update_revision_, parts_.history.Ensure(set_, &revisions_, &collision_count_));
  current_revision_ = kube::FindString(set_, {"status", "currentRevision"}, update_revision_);
  current_template_ = set_["spec"]["template"];
  bool found = false;
  for (const Revision& revision : revisions_) {
    if (revision.name == current_revision_) {
      if (const Json* stored = kube::Find(revision.data, {"spec", "template"})) {
        current_template_ = *stored;
        current_template_.erase("$patch");
        found = true;
      }
    }
  }
  if (!found) {
    current_revision_ = update_revision_;
  }
  return Ok();
}

void StatefulSetSync::SortPods() {
  in_range_.assign(static_cast<std::size_t>(std::max<std::int64_t>(0, replicas_)), nullptr);
  std::vector<std::pair<std::int64_t, ObjectPtr>> rest;
  for (const ObjectPtr& pod : pods_) {
    const auto ordinal = OrdinalOf(kube::NameOf(set_), pod->key.name);
    if (!ordinal) {
      continue;
    }
    if (*ordinal >= start_ && *ordinal < start_ + replicas_) {
      in_range_[static_cast<std::size_t>(*ordinal - start_)] = pod;
    } else {
      rest.emplace_back(*ordinal, pod);
    }
  }
  std::sort(rest.begin(), rest.end(),
            [](const auto& a, const auto& b) { return a.first > b.first; });
  for (auto& [ordinal, pod] : rest) {
    condemned_.push_back(std::move(pod));
  }
}

bool StatefulSetSync::Available(const ObjectPtr& pod) {
  return IsAvailable(*pod, kube::FindInt(set_, {"spec", "minReadySeconds"}), parts_.clock.Now(),
                     &wait_);
}

bool StatefulSetSync::Healthy(const ObjectPtr& pod) {
  return pod && IsRunningAndReady(pod) && !pod->deleting() && Available(pod);
}

const Json& StatefulSetSync::TemplateFor(std::int64_t ordinal, std::string* revision) const {
  const Json* rolling = kube::Find(set_, {"spec", "updateStrategy", "rollingUpdate"});
  const bool is_rolling = kube::FindString(set_, {"spec", "updateStrategy", "type"},
                                           "RollingUpdate") == "RollingUpdate";
  // Pods below the partition, and while an update is under way those not reached yet, are made
  // again as they were.
  std::int64_t current_below = start_;
  if (is_rolling) {
    current_below += rolling != nullptr ? kube::FindInt(*rolling, {"partition"})
                                        : kube::FindInt(set_, {"status", "currentReplicas"});
  }
  if (ordinal < current_below) {
    *revision = current_revision_;
    return current_template_;
  }
  *revision = update_revision_;
  return set_["spec"]["template"];
}

Result<void> StatefulSetSync::MovePods() {
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(in_range_.size()); ++i) {
    SUBLET_TRY(const Step step, ProcessReplica(start_ + i));
    if (step == Step::kStop) {
      return Ok();
    }
  }
  SUBLET_TRY(const Step step, ProcessCondemned());
  if (step == Step::kStop) {
    return Ok();
  }
  return UpdatePods();
}

Result<StatefulSetSync::Step> StatefulSetSync::ProcessReplica(std::int64_t ordinal) {
  const ObjectPtr& pod = in_range_[static_cast<std::size_t>(ordinal - start_)];
  const Step when_waiting = parallel_ ? Step::kNext : Step::kStop;
  if (!pod) {
    return CreateReplica(ordinal);
  }
  if (PodOf(pod).Finished()) {
    if (!pod->deleting()) {
      const bool failed = PodOf(pod).phase == "Failed";
      parts_.control.events().Event(client::EventTargetOf(set_), failed ? "Warning" : "Normal",
                                    failed ? "RecreatingFailedPod" : "RecreatingTerminatedPod",
                                    "StatefulSet " + kube::KeyOf(set_).Text() + " is recreating " +
                                        (failed ? "failed" : "terminated") + " Pod " +
                                        pod->key.name);
      SUBLET_RETURN_IF_ERROR(DeletePod(pod));
    }
    return when_waiting;
  }
  SUBLET_RETURN_IF_ERROR(EnsureClaims(ordinal, pod));
  if (pod->deleting() || !IsRunningAndReady(pod) || !Available(pod)) {
    return when_waiting;
  }
  if (pod->Label(kPodNameLabel) != pod->key.name) {
    SUBLET_RETURN_IF_ERROR(parts_.control.pods().Patch(
        pod->key, client::PatchType::kMerge,
        {{"metadata",
          {{"uid", pod->uid}, {"labels", {{std::string(kPodNameLabel), pod->key.name}}}}}}));
  }
  return Step::kNext;
}

Result<StatefulSetSync::Step> StatefulSetSync::CreateReplica(std::int64_t ordinal) {
  SUBLET_RETURN_IF_ERROR(EnsureClaims(ordinal, nullptr));
  std::string revision;
  const Json& pod_template = TemplateFor(ordinal, &revision);
  const std::string name = StatefulPodName(set_, ordinal);
  auto created = parts_.control.pods().Create(std::string(kube::NamespaceOf(set_)),
                                              StatefulPod(set_, pod_template, ordinal, revision));
  const client::EventTarget about = client::EventTargetOf(set_);
  if (!created.ok()) {
    parts_.control.events().Event(about, "Warning", "FailedCreate",
                                  "create Pod " + name + " in StatefulSet " +
                                      std::string(kube::NameOf(set_)) +
                                      " failed error: " + created.error().message());
    return std::move(created).error();
  }
  parts_.control.events().Event(
      about, "Normal", "SuccessfulCreate",
      "create Pod " + name + " in StatefulSet " + std::string(kube::NameOf(set_)) + " successful");
  return parallel_ ? Step::kNext : Step::kStop;
}

Result<void> StatefulSetSync::EnsureClaims(std::int64_t ordinal, const ObjectPtr& pod) {
  for (Json& claim : StatefulClaims(set_, ordinal)) {
    const kube::ObjectKey key = kube::KeyOf(claim);
    if (parts_.claims.Find(key)) {
      continue;
    }
    auto created = parts_.claims.Create(key.namespace_name, std::move(claim));
    if (created.ok()) {
      parts_.control.events().Event(client::EventTargetOf(set_), "Normal", "SuccessfulCreate",
                                    "create Claim " + key.name + " Pod " +
                                        StatefulPodName(set_, ordinal) + " in StatefulSet " +
                                        std::string(kube::NameOf(set_)) + " success");
    } else if (!created.error().Is(Reason::kAlreadyExists)) {
      return std::move(created).error();
    }
  }
  return PutClaimOwner(ordinal, pod);
}

Result<void> StatefulSetSync::PutClaimOwner(std::int64_t ordinal, const ObjectPtr& pod) {
  const ClaimOwner wanted = ClaimOwnerOf(set_, ordinal);
  for (const Json& claim : StatefulClaims(set_, ordinal)) {
    const ObjectPtr cached = parts_.claims.Find(kube::KeyOf(claim));
    if (!cached || cached->deleting()) {
      continue;
    }
    SUBLET_TRY(Json value, cached->Parse());
    const Json before = value;
    kube::RemoveOwner(&value, kube::UidOf(set_));
    if (pod) {
      kube::RemoveOwner(&value, pod->uid);
    }
    if (wanted == ClaimOwner::kSet) {
      kube::OwnerReference owner = kube::ControllerReference(set_);
      owner.controller = false;
      owner.block_owner_deletion = false;
      kube::SetOwner(&value, owner);
    } else if (wanted == ClaimOwner::kPod && pod) {
      kube::SetOwner(&value,
                     {.api_version = "v1", .kind = "Pod", .name = pod->key.name, .uid = pod->uid});
    }
    if (kube::OwnersOf(value).size() != kube::OwnersOf(before).size() ||
        (wanted != ClaimOwner::kNobody && value != before &&
         kube::Dump(value["metadata"]["ownerReferences"]) !=
             kube::Dump(before["metadata"].value("ownerReferences", Json())))) {
      SUBLET_RETURN_IF_ERROR(parts_.claims.Update(value));
    }
  }
  return Ok();
}

Result<void> StatefulSetSync::DeletePod(const ObjectPtr& pod) {
  auto deleted = parts_.control.pods().Delete(pod->key, pod->uid);
  const std::string set_name(kube::NameOf(set_));
  if (deleted.ok()) {
    parts_.control.events().Event(
        client::EventTargetOf(set_), "Normal", "SuccessfulDelete",
        "delete Pod " + pod->key.name + " in StatefulSet " + set_name + " successful");
  }
  return deleted;
}

Result<StatefulSetSync::Step> StatefulSetSync::ProcessCondemned() {
  // The lowest unhealthy pod of all is the one that may go first while order is kept.
  ObjectPtr first_unhealthy;
  for (const ObjectPtr& pod : in_range_) {
    if (!first_unhealthy && !Healthy(pod)) {
      first_unhealthy = pod;
    }
  }
  for (auto at = condemned_.rbegin(); at != condemned_.rend(); ++at) {
    if (!first_unhealthy && !Healthy(*at)) {
      first_unhealthy = *at;
    }
  }
  for (const ObjectPtr& pod : condemned_) {
    if (pod->deleting()) {
      if (!parallel_) {
        return Step::kStop;
      }
      continue;
    }
    if (!parallel_ && !Healthy(pod) && pod != first_unhealthy) {
      return Step::kStop;
    }
    const auto ordinal = OrdinalOf(kube::NameOf(set_), pod->key.name);
    SUBLET_RETURN_IF_ERROR(PutClaimOwner(*ordinal, pod));
    SUBLET_RETURN_IF_ERROR(DeletePod(pod));
    if (!parallel_) {
      return Step::kStop;
    }
  }
  return Step::kNext;
}

Result<void> StatefulSetSync::UpdatePods() {
  if (kube::FindString(set_, {"spec", "updateStrategy", "type"}, "RollingUpdate") !=
      "RollingUpdate") {
    return Ok();
  }
  const std::int64_t partition =
      kube::FindInt(set_, {"spec", "updateStrategy", "rollingUpdate", "partition"});
  std::int64_t most_unavailable = 1;
  if (const auto given = kube::IntOrString::FromJson(
          kube::Find(set_, {"spec", "updateStrategy", "rollingUpdate", "maxUnavailable"}))) {
    const auto scaled = given->Scaled(replicas_, true);
    most_unavailable = std::max<std::int64_t>(1, scaled.ok() ? *scaled : 1);
  }
  std::int64_t unavailable = 0;
  for (const ObjectPtr& pod : in_range_) {
    unavailable += Healthy(pod) ? 0 : 1;
  }
  for (std::int64_t i = replicas_ - 1; i >= std::max<std::int64_t>(0, partition); --i) {
    const ObjectPtr& pod = in_range_[static_cast<std::size_t>(i)];
    if (!pod) {
      return Ok();
    }
    const bool old = RevisionOf(pod) != update_revision_;
    if (old && !pod->deleting()) {
      // A pod that is down anyway may be replaced although others are down.
      if (unavailable >= most_unavailable && Healthy(pod)) {
        return Ok();
      }
      unavailable += Healthy(pod) ? 1 : 0;
      SUBLET_RETURN_IF_ERROR(DeletePod(pod));
      if (unavailable >= most_unavailable) {
        return Ok();
      }
    } else if (!Healthy(pod) && most_unavailable == 1) {
      return Ok();  // the one before must be well first
    }
  }
  return Ok();
}

Json StatefulSetSync::CountStatus() {
  Json status = set_.value("status", Json::object());
  std::int64_t counts[5] = {};  // replicas, ready, available, current, updated
  for (const ObjectPtr& pod : pods_) {
    if (!OrdinalOf(kube::NameOf(set_), pod->key.name)) {
      continue;
    }
    ++counts[0];
    if (IsRunningAndReady(pod)) {
      ++counts[1];
      counts[2] += Available(pod) ? 1 : 0;
    }
    if (!pod->deleting() && !PodOf(pod).Finished()) {
      counts[3] += RevisionOf(pod) == current_revision_ ? 1 : 0;
      counts[4] += RevisionOf(pod) == update_revision_ ? 1 : 0;
    }
  }
  const bool rolling = kube::FindString(set_, {"spec", "updateStrategy", "type"},
                                        "RollingUpdate") == "RollingUpdate";
  if (rolling && counts[4] == counts[0] && counts[1] == counts[0] && counts[0] == replicas_) {
    current_revision_ = update_revision_;  // the update is complete
    counts[3] = counts[4];
  }
  const char* names[] = {"replicas", "readyReplicas", "availableReplicas", "currentReplicas",
                         "updatedReplicas"};
  for (int i = 0; i < 5; ++i) {
    // replicas and availableReplicas are always written, the others only when not zero.
    if (counts[i] != 0 || i == 0 || i == 2) {
      status[names[i]] = counts[i];
    } else {
      status.erase(names[i]);
    }
  }
  status["observedGeneration"] = kube::GenerationOf(set_);
  status["currentRevision"] = current_revision_;
  status["updateRevision"] = update_revision_;
  status["collisionCount"] = collision_count_;
  return status;
}

Result<void> StatefulSetSync::WriteStatus() {
  Json status = CountStatus();
  if (set_.value("status", Json()) == status) {
    return Ok();
  }
  Json updated = set_;
  updated["status"] = std::move(status);
  auto written = parts_.sets.UpdateStatus(updated);
  if (!written.ok() && !written.error().Is(Reason::kNotFound)) {
    return std::move(written).error();
  }
  if (written.ok()) {
    set_ = std::move(*written);
  }
  return Ok();
}

}  // namespace sublet::controllers
