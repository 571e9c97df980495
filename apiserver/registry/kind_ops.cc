#include "apiserver/registry/kind_ops.h"

#include <nlohmann/json.hpp>

#include "kube/typed.h"

namespace sublet::apiserver {

void TrackUpdate(const Resource&, kube::Json& object, const kube::Json* live, std::string_view,
                 std::string_view, WallTime) {
  auto& metadata = object["metadata"];
  metadata.erase("managedFields");
  if (live != nullptr) {
    if (const kube::Json* old = kube::Find(*live, {"metadata", "managedFields"})) {
      metadata["managedFields"] = *old;
    }
  }
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
