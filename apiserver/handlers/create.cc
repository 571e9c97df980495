#include <nlohmann/json.hpp>

#include "apiserver/handlers/body.h"
#include "apiserver/handlers/create_object.h"
#include "apiserver/handlers/respond.h"
#include "apiserver/handlers/verbs.h"
#include "apiserver/handlers/write_common.h"
#include "apiserver/registry/kind_ops.h"
#include "kube/kinds/write_path.h"
#include "kube/object.h"

namespace sublet::apiserver {
namespace {

constexpr int kGenerateNameAttempts = 8;

// metadata rules and the kind's own, before anything is written.
Result<void> PrepareCreate(Call& call, const CreateInput& input, kube::Json& object,
                           std::vector<storage::Op>& companions) {
  const WallTime now = call.context->clock->Now();
  DedupOwners(call, object, false);
  if (!input.tracked) {
    TrackUpdate(*call.resource, object, nullptr, input.options.field_manager,
                call.subresource_name(), now);
  }
  auto admission =
      MakeAdmissionRequest(call, Operation::kCreate, input.options.dry_run, companions);
  admission.object = &object;
  admission.name = std::string(kube::NameOf(object));
  SUBLET_RETURN_IF_ERROR(call.context->admission->Mutate(admission));
  DedupOwners(call, object, true);
  SUBLET_RETURN_IF_ERROR(kube::BeforeCreate(call.kind(),
                                            MakeWriteContext(call, input.options.dry_run), &object,
                                            &call.request->warnings));
  admission.name = std::string(kube::NameOf(object));
  return call.context->admission->Validate(admission);
}

Status NameTaken(const Call& call, const std::string& name, bool generated,
                 const std::optional<storage::Record>& current) {
  Status status = AlreadyExists(call.resource->Name(), name);
  const bool deleting =
      current && current->value->attachment != nullptr && FactsOf(*current->value).deleting;
  if (!generated && !deleting) {
    return status;
  }
  StatusDetails details = status.details();
  std::string message = status.message();
  if (generated) {
    message += ", the server was not able to generate a unique name for the object";
    details.retry_after_seconds = 1;
  }
  if (deleting) {
    message = "object is being deleted: " + message;
  }
  return Status(Reason::kAlreadyExists, std::move(message)).With(std::move(details));
}

struct CreateCommit {
  CallPtr call;
  std::string name;
  bool generated = false;
  bool again_when_taken = false;
  int attempt = 0;
  std::function<void(int)> again;
};

// Runs on the writer thread, after the commit.
void FinishCreate(const CreateCommit& commit, Result<storage::TxnResult> result) {
  const CallPtr& call = commit.call;
  if (!result.ok()) {
    return SendError(*call, result.error());
  }
  if (result->committed) {
    return SendValue(*call, 201, result->values.front());
  }
  const bool name_taken = result->conflict == 0;
  const int attempts_max = name_taken && commit.generated ? kGenerateNameAttempts : kAttemptsMax;
  const bool may_run_again = !name_taken || commit.generated || commit.again_when_taken;
  if (may_run_again && commit.again && commit.attempt + 1 < attempts_max) {
    return Offload(call, [again = commit.again, attempt = commit.attempt + 1] { again(attempt); });
  }
  if (name_taken) {
    return SendError(*call, NameTaken(*call, commit.name, commit.generated, result->current));
  }
  SendError(*call, Conflict(call->resource->Name(), commit.name, kModifiedMessage));
}

void RunCreate(const CallPtr& call, const WriteOptions& options, int attempt) {
  call->ResetWarnings();
  const BodyTarget target{.kind = &call->kind(), .needs_type = call->kind().is_custom};
  auto object = DecodeBody(*call, target, options.validation);
  if (!object.ok()) {
    return SendError(*call, object.error());
  }
  WipeSystemFields(*object);
  if (const auto ensured = EnsureNamespace(*call, *object); !ensured.ok()) {
    return SendError(*call, ensured.error());
  }
  CreateInput input;
  input.options = options;
  input.object = std::move(*object);
  input.attempt = attempt;
  input.again = [call, options](int next) { RunCreate(call, options, next); };
  CreateObject(call, std::move(input));
}

// Admission that waits for something outside belongs on the request pool.
bool MovedToPool(const CallPtr& call, CreateInput& input) {
  if (call->on_pool) {
    return false;
  }
  std::vector<storage::Op> none;
  auto admission = MakeAdmissionRequest(*call, Operation::kCreate, input.options.dry_run, none);
  admission.object = &input.object;
  if (!call->context->admission->MayBlock(admission)) {
    return false;
  }
  call->on_pool = true;
  auto moved = std::make_shared<CreateInput>(std::move(input));
  Offload(call, [call, moved] { CreateObject(call, std::move(*moved)); });
  return true;
}

}  // namespace

void CreateObject(CallPtr call, CreateInput input) {
  if (MovedToPool(call, input)) {
    return;
  }
  std::vector<storage::Op> ops(1);
  std::vector<storage::Op> companions;
  const bool generated = kube::NameOf(input.object).empty() &&
                         !kube::FindString(input.object, {"metadata", "generateName"}).empty();
  if (auto ready = PrepareCreate(*call, input, input.object, companions); !ready.ok()) {
    return SendError(*call, ready.error());
  }
  const std::string name(kube::NameOf(input.object));
  std::string key = call->type().Key(call->namespace_name(), name);
  if (input.options.dry_run) {
    if (const auto current = call->context->store->Get(key)) {
      return SendError(*call, NameTaken(*call, name, generated, current));
    }
    return SendTree(*call, 201, input.object);
  }
  auto put = MakePut(*call, std::move(input.object), std::move(key), 0);
  if (!put.ok()) {
    return SendError(*call, put.error());
  }
  ops[0] = std::move(*put);
  for (auto& companion : companions) {
    ops.push_back(std::move(companion));
  }
  auto* const store = call->context->store;
  CreateCommit commit{.call = std::move(call),
                      .name = name,
                      .generated = generated,
                      .again_when_taken = input.again_when_taken,
                      .attempt = input.attempt,
                      .again = std::move(input.again)};
  store->Transact(std::move(ops), [commit = std::move(commit)](Result<storage::TxnResult> result) {
    FinishCreate(commit, std::move(result));
  });
}

void HandleCreate(CallPtr call) {
  if (call->resource->terminating) {
    return SendError(*call, Status(Reason::kMethodNotAllowed,
                                   "create not allowed while custom resource definition is "
                                   "terminating"));
  }
  const auto options = ParseWriteOptions(*call->request, "CreateOptions");
  if (!options.ok()) {
    return SendError(*call, options.error());
  }
  RunCreate(call, *options, 0);
}

}  // namespace sublet::apiserver
