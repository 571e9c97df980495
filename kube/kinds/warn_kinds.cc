#include "kube/kinds/warn_kinds.h"

#include <nlohmann/json.hpp>

#include "kube/base64.h"
#include "kube/field_error.h"
#include "kube/kinds/validate_common.h"
#include "kube/object.h"

namespace sublet::kube::warn {
namespace {

using validate::Get;
using validate::Has;
using validate::Items;
using validate::Str;

void NameOfPods(const Json& object, const Json* old, Warnings* warnings) {
  if (old != nullptr) {
    return;
  }
  if (const Problems problems = IsDns1123Label(std::string(NameOf(object))); !problems.empty()) {
    warnings->push_back(
        "metadata.name: this is used in Pod names and hostnames, which can result in surprising "
        "behavior; a DNS label is recommended: [" +
        Join(problems, " ") + "]");
  }
}

bool SameSpec(const Json& object, const Json* old) {
  return old != nullptr && GenerationOf(object) == GenerationOf(*old);
}

void ClaimSpec(const std::string& path, const Json& spec, Warnings* warnings) {
  const Json& resources = Get(spec, "resources");
  for (const char* list : {"requests", "limits"}) {
    FractionalBytes(path + ".resources." + list, Get(resources, list), "storage", warnings);
  }
}

void JobSpec(const std::string& path, const Json& spec, Warnings* warnings) {
  if (Str(spec, "completionMode") == "Indexed" && FindInt(spec, {"completions"}) > 100000 &&
      FindInt(spec, {"parallelism"}) > 10000) {
    warnings->push_back(
        path +
        ": In Indexed Jobs with a number of completions higher than 10^5 and a parallelism "
        "higher than 10^4, Kubernetes might not be able to track completedIndexes when a "
        "big number of indexes fail");
  }
  PodTemplate(path + ".template.", Get(spec, "template"), warnings);
}

void OldAnnotation(const Json& object, const std::string& key, const char* text,
                   Warnings* warnings) {
  if (Has(Get(Get(object, "metadata"), "annotations"), key)) {
    warnings->push_back("metadata.annotations[" + key + "]: " + text);
  }
}

constexpr char kOldClass[] = "volume.beta.kubernetes.io/storage-class";
constexpr char kUseClass[] = "deprecated since v1.8; use \"storageClassName\" attribute instead";

}  // namespace

void Workload(const Json& object, const Json* old, Warnings* warnings) {
  if (!SameSpec(object, old)) {
    PodTemplate("spec.template.", Get(Get(object, "spec"), "template"), warnings);
  }
}

void Deployment(const Json& object, const Json* old, Warnings* warnings) {
  NameOfPods(object, old, warnings);
  Workload(object, old, warnings);
}

void StatefulSet(const Json& object, const Json* old, Warnings* warnings) {
  Workload(object, old, warnings);
  const Json& spec = Get(object, "spec");
  std::size_t index = 0;
  for (const Json& claim : Items(spec, "volumeClaimTemplates")) {
    const std::string at = "spec.volumeClaimTemplates[" + std::to_string(index++) + "]";
    ClaimSpec(old == nullptr ? at : at + ".Spec", Get(claim, "spec"), warnings);
  }
  if (FindInt(spec, {"revisionHistoryLimit"}) < 0) {
    warnings->push_back(
        "spec.revisionHistoryLimit: a negative value retains all historical revisions; a value >= "
        "0 is recommended");
  }
}

void Job(const Json& object, const Json* old, Warnings* warnings) {
  NameOfPods(object, old, warnings);
  if (!SameSpec(object, old)) {
    JobSpec("spec", Get(object, "spec"), warnings);
  }
}

void CronJob(const Json& object, const Json* old, Warnings* warnings) {
  NameOfPods(object, old, warnings);
  if (!SameSpec(object, old)) {
    JobSpec("spec.jobTemplate.spec", Get(Get(Get(object, "spec"), "jobTemplate"), "spec"),
            warnings);
  }
}

void PodTemplateObject(const Json& object, const Json* old, Warnings* warnings) {
  if (!SameSpec(object, old)) {
    PodTemplate("template.", Get(object, "template"), warnings);
  }
}

void Service(const Json& object, const Json*, Warnings* warnings) {
  constexpr char kHints[] = "service.kubernetes.io/topology-aware-hints";
  if (Has(Get(Get(object, "metadata"), "annotations"), kHints)) {
    warnings->push_back("annotation " + std::string(kHints) +
                        " is deprecated, please use service.kubernetes.io/topology-mode instead");
  }
  const Json& spec = Get(object, "spec");
  const std::string type = Str(spec, "type");
  const bool headless = type == "ClusterIP" && Str(spec, "clusterIP") == "None";
  const bool external = !Items(spec, "externalIPs").empty();
  const auto say = [&](bool applies, std::string text) {
    if (applies) {
      warnings->push_back(std::move(text));
    }
  };
  say(headless && !Str(spec, "loadBalancerIP").empty(),
      "spec.loadBalancerIP is ignored for headless services");
  say(headless && external, "spec.externalIPs is ignored for headless services");
  say(headless && Str(spec, "sessionAffinity") != "None",
      "spec.SessionAffinity is ignored for headless services");
  say(external && !headless && type != "ExternalName",
      "spec.externalIPs is deprecated and may no longer be implemented in some clusters");
  say(external && type == "ExternalName",
      "spec.externalIPs is ignored when spec.type is \"ExternalName\"");
  say(type != "ExternalName" && !Str(spec, "externalName").empty(),
      "spec.externalName is ignored when spec.type is not \"ExternalName\"");
  say(Str(spec, "trafficDistribution") == "PreferClose",
      "spec.trafficDistribution: \"PreferClose\" is deprecated; use \"PreferSameZone\"");
}

void EndpointSlice(const Json& object, const Json* old, Warnings* warnings) {
  if (old == nullptr && Str(object, "addressType") == "FQDN") {
    warnings->push_back("spec.addressType: FQDN endpoints are deprecated");
  }
}

void Ingress(const Json& object, const Json* old, Warnings* warnings) {
  constexpr char kClass[] = "kubernetes.io/ingress.class";
  if (old == nullptr && Has(Get(Get(object, "metadata"), "annotations"), kClass) &&
      !Has(Get(object, "spec"), "ingressClassName")) {
    warnings->push_back("annotation \"" + std::string(kClass) +
                        "\" is deprecated, please use 'spec.ingressClassName' instead");
  }
}

// Differs: that key and certificate belong together is not looked at, only that both are PEM.
void Secret(const Json& object, const Json*, Warnings* warnings) {
  if (Str(object, "type") != "kubernetes.io/tls") {
    return;
  }
  const Json& data = Get(object, "data");
  for (const auto& [key, what] :
       {std::pair("tls.crt", "certificate"), std::pair("tls.key", "key")}) {
    const auto bytes = DecodeBase64(Str(data, key));
    if (!bytes || bytes->find("-----BEGIN") == std::string::npos) {
      warnings->push_back("tls: failed to find any PEM data in " + std::string(what) + " input");
      return;
    }
  }
}

void PersistentVolume(const Json& object, const Json*, Warnings* warnings) {
  OldAnnotation(object, kOldClass, kUseClass, warnings);
  OldAnnotation(object, "volume.beta.kubernetes.io/mount-options",
                "deprecated since v1.31; use \"mountOptions\" attribute instead", warnings);
  const Json& spec = Get(object, "spec");
  if (Str(spec, "persistentVolumeReclaimPolicy") == "Recycle") {
    warnings->push_back(
        "spec.persistentVolumeReclaimPolicy: The Recycle reclaim policy is deprecated. Instead, "
        "the recommended approach is to use dynamic provisioning.");
  }
  NodeSelectorTerms("spec.nodeAffinity.required.nodeSelectorTerms",
                    Get(Get(Get(spec, "nodeAffinity"), "required"), "nodeSelectorTerms"), false,
                    warnings);
  constexpr std::pair<const char*, const char*> kSources[] = {
      {"cephfs", "cephfs: deprecated in v1.28, non-functional in v1.31+"},
      {"photonPersistentDisk",
       "photonPersistentDisk: deprecated in v1.11, non-functional in v1.16+"},
      {"scaleIO", "scaleIO: deprecated in v1.16, non-functional in v1.22+"},
      {"storageos", "storageOS: deprecated in v1.22, non-functional in v1.25+"},
      {"glusterfs", "glusterfs: deprecated in v1.25, non-functional in v1.26+"},
      {"rbd", "rbd: deprecated in v1.28, non-functional in v1.31+"},
  };
  for (const auto& [member, text] : kSources) {
    if (Has(spec, member)) {
      warnings->push_back("spec." + std::string(text));
    }
  }
}

void PersistentVolumeClaim(const Json& object, const Json*, Warnings* warnings) {
  OldAnnotation(object, kOldClass, kUseClass, warnings);
  ClaimSpec("spec", Get(object, "spec"), warnings);
}

void StorageClass(const Json& object, const Json*, Warnings* warnings) {
  std::size_t i = 0;
  for (const Json& topology : Items(object, "allowedTopologies")) {
    std::size_t j = 0;
    for (const Json& expression : Items(topology, "matchLabelExpressions")) {
      const std::string_view text = DeprecatedNodeLabel(Str(expression, "key"));
      if (!text.empty()) {
        warnings->push_back("allowedTopologies[" + std::to_string(i) + "].matchLabelExpressions[" +
                            std::to_string(j) + "].key: " + std::string(text));
      }
      ++j;
    }
    ++i;
  }
}

void RuntimeClass(const Json& object, const Json*, Warnings* warnings) {
  if (const Json& selector = Get(Get(object, "scheduling"), "nodeSelector"); selector.is_object()) {
    for (const auto& [key, value] : selector.items()) {
      if (const std::string_view text = DeprecatedNodeLabel(key); !text.empty()) {
        warnings->push_back("scheduling.nodeSelector: " + std::string(text));
      }
    }
  }
}

}  // namespace sublet::kube::warn
