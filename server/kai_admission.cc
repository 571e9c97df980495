#include "server/kai_admission.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "apiserver/registry/catalog.h"
#include "apiserver/registry/object_codec.h"
#include "base/random.h"
#include "kube/object.h"
#include "kube/timestamp.h"
#include "scheduler/admission.h"
#include "scheduler/service/pod_grouper.h"

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

constexpr std::size_t kOwnersMax = 8;

// The pod's owners as far as they can be read here, nearest first; nullopt when one of them is not
// of a kind whose plural is known, which leaves the pod to the grouper.
std::optional<std::vector<Json>> Owners(const apiserver::AdmissionEnvironment& environment,
                                        const Json& pod) {
  std::vector<Json> owners;
  auto reference = kube::ControllerOf(pod);
  const auto catalog = environment.catalog->Get();
  const std::string space(kube::NamespaceOf(pod));
  while (reference && owners.size() < kOwnersMax) {
    const auto version = kube::GroupVersion::Parse(reference->api_version);
    const apiserver::Resource* resource =
        catalog->FindKind(version.group, version.version, reference->kind);
    if (resource == nullptr) {
      return std::nullopt;
    }
    auto owner = ReadObject(environment, version.group, resource->plural(), space, reference->name);
    if (!owner) {
      break;
    }
    (*owner)["apiVersion"] = reference->api_version;
    (*owner)["kind"] = reference->kind;
    owners.push_back(std::move(*owner));
    reference = kube::ControllerOf(owners.back());
  }
  return owners;
}

// Needs the pod's name and UID, so it stands in validation, though it adds an annotation and a
// label: nothing that comes later looks at these.
Result<void> Group(const apiserver::AdmissionEnvironment& environment,
                   const std::vector<scheduler::Profile>& profiles, AdmissionRequest& request) {
  Json& pod = *request.object;
  const auto name = kube::FindString(pod, {"spec", "schedulerName"});
  const auto profile = std::find_if(profiles.begin(), profiles.end(), [name](const auto& each) {
    return !each.kube && std::find(each.scheduler_names.begin(), each.scheduler_names.end(),
                                   name) != each.scheduler_names.end();
  });
  if (profile == profiles.end() || !kube::FindString(pod, {"spec", "nodeName"}).empty() ||
      !kube::AnnotationOf(pod, "pod-group-name").empty() || kube::UidOf(pod).empty() ||
      request.companions == nullptr ||
      environment.catalog->Get()->FindAnyVersion("scheduling.run.ai", "podgroups") == nullptr) {
    return Ok();
  }
  const auto owners = Owners(environment, pod);
  if (!owners) {
    return Ok();
  }
  const auto plan = scheduler::PlanGroup(pod, *owners, profile->name != "kai-0.17");
  if (plan.raises_minimum) {
    return Ok();  // the group that stands has to be changed: the grouper's work
  }
  const std::string space(kube::NamespaceOf(pod));
  if (!ReadObject(environment, "scheduling.run.ai", "podgroups", space, plan.name)) {
    Json group = scheduler::MakePodGroup(pod, *owners, plan);
    Json& metadata = group["metadata"];
    metadata["uid"] = RandomUuid();
    metadata["creationTimestamp"] = kube::FormatTime(environment.clock->Now());
    metadata["generation"] = 1;
    request.companions->push_back(CreateOp(environment, "scheduling.run.ai", "podgroups", group));
  }
  kube::EnsureObject(&kube::EnsureObject(&pod, "metadata"), "annotations")["pod-group-name"] =
      plan.name;
  if (!plan.sub_group.empty()) {
    kube::EnsureObject(&pod["metadata"], "labels")["kai.scheduler/subgroup-name"] = plan.sub_group;
  }
  return Ok();
}

Result<void> Check(const apiserver::AdmissionEnvironment& environment,
                   const std::vector<scheduler::Profile>& profiles, AdmissionRequest& request) {
  if (request.operation == Operation::kDelete) {
    return CheckDelete(environment, request);
  }
  if (IsMain(request, "", "pods")) {
    return request.operation == Operation::kCreate ? Group(environment, profiles, request) : Ok();
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

apiserver::AdmissionPlugin KaiAdmission(const apiserver::AdmissionEnvironment& environment,
                                        std::vector<scheduler::Profile> profiles) {
  return {
      .name = "KaiScheduler",
      .operations =
          apiserver::Operations({Operation::kCreate, Operation::kUpdate, Operation::kDelete}),
      .mutate = nullptr,
      .validate = [environment, profiles = std::move(profiles)](
                      AdmissionRequest& request) { return Check(environment, profiles, request); },
      .may_block = nullptr};
}

}  // namespace sublet::server
