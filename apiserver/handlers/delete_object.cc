#include "apiserver/handlers/delete_object.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "apiserver/crd/definition_strategy.h"
#include "apiserver/handlers/object_writer.h"
#include "apiserver/handlers/write_common.h"
#include "kube/object.h"
#include "kube/timestamp.h"

namespace sublet::apiserver {
namespace {

using DeleteJobPtr = std::shared_ptr<DeleteJob>;

constexpr std::string_view kOrphan = "orphan";
constexpr std::string_view kForeground = "foregroundDeletion";

// What happens to the object after its options were applied.
enum class Step { kRemove, kStore, kNothing };

Result<void> CheckPreconditions(const DeleteJob& job, const kube::Json& object) {
  // Kubernetes prints the kind here, not the resource.
  const ResourceName what{job.call->resource->group(), job.call->resource->kind_name()};
  const auto uid = kube::UidOf(object);
  if (!job.options.uid.empty() && job.options.uid != uid) {
    return Conflict(what, job.name,
                    "the UID in the precondition (" + job.options.uid +
                        ") does not match the UID in record (" + std::string(uid) +
                        "). The object might have been deleted and then recreated");
  }
  const auto version = kube::ResourceVersionOf(object);
  if (!job.options.resource_version.empty() && job.options.resource_version != version) {
    return Conflict(what, job.name,
                    "the ResourceVersion in the precondition (" + job.options.resource_version +
                        ") does not match the ResourceVersion in record (" + std::string(version) +
                        "). The object might have been modified");
  }
  return Ok();
}

void BumpGeneration(kube::Json& object) {
  if (const auto generation = kube::GenerationOf(object); generation > 0) {
    MetadataOf(object)["generation"] = generation + 1;
  }
}

// Grace as pods have it: what was asked, else what the pod says, else 30 s; none for pods that
// never ran or have ended.
std::int64_t PodGrace(const kube::Json& pod, const DeleteOptions& options) {
  std::int64_t seconds = 30;
  if (options.grace_seconds) {
    seconds = *options.grace_seconds;
  } else {
    seconds = kube::FindInt(pod, {"spec", "terminationGracePeriodSeconds"}, 30);
  }
  const auto phase = kube::FindString(pod, {"status", "phase"});
  if (kube::FindString(pod, {"spec", "nodeName"}).empty() || phase == "Failed" ||
      phase == "Succeeded") {
    seconds = 0;
  }
  return seconds < 0 ? 1 : seconds;
}

// A second graceful delete can only shorten the first.
Step ShortenGrace(kube::Json& object, const DeleteOptions& options, WallTime now, bool& graceful) {
  auto& metadata = MetadataOf(object);
  const std::int64_t current = kube::FindInt(metadata, {"deletionGracePeriodSeconds"}, 0);
  graceful = false;
  if (current == 0) {
    return Step::kRemove;
  }
  if (!options.grace_seconds || *options.grace_seconds >= current) {
    return Step::kNothing;
  }
  std::int64_t period = *options.grace_seconds;
  const auto deletion =
      kube::FindTime(kube::FindString(metadata, {"deletionTimestamp"})).value_or(now);
  WallTime moved = deletion - std::chrono::seconds(current) + std::chrono::seconds(period);
  if (moved < now) {
    moved = now;
    period = period == 0 ? 0 : 1;
  }
  metadata["deletionTimestamp"] = kube::FormatTime(moved);
  metadata["deletionGracePeriodSeconds"] = period;
  graceful = true;
  return period == 0 ? Step::kRemove : Step::kStore;
}

// Sets the deletion fields for graceful kinds. `graceful`: the object was changed for it.
Step ApplyGrace(const Resource& resource, kube::Json& object, DeleteOptions& options, WallTime now,
                bool& graceful) {
  graceful = false;
  if (options.grace_seconds && *options.grace_seconds < 0) {
    options.grace_seconds = 1;
  }
  if (!resource.graceful_delete) {
    return Step::kRemove;
  }
  if (kube::IsDeleting(object)) {
    return ShortenGrace(object, options, now, graceful);
  }
  const std::int64_t seconds = PodGrace(object, options);
  options.grace_seconds = seconds;
  auto& metadata = MetadataOf(object);
  metadata["deletionTimestamp"] = kube::FormatTime(now + std::chrono::seconds(seconds));
  metadata["deletionGracePeriodSeconds"] = seconds;
  BumpGeneration(object);
  graceful = true;
  return seconds == 0 ? Step::kRemove : Step::kStore;
}

bool WantsOrphan(const kube::Kind& kind, const kube::Json& object, const DeleteOptions& options) {
  if (options.orphan_dependents) {
    return *options.orphan_dependents;
  }
  if (!options.propagation.empty()) {
    return options.propagation == "Orphan";
  }
  if (kube::HasFinalizer(object, kOrphan)) {
    return true;
  }
  if (kube::HasFinalizer(object, kForeground)) {
    return false;
  }
  return kind.default_propagation == "Orphan";
}

bool WantsForeground(const kube::Json& object, const DeleteOptions& options) {
  if (options.orphan_dependents) {
    return false;
  }
  if (!options.propagation.empty()) {
    return options.propagation == "Foreground";
  }
  return kube::HasFinalizer(object, kForeground) && !kube::HasFinalizer(object, kOrphan);
}

// Brings the garbage collector's two finalizers in line with the policy. True when they changed.
bool ApplyPolicy(const kube::Kind& kind, kube::Json& object, const DeleteOptions& options) {
  const bool orphan = WantsOrphan(kind, object, options);
  const bool foreground = WantsForeground(object, options);
  const bool had_orphan = kube::HasFinalizer(object, kOrphan);
  const bool had_foreground = kube::HasFinalizer(object, kForeground);
  if (orphan == had_orphan && foreground == had_foreground) {
    return false;
  }
  kube::RemoveFinalizer(&object, kOrphan);
  kube::RemoveFinalizer(&object, kForeground);
  if (orphan) {
    kube::AddFinalizer(&object, kOrphan);
  }
  if (foreground) {
    kube::AddFinalizer(&object, kForeground);
  }
  return true;
}

bool HasFinalizers(const kube::Json& object) {
  const kube::Json* list = kube::Find(object, {"metadata", "finalizers"});
  return list != nullptr && list->is_array() && !list->empty();
}

void MarkDeleting(kube::Json& object, WallTime now) {
  auto& metadata = MetadataOf(object);
  const auto old = kube::FindTime(kube::FindString(metadata, {"deletionTimestamp"}));
  if (!old) {
    BumpGeneration(object);
  }
  if (!old || *old > now) {
    metadata["deletionTimestamp"] = kube::FormatTime(now);
  }
  metadata["deletionGracePeriodSeconds"] = 0;
}

bool IsNamespace(const Call& call) {
  return call.resource->group().empty() && call.resource->plural() == "namespaces";
}

// A namespace first becomes Terminating; its controller empties it and drops spec.finalizers.
Step DecideNamespace(kube::Json& object, const DeleteOptions& options, const kube::Kind& kind,
                     WallTime now) {
  const kube::Json* spec = kube::Find(object, {"spec", "finalizers"});
  const bool has_spec_finalizers = spec != nullptr && spec->is_array() && !spec->empty();
  if (!kube::IsDeleting(object)) {
    auto& metadata = MetadataOf(object);
    metadata["deletionTimestamp"] = kube::FormatTime(now);
    object["status"]["phase"] = "Terminating";
    ApplyPolicy(kind, object, options);
    return has_spec_finalizers || HasFinalizers(object) ? Step::kStore : Step::kRemove;
  }
  if (has_spec_finalizers) {
    return Step::kNothing;
  }
  return HasFinalizers(object) ? Step::kNothing : Step::kRemove;
}

bool IsDefinition(const Call& call) {
  return call.resource->Is("apiextensions.k8s.io", "customresourcedefinitions");
}

// A definition waits for its objects to go (crd/definition_controller.h).
void MarkDefinition(kube::Json& object, WallTime now) {
  MarkDeleting(object, now);
  MetadataOf(object).erase("deletionGracePeriodSeconds");
  kube::AddFinalizer(&object, kCleanupFinalizer);
  kube::Condition condition;
  condition.type = "Terminating";
  condition.status = "True";
  condition.reason = "InstanceDeletionInProgress";
  condition.message =
      "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon";
  kube::SetCondition(&object, condition, kube::FormatTime(now));
}

Step Decide(DeleteJob& job, kube::Json& object, WallTime now) {
  const kube::Kind& kind = job.call->kind();
  if (IsNamespace(*job.call)) {
    return DecideNamespace(object, job.options, kind, now);
  }
  if (IsDefinition(*job.call) && !kube::IsDeleting(object)) {
    MarkDefinition(object, now);
    return Step::kStore;
  }
  bool graceful = false;
  const Step step = ApplyGrace(*job.call->resource, object, job.options, now, graceful);
  if (step == Step::kNothing) {
    return step;
  }
  ApplyPolicy(kind, object, job.options);
  if (HasFinalizers(object)) {
    if (!graceful) {
      MarkDeleting(object, now);
    }
    return Step::kStore;
  }
  return step;
}

void Retry(const DeleteJobPtr& job) {
  if (++job->attempt >= kAttemptsMax) {
    return job->done(Conflict(job->call->resource->Name(), job->name, kModifiedMessage));
  }
  if (!job->call->context->offload([job] { RunDelete(job); })) {
    job->done(TooManyRequests("too many requests, please try again later.", 1));
  }
}

void Commit(const DeleteJobPtr& job, Step step, kube::Json object, const storage::Record& record,
            std::vector<storage::Op> companions) {
  DeleteOutcome outcome;
  outcome.removed = step == Step::kRemove;
  outcome.uid = std::string(kube::UidOf(object));
  if (step == Step::kRemove && job->call->resource->graceful_delete) {
    // The answer shows the grace that was left: none.
    outcome.tree = std::make_shared<const kube::Json>(object);
  }
  std::vector<storage::Op> ops(1);
  if (step == Step::kStore) {
    auto put = MakePut(*job->call, std::move(object), record.key, record.mod_revision);
    if (!put.ok()) {
      return job->done(std::move(put).error());
    }
    if (SameBytes(*put, *record.value)) {
      outcome.value = record.value;
      return job->done(std::move(outcome));
    }
    ops[0] = std::move(*put);
  } else {
    ops[0].kind = storage::Op::Kind::kDelete;
    ops[0].key = record.key;
    ops[0].expected = record.mod_revision;
    ops[0].short_history = job->call->type().short_history;
  }
  for (auto& companion : companions) {
    ops.push_back(std::move(companion));
  }
  job->call->context->store->Transact(std::move(ops),
                                      [job, outcome](Result<storage::TxnResult> result) mutable {
                                        if (!result.ok()) {
                                          return job->done(std::move(result).error());
                                        }
                                        if (!result->committed) {
                                          return Retry(job);
                                        }
                                        outcome.value = result->values.front();
                                        job->done(std::move(outcome));
                                      });
}

}  // namespace

void RunDelete(std::shared_ptr<DeleteJob> job) {
  Call& call = *job->call;
  const auto record = call.context->store->Get(call.type().Key(job->namespace_name, job->name));
  if (!record) {
    return job->done(NotFound(call.resource->Name(), job->name));
  }
  const ObjectWriter writer(*call.resource, call.form, call.context->clock->Now());
  kube::Json object = writer.TreeOf(*record->value);
  if (auto checked = CheckPreconditions(*job, object); !checked.ok()) {
    return job->done(std::move(checked).error());
  }
  std::vector<storage::Op> companions;
  auto admission = MakeAdmissionRequest(call, Operation::kDelete, job->options.dry_run, companions);
  const kube::Json old = object;
  admission.old_object = &old;
  admission.name = job->name;
  admission.namespace_name = job->namespace_name;
  admission.warnings = &job->warnings;
  if (auto admitted = call.context->admission->Mutate(admission); !admitted.ok()) {
    return job->done(std::move(admitted).error());
  }
  if (auto admitted = call.context->admission->Validate(admission); !admitted.ok()) {
    return job->done(std::move(admitted).error());
  }
  const Step step = Decide(*job, object, call.context->clock->Now());
  DeleteOutcome outcome;
  outcome.uid = std::string(kube::UidOf(object));
  if (step == Step::kNothing) {
    outcome.value = record->value;
    return job->done(std::move(outcome));
  }
  if (job->options.dry_run) {
    outcome.removed = step == Step::kRemove;
    outcome.tree = std::make_shared<const kube::Json>(std::move(object));
    return job->done(std::move(outcome));
  }
  if (step == Step::kStore) {
    // Companions belong to the moment the object really goes.
    companions.clear();
  }
  Commit(job, step, std::move(object), *record, std::move(companions));
}

}  // namespace sublet::apiserver
