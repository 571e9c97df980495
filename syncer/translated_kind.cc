#include "syncer/translated_kind.h"

#include <nlohmann/json.hpp>

#include "kube/object.h"
#include "syncer/kinds/pod_translate.h"

namespace sublet::syncer {
namespace {

using client::Outcome;
using kube::Json;

std::string Annotation(const Json& object, std::string_view key) {
  return std::string(kube::FindString(object, {"metadata", "annotations", key}));
}

// Answers that mean "somebody else already did it".
bool IsGone(const Status& status) { return status.Is(Reason::kNotFound); }

// A precondition that fails means that object is gone and another took its name, or that somebody
// wrote it at the same moment: the key is looked at again.
constexpr std::chrono::seconds kConflictRetry(1);
Result<Outcome> AfterDelete(const Result<Json>& deleted) {
  if (deleted.ok() || IsGone(deleted.error())) {
    return Outcome::Done();
  }
  return deleted.error().Is(Reason::kConflict) ? Result<Outcome>(Outcome::After(kConflictRetry))
                                               : Result<Outcome>(deleted.error());
}

}  // namespace

HostRecord ReadHostRecord(const Json& host_object) {
  return {{Annotation(host_object, kAnnotationNamespace), Annotation(host_object, kAnnotationName)},
          Annotation(host_object, kAnnotationUid),
          Annotation(host_object, kAnnotationKind),
          Annotation(host_object, kAnnotationHostName),
          {}};
}

client::Informer& SyncContext::HostInformer(std::string_view group, std::string_view version,
                                            std::string_view resource, std::string_view kind,
                                            bool cluster_scoped) {
  client::InformerOptions options;
  options.resource = {std::string(group), std::string(version), std::string(resource)};
  options.kind = kind;
  options.namespace_name = cluster_scoped ? "" : tenant.host_namespace;
  options.label_selector =
      std::string(kLabelManagedBy) + "=" + ManagedByValue(tenant, cluster_scoped);
  options.trim = [](Json& object) {
    if (Json* metadata = kube::Find(object, {"metadata"}); metadata != nullptr) {
      metadata->erase("managedFields");
    }
  };
  options.make_record = [is_pod = kind == "Pod"](const Json& object) {
    HostRecord record = ReadHostRecord(object);
    if (is_pod) {
      record.use = ReadPodUse(object);
    }
    return std::make_shared<const HostRecord>(std::move(record));
  };
  return host_informers.For(options);
}

client::Informer& SyncContext::VirtualInformer(std::string_view group, std::string_view version,
                                               std::string_view resource,
                                               std::string_view kind) const {
  client::InformerOptions options;
  options.resource = {std::string(group), std::string(version), std::string(resource)};
  options.kind = kind;
  if (group.empty() && resource == "pods") {
    // Every kind that asks "who mentions me" shares this record (kinds/pod_references.h).
    options.make_record = [](const Json& pod) {
      return std::make_shared<const PodReferences>(ReferencesOfPod(pod));
    };
  }
  return virtual_informers.For(options);
}

TranslatedKind::TranslatedKind(SyncContext& context, KindInfo info,
                               kube::GroupVersionResource resource, std::string kind)
    : KindSyncer(std::move(info)),
      context_(context),
      resource_(std::move(resource)),
      kind_(std::move(kind)) {}

void TranslatedKind::Watch(Enqueue enqueue) {
  virtual_informer_ =
      &context_.VirtualInformer(resource_.group, resource_.version, resource_.resource, kind_);
  host_informer_ = &context_.HostInformer(resource_.group, resource_.version, resource_.resource,
                                          kind_, info().cluster_scoped);
  virtual_informer_->AddHandler(
      [enqueue](const client::ObjectPtr& before, const client::ObjectPtr& after) {
        enqueue((after != nullptr ? after : before)->key);
      });
  host_informer_->AddHandler([this, enqueue](const client::ObjectPtr& before,
                                             const client::ObjectPtr& after) {
    const auto& object = after != nullptr ? after : before;
    // The mapping decides; the annotations only help where it knows nothing yet.
    if (const auto key = context_.mapping.VirtualOf(info().name, object->key.name)) {
      enqueue(*key);
    } else if (const auto& record = object->As<HostRecord>(); !record.virtual_key.name.empty()) {
      enqueue(record.virtual_key);
    }
  });
}

client::ObjectPtr TranslatedKind::Virtual(const kube::ObjectKey& key) const {
  return virtual_informer_->Get(key);
}

client::ObjectPtr TranslatedKind::Host(const kube::ObjectKey& key) const {
  const auto mapped = context_.mapping.HostNameOf(info().name, key);
  const std::string name = mapped ? *mapped : NameFormula(key);
  auto host = host_informer_->Get({HostNamespace(), name});
  if (host == nullptr) {
    return nullptr;
  }
  // A host object under that name that says to be somebody else's twin is not ours to touch.
  const auto& record = host->As<HostRecord>();
  return mapped || record.virtual_key == key ? host : nullptr;
}

std::string TranslatedKind::NameFormula(const kube::ObjectKey& key) const {
  return info().cluster_scoped ? HostNameCluster(context_.tenant, key.name)
                               : HostName(context_.tenant, key.name, key.namespace_name);
}

std::string TranslatedKind::HostNamespace() const {
  return info().cluster_scoped ? "" : context_.tenant.host_namespace;
}

client::Target TranslatedKind::HostTarget(std::string_view host_name,
                                          std::string_view subresource) const {
  return {resource_, HostNamespace(), std::string(host_name), std::string(subresource)};
}

client::Target TranslatedKind::VirtualTarget(const kube::ObjectKey& key,
                                             std::string_view subresource) const {
  return {resource_, key.namespace_name, key.name, std::string(subresource)};
}

Result<Json> TranslatedKind::NewHostObject(const Json& virtual_object) {
  const kube::ObjectKey key = kube::KeyOf(virtual_object);
  SUBLET_TRY(const std::string name, context_.mapping.Claim(info().name, key, NameFormula(key)));
  const auto& extra = context_.config.pods.extra_keys;
  Json metadata = {{"name", name},
                   {"labels", HostLabels(context_.tenant, virtual_object, extra)},
                   {"annotations", HostAnnotations(context_.tenant, virtual_object,
                                                   info().kind_text, name, extra)}};
  if (!info().cluster_scoped) {
    metadata["namespace"] = HostNamespace();
  }
  if (!info().cluster_scoped && context_.config.set_owner && context_.owner_reference.is_object()) {
    metadata["ownerReferences"] = Json::array({context_.owner_reference});
  }
  return Json{
      {"apiVersion", resource_.ApiVersion()}, {"kind", kind_}, {"metadata", std::move(metadata)}};
}

Result<Outcome> TranslatedKind::CreateHost(const Json& host_object, Json* made) {
  auto created = context_.host_client.Create(HostTarget(""), host_object);
  if (!created.ok()) {
    return std::move(created).error();
  }
  host_informer_->NoteWritten(*created);
  if (made != nullptr) {
    *made = std::move(*created);
  }
  return Outcome::Done();
}

Result<Outcome> TranslatedKind::PatchHost(const Json& host_object, const Json& patch,
                                          std::string_view subresource) {
  if (patch.is_null() || patch.empty()) {
    return Outcome::Done();
  }
  auto patched = context_.host_client.Patch(
      HostTarget(kube::FindString(host_object, {"metadata", "name"}), subresource),
      client::PatchType::kMerge, patch);
  if (!patched.ok()) {
    if (IsGone(patched.error())) {
      return Outcome::Done();
    }
    return std::move(patched).error();
  }
  host_informer_->NoteWritten(*patched);
  return Outcome::Done();
}

Result<Outcome> TranslatedKind::PatchVirtual(const Json& virtual_object, const Json& patch,
                                             std::string_view subresource) {
  if (patch.is_null() || patch.empty()) {
    return Outcome::Done();
  }
  auto patched = context_.virtual_client.Patch(
      VirtualTarget(kube::KeyOf(virtual_object), subresource), client::PatchType::kMerge, patch);
  if (!patched.ok()) {
    if (IsGone(patched.error())) {
      return Outcome::Done();
    }
    return std::move(patched).error();
  }
  virtual_informer_->NoteWritten(*patched);
  return Outcome::Done();
}

Result<Outcome> TranslatedKind::DeleteHost(const Json& host_object,
                                           std::optional<std::int64_t> grace_seconds) {
  client::DeleteOptions options;
  options.grace_period_seconds = grace_seconds;
  options.uid = kube::FindString(host_object, {"metadata", "uid"});
  auto deleted = context_.host_client.Delete(
      HostTarget(kube::FindString(host_object, {"metadata", "name"})), options);
  return AfterDelete(deleted);
}

Result<Outcome> TranslatedKind::DeleteVirtual(const Json& virtual_object,
                                              std::optional<std::int64_t> grace_seconds) {
  client::DeleteOptions options;
  options.grace_period_seconds = grace_seconds;
  options.uid = kube::FindString(virtual_object, {"metadata", "uid"});
  auto deleted =
      context_.virtual_client.Delete(VirtualTarget(kube::KeyOf(virtual_object)), options);
  return AfterDelete(deleted);
}

Json TranslatedKind::MetadataPatch(const Json& host_object, const Json& wanted) const {
  static const Json none = Json::object();
  Json patch = Json::object();
  for (const char* map : {"labels", "annotations"}) {
    const Json* have = kube::Find(host_object, {"metadata", map});
    const Json* want = kube::Find(wanted, {"metadata", map});
    const Json& from = have != nullptr && have->is_object() ? *have : none;
    const Json& to = want != nullptr && want->is_object() ? *want : none;
    for (const auto& [key, value] : to.items()) {
      if (const auto found = from.find(key); found == from.end() || *found != value) {
        patch["metadata"][map][key] = value;
      }
    }
  }
  RemoveStaleKeys(host_object, wanted, &patch);
  return patch;
}

Result<Outcome> TranslatedKind::SyncToVirtual(const kube::ObjectKey& key, const Json& host_object) {
  if (kube::IsDeleting(host_object)) {
    return Outcome::Done();
  }
  const HostRecord record = ReadHostRecord(host_object);
  const bool ours = record.virtual_key == key && record.kind_text == info().kind_text &&
                    record.host_name == kube::FindString(host_object, {"metadata", "name"});
  return ours ? DeleteHost(host_object) : Result<Outcome>(Outcome::Done());
}

Result<Outcome> TranslatedKind::Gone(const kube::ObjectKey& key) {
  SUBLET_RETURN_IF_ERROR(context_.mapping.Forget(info().name, key));
  return Outcome::Done();
}

}  // namespace sublet::syncer
