#include "syncer/kinds/mirror_syncer.h"

#include <nlohmann/json.hpp>

#include "gpu/api/types.h"
#include "kube/object.h"

namespace sublet::syncer {

using client::Outcome;
using kube::Json;

namespace {

Json MetadataShown(const Json& host_object) {
  Json labels = Json::object();
  if (const Json* from = kube::LabelsOf(host_object); from != nullptr) {
    for (const auto& [key, value] : from->items()) {
      if (!key.starts_with(kPrefix)) {
        labels[key] = value;
      }
    }
  }
  labels[std::string(kMirroredLabel)] = "true";
  return {{"name", kube::NameOf(host_object)}, {"labels", std::move(labels)}};
}

// A merge patch for what `wanted` has and `have` has not or otherwise; lists are replaced, and in
// the members named by `wanted` everything else goes.
Json PatchTo(const Json& have, const Json& wanted) {
  Json patch = Json::object();
  for (const auto& [key, value] : wanted.items()) {
    const auto found = have.find(key);
    if (found == have.end()) {
      patch[key] = value;
    } else if (value.is_object() && found->is_object()) {
      Json inner = PatchTo(*found, value);
      for (const auto& [old_key, old_value] : found->items()) {
        if (!value.contains(old_key)) {
          inner[old_key] = nullptr;
        }
      }
      if (!inner.empty()) {
        patch[key] = std::move(inner);
      }
    } else if (*found != value) {
      patch[key] = value;
    }
  }
  return patch;
}

}  // namespace

MirrorSyncer::MirrorSyncer(SyncContext& context, MirrorKind kind)
    : KindSyncer(kind.info), context_(context), kind_(std::move(kind)) {}

void MirrorSyncer::Watch(Enqueue enqueue) {
  client::InformerOptions host;
  host.resource = kind_.resource;
  host.kind = kind_.kind;
  host.label_selector = kind_.label_selector;
  host_informer_ = &context_.host_informers.For(host);
  WatchVirtual(enqueue);
  host_informer_->AddHandler(
      [enqueue](const client::ObjectPtr& before, const client::ObjectPtr& after) {
        enqueue((after != nullptr ? after : before)->key);
      });
}

void MirrorSyncer::WatchVirtual(const Enqueue& enqueue) {
  virtual_informer_ = &context_.VirtualInformer(kind_.resource.group, kind_.resource.version,
                                                kind_.resource.resource, kind_.kind);
  virtual_informer_->AddHandler(
      [enqueue](const client::ObjectPtr& before, const client::ObjectPtr& after) {
        enqueue((after != nullptr ? after : before)->key);
      });
}

client::ObjectPtr MirrorSyncer::Virtual(const kube::ObjectKey& key) const {
  return virtual_informer_->Get(key);
}

client::ObjectPtr MirrorSyncer::Host(const kube::ObjectKey& key) const {
  return host_informer_->Get(key);
}

client::Target MirrorSyncer::VirtualTarget(std::string_view name,
                                           std::string_view subresource) const {
  return {kind_.resource, "", std::string(name), std::string(subresource)};
}

std::optional<Json> MirrorSyncer::Show(const Json& host_object) const {
  Json out = {{"apiVersion", kind_.resource.ApiVersion()},
              {"kind", kind_.kind},
              {"metadata", MetadataShown(host_object)}};
  for (const std::string& member : kind_.members) {
    if (const auto found = host_object.find(member); found != host_object.end()) {
      out[member] = *found;
    }
  }
  return out;
}

Result<Outcome> MirrorSyncer::RemoveVirtual(const Json& object) {
  client::DeleteOptions options;
  options.uid = kube::UidOf(object);
  auto deleted = context_.virtual_client.Delete(VirtualTarget(kube::NameOf(object)), options);
  if (!deleted.ok() && !deleted.error().Is(Reason::kNotFound)) {
    return std::move(deleted).error();
  }
  return Outcome::Done();
}

Result<Outcome> MirrorSyncer::SyncToHost(const Json& object) {
  // The host's object is gone, or never was: then the tenant made this one itself.
  const bool mirrored = kube::LabelOf(object, kMirroredLabel) == "true";
  return mirrored && !kube::IsDeleting(object) ? RemoveVirtual(object)
                                               : Result<Outcome>(Outcome::Done());
}

Result<Outcome> MirrorSyncer::SyncToVirtual(const kube::ObjectKey&, const Json& host_object) {
  const auto shown = Show(host_object);
  if (!shown) {
    return Outcome::Done();
  }
  auto created = context_.virtual_client.Create(VirtualTarget(""), *shown);
  if (!created.ok()) {
    return std::move(created).error();
  }
  virtual_informer_->NoteWritten(*created);
  if (kind_.has_status && shown->contains("status")) {
    auto written =
        context_.virtual_client.Patch(VirtualTarget(kube::NameOf(*shown), "status"),
                                      client::PatchType::kMerge, {{"status", (*shown)["status"]}});
    if (!written.ok()) {
      return std::move(written).error();
    }
    virtual_informer_->NoteWritten(*written);
  }
  return Outcome::Done();
}

Result<Outcome> MirrorSyncer::Sync(const Json& object, const Json& host_object) {
  if (kube::LabelOf(object, kMirroredLabel) != "true") {
    context_.reporter.Warn(object, "SyncWarning",
                           "the host has an object of this kind and name; this one stays the "
                           "tenant's own and the host's is not shown");
    return Outcome::Done();
  }
  const auto shown = Show(host_object);
  if (!shown) {
    return RemoveVirtual(object);
  }
  Json patch = PatchTo(object, *shown);
  // Metadata of the tenant's side (labels it added, managed fields) is left alone.
  if (patch.contains("metadata")) {
    Json labels = Json::object();
    for (const auto& [key, value] : (*shown)["metadata"]["labels"].items()) {
      if (kube::LabelOf(object, key) != value) {
        labels[key] = value;
      }
    }
    patch.erase("metadata");
    if (!labels.empty()) {
      patch["metadata"]["labels"] = std::move(labels);
    }
  }
  Json status;
  if (kind_.has_status && patch.contains("status")) {
    status = patch["status"];
    patch.erase("status");
  }
  for (const auto& [part, subresource] :
       {std::pair<Json, const char*>{patch, ""},
        std::pair<Json, const char*>{status.is_null() ? Json::object() : Json{{"status", status}},
                                     "status"}}) {
    if (part.empty()) {
      continue;
    }
    auto written = context_.virtual_client.Patch(VirtualTarget(kube::NameOf(object), subresource),
                                                 client::PatchType::kMerge, part);
    if (!written.ok()) {
      return std::move(written).error();
    }
    virtual_informer_->NoteWritten(*written);
  }
  return Outcome::Done();
}

Result<Outcome> MirrorSyncer::Gone(const kube::ObjectKey&) { return Outcome::Done(); }

MirrorKind StorageClassKind() {
  return {{"storageclasses", "storage.k8s.io/v1, Kind=StorageClass", true},
          {"storage.k8s.io", "v1", "storageclasses"},
          "StorageClass",
          {"provisioner", "reclaimPolicy", "volumeBindingMode", "allowVolumeExpansion"},
          "",
          false};
}

MirrorKind IngressClassKind() {
  return {{"ingressclasses", "networking.k8s.io/v1, Kind=IngressClass", true},
          {"networking.k8s.io", "v1", "ingressclasses"},
          "IngressClass",
          {"spec"},
          "",
          false};
}

MirrorKind RuntimeClassKind() {
  return {{"runtimeclasses", "node.k8s.io/v1, Kind=RuntimeClass", true},
          {"node.k8s.io", "v1", "runtimeclasses"},
          "RuntimeClass",
          {"handler", "overhead", "scheduling"},
          "",
          false};
}

MirrorKind PriorityClassKind() {
  return {{"priorityclasses", "scheduling.k8s.io/v1, Kind=PriorityClass", true},
          {"scheduling.k8s.io", "v1", "priorityclasses"},
          "PriorityClass",
          {"value", "description", "preemptionPolicy"},
          "",
          false};
}

MirrorKind GpuNodeKind() {
  return {{"gpunodes", "gpu.sublet.dev/v1alpha1, Kind=GpuNode", true},
          {std::string(gpu::kGroup), std::string(gpu::kVersion), std::string(gpu::kNodeResource)},
          std::string(gpu::kNodeKind),
          {"spec", "status"},
          "",
          true};
}

}  // namespace sublet::syncer
