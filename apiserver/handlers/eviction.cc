#include <nlohmann/json.hpp>

#include "apiserver/handlers/body.h"
#include "apiserver/handlers/delete_object.h"
#include "apiserver/handlers/respond.h"
#include "apiserver/handlers/subresources.h"
#include "apiserver/handlers/write_common.h"
#include "apiserver/registry/builtin.h"
#include "kube/label_selector.h"
#include "kube/object.h"
#include "kube/timestamp.h"

namespace sublet::apiserver {
namespace {

using kube::Json;

// Evictions that one budget may have under way. Source: upstream's MaxDisruptedPodSize.
constexpr std::size_t kDisruptedMax = 2000;

struct EvictionJob {
  CallPtr call;
  DeleteOptions options;
  int attempt = 0;
};
using EvictionJobPtr = std::shared_ptr<EvictionJob>;

// Pods that are not running do not disturb anybody when they go.
bool IgnoresBudgets(const Json& pod) {
  const auto phase = kube::FindString(pod, {"status", "phase"});
  return phase == "Succeeded" || phase == "Failed" || phase == "Pending" || kube::IsDeleting(pod);
}

std::vector<storage::Record> BudgetsOf(const Call& call, const Json& pod) {
  std::vector<storage::Record> found;
  auto list = call.context->store->List(
      StoragePrefix({"policy", "poddisruptionbudgets"}) + call.namespace_name() + "/", "", 0, 0);
  if (!list.ok()) {
    return found;
  }
  for (auto& record : list->records) {
    const Json budget = ParseStored(*record.value);
    const auto selector = kube::LabelSelector::FromJson(kube::Find(budget, {"spec", "selector"}));
    if (selector.ok() && selector->MatchesObject(pod)) {
      found.push_back(std::move(record));
    }
  }
  return found;
}

Status TooMany(std::string_view message, std::string cause, int retry_seconds) {
  Status status(Reason::kTooManyRequests, std::string(message));
  StatusDetails details;
  details.retry_after_seconds = retry_seconds;
  details.causes.push_back({"DisruptionBudget", std::move(cause), ""});
  return std::move(status).With(std::move(details));
}

// A pod that is not ready may go although its budget is used up, when the budget says so or is
// satisfied anyway.
bool MayEvictUnready(const Json& pod, const Json& budget) {
  if (kube::IsConditionTrue(pod, "Ready")) {
    return false;
  }
  if (kube::FindString(budget, {"spec", "unhealthyPodEvictionPolicy"}) == "AlwaysAllow") {
    return true;
  }
  const auto healthy = kube::FindInt(budget, {"status", "currentHealthy"});
  const auto desired = kube::FindInt(budget, {"status", "desiredHealthy"});
  return healthy >= desired && desired > 0;
}

// Takes one disruption from the budget. Errors: TooManyRequests, Forbidden.
Result<Json> Charge(const Json& pod, Json budget, std::string_view now) {
  const std::string name(kube::NameOf(budget));
  if (kube::FindInt(budget, {"status", "observedGeneration"}) < kube::GenerationOf(budget)) {
    return TooMany("Cannot evict pod as it would violate the pod's disruption budget.",
                   "The disruption budget " + name + " is still being processed by the server.",
                   10);
  }
  const auto allowed = kube::FindInt(budget, {"status", "disruptionsAllowed"});
  if (allowed < 0) {
    return Forbidden({"policy", "poddisruptionbudget"}, name,
                     "pdb disruptions allowed is negative");
  }
  Json& disrupted = kube::EnsureObject(&budget["status"], "disruptedPods");
  if (disrupted.size() > kDisruptedMax) {
    return Forbidden({"policy", "poddisruptionbudget"}, name,
                     "DisruptedPods map too big - too many evictions not confirmed by PDB "
                     "controller");
  }
  if (allowed == 0) {
    return TooMany("Cannot evict pod as it would violate the pod's disruption budget.",
                   "The disruption budget " + name + " needs " +
                       std::to_string(kube::FindInt(budget, {"status", "desiredHealthy"})) +
                       " healthy pods and has " +
                       std::to_string(kube::FindInt(budget, {"status", "currentHealthy"})) +
                       " currently",
                   0);
  }
  budget["status"]["disruptionsAllowed"] = allowed - 1;
  disrupted[std::string(kube::NameOf(pod))] = std::string(now);
  return budget;
}

void DeletePod(const EvictionJobPtr& job) {
  auto deletion = std::make_shared<DeleteJob>();
  deletion->call = job->call;
  deletion->name = job->call->name();
  deletion->namespace_name = job->call->namespace_name();
  deletion->options = job->options;
  deletion->done = [call = job->call](Result<DeleteOutcome> result) {
    if (!result.ok()) {
      return SendError(*call, result.error());
    }
    SendText(*call, 201, "application/json",
             "{\"kind\":\"Status\",\"apiVersion\":\"v1\",\"metadata\":{},\"status\":\"Success\","
             "\"code\":201}");
  };
  RunDelete(std::move(deletion));
}

void Run(const EvictionJobPtr& job);

// Marks the pod and charges its budget in one transaction, then deletes it.
void Commit(const EvictionJobPtr& job, const storage::Record& pod_record, Json pod,
            const storage::Record* budget_record, const Json* budget) {
  Call& call = *job->call;
  kube::Condition condition;
  condition.type = "DisruptionTarget";
  condition.status = "True";
  condition.reason = "EvictionByEvictionAPI";
  condition.message = "Eviction API: evicting";
  kube::SetCondition(&pod, condition, kube::FormatTime(call.context->clock->Now()));
  const auto put = [](const storage::Record& record, const Json& object, const StoredType& type) {
    EncodedObject encoded = EncodeObject(object, type);
    storage::Op op;
    op.key = record.key;
    op.expected = record.mod_revision;
    op.bytes = std::move(encoded.bytes);
    op.revision_offset = encoded.revision_offset;
    op.attachment = std::move(encoded.facts);
    return op;
  };
  std::vector<storage::Op> ops;
  ops.push_back(put(pod_record, pod, call.type()));
  if (budget_record != nullptr) {
    ops.push_back(put(*budget_record, *budget,
                      *call.catalog->Find("policy", "v1", "poddisruptionbudgets")->type));
  }
  call.context->store->Transact(std::move(ops), [job](Result<storage::TxnResult> result) {
    if (!result.ok()) {
      return SendError(*job->call, result.error());
    }
    const bool again = !result->committed;
    if (again && ++job->attempt >= kAttemptsMax) {
      return SendError(*job->call,
                       Conflict(job->call->resource->Name(), job->call->name(), kModifiedMessage));
    }
    Offload(job->call, [job, again] { again ? Run(job) : DeletePod(job); });
  });
}

void Run(const EvictionJobPtr& job) {
  Call& call = *job->call;
  const auto record = call.context->store->Get(call.Key());
  if (!record) {
    return SendError(call, NotFound(call.resource->Name(), call.name()));
  }
  const Json pod = ParseStored(*record->value);
  if (IgnoresBudgets(pod)) {
    return DeletePod(job);
  }
  const auto budgets = BudgetsOf(call, pod);
  if (budgets.size() > 1) {
    return SendError(call, Status(Reason::kInternalError,
                                  "This pod has more than one PodDisruptionBudget, which the "
                                  "eviction subresource does not support."));
  }
  const std::string now = kube::FormatTime(call.context->clock->Now());
  if (budgets.empty()) {
    return job->options.dry_run ? DeletePod(job) : Commit(job, *record, pod, nullptr, nullptr);
  }
  const Json budget = ParseStored(*budgets.front().value);
  if (MayEvictUnready(pod, budget)) {
    return job->options.dry_run ? DeletePod(job) : Commit(job, *record, pod, nullptr, nullptr);
  }
  const auto charged = Charge(pod, budget, now);
  if (!charged.ok()) {
    return SendError(call, charged.error());
  }
  if (job->options.dry_run) {
    return DeletePod(job);
  }
  Commit(job, *record, pod, &budgets.front(), &*charged);
}

}  // namespace

void HandleEviction(CallPtr call) {
  auto raw = ParseBody(*call, false);
  if (!raw.ok()) {
    return SendError(*call, raw.error());
  }
  const auto kind = kube::FindString(raw->tree, {"kind"});
  if (!kind.empty() && kind != "Eviction") {
    return SendError(*call, BadRequest(std::string(kind) +
                                       " in version \"v1\" cannot be handled as a Eviction"));
  }
  const auto name = kube::NameOf(raw->tree);
  if (!name.empty() && name != call->name()) {
    return SendError(*call, BadRequest("name in URL does not match name in Eviction object"));
  }
  const Json* body = kube::Find(raw->tree, {"deleteOptions"});
  auto options = ParseDeleteOptions(*call->request, body);
  if (!options.ok()) {
    return SendError(*call, options.error());
  }
  auto job = std::make_shared<EvictionJob>();
  job->call = call;
  job->options = std::move(*options);
  const auto write = ParseWriteOptions(*call->request, "CreateOptions");
  job->options.dry_run = job->options.dry_run || (write.ok() && write->dry_run);
  Run(job);
}

void AddPodSubresources(ApiContext& context) {
  context.extensions["/pods/binding"] = &HandleBinding;
  context.extensions["/bindings"] = &HandleBinding;
  context.extensions["/pods/eviction"] = &HandleEviction;
}

}  // namespace sublet::apiserver
