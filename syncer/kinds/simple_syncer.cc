#include "syncer/kinds/simple_syncer.h"

#include <nlohmann/json.hpp>

#include "kube/object.h"

namespace sublet::syncer {

using client::Outcome;
using kube::Json;

SimpleSyncer::SimpleSyncer(SyncContext& context, SimpleKind kind)
    : TranslatedKind(context, kind.info, kind.resource, kind.kind), kind_(std::move(kind)) {}

Result<Outcome> SimpleSyncer::SyncToHost(const Json& object) {
  if (kube::IsDeleting(object) || !kind_.wanted(context(), object)) {
    return Outcome::Done();
  }
  SUBLET_TRY(const Json body, kind_.translate(context(), object));
  SUBLET_TRY(Json host, NewHostObject(object));
  host.merge_patch(body);
  return CreateHost(host);
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
