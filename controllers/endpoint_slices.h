// Slices: a set of endpoints cut into EndpointSlice objects of at most 100, so that what exists
// changes as little as possible. Used for Services with a selector and for mirrored Endpoints.
// Source: k8s.io/endpointslice reconciler.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "controllers/context.h"

namespace sublet::controllers {

inline constexpr std::string_view kServiceNameLabel = "kubernetes.io/service-name";
inline constexpr std::string_view kSliceManagedByLabel = "endpointslice.kubernetes.io/managed-by";
inline constexpr std::size_t kEndpointsPerSlice = 100;

// Endpoints that share address type and ports, as they stand in slices.
struct SliceGroup {
  std::string address_type;  // "IPv4", "IPv6"
  kube::Json ports;          // array
  std::vector<kube::Json> endpoints;
};

struct SliceOwner {
  std::string namespace_name;
  std::string name_prefix;     // the Service's or Endpoints' name
  kube::Json labels;           // every slice's
  kube::Json annotations;      // may be null
  kube::Json owner_reference;  // one metadata.ownerReferences entry
};

struct SlicePlan {
  std::vector<kube::Json> create;
  std::vector<kube::Json> update;
  std::vector<client::ObjectPtr> remove;
};

// `present` are the owner's slices. `keep_one`: with no endpoint at all an empty slice stays, as
// sign that the Service has been looked at.
Result<SlicePlan> PlanSlices(const SliceOwner& owner, std::vector<SliceGroup> groups,
                             const std::vector<client::ObjectPtr>& present, bool keep_one);

// Carries a plan out. A namespace that is going away refuses new slices: that is success.
Result<void> ApplyPlan(const Collection& slices, const std::string& namespace_name, SlicePlan plan);

}  // namespace sublet::controllers
