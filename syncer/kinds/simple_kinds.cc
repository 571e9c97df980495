// The rows of SimpleSyncer: what each kind becomes on the host. Storage is in storage_kinds.cc.
#include <nlohmann/json.hpp>

#include "kube/object.h"
#include "syncer/kinds/mirror_syncer.h"
#include "syncer/kinds/simple_syncer.h"
#include "syncer/kinds/translate_fields.h"

namespace sublet::syncer {
namespace {

using kube::Json;

bool Always(SyncContext&, const Json&) { return true; }

std::string SpaceOf(const Json& object) { return std::string(kube::NamespaceOf(object)); }

// ---- Ingress ----

void TranslateBackend(Json& backend, const SyncContext& context, const std::string& space) {
  if (Json* service = kube::Find(backend, {"service"}); service != nullptr) {
    TranslateName(*service, "name", context.tenant, space);
  }
  backend.erase("resource");
}

Result<Json> TranslateIngress(const SyncContext& context, const Json& ingress) {
  Json spec = Json::object();
  const std::string space = SpaceOf(ingress);
  CopyFields(ingress.at("spec"), spec, {"ingressClassName", "defaultBackend", "rules", "tls"});
  if (spec.contains("defaultBackend")) {
    TranslateBackend(spec["defaultBackend"], context, space);
  }
  if (spec.contains("rules") && spec["rules"].is_array()) {
    for (Json& rule : spec["rules"]) {
      Json* paths = kube::Find(rule, {"http", "paths"});
      if (paths == nullptr || !paths->is_array()) {
        continue;
      }
      for (Json& path : *paths) {
        if (path.contains("backend")) {
          TranslateBackend(path["backend"], context, space);
        }
      }
    }
  }
  if (spec.contains("tls") && spec["tls"].is_array()) {
    for (Json& tls : spec["tls"]) {
      TranslateName(tls, "secretName", context.tenant, space);
    }
  }
  return Json{{"spec", std::move(spec)}};
}

// ---- NetworkPolicy ----

Json TranslatePeer(const SyncContext& context, const Json& peer, const std::string& space) {
  if (peer.contains("ipBlock")) {
    Json out = Json::object();
    CopyFields(peer, out, {"ipBlock"});
    return out;
  }
  const Json pods = peer.value("podSelector", Json::object());
  const Json* namespaces = kube::Find(peer, {"namespaceSelector"});
  Json selector = HostLabelSelector(context.tenant, pods, namespaces == nullptr ? space : "");
  if (namespaces != nullptr) {
    const Json labels = namespaces->value("matchLabels", Json::object());
    for (const auto& [key, value] : labels.items()) {
      selector["matchLabels"][NamespaceLabelKey(context.tenant, key)] = value;
    }
    for (Json rule : namespaces->value("matchExpressions", Json::array())) {
      rule["key"] = NamespaceLabelKey(context.tenant, kube::FindString(rule, {"key"}));
      selector["matchExpressions"].push_back(std::move(rule));
    }
  }
  return {{"podSelector", std::move(selector)}};
}

Result<Json> TranslateNetworkPolicy(const SyncContext& context, const Json& policy) {
  const std::string space = SpaceOf(policy);
  const Json& from = policy.at("spec");
  Json spec = Json::object();
  CopyFields(from, spec, {"policyTypes"});
  spec["podSelector"] =
      HostLabelSelector(context.tenant, from.value("podSelector", Json::object()), space);
  for (const auto& [rules, peers] :
       {std::pair<const char*, const char*>{"ingress", "from"}, {"egress", "to"}}) {
    if (!from.contains(rules) || !from[rules].is_array()) {
      continue;
    }
    Json& out = spec[rules] = Json::array();
    for (const Json& rule : from[rules]) {
      Json copy = Json::object();
      CopyFields(rule, copy, {"ports"});
      const Json from_rule = rule.value(peers, Json::array());
      // Policies add up: one of the tenant's would open what the host's closes.
      const bool closed = context.config.network_policy && rules == std::string_view("ingress");
      bool narrowed = closed && from_rule.empty();
      Json list = Json::array();
      for (const Json& peer : from_rule) {
        const bool outside = closed && peer.contains("ipBlock");
        narrowed = narrowed || outside;
        if (!outside) {
          list.push_back(TranslatePeer(context, peer, space));
        }
      }
      if (narrowed) {
        list.push_back({{"podSelector", HostLabelSelector(context.tenant, Json::object(), "")}});
        context.reporter.Warn(policy, "PolicyNarrowed",
                              "the tenant is closed to others (policies.networkPolicy): this rule "
                              "opens to the tenant's own pods only");
      }
      if (!list.empty()) {
        copy[peers] = std::move(list);
      }
      out.push_back(std::move(copy));
    }
  }
  return Json{{"spec", std::move(spec)}};
}

// ---- Endpoints and EndpointSlices of Services without a selector ----

// True when the Service of that name has a selector: the host computes its endpoints itself.
bool HasSelector(SyncContext& context, const kube::ObjectKey& service) {
  const auto found = context.VirtualInformer("", "v1", "services", "Service").Get(service);
  const auto object = found == nullptr ? Result<Json>(Json()) : found->Parse();
  const Json* selector = object.ok() ? kube::Find(*object, {"spec", "selector"}) : nullptr;
  return selector != nullptr && selector->is_object() && !selector->empty();
}

// Endpoints that a controller made from a selector are computed on the host again.
bool IsHandMade(SyncContext& context, const Json& object) {
  const auto by = kube::LabelOf(object, "endpointslice.kubernetes.io/managed-by");
  const bool computed =
      by == "endpointslice-controller.k8s.io" || by == "endpointslicemirroring-controller.k8s.io" ||
      kube::AnnotationOf(object, "endpoints.kubernetes.io/last-change-trigger-time") != "";
  const bool api_server =
      kube::NamespaceOf(object) == "default" && kube::NameOf(object) == "kubernetes";
  const auto of = kube::LabelOf(object, "kubernetes.io/service-name");
  const kube::ObjectKey service{SpaceOf(object),
                                std::string(of.empty() ? kube::NameOf(object) : of)};
  return !computed && !api_server && !HasSelector(context, service);
}

// An address without the reference to a pod: the pod's name differs on the host.
Json Addresses(const Json& list) {
  Json out = Json::array();
  for (const Json& address : list) {
    Json copy = Json::object();
    CopyFields(address, copy, {"ip", "hostname"});
    out.push_back(std::move(copy));
  }
  return out;
}

Result<Json> TranslateEndpoints(const SyncContext&, const Json& endpoints) {
  Json subsets = Json::array();
  for (const Json& subset : endpoints.value("subsets", Json::array())) {
    Json copy = Json::object();
    CopyFields(subset, copy, {"ports"});
    for (const char* list : {"addresses", "notReadyAddresses"}) {
      if (subset.contains(list) && subset[list].is_array()) {
        copy[list] = Addresses(subset[list]);
      }
    }
    subsets.push_back(std::move(copy));
  }
  return Json{{"subsets", std::move(subsets)}};
}

bool IsHandMadeSlice(SyncContext& context, const Json& slice) {
  return IsHandMade(context, slice) && kube::FindString(slice, {"addressType"}) != "FQDN" &&
         !kube::LabelOf(slice, "kubernetes.io/service-name").empty();
}

Result<Json> TranslateSlice(const SyncContext& context, const Json& slice) {
  Json out = Json::object();
  CopyFields(slice, out, {"addressType", "ports"});
  Json& list = out["endpoints"] = Json::array();
  for (const Json& endpoint : slice.value("endpoints", Json::array())) {
    Json copy = Json::object();
    CopyFields(endpoint, copy, {"addresses", "conditions", "hostname", "zone"});
    list.push_back(std::move(copy));
  }
  out["metadata"]["labels"]["kubernetes.io/service-name"] =
      HostName(context.tenant, kube::LabelOf(slice, "kubernetes.io/service-name"), SpaceOf(slice));
  out["metadata"]["labels"]["endpointslice.kubernetes.io/managed-by"] = "sublet.dev";
  return out;
}

// Differs: vCluster translates the selector's keys only; a budget of one namespace would also count
// pods of another with equal labels.
Result<Json> TranslateBudget(const SyncContext& context, const Json& budget) {
  Json spec = Json::object();
  const Json& from = budget.at("spec");
  CopyFields(from, spec, {"minAvailable", "maxUnavailable", "unhealthyPodEvictionPolicy"});
  spec["selector"] =
      HostLabelSelector(context.tenant, from.value("selector", Json::object()), SpaceOf(budget));
  return Json{{"spec", std::move(spec)}};
}

bool IsOwnPriorityClass(SyncContext&, const Json& object) {
  return !kube::NameOf(object).starts_with("system-") &&
         kube::LabelOf(object, kMirroredLabel) != "true";
}

Result<Json> TranslatePriority(const SyncContext& context, const Json& object) {
  const auto wanted = kube::FindInt(object, {"value"});
  const auto value = std::min(wanted, context.config.pods.priority_max);
  if (value != wanted) {
    context.reporter.Warn(object, "PriorityCapped",
                          "on the host its value is " + std::to_string(value) +
                              ", the highest that the tenant's policy allows");
  }
  Json out = {{"value", value}, {"globalDefault", false}};
  CopyFields(object, out, {"preemptionPolicy", "description"});
  return out;
}

Result<Json> TranslateAccount(const SyncContext&, const Json&) {
  return Json{{"automountServiceAccountToken", false}};
}

}  // namespace

SimpleKind IngressKind() {
  return {{"ingresses", "networking.k8s.io/v1, Kind=Ingress", false},
          {"networking.k8s.io", "v1", "ingresses"},
          "Ingress",
          Always,
          TranslateIngress,
          {"/spec"},
          /*status_back=*/true,
          nullptr};
}

SimpleKind NetworkPolicyKind() {
  return {{"networkpolicies", "networking.k8s.io/v1, Kind=NetworkPolicy", false},
          {"networking.k8s.io", "v1", "networkpolicies"},
          "NetworkPolicy",
          Always,
          TranslateNetworkPolicy,
          {"/spec"},
          /*status_back=*/false,
          nullptr};
}

SimpleKind EndpointsKind() {
  return {{"endpoints", "/v1, Kind=Endpoints", false},
          {"", "v1", "endpoints"},
          "Endpoints",
          IsHandMade,
          TranslateEndpoints,
          {"/subsets"},
          /*status_back=*/false,
          nullptr};
}

SimpleKind EndpointSliceKind() {
  return {{"endpointslices", "discovery.k8s.io/v1, Kind=EndpointSlice", false},
          {"discovery.k8s.io", "v1", "endpointslices"},
          "EndpointSlice",
          IsHandMadeSlice,
          TranslateSlice,
          {"/endpoints", "/ports"},
          /*status_back=*/false,
          nullptr};
}

SimpleKind PodDisruptionBudgetKind() {
  return {{"poddisruptionbudgets", "policy/v1, Kind=PodDisruptionBudget", false},
          {"policy", "v1", "poddisruptionbudgets"},
          "PodDisruptionBudget",
          Always,
          TranslateBudget,
          {"/spec"},
          /*status_back=*/false,
          nullptr};
}

SimpleKind PriorityClassToHostKind() {
  return {{"priorityclasses", "scheduling.k8s.io/v1, Kind=PriorityClass", true},
          {"scheduling.k8s.io", "v1", "priorityclasses"},
          "PriorityClass",
          IsOwnPriorityClass,
          TranslatePriority,
          {"/description"},
          /*status_back=*/false,
          nullptr};
}

SimpleKind ServiceAccountKind() {
  return {{"serviceaccounts", "/v1, Kind=ServiceAccount", false},
          {"", "v1", "serviceaccounts"},
          "ServiceAccount",
          Always,
          TranslateAccount,
          {},
          /*status_back=*/false,
          nullptr};
}

}  // namespace sublet::syncer
