#include "syncer/kinds/data_syncer.h"

#include <nlohmann/json.hpp>

#include "kube/object.h"
#include "syncer/kinds/pod_references.h"

namespace sublet::syncer {
namespace {

using client::Outcome;
using kube::Json;

KindInfo InfoOf(DataKind kind) {
  return kind == DataKind::kConfigMap ? KindInfo{"configmaps", "/v1, Kind=ConfigMap", false}
                                      : KindInfo{"secrets", "/v1, Kind=Secret", false};
}

constexpr std::string_view kTlsIndex = "tls";

// The Secrets of an Ingress's certificates, as "NAMESPACE/NAME".
std::vector<std::string> TlsSecretsOf(const client::CachedObject& ingress) {
  std::vector<std::string> names;
  const auto object = ingress.Parse();
  const Json* tls = object.ok() ? kube::Find(*object, {"spec", "tls"}) : nullptr;
  for (const Json& entry : tls != nullptr && tls->is_array() ? *tls : Json::array()) {
    if (const auto name = kube::FindString(entry, {"secretName"}); !name.empty()) {
      names.push_back(ingress.key.namespace_name + "/" + std::string(name));
    }
  }
  return names;
}

// The ConfigMaps or Secrets that a pod mentions; none of one that is not there.
const std::vector<std::string>& NamesIn(const client::ObjectPtr& pod, DataKind kind) {
  static const std::vector<std::string> none;
  if (pod == nullptr) {
    return none;
  }
  const auto& references = pod->As<PodReferences>();
  return kind == DataKind::kConfigMap ? references.config_maps : references.secrets;
}

}  // namespace

DataSyncer::DataSyncer(SyncContext& context, DataKind kind, bool sync_all)
    : TranslatedKind(context, InfoOf(kind),
                     {"", "v1", kind == DataKind::kConfigMap ? "configmaps" : "secrets"},
                     kind == DataKind::kConfigMap ? "ConfigMap" : "Secret"),
      data_kind_(kind),
      sync_all_(sync_all) {}

void DataSyncer::Watch(Enqueue enqueue) {
  TranslatedKind::Watch(enqueue);
  pods_ = &PodsWithReferences(context());
  pods_->AddHandler(
      [this, enqueue](const client::ObjectPtr& before, const client::ObjectPtr& after) {
        const std::vector<std::string>& was = NamesIn(before, data_kind_);
        const std::vector<std::string>& is = NamesIn(after, data_kind_);
        if (was == is) {
          return;  // most changes are of the status
        }
        const std::string& space = (after != nullptr ? after : before)->key.namespace_name;
        for (const auto* list : {&was, &is}) {
          for (const std::string& name : *list) {
            enqueue({space, name});
          }
        }
      });
  if (data_kind_ != DataKind::kSecret || !context().config.ingresses) {
    return;
  }
  ingresses_ = &context().VirtualInformer("networking.k8s.io", "v1", "ingresses", "Ingress");
  ingresses_->AddIndex(kTlsIndex, TlsSecretsOf);
  ingresses_->AddHandler(
      [enqueue](const client::ObjectPtr& before, const client::ObjectPtr& after) {
        for (const auto& ingress : {before, after}) {
          for (const std::string& secret :
               ingress == nullptr ? std::vector<std::string>{} : TlsSecretsOf(*ingress)) {
            enqueue({ingress->key.namespace_name,
                     secret.substr(ingress->key.namespace_name.size() + 1)});
          }
        }
      });
}

bool DataSyncer::IsUsed(const Json& object) const {
  if (sync_all_ ||
      kube::FindString(object, {"metadata", "annotations", "sublet.dev/force-sync"}) == "true") {
    return true;
  }
  const kube::ObjectKey key = kube::KeyOf(object);
  if (ingresses_ != nullptr && !ingresses_->ByIndex(kTlsIndex, key.Text()).empty()) {
    return true;
  }
  const char* kind = data_kind_ == DataKind::kConfigMap ? "configmaps/" : "secrets/";
  return !pods_->ByIndex(kReferenceIndex, kind + key.Text()).empty();
}

Json DataSyncer::DataOf(const Json& object) {
  Json out = Json::object();
  for (const char* field : {"data", "binaryData"}) {
    if (const auto found = object.find(field); found != object.end() && found->is_object()) {
      out[field] = *found;
    }
  }
  return out;
}

Result<Outcome> DataSyncer::SyncToHost(const Json& object) {
  if (!IsUsed(object) || kube::IsDeleting(object)) {
    return Outcome::Done();
  }
  SUBLET_TRY(Json host, NewHostObject(object));
  host.update(DataOf(object));
  if (object.contains("immutable")) {
    host["immutable"] = object["immutable"];
  }
  if (data_kind_ == DataKind::kSecret) {
    // A token of the tenant's API means nothing to the host's token controller.
    const auto type = kube::FindString(object, {"type"}, "Opaque");
    host["type"] = type == "kubernetes.io/service-account-token" ? "Opaque" : type;
  }
  SUBLET_TRY(const Outcome outcome, CreateHost(host));
  SUBLET_RETURN_IF_ERROR(context().mapping.NoteSynced(info().name, kube::KeyOf(object),
                                                      Hash10(kube::Dump(DataOf(object)))));
  return outcome;
}

Result<Outcome> DataSyncer::Sync(const Json& object, const Json& host) {
  const bool rebuild =
      ReadHostRecord(host).virtual_uid != kube::FindString(object, {"metadata", "uid"});
  if (rebuild || !IsUsed(object) || kube::IsDeleting(object)) {
    return DeleteHost(host);
  }
  const Json ours = DataOf(object);
  const Json theirs = DataOf(host);
  if (ours != theirs) {
    const std::string now = Hash10(kube::Dump(ours));
    const bool virtual_changed =
        context().mapping.LastSynced(info().name, kube::KeyOf(object)) != now;
    Json patch = Json::object();
    const Json& from = virtual_changed ? theirs : ours;
    const Json& to = virtual_changed ? ours : theirs;
    for (const char* field : {"data", "binaryData"}) {
      const Json before = from.value(field, Json::object());
      const Json after = to.value(field, Json::object());
      for (const auto& [key, value] : after.items()) {
        if (!before.contains(key) || before[key] != value) {
          patch[field][key] = value;
        }
      }
      for (const auto& [key, value] : before.items()) {
        if (!after.contains(key)) {
          patch[field][key] = nullptr;
        }
      }
    }
    auto written = virtual_changed ? PatchHost(host, patch) : PatchVirtual(object, patch);
    if (!written.ok()) {
      return written;
    }
    SUBLET_RETURN_IF_ERROR(
        context().mapping.NoteSynced(info().name, kube::KeyOf(object), Hash10(kube::Dump(to))));
  } else {
    // Also after a crash between the write and its note: or the next host edit would look like
    // ours.
    SUBLET_RETURN_IF_ERROR(
        context().mapping.NoteSynced(info().name, kube::KeyOf(object), Hash10(kube::Dump(ours))));
  }
  SUBLET_TRY(const Json wanted, NewHostObject(object));
  return PatchHost(host, MetadataPatch(host, wanted));
}

}  // namespace sublet::syncer
