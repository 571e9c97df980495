#include "apiserver/handlers/write_common.h"

#include <nlohmann/json.hpp>
#include <set>

#include "apiserver/handlers/fresh_trees.h"
#include "apiserver/handlers/object_writer.h"
#include "apiserver/handlers/respond.h"
#include "kube/object.h"
#include "kube/timestamp.h"

namespace sublet::apiserver {

kube::Json& MetadataOf(kube::Json& object) {
  auto& metadata = object["metadata"];
  if (!metadata.is_object()) {
    metadata = kube::Json::object();
  }
  return metadata;
}

Result<void> EnsureNamespace(const Call& call, kube::Json& object) {
  auto& metadata = MetadataOf(object);
  const auto it = metadata.find("namespace");
  // Not one conditional expression: "" would make it a temporary string.
  std::string_view given;
  if (it != metadata.end() && it->is_string()) {
    given = it->get_ref<const std::string&>();
  }
  if (!call.resource->namespaced()) {
    if (it != metadata.end()) {
      metadata.erase(it);
    }
    return Ok();
  }
  if (given.empty()) {
    metadata["namespace"] = call.namespace_name();
    return Ok();
  }
  if (given != call.namespace_name()) {
    return BadRequest(
        "the namespace of the provided object does not match the namespace sent on the request");
  }
  return Ok();
}

void WipeSystemFields(kube::Json& object) {
  auto& metadata = MetadataOf(object);
  for (const char* field : {"uid", "creationTimestamp", "deletionTimestamp",
                            "deletionGracePeriodSeconds", "selfLink"}) {
    metadata.erase(field);
  }
}

kube::WriteContext MakeWriteContext(const Call& call, bool dry_run) {
  kube::WriteContext context;
  context.now = call.context->clock->Now();
  context.namespace_name = call.namespace_name();
  context.user = call.request->user.name;
  context.user_uid = call.request->user.uid;
  context.groups = call.request->user.groups;
  context.dry_run = dry_run;
  return context;
}

void DedupOwners(Call& call, kube::Json& object, bool after_admission) {
  auto& metadata = MetadataOf(object);
  const auto owners = metadata.find("ownerReferences");
  if (owners == metadata.end() || !owners->is_array() || owners->size() < 2) {
    return;
  }
  kube::Json kept = kube::Json::array();
  std::vector<std::string> duplicates;
  std::set<std::string> seen;
  for (auto& owner : *owners) {
    const std::string uid(kube::FindString(owner, {"uid"}));
    if (seen.insert(uid).second) {
      kept.push_back(std::move(owner));
      continue;
    }
    if (std::find(kept.begin(), kept.end(), owner) != kept.end()) {
      duplicates.push_back(uid);
    } else {
      kept.push_back(std::move(owner));
    }
  }
  *owners = std::move(kept);
  if (duplicates.empty()) {
    return;
  }
  std::string list;
  for (const auto& uid : duplicates) {
    list += (list.empty() ? "" : ", ") + uid;
  }
  call.Warn(
      after_admission
          ? ".metadata.ownerReferences contains duplicate entries after mutating admission "
            "happens; API server dedups owner references in 1.20+, and may reject such "
            "requests as early as 1.24; please fix your requests; duplicate UID(s) observed: " +
                list
          : ".metadata.ownerReferences contains duplicate entries; API server dedups owner "
            "references in 1.20+, and may reject such requests as early as 1.24; please fix "
            "your requests; duplicate UID(s) observed: " +
                list);
}

AdmissionRequest MakeAdmissionRequest(Call& call, Operation operation, bool dry_run,
                                      std::vector<storage::Op>& companions) {
  AdmissionRequest request;
  request.operation = operation;
  request.resource = call.resource;
  request.subresource = call.subresource_name();
  request.namespace_name = call.namespace_name();
  request.name = call.name();
  request.user = &call.request->user;
  request.dry_run = dry_run;
  request.deadline = call.request->deadline;
  request.warnings = &call.request->warnings;
  request.companions = &companions;
  return request;
}

Result<storage::Op> MakePut(const Call& call, kube::Json object, std::string key,
                            storage::Revision expected) {
  const StoredType& type = call.type();
  call.strategy().ToStorage(&object);
  object["apiVersion"] = type.StoredApiVersion();
  object["kind"] = type.kind;
  EncodedObject encoded = EncodeObject(object, type);
  if (encoded.bytes.size() > kObjectBytesMax) {
    return Status(Reason::kRequestEntityTooLarge, "etcdserver: request is too large").With({});
  }
  storage::Op op;
  op.kind = storage::Op::Kind::kPut;
  op.key = std::move(key);
  op.expected = expected;
  op.bytes = std::move(encoded.bytes);
  op.revision_offset = encoded.revision_offset;
  op.attachment = encoded.facts;
  KeepTree(call, type, std::move(encoded.facts), std::move(object), op.bytes.size());
  op.ttl_seconds = type.ttl_seconds;
  op.short_history = type.short_history;
  return op;
}

void KeepTree(const Call& call, const StoredType& type, std::shared_ptr<const ObjectFacts> facts,
              kube::Json tree, std::size_t bytes) {
  if (call.context->fresh_trees != nullptr) {
    call.context->fresh_trees->Keep(type, std::move(facts), std::move(tree), bytes);
  }
}

std::shared_ptr<const kube::Json> LiveTree(const Call& call, const Resource& resource,
                                           const storage::Value& value) {
  const OutputForm form;
  const ObjectWriter writer(resource, form, call.context->clock->Now());
  if (call.context->fresh_trees != nullptr && writer.IsVerbatim(value)) {
    if (auto fresh = call.context->fresh_trees->Find(value)) {
      return fresh;
    }
  }
  return std::make_shared<const kube::Json>(writer.TreeOf(value));
}

void Offload(const CallPtr& call, std::function<void()> work) {
  if (!call->context->offload(std::move(work))) {
    SendError(*call, TooManyRequests("too many requests, please try again later.", 1));
  }
}

void KeepManagedTimes(kube::Json& object, const kube::Json& live) {
  kube::Json* fresh = kube::Find(object, {"metadata", "managedFields"});
  const kube::Json* old = kube::Find(live, {"metadata", "managedFields"});
  if (fresh == nullptr || old == nullptr || !fresh->is_array() || !old->is_array() ||
      fresh->size() != old->size()) {
    return;
  }
  for (std::size_t i = 0; i < fresh->size(); ++i) {
    const auto& a = (*fresh)[i];
    const auto& b = (*old)[i];
    if (!a.is_object() || !b.is_object() || a.size() != b.size()) {
      return;
    }
    for (auto it = a.begin(); it != a.end(); ++it) {
      if (it.key() == "time") {
        continue;
      }
      const auto other = b.find(it.key());
      if (other == b.end() || *other != it.value()) {
        return;
      }
    }
  }
  // Only the times may differ so far; they count only when something else of the object changed.
  kube::Json fresh_fields = std::move(*fresh);
  *fresh = *old;
  if (object != live) {
    *kube::Find(object, {"metadata", "managedFields"}) = std::move(fresh_fields);
  }
}

bool SameBytes(const storage::Op& put, const storage::Value& value) {
  if (put.revision_offset == storage::kNoHole || put.revision_offset != value.revision_offset ||
      put.bytes.size() + value.revision_length != value.bytes.size()) {
    return false;
  }
  const std::string_view fresh = put.bytes;
  const std::string_view old = value.bytes;
  const std::size_t hole = put.revision_offset;
  return fresh.substr(0, hole) == old.substr(0, hole) &&
         fresh.substr(hole) == old.substr(hole + value.revision_length);
}

}  // namespace sublet::apiserver
