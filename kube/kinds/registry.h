// The built-in kinds of Kubernetes v1.36: one ordered list, made from the generated schema tables
// and the rows of registry.cc. Adding logic to a kind is a Strategy in a file of its own and its
// pointer in that row. Threads: any.
#pragma once

#include <span>
#include <string_view>

#include "kube/kinds/kind.h"

namespace sublet::kube {

// In the order in which discovery lists them: groups by priority, resources by name.
std::span<const KindPtr> BuiltinKinds();

// nullptr when unknown.
KindPtr FindBuiltinKind(std::string_view group, std::string_view version, std::string_view kind);
KindPtr FindBuiltinResource(std::string_view group, std::string_view version,
                            std::string_view resource);

// The groups in discovery order, the preferred version first: {"autoscaling", {"v2", "v1"}}.
struct GroupVersions {
  std::string group;
  std::vector<std::string> versions;
};
std::span<const GroupVersions> BuiltinGroups();

}  // namespace sublet::kube
