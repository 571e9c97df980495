#include "apiserver/registry/kind_ops.h"

#include <nlohmann/json.hpp>

#include "kube/managed_fields.h"
#include "kube/typed.h"

namespace sublet::apiserver {

namespace {

kube::FieldManagerContext ManagerContext(const Resource& resource, std::string_view subresource,
                                         WallTime now) {
  kube::FieldManagerContext context;
  context.gvk = resource.kind->gvk;
  context.type = resource.kind->type;
  context.is_custom = resource.kind->is_custom;
  context.has_status = resource.kind->has_status;
  context.subresource = std::string(subresource);
  context.now = now;
  return context;
}

}  // namespace

void TrackUpdate(const Resource& resource, kube::Json& object, const kube::Json* live,
                 const std::string& manager, std::string_view subresource, WallTime now) {
  kube::TrackUpdate(ManagerContext(resource, subresource, now), live, manager, &object);
}

Result<kube::Json> ApplyConfig(const Resource& resource, const kube::Json& config,
                               const kube::Json* live, const std::string& manager, bool force,
                               std::string_view subresource, WallTime now) {
  return kube::ApplyObject(ManagerContext(resource, subresource, now), live, config, manager,
                           force);
}

bool ServesStoredBytes(const Resource& resource, const ObjectFacts& facts) {
  if (resource.kind->is_custom) {
    return !resource.defaults_on_read || facts.schema_id == resource.type->schema_id;
  }
  return resource.kind->gvk == resource.kind->stored_as;
}

void FromStored(const Resource& resource, kube::Json& object) {
  resource.kind->strategy->FromStorage(&object);
  object["apiVersion"] = resource.ApiVersion();
  object["kind"] = resource.kind_name();
  if (resource.kind->is_custom && resource.defaults_on_read) {
    // What an older schema let in may not fit this one; it is then served as it stands.
    kube::Json copy = object;
    if (kube::NormalizeTyped(resource.kind->type, &copy).ok()) {
      object = std::move(copy);
    }
    resource.kind->strategy->Default(&object);
  }
}

}  // namespace sublet::apiserver
