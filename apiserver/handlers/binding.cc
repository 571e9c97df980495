#include <nlohmann/json.hpp>

#include "apiserver/handlers/body.h"
#include "apiserver/handlers/respond.h"
#include "apiserver/handlers/subresources.h"
#include "apiserver/handlers/write_common.h"
#include "kube/field_error.h"
#include "kube/kinds/registry.h"
#include "kube/object.h"
#include "kube/timestamp.h"

namespace sublet::apiserver {
namespace {

using kube::Json;

constexpr ResourceName kBindingName{"", "pods/binding"};

// The one caller that may take a binding back, and only in process: the tenant's syncer, which
// knows that the host's node refused the pod before any container ran.
constexpr std::string_view kUnbinder = "system:sublet:syncer";
constexpr std::string_view kUnbindReason = "sublet.dev/unbind-reason";
constexpr std::string_view kUnbindMessage = "sublet.dev/unbind-message";

struct BindingJob {
  CallPtr call;
  std::string name;
  Json binding;
  bool unbind = false;
  bool dry_run = false;
  int attempt = 0;
};
using BindingJobPtr = std::shared_ptr<BindingJob>;

bool IsUnbinding(const Request& request, const Json& binding) {
  return request.loopback && request.user.name == kUnbinder &&
         kube::FindString(binding, {"target", "name"}).empty() &&
         !kube::AnnotationOf(binding, kUnbindReason).empty();
}

Result<void> ValidateBinding(const Json& binding) {
  kube::FieldErrors errors;
  const auto kind = kube::FindString(binding, {"target", "kind"});
  if (!kind.empty() && kind != "Node") {
    errors.NotSupported(std::string("target.kind"), Json(std::string(kind)), {"Node", "<empty>"});
  }
  if (kube::FindString(binding, {"target", "name"}).empty()) {
    errors.Required(std::string("target.name"));
  }
  if (!errors.empty()) {
    // Upstream answers this one without a reason.
    return Status(Reason::kUnknown, 500, errors.Aggregate());
  }
  return Ok();
}

Status PreconditionFailed(const BindingJob& job, std::string_view what, std::string_view wanted,
                          std::string_view live) {
  return Conflict({"", "pods"}, job.name,
                  "StorageError: invalid object, Code: 4, Key: /registry/pods/" +
                      job.call->namespace_name() + "/" + job.name +
                      ", ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: " +
                      std::string(what) + " in precondition: " + std::string(wanted) + ", " +
                      std::string(what) + " in object meta: " + std::string(live));
}

// Differs: Kubernetes never takes a binding back. The pod is as it was before it was bound, and its
// condition says why, so that the scheduler places it again.
Json Unbound(const BindingJob& job, Json pod) {
  pod["spec"].erase("nodeName");
  Json& status = kube::EnsureObject(&pod, "status");
  Json conditions = Json::array();
  for (const Json& condition : status.value("conditions", Json::array())) {
    if (kube::FindString(condition, {"type"}) == "PodScheduled") {
      conditions.push_back(condition);
    }
  }
  Json fresh = {{"phase", "Pending"}, {"conditions", std::move(conditions)}};
  if (const auto quality = status.find("qosClass"); quality != status.end()) {
    fresh["qosClass"] = *quality;
  }
  status = std::move(fresh);
  kube::Condition condition;
  condition.type = "PodScheduled";
  condition.status = "False";
  condition.reason = kube::AnnotationOf(job.binding, kUnbindReason);
  condition.message = kube::AnnotationOf(job.binding, kUnbindMessage);
  kube::SetCondition(&pod, condition, kube::FormatTime(job.call->context->clock->Now()));
  return pod;
}

// The pod on its node, or why it cannot be put there.
Result<Json> Bind(const BindingJob& job, Json pod) {
  const std::string& name = job.name;
  const auto uid = kube::UidOf(job.binding);
  if (!uid.empty() && uid != kube::UidOf(pod)) {
    return PreconditionFailed(job, "UID", uid, kube::UidOf(pod));
  }
  const auto version = kube::ResourceVersionOf(job.binding);
  if (!version.empty() && version != kube::ResourceVersionOf(pod)) {
    return PreconditionFailed(job, "ResourceVersion", version, kube::ResourceVersionOf(pod));
  }
  if (kube::IsDeleting(pod)) {
    return Conflict(kBindingName, name,
                    "pod " + name + " is being deleted, cannot be assigned to a host");
  }
  if (job.unbind) {
    return Unbound(job, std::move(pod));
  }
  const auto node = kube::FindString(pod, {"spec", "nodeName"});
  if (!node.empty()) {
    return Conflict(kBindingName, name,
                    "pod " + name + " is already assigned to node \"" + std::string(node) + "\"");
  }
  if (const Json* gates = kube::Find(pod, {"spec", "schedulingGates"});
      gates != nullptr && gates->is_array() && !gates->empty()) {
    return Conflict(kBindingName, name, "pod " + name + " has non-empty .spec.schedulingGates");
  }
  pod["spec"]["nodeName"] = std::string(kube::FindString(job.binding, {"target", "name"}));
  for (const char* field : {"annotations", "labels"}) {
    if (const Json* more = kube::Find(job.binding, {"metadata", field});
        more != nullptr && more->is_object()) {
      for (auto it = more->begin(); it != more->end(); ++it) {
        kube::EnsureObject(&MetadataOf(pod), field)[it.key()] = it.value();
      }
    }
  }
  kube::Condition condition;
  condition.type = "PodScheduled";
  condition.status = "True";
  kube::SetCondition(&pod, condition, kube::FormatTime(job.call->context->clock->Now()));
  for (Json& one : *kube::Find(pod, {"status", "conditions"})) {
    if (kube::FindString(one, {"type"}) == "PodScheduled") {
      one.emplace("lastProbeTime", nullptr);
    }
  }
  return pod;
}

void AnswerBound(Call& call) {
  SendText(call, 201, "application/json",
           "{\"kind\":\"Status\",\"apiVersion\":\"v1\",\"metadata\":{},\"status\":\"Success\","
           "\"code\":201}");
}

void Run(const BindingJobPtr& job) {
  Call& call = *job->call;
  const CatalogPtr catalog = call.catalog;
  const Resource* pods = catalog->Find("", "v1", "pods");
  const auto record = call.context->store->Get(pods->type->Key(call.namespace_name(), job->name));
  if (!record) {
    return SendError(call, NotFound({"", "pods"}, job->name));
  }
  auto pod = Bind(*job, kube::Json(*LiveTree(call, *pods, *record->value)));
  if (!pod.ok()) {
    return SendError(call, pod.error());
  }
  if (job->dry_run) {
    return AnswerBound(call);
  }
  EncodedObject encoded = EncodeObject(*pod, *pods->type);
  std::vector<storage::Op> ops(1);
  ops[0].key = record->key;
  ops[0].expected = record->mod_revision;
  ops[0].bytes = std::move(encoded.bytes);
  ops[0].revision_offset = encoded.revision_offset;
  ops[0].attachment = encoded.facts;
  KeepTree(call, *pods->type, std::move(encoded.facts), std::move(*pod), ops[0].bytes.size());
  call.context->store->Transact(std::move(ops), [job](Result<storage::TxnResult> result) {
    if (!result.ok()) {
      return SendError(*job->call, result.error());
    }
    if (result->committed) {
      return AnswerBound(*job->call);
    }
    if (++job->attempt >= kAttemptsMax) {
      return SendError(*job->call, Conflict(kBindingName, job->name, kModifiedMessage));
    }
    Offload(job->call, [job] { Run(job); });
  });
}

}  // namespace

void HandleBinding(CallPtr call) {
  const auto options = ParseWriteOptions(*call->request, "CreateOptions");
  if (!options.ok()) {
    return SendError(*call, options.error());
  }
  static const kube::KindPtr kKind = kube::FindBuiltinKind("", "v1", "Binding");
  const BodyTarget target{.kind = kKind.get(), .needs_type = false};
  auto binding = DecodeBody(*call, target, options->validation);
  if (!binding.ok()) {
    return SendError(*call, binding.error());
  }
  auto job = std::make_shared<BindingJob>();
  job->call = call;
  job->name = call->name().empty() ? std::string(kube::NameOf(*binding)) : call->name();
  job->dry_run = options->dry_run;
  const auto given = kube::NameOf(*binding);
  if (!given.empty() && given != job->name) {
    return SendError(*call, BadRequest("name in URL does not match name in Binding object"));
  }
  job->unbind = IsUnbinding(*call->request, *binding);
  if (auto valid = ValidateBinding(*binding); !job->unbind && !valid.ok()) {
    return SendError(*call, valid.error());
  }
  job->binding = std::move(*binding);
  Run(job);
}

}  // namespace sublet::apiserver
