#include "server/kai_admission.h"

#include <nlohmann/json.hpp>

#include "apiserver/registry/object_codec.h"
#include "kube/object.h"
#include "scheduler/admission.h"

namespace sublet::server {
namespace {

using apiserver::AdmissionRequest;
using apiserver::IsMain;
using apiserver::Operation;
using kube::Json;

Result<void> CheckDelete(const apiserver::AdmissionEnvironment& environment,
                         const AdmissionRequest& request) {
  if (!IsMain(request, "scheduling.run.ai", "queues")) {
    return Ok();
  }
  std::vector<Json> queues;
  for (const auto& record : ListObjects(environment, "scheduling.run.ai", "queues", "")) {
    queues.push_back(apiserver::ParseStored(*record.value));
  }
  return scheduler::CheckQueueDelete(request.name, queues);
}

Result<void> Check(const apiserver::AdmissionEnvironment& environment, AdmissionRequest& request) {
  if (request.operation == Operation::kDelete) {
    return CheckDelete(environment, request);
  }
  if (IsMain(request, "", "pods")) {
    return scheduler::CheckSharingRequest(*request.object, request.old_object);
  }
  if (IsMain(request, "scheduling.run.ai", "queues")) {
    return scheduler::CheckQueue(*request.object);
  }
  if (IsMain(request, "scheduling.run.ai", "podgroups")) {
    std::vector<std::string> unread;
    return scheduler::CheckPodGroup(*request.object, request.old_object,
                                    request.warnings != nullptr ? request.warnings : &unread);
  }
  if (IsMain(request, "kai.scheduler", "topologies")) {
    return scheduler::CheckTopology(*request.object, request.old_object);
  }
  return Ok();
}

}  // namespace

apiserver::AdmissionPlugin KaiAdmission(const apiserver::AdmissionEnvironment& environment) {
  return {.name = "KaiScheduler",
          .operations = apiserver::Operations(
              {Operation::kCreate, Operation::kUpdate, Operation::kDelete}),
          .mutate = nullptr,
          .validate = [environment](AdmissionRequest& request) { return Check(environment, request); },
          .may_block = nullptr};
}

}  // namespace sublet::server
