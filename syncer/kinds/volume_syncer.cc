#include "syncer/kinds/volume_syncer.h"

#include <nlohmann/json.hpp>

#include "kube/object.h"
#include "syncer/kinds/simple_syncer.h"

namespace sublet::syncer {
namespace {

using kube::Json;

constexpr std::string_view kVolumeIndex = "volume";

std::string VolumeOf(const Json& claim) {
  return std::string(kube::FindString(claim, {"spec", "volumeName"}));
}

// The name of the bound volume; nothing for a claim without one.
std::vector<std::string> VolumesOf(const client::CachedObject& claim) {
  const auto object = claim.Parse();
  const std::string name = object.ok() ? VolumeOf(*object) : "";
  return name.empty() ? std::vector<std::string>{} : std::vector<std::string>{name};
}

}  // namespace

VolumeSyncer::VolumeSyncer(SyncContext& context)
    : MirrorSyncer(context, {{"persistentvolumes", "/v1, Kind=PersistentVolume", true},
                             {"", "v1", "persistentvolumes"},
                             "PersistentVolume",
                             {},
                             "",
                             /*has_status=*/true}) {}

void VolumeSyncer::Watch(Enqueue enqueue) {
  WatchVirtual(enqueue);
  claims_ = &context().VirtualInformer("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim");
  claims_->AddIndex(kVolumeIndex, VolumesOf);
  claims_->AddHandler([enqueue](const client::ObjectPtr& before, const client::ObjectPtr& after) {
    for (const client::ObjectPtr& claim : {before, after}) {
      for (const std::string& name :
           claim == nullptr ? std::vector<std::string>{} : VolumesOf(*claim)) {
        enqueue({"", name});
      }
    }
  });
}

client::ObjectPtr VolumeSyncer::Host(const kube::ObjectKey& key) const {
  if (context().mapping.HostNameOf(kOwnVolumes, key)) {
    return nullptr;  // the tenant made it itself
  }
  const auto claims = claims_->ByIndex(kVolumeIndex, key.name);
  return claims.empty() ? nullptr : claims.front();
}

std::optional<Json> VolumeSyncer::Show(const Json& claim) const {
  const Json spec = claim.value("spec", Json::object());
  const Json status = claim.value("status", Json::object());
  const std::string name = VolumeOf(claim);
  Json shown = {{"accessModes", spec.value("accessModes", Json::array())},
                {"volumeMode", spec.value("volumeMode", "Filesystem")},
                {"persistentVolumeReclaimPolicy", "Delete"},
                {"claimRef",
                 {{"apiVersion", "v1"},
                  {"kind", "PersistentVolumeClaim"},
                  {"namespace", kube::NamespaceOf(claim)},
                  {"name", kube::NameOf(claim)},
                  {"uid", kube::UidOf(claim)}}},
                // A volume needs a source; the real one is the host's to know.
                {"csi", {{"driver", "host.sublet.dev"}, {"volumeHandle", name}}}};
  if (const Json* size = kube::Find(status, {"capacity"}); size != nullptr) {
    shown["capacity"] = *size;
  } else if (const Json* asked = kube::Find(spec, {"resources", "requests"}); asked != nullptr) {
    shown["capacity"] = *asked;
  }
  if (const auto storage_class = spec.find("storageClassName"); storage_class != spec.end()) {
    shown["storageClassName"] = *storage_class;
  }
  return Json{{"apiVersion", "v1"},
              {"kind", "PersistentVolume"},
              {"metadata", {{"name", name}, {"labels", {{std::string(kMirroredLabel), "true"}}}}},
              {"spec", std::move(shown)},
              {"status", {{"phase", "Bound"}}}};
}

}  // namespace sublet::syncer
