// What handlers do with a kind's schema: decoding checks, managed fields, the merges of patches,
// and the way between stored and served versions. Thin: the work is done in kube/. Threads: any;
// pure functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "apiserver/registry/object_codec.h"
#include "apiserver/registry/resource.h"
#include "base/clock.h"
#include "base/result.h"
#include "kube/json.h"

namespace sublet::apiserver {

// managedFields after a create, update or non-apply patch. `object` is what is about to be written,
// `live` what stands (null for a create).
void TrackUpdate(const Resource& resource, kube::Json& object, const kube::Json* live,
                 const std::string& manager, std::string_view subresource, WallTime now);
// Server-side apply of `config` onto `live` (null: nothing there yet). Errors: those of
// kube::ApplyObject.
Result<kube::Json> ApplyConfig(const Resource& resource, const kube::Json& config,
                               const kube::Json* live, const std::string& manager, bool force,
                               std::string_view subresource, WallTime now);

// True when stored bytes can be served in this resource's version as they are, but for apiVersion
// and kind.
bool ServesStoredBytes(const Resource& resource, const ObjectFacts& facts);
// A stored tree to the served version, apiVersion and kind included.
void FromStored(const Resource& resource, kube::Json& object);

}  // namespace sublet::apiserver
