// DefaultStorageClass, DefaultIngressClass, StorageObjectInUseProtection,
// PersistentVolumeClaimResize, TaintNodesByCondition: small rules about classes and volumes.
// Source: k8s.io/kubernetes plugin/pkg/admission/{storage,network/defaultingressclass,nodetaint}.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "apiserver/admission/registry.h"
#include "apiserver/registry/object_codec.h"
#include "kube/object.h"
#include "kube/quantity.h"

namespace sublet::apiserver {
namespace {

using kube::Json;

// The class whose annotation says "true": the newest one, then by name.
std::string DefaultClass(const AdmissionEnvironment& environment, std::string_view group,
                         std::string_view plural, std::string_view annotation) {
  std::string best;
  std::string best_time;
  for (const auto& record : ListObjects(environment, group, plural, "")) {
    const Json candidate = ParseStored(*record.value);
    if (kube::AnnotationOf(candidate, annotation) != "true") {
      continue;
    }
    const std::string time(kube::FindString(candidate, {"metadata", "creationTimestamp"}));
    if (best.empty() || time > best_time) {
      best = kube::NameOf(candidate);
      best_time = time;
    }
  }
  return best;
}

Result<void> AdmitClaim(const AdmissionEnvironment& environment, AdmissionRequest& request) {
  if (!IsMain(request, "", "persistentvolumeclaims")) {
    return Ok();
  }
  Json& spec = kube::EnsureObject(request.object, "spec");
  const Json* annotations = kube::AnnotationsOf(*request.object);
  if (spec.contains("storageClassName") ||
      (annotations != nullptr &&
       annotations->contains("volume.beta.kubernetes.io/storage-class"))) {
    return Ok();
  }
  const std::string name = DefaultClass(environment, "storage.k8s.io", "storageclasses",
                                        "storageclass.kubernetes.io/is-default-class");
  if (!name.empty()) {
    spec["storageClassName"] = name;
  }
  return Ok();
}

Result<void> AdmitIngress(const AdmissionEnvironment& environment, AdmissionRequest& request) {
  if (!IsMain(request, "networking.k8s.io", "ingresses")) {
    return Ok();
  }
  Json& spec = kube::EnsureObject(request.object, "spec");
  if (spec.contains("ingressClassName") ||
      !kube::AnnotationOf(*request.object, "kubernetes.io/ingress.class").empty()) {
    return Ok();
  }
  const std::string name = DefaultClass(environment, "networking.k8s.io", "ingressclasses",
                                        "ingressclass.kubernetes.io/is-default-class");
  if (!name.empty()) {
    spec["ingressClassName"] = name;
  }
  return Ok();
}

Result<void> AdmitProtection(AdmissionRequest& request) {
  if (IsMain(request, "", "persistentvolumeclaims")) {
    kube::AddFinalizer(request.object, "kubernetes.io/pvc-protection");
  } else if (IsMain(request, "", "persistentvolumes")) {
    kube::AddFinalizer(request.object, "kubernetes.io/pv-protection");
  } else if (IsMain(request, "storage.k8s.io", "volumeattributesclasses")) {
    kube::AddFinalizer(request.object, "kubernetes.io/vac-protection");
  }
  return Ok();
}

Result<void> ValidateResize(const AdmissionEnvironment& environment, AdmissionRequest& request) {
  if (!IsMain(request, "", "persistentvolumeclaims")) {
    return Ok();
  }
  const auto size = [](const Json& claim) {
    return kube::Quantity::ParseOrZero(
        kube::FindString(claim, {"spec", "resources", "requests", "storage"}));
  };
  if (size(*request.object) <= size(*request.old_object)) {
    return Ok();
  }
  if (kube::FindString(*request.old_object, {"status", "phase"}) != "Bound") {
    return AdmissionForbidden(request, "Only bound persistent volume claims can be expanded");
  }
  const std::string name(kube::FindString(*request.object, {"spec", "storageClassName"}));
  const auto storage_class =
      name.empty() ? std::nullopt
                   : ReadObject(environment, "storage.k8s.io", "storageclasses", "", name);
  if (!storage_class || !kube::FindBool(*storage_class, {"allowVolumeExpansion"})) {
    return AdmissionForbidden(request,
                              "only dynamically provisioned pvc can be resized and the "
                              "storageclass that provisions the pvc must support resize");
  }
  return Ok();
}

// Differs: a node that is created as Ready (a simulated node, or a host's node shown to a tenant)
// is not tainted: nobody would take the taint away again.
Result<void> AdmitNode(AdmissionRequest& request) {
  if (!IsMain(request, "", "nodes") || kube::IsConditionTrue(*request.object, "Ready")) {
    return Ok();
  }
  constexpr const char* kTaint = "node.kubernetes.io/not-ready";
  Json& taints = kube::EnsureArray(&kube::EnsureObject(request.object, "spec"), "taints");
  const bool has = std::any_of(taints.begin(), taints.end(), [](const Json& taint) {
    return kube::FindString(taint, {"key"}) == kTaint &&
           kube::FindString(taint, {"effect"}) == "NoSchedule";
  });
  if (!has) {
    taints.push_back({{"key", kTaint}, {"effect", "NoSchedule"}});
  }
  return Ok();
}

AdmissionPlugin OnCreate(const char* name, std::function<Result<void>(AdmissionRequest&)> mutate) {
  AdmissionPlugin plugin;
  plugin.name = name;
  plugin.operations = Operations({Operation::kCreate});
  plugin.mutate = std::move(mutate);
  return plugin;
}

}  // namespace

AdmissionPlugin DefaultStorageClass(const AdmissionEnvironment& environment) {
  return OnCreate("DefaultStorageClass", [environment](AdmissionRequest& request) {
    return AdmitClaim(environment, request);
  });
}

AdmissionPlugin DefaultIngressClass(const AdmissionEnvironment& environment) {
  return OnCreate("DefaultIngressClass", [environment](AdmissionRequest& request) {
    return AdmitIngress(environment, request);
  });
}

AdmissionPlugin StorageObjectInUseProtection() {
  return OnCreate("StorageObjectInUseProtection",
                  [](AdmissionRequest& request) { return AdmitProtection(request); });
}

AdmissionPlugin TaintNodesByCondition() {
  return OnCreate("TaintNodesByCondition",
                  [](AdmissionRequest& request) { return AdmitNode(request); });
}

AdmissionPlugin PersistentVolumeClaimResize(const AdmissionEnvironment& environment) {
  AdmissionPlugin plugin;
  plugin.name = "PersistentVolumeClaimResize";
  plugin.operations = Operations({Operation::kUpdate});
  plugin.validate = [environment](AdmissionRequest& request) {
    return ValidateResize(environment, request);
  };
  return plugin;
}

}  // namespace sublet::apiserver
