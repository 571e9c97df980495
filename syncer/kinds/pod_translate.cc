#include "syncer/kinds/pod_translate.h"

#include <algorithm>
#include <set>

#include "gpu/api/guard.h"
#include "kube/object.h"
#include "syncer/kinds/container_translate.h"
#include "syncer/kinds/translate_fields.h"
#include "syncer/kinds/volume_translate.h"

namespace sublet::syncer {
namespace {

using kube::Json;

constexpr std::string_view kKindText = "/v1, Kind=Pod";

std::string SafeHostname(std::string_view name) {
  std::string out(name.substr(0, 63));
  std::replace(out.begin(), out.end(), '.', '-');
  while (!out.empty() && out.back() == '-') {
    out.pop_back();
  }
  return out;
}

Json HostMetadata(const Json& pod, const PodContext& context, const DownwardApi& downward) {
  const auto& extra = context.policy->extra_keys;
  const std::string name =
      HostName(context.tenant, kube::FindString(pod, {"metadata", "name"}), kube::NamespaceOf(pod));
  Json labels = HostLabels(context.tenant, pod, extra);
  if (context.namespace_labels != nullptr && context.namespace_labels->is_object()) {
    for (const auto& [key, value] : context.namespace_labels->items()) {
      labels[NamespaceLabelKey(context.tenant, key)] = value;
    }
  }
  Json annotations = HostAnnotations(context.tenant, pod, kKindText, name, extra);
  annotations.update(DownwardAnnotations(pod));
  annotations.update(downward.annotations);
  if (!context.gpu_slice.empty()) {
    annotations[std::string(kCdiAnnotation)] = "sublet.dev/gpu=" + context.gpu_slice;
    annotations[std::string(gpu::kContainersAnnotation)] = gpu::DeviceContainersOf(pod);
  }
  annotations["cluster-autoscaler.kubernetes.io/safe-to-evict"] =
      kube::ControllerOf(pod).has_value() ? "true" : "false";
  Json metadata = {{"name", name},
                   {"namespace", context.tenant.host_namespace},
                   {"labels", std::move(labels)},
                   {"annotations", std::move(annotations)}};
  if (context.owner_reference.is_object()) {
    Json owner = context.owner_reference;
    owner["controller"] = kube::ControllerOf(pod).has_value();
    metadata["ownerReferences"] = Json::array({std::move(owner)});
  }
  return metadata;
}

void TranslateDns(const Json& pod, const PodContext& context, Json& spec) {
  const std::string policy(kube::FindString(pod, {"spec", "dnsPolicy"}, "ClusterFirst"));
  const bool host_network = kube::FindBool(pod, {"spec", "hostNetwork"});
  const bool cluster =
      (policy == "ClusterFirst" && !host_network) || policy == "ClusterFirstWithHostNet";
  const Json* own = kube::Find(pod, {"spec", "dnsConfig"});
  if (!cluster || context.dns_address.empty()) {
    spec["dnsPolicy"] = policy;
    if (own != nullptr) {
      spec["dnsConfig"] = *own;
    }
    return;
  }
  const std::string& domain = context.policy->cluster_domain;
  Json nameservers = Json::array({context.dns_address});
  Json searches = Json::array(
      {std::string(kube::NamespaceOf(pod)) + ".svc." + domain, "svc." + domain, domain});
  // Differs: vCluster drops the pod's own dnsConfig options; they are kept here, ndots first.
  Json options = Json::array();
  bool has_ndots = false;
  if (own != nullptr) {
    for (const auto& [from, to] : {std::pair<const char*, Json*>{"nameservers", &nameservers},
                                   {"searches", &searches},
                                   {"options", &options}}) {
      if (const auto list = own->find(from); list != own->end() && list->is_array()) {
        to->insert(to->end(), list->begin(), list->end());
      }
    }
    has_ndots = std::any_of(options.begin(), options.end(), [](const Json& option) {
      return kube::FindString(option, {"name"}) == "ndots";
    });
  }
  if (!has_ndots) {
    options.push_back({{"name", "ndots"}, {"value", "5"}});
  }
  spec["dnsPolicy"] = "None";
  spec["dnsConfig"] = {{"nameservers", std::move(nameservers)},
                       {"searches", std::move(searches)},
                       {"options", std::move(options)}};
}

// One required or preferred pod (anti-)affinity term.
Json TranslateTerm(const Json& term, const Json& pod, const PodContext& context) {
  Json out = Json::object();
  CopyFields(term, out, {"topologyKey"});
  Json selector = term.contains("labelSelector") && term["labelSelector"].is_object()
                      ? term["labelSelector"]
                      : Json::object();
  const auto listed = term.find("namespaces");
  const bool has_list = listed != term.end() && listed->is_array() && !listed->empty();
  const auto by_label = term.find("namespaceSelector");
  if (!has_list && (by_label == term.end() || !by_label->is_object())) {
    out["labelSelector"] = HostLabelSelector(context.tenant, selector, kube::NamespaceOf(pod));
    return out;
  }
  Json host = HostLabelSelector(context.tenant, selector, "");
  if (!host.contains("matchExpressions")) {
    host["matchExpressions"] = Json::array();
  }
  if (has_list) {
    host["matchExpressions"].push_back(
        {{"key", kLabelNamespace}, {"operator", "In"}, {"values", *listed}});
  } else {
    if (const auto labels = by_label->find("matchLabels"); labels != by_label->end()) {
      for (const auto& [key, value] : labels->items()) {
        host["matchLabels"][NamespaceLabelKey(context.tenant, key)] = value;
      }
    }
    if (const auto rules = by_label->find("matchExpressions"); rules != by_label->end()) {
      for (Json rule : *rules) {
        rule["key"] = NamespaceLabelKey(context.tenant, kube::FindString(rule, {"key"}));
        host["matchExpressions"].push_back(std::move(rule));
      }
    }
  }
  out["labelSelector"] = std::move(host);
  return out;
}

Json TranslatePodAffinity(const Json& affinity, const Json& pod, const PodContext& context) {
  Json out = Json::object();
  if (const auto required = affinity.find("requiredDuringSchedulingIgnoredDuringExecution");
      required != affinity.end() && required->is_array()) {
    Json& terms = out["requiredDuringSchedulingIgnoredDuringExecution"] = Json::array();
    for (const Json& term : *required) {
      terms.push_back(TranslateTerm(term, pod, context));
    }
  }
  if (const auto preferred = affinity.find("preferredDuringSchedulingIgnoredDuringExecution");
      preferred != affinity.end() && preferred->is_array()) {
    Json& terms = out["preferredDuringSchedulingIgnoredDuringExecution"] = Json::array();
    for (const Json& term : *preferred) {
      Json copy = Json::object();
      CopyFields(term, copy, {"weight"});
      copy["podAffinityTerm"] =
          TranslateTerm(term.value("podAffinityTerm", Json::object()), pod, context);
      terms.push_back(std::move(copy));
    }
  }
  return out;
}

// Placement wishes, for pods that the host's scheduler places. When the tenant's own scheduler has
// chosen the node they were honoured there, and the host must not judge them a second time.
void TranslatePlacement(const Json& pod, const PodContext& context, Json& spec) {
  const Json& from = pod.at("spec");
  Json selector = Json::object();
  if (!context.scheduled_by_tenant) {
    if (from.contains("nodeSelector") && from["nodeSelector"].is_object()) {
      selector = from["nodeSelector"];
    }
    CopyFields(from, spec, {"schedulerName", "schedulingGates"});
    if (const Json* affinity = kube::Find(pod, {"spec", "affinity"}); affinity != nullptr) {
      Json& out = spec["affinity"] = Json::object();
      CopyFields(*affinity, out, {"nodeAffinity"});
      for (const char* kind : {"podAffinity", "podAntiAffinity"}) {
        if (affinity->contains(kind)) {
          out[kind] = TranslatePodAffinity((*affinity)[kind], pod, context);
        }
      }
    }
    if (const Json* spread = kube::Find(pod, {"spec", "topologySpreadConstraints"});
        spread != nullptr && spread->is_array()) {
      Json& out = spec["topologySpreadConstraints"] = Json::array();
      for (Json constraint : *spread) {
        constraint["labelSelector"] =
            HostLabelSelector(context.tenant, constraint.value("labelSelector", Json::object()),
                              kube::NamespaceOf(pod));
        out.push_back(std::move(constraint));
      }
    }
  } else {
    CopyFields(from, spec, {"nodeName", "schedulerName"});
  }
  for (const auto& [key, value] : context.policy->node_selector) {
    selector[key] = value;
  }
  if (!selector.empty()) {
    spec["nodeSelector"] = std::move(selector);
  }
  Json tolerations = from.value("tolerations", Json::array());
  if (context.policy->enforced_tolerations.is_array()) {
    for (const Json& enforced : context.policy->enforced_tolerations) {
      if (std::find(tolerations.begin(), tolerations.end(), enforced) == tolerations.end()) {
        tolerations.push_back(enforced);
      }
    }
  }
  if (!tolerations.empty()) {
    spec["tolerations"] = std::move(tolerations);
  }
}

void TranslateClasses(const Json& pod, const PodContext& context, Json& spec) {
  const PodPolicy& policy = *context.policy;
  const std::string runtime(kube::FindString(pod, {"spec", "runtimeClassName"}));
  if (!policy.runtime_class_name.empty()) {
    spec["runtimeClassName"] = policy.runtime_class_name;
  } else if (!runtime.empty()) {
    spec["runtimeClassName"] = runtime;
  }
  const std::string priority(kube::FindString(pod, {"spec", "priorityClassName"}));
  if (policy.sync_priority_classes && !priority.empty() && !priority.starts_with("system-")) {
    spec["priorityClassName"] = HostNameCluster(context.tenant, priority);
  } else if (!policy.priority_class_name.empty()) {
    spec["priorityClassName"] = policy.priority_class_name;
  }
}

void TranslateIdentity(const Json& pod, const PodContext& context, Json& spec) {
  const std::string account(kube::FindString(pod, {"spec", "serviceAccountName"}, "default"));
  spec["serviceAccountName"] = context.policy->sync_service_accounts
                                   ? HostName(context.tenant, account, kube::NamespaceOf(pod))
                                   : context.workload_service_account;
  spec["automountServiceAccountToken"] = false;
  spec["enableServiceLinks"] = false;
  std::string hostname(kube::FindString(pod, {"spec", "hostname"}));
  if (hostname.empty()) {
    hostname = SafeHostname(kube::FindString(pod, {"metadata", "name"}));
  }
  spec["hostname"] = hostname;
  Json aliases = pod.at("spec").value("hostAliases", Json::array());
  const std::string subdomain(kube::FindString(pod, {"spec", "subdomain"}));
  if (!context.api_address.empty()) {
    aliases.push_back({{"ip", context.api_address},
                       {"hostnames",
                        {"kubernetes.default.svc." + context.policy->cluster_domain, "kubernetes",
                         "kubernetes.default", "kubernetes.default.svc"}}});
  }
  if (!aliases.empty()) {
    spec["hostAliases"] = std::move(aliases);
  }
  if (const Json* secrets = kube::Find(pod, {"spec", "imagePullSecrets"});
      secrets != nullptr && secrets->is_array() && !secrets->empty()) {
    Json& out = spec["imagePullSecrets"] = Json::array();
    for (Json secret : *secrets) {
      TranslateName(secret, "name", context.tenant, kube::NamespaceOf(pod));
      out.push_back(std::move(secret));
    }
  }
}

// Of every container, what `of` says.
template <typename Of>
std::string WishHash(const Json& spec, const Of& of) {
  Json wish = Json::object();
  for (const char* list : {"containers", "initContainers"}) {
    if (const auto found = spec.find(list); found != spec.end()) {
      for (const Json& container : *found) {
        wish[std::string(kube::FindString(container, {"name"}))] = of(container);
      }
    }
  }
  return Hash10(kube::Dump(wish));
}

std::string ImagesHash(const Json& spec) {
  return WishHash(spec, [](const Json& container) { return container.value("image", Json()); });
}

std::string ResourcesHash(const Json& spec) {
  return WishHash(
      spec, [](const Json& container) { return container.value("resources", Json::object()); });
}

bool IsCarried(const Json& host_pod, const Json& wanted, std::string_view hash) {
  const auto carried = kube::AnnotationOf(host_pod, hash);
  return !carried.empty() && carried == kube::AnnotationOf(wanted, hash);
}

bool IsGate(const Json& pod, std::string_view type) {
  const Json* gates = kube::Find(pod, {"spec", "readinessGates"});
  return gates != nullptr && gates->is_array() &&
         std::any_of(gates->begin(), gates->end(), [type](const Json& gate) {
           return kube::FindString(gate, {"conditionType"}) == type;
         });
}

// Mounts of volumes that a host webhook injected.
void DropForeignMounts(Json& status, const Json& container) {
  const auto mounts = status.find("volumeMounts");
  if (mounts == status.end() || !mounts->is_array()) {
    return;
  }
  const Json own = container.value("volumeMounts", Json::array());
  for (auto it = mounts->begin(); it != mounts->end();) {
    const bool is_own = std::any_of(own.begin(), own.end(), [it](const Json& mount) {
      return kube::FindString(mount, {"mountPath"}) == kube::FindString(*it, {"mountPath"});
    });
    it = is_own ? std::next(it) : mounts->erase(it);
  }
}

}  // namespace

Result<HostPod> TranslatePod(const Json& pod, const PodContext& context) {
  HostPod out;
  DownwardApi downward{Json::object()};
  Json spec = Json::object();
  const Json& from = pod.at("spec");
  CopyFields(from, spec,
             {"restartPolicy", "terminationGracePeriodSeconds", "activeDeadlineSeconds",
              "securityContext", "hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace",
              "readinessGates", "os", "setHostnameAsFQDN", "hostUsers"});
  for (const char* list : {"initContainers", "containers"}) {
    if (const auto found = from.find(list); found != from.end() && found->is_array()) {
      Json& containers = spec[list] = Json::array();
      for (const Json& container : *found) {
        containers.push_back(TranslateContainer(container, pod, context, downward));
      }
    }
  }
  if (const auto volumes = from.find("volumes"); volumes != from.end() && volumes->is_array()) {
    Json& list = spec["volumes"] = Json::array();
    for (const Json& volume : *volumes) {
      SUBLET_TRY(Json translated, TranslateVolume(volume, pod, context, downward, out));
      list.push_back(std::move(translated));
    }
  }
  TranslateIdentity(pod, context, spec);
  TranslateClasses(pod, context, spec);
  TranslateDns(pod, context, spec);
  TranslatePlacement(pod, context, spec);
  Json metadata = HostMetadata(pod, context, downward);
  metadata["annotations"][std::string(kImagesAnnotation)] = ImagesHash(spec);
  metadata["annotations"][std::string(kResourcesAnnotation)] = ResourcesHash(spec);
  out.pod = {{"apiVersion", "v1"},
             {"kind", "Pod"},
             {"metadata", std::move(metadata)},
             {"spec", std::move(spec)}};
  return out;
}

Json TranslateEphemeralContainers(const Json& pod, const PodContext& context) {
  Json out = Json::array();
  DownwardApi downward{Json::object()};
  for (const Json& container : pod.at("spec").value("ephemeralContainers", Json::array())) {
    out.push_back(TranslateContainer(container, pod, context, downward));
  }
  return out;
}

Json HostPodResize(const Json& host_pod, const Json& wanted) {
  if (IsCarried(host_pod, wanted, kResourcesAnnotation)) {
    return {};
  }
  Json containers = Json::array();
  const Json none = Json::array();
  for (const Json& want : wanted.at("spec").value("containers", none)) {
    for (const Json& have : host_pod.at("spec").value("containers", none)) {
      if (want.value("name", "") != have.value("name", "")) {
        continue;
      }
      Json resources = Json::object();
      for (const char* list : {"requests", "limits"}) {
        const Json* wish = kube::Find(want, {"resources", list});
        const Json* held = kube::Find(have, {"resources", list});
        for (const char* name : {"cpu", "memory"}) {
          if (wish != nullptr && wish->contains(name) &&
              (held == nullptr || held->value(name, Json()) != (*wish)[name])) {
            resources[list][name] = (*wish)[name];
          }
        }
      }
      if (!resources.empty()) {
        containers.push_back({{"name", want["name"]}, {"resources", std::move(resources)}});
      }
    }
  }
  return containers.empty() ? Json() : Json{{"spec", {{"containers", std::move(containers)}}}};
}

Json HostPodPatch(const Json& host_pod, const Json& wanted) {
  Json patch = Json::object();
  for (const char* map : {"labels", "annotations"}) {
    static const Json none = Json::object();
    const Json* now = kube::Find(host_pod, {"metadata", map});
    const Json* want = kube::Find(wanted, {"metadata", map});
    for (const auto& [key, value] : (want != nullptr ? *want : none).items()) {
      if (now == nullptr || !now->contains(key) || (*now)[key] != value) {
        patch["metadata"][map][key] = value;
      }
    }
  }
  RemoveStaleKeys(host_pod, wanted, &patch);
  const Json& have = host_pod.at("spec");
  const Json& spec = wanted.at("spec");
  if (spec.contains("activeDeadlineSeconds") &&
      have.value("activeDeadlineSeconds", Json()) != spec["activeDeadlineSeconds"]) {
    patch["spec"]["activeDeadlineSeconds"] = spec["activeDeadlineSeconds"];
  }
  // Tolerations may only be added: the union of what the host has and what is wanted.
  Json tolerations = have.value("tolerations", Json::array());
  const std::size_t before = tolerations.size();
  for (const Json& toleration : spec.value("tolerations", Json::array())) {
    if (std::find(tolerations.begin(), tolerations.end(), toleration) == tolerations.end()) {
      tolerations.push_back(toleration);
    }
  }
  if (tolerations.size() != before) {
    patch["spec"]["tolerations"] = std::move(tolerations);
  }
  for (const char* list : {"containers", "initContainers"}) {
    if (!spec.contains(list) || !have.contains(list) ||
        IsCarried(host_pod, wanted, kImagesAnnotation)) {
      continue;
    }
    Json merged = have[list];
    bool changed = false;
    for (Json& container : merged) {
      for (const Json& want : spec[list]) {
        if (want.value("name", "") == container.value("name", "") &&
            want.value("image", "") != container.value("image", "")) {
          container["image"] = want["image"];
          changed = true;
        }
      }
    }
    if (changed) {
      patch["spec"][list] = std::move(merged);
    }
  }
  return patch.empty() ? Json() : patch;
}

PodReferences ReferencesOfPod(const Json& pod) {
  std::set<std::string> config_maps, secrets, claims;
  const auto add = [](std::set<std::string>& set, const Json& object, const char* field) {
    if (const auto found = object.find(field); found != object.end() && found->is_string()) {
      set.insert(found->get<std::string>());
    }
  };
  const auto source = [&](const Json& part) {
    if (part.contains("configMap")) {
      add(config_maps, part["configMap"], "name");
    }
    if (part.contains("secret")) {
      add(secrets, part["secret"], "name");
      add(secrets, part["secret"], "secretName");
    }
  };
  const Json& spec = pod.at("spec");
  for (const Json& volume : spec.value("volumes", Json::array())) {
    source(volume);
    if (volume.contains("projected")) {
      for (const Json& part : volume["projected"].value("sources", Json::array())) {
        source(part);
      }
    }
    if (volume.contains("persistentVolumeClaim")) {
      add(claims, volume["persistentVolumeClaim"], "claimName");
    }
    if (volume.contains("ephemeral")) {
      claims.insert(std::string(kube::FindString(pod, {"metadata", "name"})) + "-" +
                    std::string(kube::FindString(volume, {"name"})));
    }
    if (const Json* reference = kube::Find(volume, {"iscsi", "secretRef"}); reference != nullptr) {
      add(secrets, *reference, "name");
    }
    if (const Json* reference = kube::Find(volume, {"csi", "nodePublishSecretRef"});
        reference != nullptr) {
      add(secrets, *reference, "name");
    }
  }
  for (const char* list : {"containers", "initContainers", "ephemeralContainers"}) {
    for (const Json& container : spec.value(list, Json::array())) {
      for (const Json& variable : container.value("env", Json::array())) {
        if (const Json* key = kube::Find(variable, {"valueFrom", "configMapKeyRef"})) {
          add(config_maps, *key, "name");
        }
        if (const Json* key = kube::Find(variable, {"valueFrom", "secretKeyRef"})) {
          add(secrets, *key, "name");
        }
      }
      for (const Json& part : container.value("envFrom", Json::array())) {
        if (part.contains("configMapRef")) {
          add(config_maps, part["configMapRef"], "name");
        }
        if (part.contains("secretRef")) {
          add(secrets, part["secretRef"], "name");
        }
      }
    }
  }
  for (const Json& secret : spec.value("imagePullSecrets", Json::array())) {
    add(secrets, secret, "name");
  }
  return {{config_maps.begin(), config_maps.end()},
          {secrets.begin(), secrets.end()},
          {claims.begin(), claims.end()}};
}

Json VirtualStatus(const Json& virtual_pod, const Json& host_pod) {
  Json status = host_pod.value("status", Json::object());
  const Json before = virtual_pod.value("status", Json::object());
  if (before.contains("qosClass")) {
    status["qosClass"] = before["qosClass"];
  } else {
    status.erase("qosClass");
  }
  status.erase("resourceClaimStatuses");
  // Containers that a host webhook injected are not the tenant's to see.
  for (const auto& [list, containers] :
       {std::pair<const char*, const char*>{"containerStatuses", "containers"},
        {"initContainerStatuses", "initContainers"},
        {"ephemeralContainerStatuses", "ephemeralContainers"}}) {
    if (!status.contains(list) || !status[list].is_array()) {
      continue;
    }
    std::map<std::string, const Json*> own;
    if (const auto found = virtual_pod.at("spec").find(containers);
        found != virtual_pod.at("spec").end()) {
      for (const Json& container : *found) {
        own[container.value("name", "")] = &container;
      }
    }
    Json kept = Json::array();
    for (Json& entry : status[list]) {
      if (const auto of = own.find(entry.value("name", "")); of != own.end()) {
        DropForeignMounts(entry, *of->second);
        kept.push_back(std::move(entry));
      }
    }
    status[list] = std::move(kept);
  }
  // Conditions only the tenant knows (readiness gates set by its controllers) stay.
  if (before.contains("conditions") && before["conditions"].is_array()) {
    Json& conditions = status["conditions"];
    if (!conditions.is_array()) {
      conditions = Json::array();
    }
    for (const Json& condition : before["conditions"]) {
      const auto known = std::find_if(conditions.begin(), conditions.end(), [&](const Json& other) {
        return other.value("type", "") == condition.value("type", "");
      });
      if (known == conditions.end()) {
        conditions.push_back(condition);
      } else if (IsGate(virtual_pod, condition.value("type", ""))) {
        *known = condition;
      }
    }
  }
  return status;
}

Json GatesPatch(const Json& virtual_pod, const Json& host_pod) {
  Json changed = Json::array();
  const Json* gates = kube::Find(virtual_pod, {"spec", "readinessGates"});
  for (const Json& gate : gates != nullptr && gates->is_array() ? *gates : Json::array()) {
    const auto type = kube::FindString(gate, {"conditionType"});
    const Json* own = kube::FindCondition(virtual_pod, type);
    const Json* theirs = kube::FindCondition(host_pod, type);
    if (own != nullptr && (theirs == nullptr || kube::FindString(*theirs, {"status"}) !=
                                                    kube::FindString(*own, {"status"}))) {
      Json condition = Json::object();
      CopyFields(*own, condition,
                 {"type", "status", "reason", "message", "lastProbeTime", "lastTransitionTime"});
      changed.push_back(std::move(condition));
    }
  }
  return changed.empty() ? Json() : Json{{"status", {{"conditions", std::move(changed)}}}};
}

}  // namespace sublet::syncer
