// From a CustomResourceDefinition to the resources it serves.
// Threads: any; pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
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

// The annotation that a group of Kubernetes' own needs, and whether `group` is one.
// Source: KEP-2337, apiextensions' conditions.
inline constexpr std::string_view kApprovalAnnotation = "api-approved.kubernetes.io";
bool IsProtectedGroup(std::string_view group);

// Whether a schema says "default" anywhere but among the names of properties.
bool HasDefaults(const kube::Json& schema);

// What a client is told when it uses a deprecated version.
std::string DeprecationWarning(const kube::Json& version, std::string_view group,
                               std::string_view kind);

}  // namespace sublet::apiserver
