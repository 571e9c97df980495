// NamespaceLifecycle: nothing is created in a namespace that does not exist or is going away, and
// the first namespaces stay.
// Source: k8s.io/apiserver admission/plugin/namespace/lifecycle.
#include <nlohmann/json.hpp>

#include "apiserver/admission/registry.h"
#include "apiserver/registry/builtin.h"
#include "apiserver/registry/object_codec.h"

namespace sublet::apiserver {
namespace {

bool IsImmortal(std::string_view name) {
  return name == "default" || name == "kube-system" || name == "kube-public";
}

// Access reviews do not live in their namespace, they ask about it.
bool IsAccessReview(const AdmissionRequest& request) {
  return request.resource->group() == "authorization.k8s.io" &&
         request.resource->plural() == "localsubjectaccessreviews";
}

Status Terminating(const AdmissionRequest& request) {
  Status status =
      AdmissionForbidden(request, "unable to create new content in namespace " +
                                      request.namespace_name + " because it is being terminated");
  return std::move(status).WithCause(
      {"NamespaceTerminating", "namespace " + request.namespace_name + " is being terminated",
       "metadata.namespace"});
}

Result<void> Check(const AdmissionEnvironment& environment, AdmissionRequest& request) {
  const bool is_namespace = request.Is("", "namespaces");
  if (request.operation == Operation::kDelete && is_namespace && IsImmortal(request.name)) {
    return Forbidden(request.resource->Name(), request.name, "this namespace may not be deleted");
  }
  if (request.operation != Operation::kCreate || is_namespace || request.namespace_name.empty() ||
      IsAccessReview(request)) {
    return Ok();
  }
  const auto record =
      environment.store->Get(StoragePrefix({"", "namespaces"}) + request.namespace_name);
  if (!record) {
    return NotFound({"", "namespaces"}, request.namespace_name);
  }
  if (FactsOf(*record->value).deleting) {
    return Terminating(request);
  }
  return Ok();
}

}  // namespace

AdmissionPlugin NamespaceLifecycle(const AdmissionEnvironment& environment) {
  AdmissionPlugin plugin;
  plugin.name = "NamespaceLifecycle";
  plugin.operations = Operations({Operation::kCreate, Operation::kUpdate, Operation::kDelete});
  plugin.mutate = [environment](AdmissionRequest& request) { return Check(environment, request); };
  return plugin;
}

}  // namespace sublet::apiserver
