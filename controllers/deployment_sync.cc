// The steps of a rollout; the status is in deployment_status.cc.
#include "controllers/deployment_sync.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "kube/object.h"
#include "kube/timestamp.h"

namespace sublet::controllers {
namespace {

using client::Outcome;
using kube::Json;

// Not copied from the Deployment to its sets.
bool IsOwnAnnotation(std::string_view key) {
  return key == "kubectl.kubernetes.io/last-applied-configuration" || key == kRevisionAnnotation ||
         key == kRevisionHistoryAnnotation || key == kDesiredReplicasAnnotation ||
         key == kMaxReplicasAnnotation || key == "deprecated.deployment.rollback.rollbackTo";
}

const Json& TemplateOf(const Json& object) {
  static const Json kEmpty = Json::object();
  const Json* found = kube::Find(object, {"spec", "template"});
  return found != nullptr ? *found : kEmpty;
}

bool SetAnnotation(Json* object, std::string_view key, const std::string& value) {
  if (kube::AnnotationOf(*object, key) == value) {
    return false;
  }
  kube::SetAnnotation(object, key, value);
  return true;
}

}  // namespace

DeploymentSync::DeploymentSync(const Parts& parts, Json deployment, std::vector<SetView> sets)
    : parts_(parts),
      deployment_(std::move(deployment)),
      limits_(LimitsOf(deployment_)),
      sets_(std::move(sets)),
      now_(kube::FormatTime(parts.clock.Now())) {
  sets_.reserve(sets_.size() + 1);  // new_set_ and old_sets_ point into it
  std::stable_sort(sets_.begin(), sets_.end(), [](const SetView& a, const SetView& b) {
    return a.created() != b.created() ? a.created() < b.created() : a.name() < b.name();
  });
}

Result<Outcome> DeploymentSync::Run() {
  if (kube::IsDeleting(deployment_)) {
    SUBLET_RETURN_IF_ERROR(SortSets(false));
    return WriteStatus(CountStatus());
  }
  if (auto paused = PausedCondition()) {
    extra_conditions_.push_back(std::move(*paused));
  }
  const bool paused = kube::FindBool(deployment_, {"spec", "paused"});
  SUBLET_RETURN_IF_ERROR(SortSets(false));
  if (paused || IsScalingEvent()) {
    SUBLET_RETURN_IF_ERROR(Scale());
    if (paused) {
      SUBLET_RETURN_IF_ERROR(CleanUp());
    }
    return WriteStatus(CountStatus());
  }
  auto moved = limits_.rolling ? RollingStep() : RecreateStep();
  if (!moved.ok()) {
    // What went wrong belongs in the conditions before the retry.
    static_cast<void>(WriteStatus(CountStatus()).ok());
    return std::move(moved).error();
  }
  Json status = CountStatus();
  if (!*moved && IsComplete(status)) {
    SUBLET_RETURN_IF_ERROR(CleanUp());
  }
  PutProgress(&status);
  return WriteStatus(std::move(status));
}

std::vector<SetView*> DeploymentSync::All() {
  std::vector<SetView*> out = old_sets_;
  if (new_set_ != nullptr) {
    out.push_back(new_set_);
  }
  return out;
}

std::vector<SetView*> DeploymentSync::Active(const std::vector<SetView*>& sets) const {
  std::vector<SetView*> out;
  std::copy_if(sets.begin(), sets.end(), std::back_inserter(out),
               [](const SetView* set) { return set->replicas() > 0; });
  return out;
}

Result<void> DeploymentSync::SortSets(bool create) {
  new_set_ = nullptr;
  old_sets_.clear();
  std::int64_t max_old = 0;
  for (SetView& set : sets_) {
    if (new_set_ == nullptr && SameTemplate(TemplateOf(set.object), TemplateOf(deployment_))) {
      new_set_ = &set;
    } else {
      old_sets_.push_back(&set);
      max_old = std::max(max_old, set.revision());
    }
  }
  if (new_set_ != nullptr) {
    return UpdateNewSet(max_old + 1);
  }
  return create ? CreateNewSet(max_old + 1) : Ok();
}

bool DeploymentSync::PutReplicaAnnotations(Json* set) const {
  const bool desired =
      SetAnnotation(set, kDesiredReplicasAnnotation, std::to_string(limits_.replicas));
  const bool most =
      SetAnnotation(set, kMaxReplicasAnnotation, std::to_string(limits_.replicas + limits_.surge));
  return desired || most;
}

bool DeploymentSync::PutSetAnnotations(Json* set, std::int64_t revision, bool exists) const {
  bool changed = false;
  if (const Json* annotations = kube::AnnotationsOf(deployment_)) {
    for (const auto& [key, value] : annotations->items()) {
      if (!IsOwnAnnotation(key) && value.is_string()) {
        changed |= SetAnnotation(set, key, value.get<std::string>());
      }
    }
  }
  const std::string old(kube::AnnotationOf(*set, kRevisionAnnotation));
  if (SetView{*set}.revision() < revision) {
    changed |= SetAnnotation(set, kRevisionAnnotation, std::to_string(revision));
    if (exists && !old.empty()) {
      // A rollback makes an old set new again: remember under which numbers it was known.
      const std::string history(kube::AnnotationOf(*set, kRevisionHistoryAnnotation));
      changed |= SetAnnotation(set, kRevisionHistoryAnnotation,
                               history.empty() ? old : history + "," + old);
    }
  }
  if (!exists) {
    changed |= PutReplicaAnnotations(set);
  }
  return changed;
}

Result<void> DeploymentSync::UpdateNewSet(std::int64_t revision) {
  Json updated = new_set_->object;
  bool changed = PutSetAnnotations(&updated, revision, true);
  const std::int64_t min_ready = kube::FindInt(deployment_, {"spec", "minReadySeconds"});
  if (kube::FindInt(updated, {"spec", "minReadySeconds"}) != min_ready) {
    updated["spec"]["minReadySeconds"] = min_ready;
    changed = true;
  }
  if (changed) {
    SUBLET_TRY(new_set_->object, parts_.sets.Update(updated));
  }
  const std::string number(kube::AnnotationOf(new_set_->object, kRevisionAnnotation));
  if (SetAnnotation(&deployment_, kRevisionAnnotation, number)) {
    SUBLET_TRY(deployment_, parts_.deployments.Update(deployment_));
  }
  const Json* status = kube::Find(deployment_, {"status"});
  if (HasDeadline() && (status == nullptr || FindIn(*status, "Progressing") == nullptr)) {
    extra_conditions_.push_back(ConditionNow("Progressing", "True", "FoundNewReplicaSet",
                                             "Found new replica set \"" + new_set_->name() + "\""));
  }
  return Ok();
}

Result<void> DeploymentSync::CreateNewSet(std::int64_t revision) {
  const std::int64_t collisions = kube::FindInt(deployment_, {"status", "collisionCount"});
  const std::string hash = HashOf(TemplateOf(deployment_), collisions);
  const std::string name = std::string(kube::NameOf(deployment_)) + "-" + hash;
  Json pod_template = TemplateOf(deployment_);
  kube::SetLabel(&pod_template, kTemplateHashLabel, hash);
  Json selector = deployment_["spec"]["selector"];
  selector["matchLabels"][std::string(kTemplateHashLabel)] = hash;
  SetView made{{{"metadata",
                 {{"name", name},
                  {"namespace", kube::NamespaceOf(deployment_)},
                  {"labels", pod_template["metadata"]["labels"]}}},
                {"spec",
                 {{"replicas", 0},
                  {"minReadySeconds", kube::FindInt(deployment_, {"spec", "minReadySeconds"})},
                  {"selector", std::move(selector)},
                  {"template", std::move(pod_template)}}}}};
  kube::SetOwner(&made.object, kube::ControllerReference(deployment_));
  std::vector<SetView*> all = old_sets_;
  all.push_back(&made);
  made.object["spec"]["replicas"] = NewSetReplicas(limits_, all, made);
  PutSetAnnotations(&made.object, revision, false);
  auto created = parts_.sets.Create(std::string(kube::NamespaceOf(deployment_)), made.object);
  if (!created.ok()) {
    if (created.error().Is(Reason::kAlreadyExists)) {
      SUBLET_TRY(const Json live,
                 parts_.sets.GetLive({std::string(kube::NamespaceOf(deployment_)), name}));
      const auto controller = kube::ControllerOf(live);
      if (!controller || controller->uid != kube::UidOf(deployment_) ||
          !SameTemplate(TemplateOf(live), TemplateOf(deployment_))) {
        collision_count_ = collisions + 1;  // another template with the same hash: try the next one
      }
    } else if (HasDeadline()) {
      extra_conditions_.push_back(ConditionNow(
          "Progressing", "False", "ReplicaSetCreateError",
          "Failed to create new replica set \"" + name + "\": " + created.error().message()));
    }
    return std::move(created).error();
  }
  sets_.push_back({std::move(*created)});
  new_set_ = &sets_.back();
  if (new_set_->replicas() > 0) {
    parts_.events.Event(
        client::EventTargetOf(deployment_), "Normal", "ScalingReplicaSet",
        "Scaled up replica set " + name + " from 0 to " + std::to_string(new_set_->replicas()));
  }
  if (SetAnnotation(&deployment_, kRevisionAnnotation, std::to_string(revision))) {
    SUBLET_TRY(deployment_, parts_.deployments.Update(deployment_));
  }
  if (HasDeadline()) {
    extra_conditions_.push_back(ConditionNow("Progressing", "True", "NewReplicaSetCreated",
                                             "Created new replica set \"" + name + "\""));
  }
  return Ok();
}

bool DeploymentSync::IsScalingEvent() {
  for (const SetView* set : Active(All())) {
    const std::string_view desired = kube::AnnotationOf(set->object, kDesiredReplicasAnnotation);
    if (!desired.empty() && desired != std::to_string(limits_.replicas)) {
      return true;
    }
  }
  return false;
}

Result<bool> DeploymentSync::ScaleSet(SetView* set, std::int64_t replicas) {
  const std::int64_t before = set->replicas();
  Json updated = set->object;
  const bool annotated = PutReplicaAnnotations(&updated);
  if (before == replicas && !annotated) {
    return false;
  }
  updated["spec"]["replicas"] = replicas;
  SUBLET_TRY(set->object, parts_.sets.Update(updated));
  if (before == replicas) {
    return false;
  }
  parts_.events.Event(client::EventTargetOf(deployment_), "Normal", "ScalingReplicaSet",
                      std::string(before < replicas ? "Scaled up" : "Scaled down") +
                          " replica set " + set->name() + " from " + std::to_string(before) +
                          " to " + std::to_string(replicas));
  return true;
}

Result<void> DeploymentSync::Scale() {
  const std::vector<SetView*> active = Active(All());
  SetView* only = nullptr;
  if (active.size() == 1) {
    only = active[0];
  } else if (active.empty()) {
    only = new_set_ != nullptr ? new_set_ : (old_sets_.empty() ? nullptr : old_sets_.back());
    if (only == nullptr) {
      return Ok();
    }
  }
  if (only != nullptr) {
    auto scaled = ScaleSet(only, limits_.replicas);
    return scaled.ok() ? Ok() : Result<void>(std::move(scaled).error());
  }
  const bool saturated = new_set_ != nullptr && new_set_->replicas() == limits_.replicas &&
                         new_set_->available() == limits_.replicas &&
                         kube::AnnotationOf(new_set_->object, kDesiredReplicasAnnotation) ==
                             std::to_string(limits_.replicas);
  if (saturated) {
    for (SetView* set : Active(old_sets_)) {
      SUBLET_RETURN_IF_ERROR(ScaleSet(set, 0));
    }
    return Ok();
  }
  if (limits_.rolling) {
    const auto sizes =
        ScaleInProportion(limits_, active, kube::FindInt(deployment_, {"status", "replicas"}));
    for (std::size_t i = 0; i < active.size(); ++i) {
      SUBLET_RETURN_IF_ERROR(ScaleSet(active[i], sizes[i]));
    }
  }
  return Ok();
}

Result<bool> DeploymentSync::RollingStep() {
  SUBLET_RETURN_IF_ERROR(SortSets(true));
  const std::int64_t wanted = new_set_->replicas() > limits_.replicas
                                  ? limits_.replicas
                                  : NewSetReplicas(limits_, All(), *new_set_);
  if (new_set_->replicas() != limits_.replicas) {
    SUBLET_TRY(const bool scaled, ScaleSet(new_set_, wanted));
    if (scaled) {
      return true;
    }
  }
  const std::vector<SetView*> active = Active(old_sets_);
  const std::vector<std::int64_t> sizes = ScaleDownOld(limits_, active, new_set_);
  bool moved = false;
  for (std::size_t i = 0; i < active.size(); ++i) {
    if (sizes[i] != active[i]->replicas()) {
      SUBLET_TRY(const bool scaled, ScaleSet(active[i], sizes[i]));
      moved |= scaled;
    }
  }
  return moved;
}

bool DeploymentSync::OldPodsRunning() const {
  for (const SetView* set : old_sets_) {
    for (const auto& pod :
         parts_.pods.informer().ByIndex(client::kControllerIndex, kube::UidOf(set->object))) {
      if (!PodOf(pod).Finished()) {
        return true;
      }
    }
  }
  return false;
}

Result<bool> DeploymentSync::RecreateStep() {
  bool moved = false;
  for (SetView* set : Active(old_sets_)) {
    SUBLET_TRY(const bool scaled, ScaleSet(set, 0));
    moved |= scaled;
  }
  if (moved || OldPodsRunning()) {
    return true;
  }
  SUBLET_RETURN_IF_ERROR(SortSets(true));
  return ScaleSet(new_set_, limits_.replicas);
}

Result<void> DeploymentSync::CleanUp() {
  const Json* limit = kube::Find(deployment_, {"spec", "revisionHistoryLimit"});
  if (limit == nullptr || !limit->is_number_integer() || limit->get<std::int64_t>() == INT32_MAX) {
    return Ok();
  }
  std::vector<SetView*> cleanable;
  for (SetView* set : old_sets_) {
    if (!kube::IsDeleting(set->object)) {
      cleanable.push_back(set);
    }
  }
  const auto surplus = static_cast<std::int64_t>(cleanable.size()) - limit->get<std::int64_t>();
  std::stable_sort(cleanable.begin(), cleanable.end(), [](const SetView* a, const SetView* b) {
    return a->revision() < b->revision();
  });
  for (std::int64_t i = 0; i < surplus; ++i) {
    const SetView& set = *cleanable[static_cast<std::size_t>(i)];
    if (set.status_replicas() != 0 || set.replicas() != 0 ||
        kube::GenerationOf(set.object) >
            kube::FindInt(set.object, {"status", "observedGeneration"})) {
      continue;
    }
    SUBLET_RETURN_IF_ERROR(parts_.sets.Delete(kube::KeyOf(set.object), kube::UidOf(set.object)));
  }
  return Ok();
}

}  // namespace sublet::controllers
