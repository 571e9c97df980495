#include "server/gpu_admission.h"

#include <nlohmann/json.hpp>

#include "gpu/api/guard.h"
#include "gpu/api/request.h"

namespace sublet::server {
namespace {

using apiserver::AdmissionRequest;
using apiserver::Operation;
using kube::Json;

bool Same(const AdmissionRequest& request, std::initializer_list<std::string_view> path) {
  const Json* before = kube::Find(*request.old_object, path);
  const Json* after = kube::Find(*request.object, path);
  return before == nullptr || after == nullptr ? before == after : *before == *after;
}

// The annotations of the request itself; what a binding or a syncer adds later is not the user's.
bool SameRequest(const AdmissionRequest& request) {
  for (const std::string_view key :
       {gpu::kFractionAnnotation, gpu::kMemoryAnnotation, gpu::kNumDevicesAnnotation,
        gpu::kContainerAnnotation, gpu::kWeightAnnotation, gpu::kRequestAnnotation,
        gpu::kLimitAnnotation, gpu::kModeAnnotation, gpu::kMpsAnnotation}) {
    if (!Same(request, {"metadata", "annotations", key})) {
      return false;
    }
  }
  return true;
}

Result<void> Validate(const GpuAdmissionOptions& options, const AdmissionRequest& request) {
  if (!request.Is("", "pods") ||
      (!request.subresource.empty() && request.subresource != "ephemeralcontainers")) {
    return Ok();
  }
  const bool is_new = request.old_object == nullptr;
  if (is_new || !SameRequest(request)) {
    SUBLET_RETURN_IF_ERROR(gpu::CheckGpuRequest(*request.object, request.old_object));
  }
  const bool is_changed = is_new || !SameRequest(request) ||
                          !Same(request, {"spec", "ephemeralContainers"}) ||
                          !Same(request, {"metadata", "annotations"});
  return options.guards && is_changed ? gpu::GuardPod(*request.object, options.enforce) : Ok();
}

}  // namespace

apiserver::AdmissionPlugin GpuAdmission(const GpuAdmissionOptions& options) {
  apiserver::AdmissionPlugin plugin;
  plugin.name = "SubletGpu";
  plugin.operations = apiserver::Operations({Operation::kCreate, Operation::kUpdate});
  plugin.validate = [options](AdmissionRequest& request) { return Validate(options, request); };
  return plugin;
}

}  // namespace sublet::server
