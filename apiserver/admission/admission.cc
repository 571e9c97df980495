#include "apiserver/admission/admission.h"

#include "kube/object.h"

namespace sublet::apiserver {

Result<void> AdmissionChain::Mutate(AdmissionRequest& request) const {
  for (const auto& plugin : plugins_) {
    if (plugin.mutate && (plugin.operations & static_cast<std::uint8_t>(request.operation)) != 0) {
      SUBLET_RETURN_IF_ERROR(plugin.mutate(request));
    }
  }
  return Ok();
}

Result<void> AdmissionChain::Validate(AdmissionRequest& request) const {
  for (const auto& plugin : plugins_) {
    if (plugin.validate &&
        (plugin.operations & static_cast<std::uint8_t>(request.operation)) != 0) {
      SUBLET_RETURN_IF_ERROR(plugin.validate(request));
    }
  }
  return Ok();
}

bool AdmissionChain::MayBlock(const AdmissionRequest& request) const {
  for (const auto& plugin : plugins_) {
    if (plugin.may_block &&
        (plugin.operations & static_cast<std::uint8_t>(request.operation)) != 0 &&
        plugin.may_block(request)) {
      return true;
    }
  }
  return false;
}

Status AdmissionForbidden(const AdmissionRequest& request, std::string_view why) {
  std::string name = request.name;
  if (name.empty() && request.object != nullptr) {
    name = std::string(kube::FindString(*request.object, {"metadata", "generateName"}));
  }
  return Forbidden(request.resource->Name(), name, why);
}

}  // namespace sublet::apiserver
