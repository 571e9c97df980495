#include "controllers/context.h"

#include <nlohmann/json.hpp>

#include "controllers/pod_record.h"
#include "controllers/service_endpoints.h"
#include "kube/object.h"

namespace sublet::controllers {
namespace {

using kube::Json;

// Of the big kinds the controllers keep a record instead of the bytes.
client::InformerOptions OptionsOf(const ResourceKind& kind) {
  client::InformerOptions options;
  options.resource = kind.resource;
  options.kind = kind.kind;
  if (kind.resource == kPods.resource) {
    options.keep_bytes = false;
    options.make_record = [](const Json& pod) -> std::shared_ptr<const void> {
      return std::make_shared<const PodRecord>(ReadPodRecord(pod));
    };
  } else if (kind.resource == kServices.resource) {
    options.make_record = [](const Json& service) -> std::shared_ptr<const void> {
      return std::make_shared<const ServiceRecord>(ReadServiceRecord(service));
    };
  } else if (kind.resource == kSecrets.resource || kind.resource == kConfigMaps.resource) {
    options.keep_bytes = false;  // read live by the few who need one
  }
  return options;
}

}  // namespace

Collection::Collection(const Context& context, const ResourceKind& kind)
    : client_(context.client), kind_(kind), informer_(context.informers.For(OptionsOf(kind))) {}

client::Target Collection::TargetOf(const kube::ObjectKey& key, std::string subresource) const {
  return {kind_.resource, key.namespace_name, key.name, std::move(subresource)};
}

Result<Json> Collection::GetLive(const kube::ObjectKey& key) const {
  return client_.Get(TargetOf(key));
}

Result<Json> Collection::Note(Result<Json> answer) const {
  if (answer.ok()) {
    informer_.NoteWritten(*answer);
  }
  return answer;
}

Result<Json> Collection::Create(const std::string& namespace_name, Json object) const {
  object["apiVersion"] = kind_.resource.ApiVersion();
  object["kind"] = kind_.kind;
  return Note(client_.Create(TargetOf({namespace_name, ""}), object));
}

Result<Json> Collection::Update(const Json& object) const {
  return Note(client_.Update(TargetOf(kube::KeyOf(object)), object));
}

Result<Json> Collection::UpdateStatus(const Json& object) const {
  return Note(client_.Update(TargetOf(kube::KeyOf(object), "status"), object));
}

Result<Json> Collection::Patch(const kube::ObjectKey& key, client::PatchType type,
                               const Json& patch, std::string subresource) const {
  auto answer = client_.Patch(TargetOf(key, std::move(subresource)), type, patch);
  // Removing the last finalizer of a deleting object removes it: the answer is its last state.
  if (answer.ok() && kube::IsDeleting(*answer)) {
    const Json* finalizers = kube::Find(*answer, {"metadata", "finalizers"});
    if ((finalizers == nullptr || finalizers->empty()) &&
        kube::FindInt(*answer, {"metadata", "deletionGracePeriodSeconds"}) == 0) {
      informer_.NoteDeleted(key, kube::UidOf(*answer));
      return answer;
    }
  }
  return Note(std::move(answer));
}

Result<void> Collection::Delete(const kube::ObjectKey& key, std::string_view uid,
                                client::DeleteOptions options) const {
  options.uid = uid;
  const auto answer = client_.Delete(TargetOf(key), options);
  if (!answer.ok()) {
    const bool other_uid = answer.error().Is(Reason::kConflict);
    if (!answer.error().Is(Reason::kNotFound) && !other_uid) {
      return answer.error();
    }
    informer_.NoteDeleted(key, uid);
  } else if (kube::FindString(*answer, {"kind"}) == "Status") {
    informer_.NoteDeleted(key, uid);
  } else {
    informer_.NoteWritten(*answer);
  }
  return Ok();
}

}  // namespace sublet::controllers
