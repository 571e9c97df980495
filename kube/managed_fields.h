// metadata.managedFields: who set which field, and server-side apply on top of it.
//
// Update, create and every patch but apply: after decoding and defaulting and before admission the
// handler calls TrackUpdate with the stored object (or nullptr on create). Apply: the handler calls
// ApplyObject with the stored object and the configuration, then goes on with defaulting and the
// path of an update; it does not call TrackUpdate.
// Threads: any. Source: k8s.io/apimachinery pkg/util/managedfields, KEP-555.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/result.h"
#include "kube/json.h"
#include "kube/names.h"
#include "kube/schema/schema.h"

namespace sublet::kube {

struct FieldManagerContext {
  GroupVersionKind gvk;  // of the request
  schema::Type type;
  bool is_custom = false;
  bool has_status = false;  // /status exists: the main resource does not own status fields
  std::string subresource;  // "", "status", "scale", ...
  WallTime now;
  // Whether entries of `api_version` still mean something; empty = every version does. Their fields
  // are compared as those of `type`.
  std::function<bool(std::string_view api_version)> is_served;
};

// The value that a new object is compared with.
Json EmptyObject(const FieldManagerContext& context);

// Writes metadata.managedFields of `object` for a change from `live` (nullptr: created) by
// `manager`. What the client sent in managedFields replaces the stored entries when it is valid;
// [{}] clears them. Changed fields move to the manager's Update entry. About 10 µs for a 5 KB
// object.
void TrackUpdate(const FieldManagerContext& context, const Json* live, const std::string& manager,
                 Json* object);

// True when a request body asks to clear the entries: "managedFields": [] or [{}]. Decoding drops
// the first form, so ask before NormalizeTyped.
bool AsksToResetManagedFields(const Json& body);

// Server-side apply of `config` on `live` (nullptr: absent). Returns the object to default,
// validate and store, with its managedFields; `live` itself, same times, when nothing changes.
// Errors: BadRequest (other kind or version, managedFields in the configuration), Unknown with 500
// ("failed to create typed patch object (ns/n; apps/v1, Kind=K): ..."), Conflict with one
// FieldManagerConflict cause per path.
Result<Json> ApplyObject(const FieldManagerContext& context, const Json* live, const Json& config,
                         const std::string& manager, bool force);

}  // namespace sublet::kube
