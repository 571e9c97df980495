#include "syncer/kinds/simple_syncer.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "kube/object.h"

namespace sublet::syncer {

using client::Outcome;
using kube::Json;

SimpleSyncer::SimpleSyncer(SyncContext& context, SimpleKind kind)
    : TranslatedKind(context, kind.info, kind.resource, kind.kind), kind_(std::move(kind)) {}

void SimpleSyncer::Watch(Enqueue enqueue) {
  TranslatedKind::Watch(enqueue);
  if (context().config.persistent_volumes_to_host) {
    // Storage translates references among these; they are there before the informers start.
    context().VirtualInformer("storage.k8s.io", "v1", "storageclasses", "StorageClass");
    context().VirtualInformer("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim");
  }
  if (FollowsService()) {
    // Gaining or losing a selector decides who computes the addresses.
    context()
        .VirtualInformer("", "v1", "services", "Service")
        .AddHandler([this, enqueue](const client::ObjectPtr& before,
                                    const client::ObjectPtr& after) {
          const kube::ObjectKey key = (after != nullptr ? after : before)->key;
          for (const auto& object : virtual_informer().ListNamespace(key.namespace_name)) {
            const std::pair<std::string, std::string> of{"kubernetes.io/service-name", key.name};
            if (object->key.name == key.name ||
                std::find(object->labels.begin(), object->labels.end(), of) !=
                    object->labels.end()) {
              enqueue(object->key);
            }
          }
        });
  }
}

Result<Outcome> SimpleSyncer::SyncToHost(const Json& object) {
  if (kube::IsDeleting(object) || !kind_.wanted(context(), object)) {
    return Outcome::Done();
  }
  if (const auto phase = kube::FindString(object, {"status", "phase"});
      kind_.info.name == kOwnVolumes && (phase == "Bound" || phase == "Released")) {
    return DeleteVirtual(object);  // reclaimed on the host: a volume is not made twice
  }
  SUBLET_TRY(const Json body, kind_.translate(context(), object));
  SUBLET_TRY(Json host, NewHostObject(object));
  host.merge_patch(body);
  auto created = CreateHost(host);
  if (!created.ok() && created.error().Is(Reason::kAlreadyExists) && FollowsService()) {
    // The host's own controller left it there when the Service lost its selector; under this name
    // it can only be the tenant's.
    auto adopted = context().host_client.Patch(
        HostTarget(kube::FindString(host, {"metadata", "name"})), client::PatchType::kMerge, host);
    if (!adopted.ok()) {
      return std::move(adopted).error();
    }
    host_informer().NoteWritten(*adopted);
    return Outcome::Done();
  }
  return created;
}

Result<Outcome> SimpleSyncer::Sync(const Json& object, const Json& host) {
  const bool other = ReadHostRecord(host).virtual_uid != kube::UidOf(object);
  if (other || kube::IsDeleting(object) || !kind_.wanted(context(), object)) {
    return kube::IsDeleting(host) ? Result<Outcome>(Outcome::Done()) : DeleteHost(host);
  }
  SUBLET_TRY(const Json body, kind_.translate(context(), object));
  SUBLET_TRY(const Json wanted, NewHostObject(object));
  Json patch = MetadataPatch(host, wanted);
  for (const std::string& member : kind_.mutable_members) {
    const Json::json_pointer pointer(member);
    const Json want = body.contains(pointer) ? body.at(pointer) : Json();
    const Json have = host.contains(pointer) ? host.at(pointer) : Json();
    if (!want.is_null() && want != have) {
      patch[pointer] = want;
    }
  }
  SUBLET_TRY(const Outcome patched, PatchHost(host, patch));
  (void)patched;
  if (kind_.back != nullptr) {
    SUBLET_TRY(const Outcome back, PatchVirtual(object, kind_.back(context(), object, host)));
    (void)back;
  }
  if (kind_.status_back) {
    const Json status = host.value("status", Json::object());
    if (!status.empty() && status != object.value("status", Json::object())) {
      return PatchVirtual(object, {{"status", status}}, "status");
    }
  }
  return Outcome::Done();
}

}  // namespace sublet::syncer
