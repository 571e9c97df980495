// The ordered list of admission plugins: the order is Kubernetes' own. A part that brings a plugin
// adds a line to MakeAdmissionChain in registry.cc.
#pragma once

#include <memory>

#include "apiserver/admission/admission.h"
#include "apiserver/registry/catalog.h"
#include "base/clock.h"

namespace sublet::apiserver {

// What plugins look at. All outlive the chain.
struct AdmissionEnvironment {
  storage::Store* store = nullptr;
  CatalogHolder* catalog = nullptr;
  const Clock* clock = nullptr;
};

AdmissionChain MakeAdmissionChain(const AdmissionEnvironment& environment);

// One function per plugin, in a file of its own.
AdmissionPlugin NamespaceLifecycle(const AdmissionEnvironment& environment);

// The stored object as a tree, or nullopt. `plural` in `group`; namespace_name "" = cluster scope.
std::optional<kube::Json> ReadObject(const AdmissionEnvironment& environment,
                                     std::string_view group, std::string_view plural,
                                     std::string_view namespace_name, std::string_view name);
// All stored objects of a namespace ("" = all) as published values.
std::vector<storage::Record> ListObjects(const AdmissionEnvironment& environment,
                                         std::string_view group, std::string_view plural,
                                         std::string_view namespace_name);

}  // namespace sublet::apiserver
