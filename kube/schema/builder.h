// Schema tables at run time: from a CRD's openAPIV3Schema with its x-kubernetes-* extensions.
// Equal types are kept once, so a schema that repeats a pod template ten times costs one.
// Threads: building is confined to the caller; the result is immutable.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "kube/json.h"
#include "kube/schema/schema.h"

namespace sublet::kube::schema {

// Owns tables; what Kind::type_owner holds for a custom kind.
class OwnedSchema {
 public:
  Type root() const { return Type(&tables_, root_); }
  std::size_t bytes() const;

 private:
  friend class Builder;
  std::vector<TypeRow> types_;
  std::vector<FieldRow> fields_;
  std::string strings_;
  Tables tables_{};
  std::uint32_t root_ = 0;
};

// Compiles the schema of one CRD version. `schema` is spec.versions[i].schema.openAPIV3Schema, or
// nullptr when there is none: then everything is kept as in a schema that preserves unknown fields.
// The root gets apiVersion, kind and metadata; metadata is the built-in ObjectMeta.
//   type object with properties -> struct; additionalProperties -> map; array -> list;
//   x-kubernetes-preserve-unknown-fields, -embedded-resource, -int-or-string, -list-type,
//   -list-map-keys, -map-type, nullable and default are understood; validation rules are not part
//   of it (whoever validates reads the JSON).
// Errors: Invalid when it is nested deeper than 200 levels.
Result<std::shared_ptr<const OwnedSchema>> CompileCrdSchema(const Json* schema);

}  // namespace sublet::kube::schema
