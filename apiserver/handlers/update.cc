#include <nlohmann/json.hpp>

#include "apiserver/handlers/body.h"
#include "apiserver/handlers/create_object.h"
#include "apiserver/handlers/respond.h"
#include "apiserver/handlers/update_object.h"
#include "apiserver/handlers/verbs.h"
#include "apiserver/handlers/write_common.h"
#include "apiserver/registry/kind_ops.h"
#include "kube/kinds/write_path.h"
#include "kube/object.h"

namespace sublet::apiserver {
namespace {

using UpdateJobPtr = std::shared_ptr<UpdateJob>;

Status StorageUidConflict(const Call& call, std::string_view wanted, std::string_view live) {
  std::string key = "/registry/" + call.resource->plural() + "/";
  if (call.resource->namespaced()) {
    key += call.namespace_name() + "/";
  }
  key += call.name();
  return Conflict(call.resource->Name(), call.name(),
                  "StorageError: invalid object, Code: 4, Key: " + key +
                      ", ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in "
                      "precondition: " +
                      std::string(wanted) + ", UID in object meta: " + std::string(live));
}

Result<void> CheckName(const Call& call, const kube::Json& object) {
  const auto name = kube::NameOf(object);
  if (name.empty()) {
    return BadRequest("the name of the object (" + call.name() +
                      " based on URL) was undeterminable: name must be provided");
  }
  if (name != call.name()) {
    return BadRequest("the name of the object (" + std::string(name) +
                      ") does not match the name on the URL (" + call.name() + ")");
  }
  return Ok();
}

// The rules of resourceVersion: absent = overwrite where the kind allows it, else it must be the
// live one.
Result<void> CheckRevision(const Call& call, const kube::Json& object, const kube::Json& live) {
  const auto wanted = kube::ResourceVersionOf(object);
  if (wanted.empty() || wanted == "0") {
    if (call.kind().allow_unconditional_update) {
      return Ok();
    }
    return Invalid(call.resource->group(), call.resource->plural(), call.name(),
                   {{"FieldValueInvalid", "Invalid value: 0: must be specified for an update",
                     "metadata.resourceVersion"}});
  }
  if (!ParseResourceVersion(wanted).ok()) {
    return Status(Reason::kUnknown, 500,
                  "strconv.ParseUint: parsing \"" + std::string(wanted) + "\": invalid syntax");
  }
  if (wanted != kube::ResourceVersionOf(live)) {
    return Conflict(call.resource->Name(), call.name(), kModifiedMessage);
  }
  return Ok();
}

// From the made object to the one that may be written.
Result<void> PrepareUpdate(UpdateJob& job, kube::Json& object, const kube::Json& live,
                           std::vector<storage::Op>& companions) {
  Call& call = *job.call;
  const auto subresource = call.subresource_name();
  if (!job.tracks_itself) {
    TrackUpdate(*call.resource, object, &live, job.options.field_manager, subresource,
                call.context->clock->Now());
  }
  auto admission = MakeAdmissionRequest(call, Operation::kUpdate, job.options.dry_run, companions);
  admission.object = &object;
  admission.old_object = &live;
  SUBLET_RETURN_IF_ERROR(call.context->admission->Mutate(admission));
  DedupOwners(call, object, true);
  SUBLET_RETURN_IF_ERROR(CheckRevision(call, object, live));
  MetadataOf(object)["resourceVersion"] = std::string(kube::ResourceVersionOf(live));
  SUBLET_RETURN_IF_ERROR(kube::BeforeUpdate(call.kind(),
                                            MakeWriteContext(call, job.options.dry_run),
                                            subresource, live, &object, &call.request->warnings));
  KeepManagedTimes(object, live);
  return call.context->admission->Validate(admission);
}

void Answer(UpdateJob& job, int code, const storage::ValuePtr& value) {
  if (job.answer) {
    return job.answer(*job.call, code, value);
  }
  SendValue(*job.call, code, value);
}

void Retry(const UpdateJobPtr& job) {
  if (++job->attempt >= kAttemptsMax) {
    return SendError(*job->call,
                     Conflict(job->call->resource->Name(), job->call->name(), kModifiedMessage));
  }
  Offload(job->call, [job] { RunUpdate(job); });
}

void CreateInstead(const UpdateJobPtr& job) {
  Call& call = *job->call;
  auto object = job->make(nullptr);
  if (!object.ok()) {
    return SendError(call, object.error());
  }
  if (const auto uid = kube::UidOf(*object); !uid.empty()) {
    return SendError(call, Conflict(call.resource->Name(), call.name(),
                                    "uid mismatch: the provided object specified uid " +
                                        std::string(uid) + ", and no existing object was found"));
  }
  const AccessQuestion question{.verb = "create",
                                .group = call.resource->group(),
                                .version = call.resource->version(),
                                .resource = call.resource->plural(),
                                .subresource = std::string(call.subresource_name()),
                                .namespace_name = call.namespace_name(),
                                .name = call.name()};
  if (auto allowed = call.context->authorize(call.request->user, question); !allowed.ok()) {
    return SendError(call, allowed.error());
  }
  WipeSystemFields(*object);
  MetadataOf(*object).erase("resourceVersion");
  CreateInput input;
  input.options = job->options;
  input.object = std::move(*object);
  input.tracked = job->tracks_itself;
  input.attempt = job->attempt;
  input.again_when_taken = true;
  // Somebody else created it meanwhile, or a companion lost: look again.
  input.again = [job](int attempt) {
    job->attempt = attempt;
    RunUpdate(job);
  };
  CreateObject(job->call, std::move(input));
}

// The object leaves storage, the answer is the object as it was last.
void DeleteInstead(const UpdateJobPtr& job, kube::Json object, const storage::Record& record,
                   std::vector<storage::Op> companions) {
  std::vector<storage::Op> ops(1);
  ops[0].kind = storage::Op::Kind::kDelete;
  ops[0].key = record.key;
  ops[0].expected = record.mod_revision;
  ops[0].short_history = job->call->type().short_history;
  for (auto& companion : companions) {
    ops.push_back(std::move(companion));
  }
  auto shown = std::make_shared<const kube::Json>(std::move(object));
  job->call->context->store->Transact(std::move(ops),
                                      [job, shown](Result<storage::TxnResult> result) {
                                        if (!result.ok()) {
                                          return SendError(*job->call, result.error());
                                        }
                                        if (!result->committed) {
                                          return Retry(job);
                                        }
                                        SendTree(*job->call, 200, *shown);
                                      });
}

void Commit(const UpdateJobPtr& job, kube::Json object, const storage::Record& record,
            std::vector<storage::Op> companions) {
  auto put = MakePut(*job->call, std::move(object), record.key, record.mod_revision);
  if (!put.ok()) {
    return SendError(*job->call, put.error());
  }
  if (companions.empty() && SameBytes(*put, *record.value)) {
    return Answer(*job, 200, record.value);
  }
  std::vector<storage::Op> ops;
  ops.push_back(std::move(*put));
  for (auto& companion : companions) {
    ops.push_back(std::move(companion));
  }
  job->call->context->store->Transact(std::move(ops), [job](Result<storage::TxnResult> result) {
    if (!result.ok()) {
      return SendError(*job->call, result.error());
    }
    if (!result->committed) {
      return Retry(job);
    }
    Answer(*job, 200, result->values.front());
  });
}

// A namespace is held by spec.finalizers until its controller has emptied it.
bool IsHeldNamespace(const Call& call, const kube::Json& object) {
  const kube::Json* finalizers = kube::Find(object, {"spec", "finalizers"});
  return call.resource->Is("", "namespaces") && finalizers != nullptr && !finalizers->empty();
}

}  // namespace

bool EndsDeletion(const kube::Json& object, const kube::Json& live) {
  const kube::Json* finalizers = kube::Find(object, {"metadata", "finalizers"});
  if (finalizers != nullptr && finalizers->is_array() && !finalizers->empty()) {
    return false;
  }
  return kube::IsDeleting(live) &&
         kube::FindInt(live, {"metadata", "deletionGracePeriodSeconds"}, 0) == 0;
}

void RunUpdate(std::shared_ptr<UpdateJob> job) {
  Call& call = *job->call;
  const auto record = call.context->store->Get(call.Key());
  if (!record) {
    if (job->allow_create) {
      return CreateInstead(job);
    }
    return SendError(call, NotFound(call.resource->Name(), call.name()));
  }
  call.ResetWarnings();
  const auto live_tree = LiveTree(call, *call.resource, *record->value);
  const kube::Json& live = *live_tree;
  if (!job->uid.empty() && job->uid != kube::UidOf(live)) {
    return SendError(call, StorageUidConflict(call, job->uid, kube::UidOf(live)));
  }
  auto object = job->make(&live);
  if (!object.ok()) {
    return SendError(call, object.error());
  }
  if (auto ensured = EnsureNamespace(call, *object); !ensured.ok()) {
    return SendError(call, ensured.error());
  }
  if (auto named = CheckName(call, *object); !named.ok()) {
    return SendError(call, named.error());
  }
  std::vector<storage::Op> companions;
  if (!call.on_pool) {
    auto admission =
        MakeAdmissionRequest(call, Operation::kUpdate, job->options.dry_run, companions);
    admission.object = &*object;
    admission.old_object = &live;
    if (call.context->admission->MayBlock(admission)) {
      call.on_pool = true;
      return Offload(job->call, [job] { RunUpdate(job); });
    }
  }
  if (auto ready = PrepareUpdate(*job, *object, live, companions); !ready.ok()) {
    return SendError(call, ready.error());
  }
  if (job->options.dry_run) {
    return SendTree(call, 200, *object);
  }
  if (EndsDeletion(*object, live) && !IsHeldNamespace(call, *object)) {
    return DeleteInstead(job, std::move(*object), *record, std::move(companions));
  }
  Commit(job, std::move(*object), *record, std::move(companions));
}

void HandleUpdate(CallPtr call) {
  const auto options = ParseWriteOptions(*call->request, "UpdateOptions");
  if (!options.ok()) {
    return SendError(*call, options.error());
  }
  auto job = std::make_shared<UpdateJob>();
  job->call = call;
  job->options = *options;
  job->allow_create = call->subresource == nullptr && call->kind().allow_create_on_update;
  const auto decode = [call, validation = options->validation]() -> Result<kube::Json> {
    const BodyTarget target{.kind = &call->kind(), .needs_type = call->kind().is_custom};
    SUBLET_TRY(kube::Json object, DecodeBody(*call, target, validation));
    SUBLET_RETURN_IF_ERROR(EnsureNamespace(*call, object));
    SUBLET_RETURN_IF_ERROR(CheckName(*call, object));
    return object;
  };
  // The body is judged before the object is looked for; a second attempt reads it again instead of
  // keeping a copy of the tree.
  auto first = decode();
  if (!first.ok()) {
    return SendError(*call, first.error());
  }
  job->uid = std::string(kube::UidOf(*first));
  auto prepared = std::make_shared<std::optional<kube::Json>>(std::move(*first));
  auto warnings = call->request->warnings;
  job->make = [decode, prepared, warnings, call](const kube::Json*) -> Result<kube::Json> {
    if (prepared->has_value()) {
      kube::Json object = std::move(**prepared);
      prepared->reset();
      call->request->warnings.insert(call->request->warnings.end(), warnings.begin(),
                                     warnings.end());
      DedupOwners(*call, object, false);
      return object;
    }
    SUBLET_TRY(kube::Json object, decode());
    DedupOwners(*call, object, false);
    return object;
  };
  RunUpdate(std::move(job));
}

}  // namespace sublet::apiserver
