#include <algorithm>
#include <nlohmann/json.hpp>

#include "kube/kinds/default_functions.h"
#include "kube/object.h"

namespace sublet::kube::defaults {
namespace {

constexpr std::string_view kRbacGroup = "rbac.authorization.k8s.io";

}  // namespace

void NetworkPolicy(Json* object) {
  Json& spec = EnsureObject(object, "spec");
  if (const Json* types = Find(spec, {"policyTypes"}); types == nullptr || types->empty()) {
    spec["policyTypes"] = Json::array({"Ingress"});
    if (const Json* egress = Find(spec, {"egress"}); egress != nullptr && !egress->empty()) {
      spec["policyTypes"].push_back("Egress");
    }
  }
}

void NetworkPolicyPort(Json* port) { SetIfAbsent(port, "protocol", "TCP"); }

void IngressClass(Json* object) {
  if (Json* parameters = Find(*object, {"spec", "parameters"});
      parameters != nullptr && parameters->is_object()) {
    SetIfAbsent(parameters, "scope", "Cluster");
  }
}

void RoleBinding(Json* object) {
  SetIfEmpty(&EnsureObject(object, "roleRef"), "apiGroup", kRbacGroup);
}

void RbacSubject(Json* subject) {
  const std::string_view kind = FindString(*subject, {"kind"});
  if (kind == "User" || kind == "Group") {
    SetIfEmpty(subject, "apiGroup", kRbacGroup);
  }
}

void StorageClass(Json* object) {
  SetIfAbsent(object, "reclaimPolicy", "Delete");
  SetIfAbsent(object, "volumeBindingMode", "Immediate");
}

void CsiDriver(Json* object) {
  Json& spec = EnsureObject(object, "spec");
  SetIfAbsent(&spec, "attachRequired", true);
  SetIfAbsent(&spec, "podInfoOnMount", false);
  SetIfAbsent(&spec, "storageCapacity", false);
  SetIfAbsent(&spec, "fsGroupPolicy", "ReadWriteOnceWithFSType");
  if (const Json* modes = Find(spec, {"volumeLifecycleModes"});
      modes == nullptr || modes->empty()) {
    spec["volumeLifecycleModes"] = Json::array({"Persistent"});
  }
  SetIfAbsent(&spec, "requiresRepublish", false);
  SetIfAbsent(&spec, "seLinuxMount", false);
}

void Webhook(Json* webhook) {
  SetIfAbsent(webhook, "failurePolicy", "Fail");
  SetIfAbsent(webhook, "matchPolicy", "Equivalent");
  SetIfAbsent(webhook, "namespaceSelector", Json::object());
  SetIfAbsent(webhook, "objectSelector", Json::object());
  SetIfAbsent(webhook, "timeoutSeconds", 10);
}

void MutatingWebhook(Json* webhook) {
  Webhook(webhook);
  SetIfAbsent(webhook, "reinvocationPolicy", "Never");
}

void AdmissionRule(Json* rule) { SetIfAbsent(rule, "scope", "*"); }
void WebhookService(Json* reference) { SetIfAbsent(reference, "port", 443); }
void FailurePolicy(Json* spec) { SetIfAbsent(spec, "failurePolicy", "Fail"); }

void MatchResources(Json* resources) {
  SetIfAbsent(resources, "matchPolicy", "Equivalent");
  SetIfAbsent(resources, "namespaceSelector", Json::object());
  SetIfAbsent(resources, "objectSelector", Json::object());
}

void PriorityClass(Json* object) {
  SetIfAbsent(object, "preemptionPolicy", "PreemptLowerPriority");
}

void EndpointSlicePort(Json* port) {
  SetIfAbsent(port, "name", "");
  SetIfAbsent(port, "protocol", "TCP");
}

void DeviceRequest(Json* request) {
  SetIfEmpty(request, "allocationMode", "ExactCount");
  if (FindString(*request, {"allocationMode"}) == "ExactCount") {
    SetIfZero(request, "count", 1);
  }
}

void FlowSchemaSpec(Json* spec) { SetIfZero(spec, "matchingPrecedence", 1000); }

void ExemptLevel(Json* level) {
  SetIfAbsent(level, "nominalConcurrencyShares", 0);
  SetIfAbsent(level, "lendablePercent", 0);
}

void LimitedLevel(Json* level) {
  SetIfAbsent(level, "nominalConcurrencyShares", 30);
  SetIfAbsent(level, "lendablePercent", 0);
}

void QueuingConfiguration(Json* queuing) {
  SetIfZero(queuing, "handSize", 8);
  SetIfZero(queuing, "queues", 64);
  SetIfZero(queuing, "queueLengthLimit", 50);
}

void CustomResourceDefinition(Json* object) {
  Json& spec = EnsureObject(object, "spec");
  Json& names = EnsureObject(&spec, "names");
  std::string kind(FindString(names, {"kind"}));
  if (!kind.empty()) {
    SetIfEmpty(&names, "listKind", kind + "List");
    std::transform(kind.begin(), kind.end(), kind.begin(),
                   [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
    SetIfEmpty(&names, "singular", kind);
  }
  SetIfAbsent(&spec, "conversion", {{"strategy", "None"}});
  Json& status = EnsureObject(object, "status");
  const Json* stored = Find(status, {"storedVersions"});
  const Json* versions = Find(spec, {"versions"});
  if ((stored == nullptr || stored->empty()) && versions != nullptr && versions->is_array()) {
    for (const Json& version : *versions) {
      if (FindBool(version, {"storage"})) {
        status["storedVersions"] = Json::array({std::string(FindString(version, {"name"}))});
        break;
      }
    }
  }
}

}  // namespace sublet::kube::defaults
