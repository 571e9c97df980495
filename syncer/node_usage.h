// NodeUsage (sublet.dev/v1alpha1, cluster scope, named as its Node): what is still free on a host
// node after all pods of all tenants, without naming any of them. Published by one controller on
// the host (controllers/node_usage_controller.h), read by every tenant's syncer.
#pragma once

#include <string_view>

namespace sublet::syncer {

inline constexpr std::string_view kNodeUsageGroup = "sublet.dev";
inline constexpr std::string_view kNodeUsageVersion = "v1alpha1";
inline constexpr std::string_view kNodeUsageResource = "nodeusages";
inline constexpr std::string_view kNodeUsageKind = "NodeUsage";

}  // namespace sublet::syncer
