// From a CustomResourceDefinition to the resources it serves.
// Threads: any; pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "apiserver/registry/resource.h"
#include "base/result.h"
#include "kube/json.h"

namespace sublet::apiserver {

// One Resource per served version, the preferred first. `definition` was accepted by validation and
// has status.acceptedNames; `schema_id` is new for every change of its schemas.
// Errors: Invalid (a schema that does not compile after all).
Result<std::vector<ResourcePtr>> MakeCustomResources(const kube::Json& definition,
                                                     std::uint32_t schema_id);

// What a client is told when it uses a deprecated version.
std::string DeprecationWarning(const kube::Json& version, std::string_view group,
                               std::string_view kind);

}  // namespace sublet::apiserver
