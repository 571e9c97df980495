#include "kube/kinds/columns.h"

#include <nlohmann/json.hpp>

#include "kube/kinds/column_cells.h"

namespace sublet::kube {
namespace {

constexpr TableSpec kTables[] = {
    {"", "pods",
     "Name/string/name;Ready/string;Status/string;Restarts/string;Age/string;IP/string//1;"
     "Node/string//1;Nominated Node/string//1;Readiness Gates/string//1",
     cells::Pod},
    {"", "podtemplates", "Name/string/name;Containers/string;Images/string;Pod Labels/string",
     cells::PodTemplate},
    {"", "replicationcontrollers",
     "Name/string/name;Desired/integer;Current/integer;Ready/integer;Age/string;"
     "Containers/string//1;Images/string//1;Selector/string//1",
     cells::ReplicationController},
    {"apps", "replicasets",
     "Name/string/name;Desired/integer;Current/integer;Ready/integer;Age/string;"
     "Containers/string//1;Images/string//1;Selector/string//1",
     cells::ReplicaSet},
    {"apps", "daemonsets",
     "Name/string/name;Desired/integer;Current/integer;Ready/integer;Up-to-date/integer;"
     "Available/integer;Node Selector/string;Age/string;Containers/string//1;Images/string//1;"
     "Selector/string//1",
     cells::DaemonSet},
    {"apps", "deployments",
     "Name/string/name;Ready/string;Up-to-date/string;Available/string;Age/string;"
     "Containers/string//1;Images/string//1;Selector/string//1",
     cells::Deployment},
    {"apps", "statefulsets",
     "Name/string/name;Ready/string;Age/string;Containers/string//1;Images/string//1",
     cells::StatefulSet},
    {"apps", "controllerrevisions", "Name/string/name;Controller/string;Revision/string;Age/string",
     cells::ControllerRevision},
    {"batch", "jobs",
     "Name/string/name;Status/string;Completions/string;Duration/string;Age/string;"
     "Containers/string//1;Images/string//1;Selector/string//1",
     cells::Job},
    {"batch", "cronjobs",
     "Name/string/name;Schedule/string;Timezone/string;Suspend/boolean;Active/integer;"
     "Last Schedule/string;Age/string;Containers/string//1;Images/string//1;Selector/string//1",
     cells::CronJob},
    {"autoscaling", "horizontalpodautoscalers",
     "Name/string/name;Reference/string;Targets/string;MinPods/string;MaxPods/string;"
     "Replicas/string;Age/string",
     cells::HorizontalPodAutoscaler},
    {"policy", "poddisruptionbudgets",
     "Name/string/name;Min Available/string;Max Unavailable/string;Allowed Disruptions/integer;"
     "Age/string",
     cells::PodDisruptionBudget},
    {"", "services",
     "Name/string/name;Type/string;Cluster-IP/string;External-IP/string;Port(s)/string;Age/string;"
     "Selector/string//1",
     cells::Service},
    {"", "endpoints", "Name/string/name;Endpoints/string;Age/string", cells::Endpoints},
    {"discovery.k8s.io", "endpointslices",
     "Name/string/name;AddressType/string;Ports/string;Endpoints/string;Age/string",
     cells::EndpointSlice},
    {"networking.k8s.io", "ingresses",
     "Name/string/name;Class/string;Hosts/string;Address/string;Ports/string;Age/string",
     cells::Ingress},
    {"networking.k8s.io", "ingressclasses",
     "Name/string/name;Controller/string;Parameters/string;Age/string", cells::IngressClass},
    {"networking.k8s.io", "networkpolicies", "Name/string/name;Pod-Selector/string;Age/string",
     cells::NetworkPolicy},
    {"networking.k8s.io", "servicecidrs", "Name/string/name;CIDRs/string;Age/string",
     cells::ServiceCidr},
    {"networking.k8s.io", "ipaddresses", "Name/string/name;ParentRef/string", cells::IpAddress},
    {"", "nodes",
     "Name/string/name;Status/string;Roles/string;Age/string;Version/string;Internal-IP/string//1;"
     "External-IP/string//1;OS-Image/string//1;Kernel-Version/string//1;Container-Runtime/string//"
     "1",
     cells::Node},
    {"", "namespaces", "Name/string/name;Status/string;Age/string", cells::Namespace},
    {"", "events",
     "Last Seen/string;Type/string;Reason/string;Object/string;Subobject/string//1;"
     "Source/string//1;Message/string;First Seen/string//1;Count/string//1;Name/string/name/1",
     cells::Event},
    {"events.k8s.io", "events",
     "Last Seen/string;Type/string;Reason/string;Object/string;Subobject/string//1;"
     "Source/string//1;Message/string;First Seen/string//1;Count/string//1;Name/string/name/1",
     cells::Event},
    {"", "configmaps", "Name/string/name;Data/string;Age/string", cells::ConfigMap},
    {"", "secrets", "Name/string/name;Type/string;Data/string;Age/string", cells::Secret},
    {"", "serviceaccounts", "Name/string/name;Age/string", cells::ServiceAccount},
    {"", "resourcequotas", "Name/string/name;Request/string;Limit/string;Age/string",
     cells::ResourceQuota},
    {"", "componentstatuses", "Name/string/name;Status/string;Message/string;Error/string",
     cells::ComponentStatus},
    {"coordination.k8s.io", "leases", "Name/string/name;Holder/string;Age/string", cells::Lease},
    {"scheduling.k8s.io", "priorityclasses",
     "Name/string/name;Value/integer;Global-Default/boolean;Age/string;PreemptionPolicy/string",
     cells::PriorityClass},
    {"node.k8s.io", "runtimeclasses", "Name/string/name;Handler/string;Age/string",
     cells::RuntimeClass},
    {"rbac.authorization.k8s.io", "rolebindings",
     "Name/string/name;Role/string;Age/string;Users/string//1;Groups/string//1;"
     "ServiceAccounts/string//1",
     cells::RoleBinding},
    {"rbac.authorization.k8s.io", "clusterrolebindings",
     "Name/string/name;Role/string;Age/string;Users/string//1;Groups/string//1;"
     "ServiceAccounts/string//1",
     cells::RoleBinding},
    {"certificates.k8s.io", "certificatesigningrequests",
     "Name/string/name;Age/string;SignerName/string;Requestor/string;RequestedDuration/string;"
     "Condition/string",
     cells::CertificateSigningRequest},
    {"flowcontrol.apiserver.k8s.io", "flowschemas",
     "Name/string/name;PriorityLevel/string;MatchingPrecedence/string;DistinguisherMethod/string;"
     "Age/string;MissingPL/string",
     cells::FlowSchema},
    {"flowcontrol.apiserver.k8s.io", "prioritylevelconfigurations",
     "Name/string/name;Type/string;NominalConcurrencyShares/string;Queues/string;HandSize/string;"
     "QueueLengthLimit/string;Age/string",
     cells::PriorityLevel},
    {"admissionregistration.k8s.io", "mutatingwebhookconfigurations",
     "Name/string/name;Webhooks/integer;Age/string", cells::Webhooks},
    {"admissionregistration.k8s.io", "validatingwebhookconfigurations",
     "Name/string/name;Webhooks/integer;Age/string", cells::Webhooks},
    {"admissionregistration.k8s.io", "validatingadmissionpolicies",
     "Name/string/name;Validations/integer;ParamKind/string;Age/string", cells::AdmissionPolicy},
    {"admissionregistration.k8s.io", "mutatingadmissionpolicies",
     "Name/string/name;Mutations/integer;ParamKind/string;Age/string", cells::AdmissionPolicy},
    {"admissionregistration.k8s.io", "validatingadmissionpolicybindings",
     "Name/string/name;PolicyName/string;ParamRef/string;Age/string",
     cells::AdmissionPolicyBinding},
    {"admissionregistration.k8s.io", "mutatingadmissionpolicybindings",
     "Name/string/name;PolicyName/string;ParamRef/string;Age/string",
     cells::AdmissionPolicyBinding},
    {"apiextensions.k8s.io", "customresourcedefinitions", "Name/string/name;Created At/date",
     cells::CustomResourceDefinition},
    {"apiregistration.k8s.io", "apiservices",
     "Name/string/name;Service/string;Available/string;Age/date", cells::ApiService},
    {"", "persistentvolumes",
     "Name/string/name;Capacity/string;Access Modes/string;Reclaim Policy/string;Status/string;"
     "Claim/string;StorageClass/string;VolumeAttributesClass/string;Reason/string;Age/string;"
     "VolumeMode/string//1",
     cells::PersistentVolume},
    {"", "persistentvolumeclaims",
     "Name/string/name;Status/string;Volume/string;Capacity/string;Access Modes/string;"
     "StorageClass/string;VolumeAttributesClass/string;Age/string;VolumeMode/string//1",
     cells::PersistentVolumeClaim},
    {"storage.k8s.io", "storageclasses",
     "Name/string/name;Provisioner/string;ReclaimPolicy/string;VolumeBindingMode/string;"
     "AllowVolumeExpansion/string;Age/string",
     cells::StorageClass},
    {"storage.k8s.io", "volumeattributesclasses", "Name/string/name;DriverName/string;Age/string",
     cells::VolumeAttributesClass},
    {"storage.k8s.io", "volumeattachments",
     "Name/string/name;Attacher/string/name;PV/string;Node/string;Attached/boolean;Age/string",
     cells::VolumeAttachment},
    {"storage.k8s.io", "csinodes", "Name/string/name;Drivers/integer;Age/string", cells::CsiNode},
    {"storage.k8s.io", "csidrivers",
     "Name/string/name;AttachRequired/boolean;PodInfoOnMount/boolean;StorageCapacity/boolean;"
     "TokenRequests/string;RequiresRepublish/boolean;Modes/string;Age/string",
     cells::CsiDriver},
    {"resource.k8s.io", "deviceclasses", "Name/string/name;Age/string", cells::NameAndAge},
    {"resource.k8s.io", "resourceclaims", "Name/string/name;State/string;Age/string",
     cells::ResourceClaim},
    {"resource.k8s.io", "resourceclaimtemplates", "Name/string/name;Age/string", cells::NameAndAge},
    {"resource.k8s.io", "resourceslices",
     "Name/string/name;Node/string;Driver/string;Pool/string;Age/string", cells::ResourceSlice},
};

std::string_view TakePart(std::string_view* text, char end) {
  const std::size_t at = std::min(text->find(end), text->size());
  const std::string_view part = text->substr(0, at);
  text->remove_prefix(std::min(at + 1, text->size()));
  return part;
}

}  // namespace

const TableSpec* FindTableSpec(std::string_view group, std::string_view resource) {
  for (const TableSpec& spec : kTables) {
    if (spec.resource == resource && spec.group == group) {
      return &spec;
    }
  }
  return nullptr;
}

std::vector<Column> ParseColumns(std::string_view text) {
  std::vector<Column> columns;
  while (!text.empty()) {
    std::string_view one = TakePart(&text, ';');
    Column column;
    column.name = TakePart(&one, '/');
    column.type = TakePart(&one, '/');
    column.format = TakePart(&one, '/');
    column.priority = one == "1" ? 1 : 0;
    columns.push_back(std::move(column));
  }
  return columns;
}

Json PodRowConditions(const Json& pod) {
  const std::string_view phase = FindString(pod, {"status", "phase"});
  if (phase == "Succeeded") {
    return Json::array({{{"type", "Completed"},
                         {"status", "True"},
                         {"reason", "Succeeded"},
                         {"message", "The pod has completed successfully."}}});
  }
  if (phase == "Failed") {
    return Json::array({{{"type", "Completed"},
                         {"status", "True"},
                         {"reason", "Failed"},
                         {"message", "The pod failed."}}});
  }
  return nullptr;
}

}  // namespace sublet::kube
