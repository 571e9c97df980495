#include <nlohmann/json.hpp>

#include "kube/kinds/kind_logic.h"
#include "kube/kinds/logic_functions.h"

namespace sublet::kube {
namespace {

// One row per kind that has logic of its own.
constexpr KindLogic kLogic[] = {
    {.group = "",
     .resource = "pods",
     .prepare_create = logic::PreparePodCreate,
     .prepare_update = logic::PreparePodUpdate,
     .prepare_status = logic::PreparePodStatus,
     .prepare_subresource = logic::PreparePodSubresource},
    {.group = "batch", .resource = "jobs", .prepare_create = logic::PrepareJobCreate},
    {.group = "",
     .resource = "services",
     .prepare_create = logic::PrepareServiceCreate,
     .prepare_update = logic::PrepareServiceUpdate},
    {.group = "",
     .resource = "namespaces",
     .prepare_create = logic::PrepareNamespaceCreate,
     .prepare_update = logic::PrepareNamespaceUpdate,
     .prepare_subresource = logic::PrepareNamespaceSubresource},
    {.group = "", .resource = "persistentvolumes", .prepare_create = logic::PrepareVolumeCreate},
    {.group = "",
     .resource = "persistentvolumeclaims",
     .prepare_create = logic::PrepareClaimCreate},
    {.group = "",
     .resource = "serviceaccounts",
     .prepare_create = logic::PrepareServiceAccount,
     .prepare_update = logic::PrepareServiceAccountUpdate},
    {.group = "certificates.k8s.io",
     .resource = "certificatesigningrequests",
     .prepare_create = logic::PrepareSigningRequestCreate,
     .prepare_update = logic::PrepareSigningRequestUpdate,
     .prepare_subresource = logic::PrepareSigningRequestSubresource},
    {.group = "events.k8s.io",
     .resource = "events",
     .to_storage = logic::EventToStorage,
     .from_storage = logic::EventFromStorage},
};

constexpr KindLogic kAutoscalerV1 = {.group = "autoscaling",
                                     .resource = "horizontalpodautoscalers",
                                     .to_storage = logic::AutoscalerToStorage,
                                     .from_storage = logic::AutoscalerFromStorage};

constexpr SelectableField kFields[] = {
    {"", "pods", "spec.nodeName", "", ""},
    {"", "pods", "spec.restartPolicy", "", ""},
    {"", "pods", "spec.schedulerName", "", ""},
    {"", "pods", "spec.serviceAccountName", "", ""},
    {"", "pods", "spec.hostNetwork", "", "false"},
    {"", "pods", "status.phase", "", ""},
    {"", "pods", "status.podIP", "status.podIPs.ip", ""},
    {"", "pods", "status.podIPs", "status.podIPs.ip", ""},
    {"", "pods", "status.nominatedNodeName", "", ""},
    {"", "nodes", "spec.unschedulable", "", "false"},
    {"", "namespaces", "status.phase", "", ""},
    {"", "secrets", "type", "", ""},
    {"", "services", "spec.clusterIP", "", ""},
    {"", "services", "spec.type", "", ""},
    {"", "replicationcontrollers", "status.replicas", "", "0"},
    {"apps", "replicasets", "status.replicas", "", "0"},
    {"batch", "jobs", "status.successful", "status.succeeded", "0"},
    {"certificates.k8s.io", "certificatesigningrequests", "spec.signerName", "", ""},
    {"resource.k8s.io", "resourceslices", "spec.nodeName", "", ""},
    {"resource.k8s.io", "resourceslices", "spec.driver", "", ""},
    {"", "events", "involvedObject.kind", "", ""},
    {"", "events", "involvedObject.namespace", "", ""},
    {"", "events", "involvedObject.name", "", ""},
    {"", "events", "involvedObject.uid", "", ""},
    {"", "events", "involvedObject.apiVersion", "", ""},
    {"", "events", "involvedObject.resourceVersion", "", ""},
    {"", "events", "involvedObject.fieldPath", "", ""},
    {"", "events", "reason", "", ""},
    {"", "events", "reportingComponent", "", ""},
    {"", "events", "source", "source.component", ""},
    {"", "events", "type", "", ""},
    {"events.k8s.io", "events", "involvedObject.kind", "regarding.kind", ""},
    {"events.k8s.io", "events", "involvedObject.namespace", "regarding.namespace", ""},
    {"events.k8s.io", "events", "involvedObject.name", "regarding.name", ""},
    {"events.k8s.io", "events", "involvedObject.uid", "regarding.uid", ""},
    {"events.k8s.io", "events", "involvedObject.apiVersion", "regarding.apiVersion", ""},
    {"events.k8s.io", "events", "involvedObject.resourceVersion", "regarding.resourceVersion", ""},
    {"events.k8s.io", "events", "involvedObject.fieldPath", "regarding.fieldPath", ""},
    {"events.k8s.io", "events", "reason", "", ""},
    {"events.k8s.io", "events", "reportingComponent", "reportingController", ""},
    {"events.k8s.io", "events", "source", "deprecatedSource.component", ""},
    {"events.k8s.io", "events", "type", "", ""},
};

}  // namespace

const KindLogic* FindKindLogic(std::string_view group, std::string_view version,
                               std::string_view resource) {
  if (group == kAutoscalerV1.group && version == "v1" && resource == kAutoscalerV1.resource) {
    return &kAutoscalerV1;
  }
  for (const KindLogic& row : kLogic) {
    if (row.resource == resource && row.group == group) {
      return &row;
    }
  }
  return nullptr;
}

std::vector<const SelectableField*> FindSelectableFields(std::string_view group,
                                                         std::string_view resource) {
  std::vector<const SelectableField*> found;
  for (const SelectableField& field : kFields) {
    if (field.resource == resource && field.group == group) {
      found.push_back(&field);
    }
  }
  return found;
}

}  // namespace sublet::kube
