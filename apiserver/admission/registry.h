// The ordered list of admission plugins: the order is Kubernetes' own. A part that brings a plugin
// adds a line to MakeAdmissionChain in registry.cc.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "apiserver/admission/access_question.h"
#include "apiserver/admission/admission.h"
#include "apiserver/admission/service_addresses.h"
#include "apiserver/registry/catalog.h"
#include "base/clock.h"

namespace sublet::apiserver {

// What plugins look at. All outlive the chain.
struct AdmissionEnvironment {
  storage::Store* store = nullptr;
  CatalogHolder* catalog = nullptr;
  const Clock* clock = nullptr;
  // May be empty: then rules that ask for further rights let everybody through.
  std::function<bool(const User&, const AccessQuestion&)> allows = nullptr;
  // Who hands out Service addresses; null = the server's own ranges.
  std::shared_ptr<ServiceAddresses> addresses = nullptr;
  // The Pod Security level of namespaces that say nothing themselves.
  std::string pod_security_default = "privileged";
  // This server is a host of tenants: an Ingress host belongs to the first namespace that claims
  // it.
  bool guard_ingress_hosts = false;
};

AdmissionChain MakeAdmissionChain(const AdmissionEnvironment& environment);

// One function per plugin, in a file of its own; those of one topic share a file.
AdmissionPlugin NamespaceLifecycle(const AdmissionEnvironment& environment);
AdmissionPlugin LimitRanger(const AdmissionEnvironment& environment);
AdmissionPlugin ServiceAccount(const AdmissionEnvironment& environment);
AdmissionPlugin TaintNodesByCondition();
AdmissionPlugin PodSecurity(const AdmissionEnvironment& environment);
AdmissionPlugin Priority(const AdmissionEnvironment& environment);
AdmissionPlugin DefaultTolerationSeconds();
AdmissionPlugin DefaultStorageClass(const AdmissionEnvironment& environment);
AdmissionPlugin StorageObjectInUseProtection();
AdmissionPlugin PersistentVolumeClaimResize(const AdmissionEnvironment& environment);
AdmissionPlugin RuntimeClass(const AdmissionEnvironment& environment);
AdmissionPlugin CertificateRequests(const AdmissionEnvironment& environment);
AdmissionPlugin DefaultIngressClass(const AdmissionEnvironment& environment);
AdmissionPlugin OwnerReferencesPermissionEnforcement(const AdmissionEnvironment& environment);
AdmissionPlugin NodeRestriction(const AdmissionEnvironment& environment);
AdmissionPlugin IngressHosts(const AdmissionEnvironment& environment);
AdmissionPlugin ServiceAllocation(const AdmissionEnvironment& environment);
AdmissionPlugin ResourceQuota(const AdmissionEnvironment& environment);

// The stored object as a tree, or nullopt. `plural` in `group`; namespace_name "" = cluster scope.
std::optional<kube::Json> ReadObject(const AdmissionEnvironment& environment,
                                     std::string_view group, std::string_view plural,
                                     std::string_view namespace_name, std::string_view name);
// All stored objects of a namespace ("" = all) as published values.
std::vector<storage::Record> ListObjects(const AdmissionEnvironment& environment,
                                         std::string_view group, std::string_view plural,
                                         std::string_view namespace_name);
// The companion op that replaces a built-in object read at `record`.
storage::Op ReplaceOp(const AdmissionEnvironment& environment, std::string_view group,
                      std::string_view plural, const storage::Record& record,
                      const kube::Json& object);
// The companion op that creates a built-in object; `object` has its metadata whole.
storage::Op CreateOp(const AdmissionEnvironment& environment, std::string_view group,
                     std::string_view plural, const kube::Json& object);

// True for the object itself, not for a subresource.
bool IsMain(const AdmissionRequest& request, std::string_view group, std::string_view plural);

}  // namespace sublet::apiserver
