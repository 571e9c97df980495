#include "apiserver/auth/rbac_admission.h"

namespace sublet::apiserver {

AdmissionPlugin RbacEscalation(const Authorizer& authorizer) {
  AdmissionPlugin plugin;
  plugin.name = "RbacEscalation";
  plugin.operations = Operations({Operation::kCreate, Operation::kUpdate});
  plugin.validate = [&authorizer](AdmissionRequest& request) -> Result<void> {
    constexpr std::string_view kGroup = "rbac.authorization.k8s.io";
    if (request.resource->group() != kGroup || request.object == nullptr ||
        request.user == nullptr || IsMaster(*request.user)) {
      return {};
    }
    if (request.Is(kGroup, "roles") || request.Is(kGroup, "clusterroles")) {
      return authorizer.CheckRoleWrite(*request.user, *request.object, request.old_object);
    }
    if (request.Is(kGroup, "rolebindings") || request.Is(kGroup, "clusterrolebindings")) {
      return authorizer.CheckBindingWrite(*request.user, *request.object, request.old_object);
    }
    return {};
  };
  return plugin;
}

}  // namespace sublet::apiserver
