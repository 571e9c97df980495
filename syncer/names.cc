#include "syncer/names.h"

#include <openssl/sha.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

namespace sublet::syncer {
namespace {

using kube::Json;

constexpr std::size_t kNameMax = 63;
constexpr std::size_t kNameKept = 52;

std::array<unsigned char, SHA256_DIGEST_LENGTH> Sha256(std::string_view text) {
  std::array<unsigned char, SHA256_DIGEST_LENGTH> digest{};
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest.data());
  return digest;
}

std::string Base36(std::array<unsigned char, SHA256_DIGEST_LENGTH> number) {
  static constexpr char kDigits[] = "0123456789abcdefghijklmnopqrstuvwxyz";
  std::string text;
  bool zero = false;
  while (!zero) {
    unsigned rest = 0;
    zero = true;
    for (unsigned char& byte : number) {
      const unsigned value = rest * 256 + byte;
      byte = static_cast<unsigned char>(value / 36);
      rest = value % 36;
      zero = zero && byte == 0;
    }
    text += kDigits[rest];
  }
  std::reverse(text.begin(), text.end());
  return text;
}

// Prefixes that many charts use and that nothing on a host acts upon by itself.
constexpr std::array<std::string_view, 10> kTravellingPrefixes = {"app.kubernetes.io/",
                                                                  "batch.kubernetes.io/",
                                                                  "apps.kubernetes.io/",
                                                                  "statefulset.kubernetes.io/",
                                                                  "helm.sh/",
                                                                  "kai.scheduler/",
                                                                  "run.ai/",
                                                                  "leaderworkerset.sigs.k8s.io/",
                                                                  "ray.io/",
                                                                  "training.kubeflow.org/"};

// The host says where a pod's node stands (Kubernetes 1.35 and later).
constexpr std::string_view kTopologyPrefix = "topology.kubernetes.io/";

bool IsMarkerKey(std::string_view key) {
  return key == kLabelManagedBy || key == kLabelNamespace || key == kLabelControlledBy;
}

const Json& MapAt(const Json& object, std::string_view member) {
  static const Json empty = Json::object();
  const Json* found = kube::Find(object, {"metadata", member});
  return found != nullptr && found->is_object() ? *found : empty;
}

// What the tenant was shown of the host's labels and annotations.
Json ShownOf(const Json& virtual_object) {
  const auto text =
      kube::FindString(virtual_object, {"metadata", "annotations", kAnnotationFromHost});
  if (text.empty()) {
    return Json::object();
  }
  auto shown = kube::ParseJson(text);
  return shown.ok() && shown->is_object() ? std::move(*shown) : Json::object();
}

// True when `key` of the virtual object stands there as it was shown, untouched by the tenant.
bool IsShown(const Json& shown, const char* map, const std::string& key, const Json& value) {
  const Json* found = kube::Find(shown, {map, key});
  return found != nullptr && *found == value;
}

bool Contains(std::string_view comma_separated, std::string_view key) {
  for (std::size_t at = 0; at < comma_separated.size();) {
    const std::size_t end = std::min(comma_separated.find(',', at), comma_separated.size());
    if (comma_separated.substr(at, end - at) == key) {
      return true;
    }
    at = end + 1;
  }
  return false;
}

}  // namespace

std::string Hash10(std::string_view text) {
  static constexpr char kHex[] = "0123456789abcdef";
  const auto digest = Sha256(text);
  std::string out;
  for (std::size_t i = 0; i < 5; ++i) {
    out += kHex[digest[i] >> 4];
    out += kHex[digest[i] & 15];
  }
  return out;
}

std::string SafeName(std::string full) {
  if (full.size() <= kNameMax) {
    return full;
  }
  std::string name = full.substr(0, kNameKept) + "-" + Hash10(full);
  for (auto at = name.find(".-"); at != std::string::npos; at = name.find(".-")) {
    name.replace(at, 2, "-");
  }
  return name;
}

std::string HostName(const Tenant& tenant, std::string_view name,
                     std::string_view virtual_namespace) {
  std::string full(name);
  full.append("-x-").append(virtual_namespace).append("-x-").append(tenant.name);
  return SafeName(std::move(full));
}

std::string HostNameCluster(const Tenant& tenant, std::string_view name) {
  std::string full = "sublet-";
  full.append(name).append("-x-").append(tenant.host_namespace).append("-x-").append(tenant.name);
  return SafeName(std::move(full));
}

std::string ShortHostName(const Tenant& tenant, std::string_view name,
                          std::string_view virtual_namespace) {
  std::string full(name);
  full.append("-x-").append(virtual_namespace).append("-x-").append(tenant.name);
  return "v" + Base36(Sha256(full)).substr(0, 13);
}

std::string HostLabelKey(const Tenant& tenant, std::string_view key) {
  if (key != "release" && !IsMarkerKey(key)) {
    return std::string(key);
  }
  return SafeName(std::string(kPrefix) + "label-" + tenant.name + "-x-" + Hash10(key));
}

std::string NamespaceLabelKey(const Tenant& tenant, std::string_view key) {
  return SafeName(std::string(kPrefix) + "ns-label-" + tenant.name + "-x-" + Hash10(key));
}

std::string ManagedByValue(const Tenant& tenant, bool cluster_scoped) {
  return cluster_scoped ? SafeName(tenant.host_namespace + "-x-" + tenant.name) : tenant.name;
}

bool MayTravel(std::string_view key, const std::vector<std::string>& extra) {
  if (key.find('/') == std::string_view::npos) {
    return true;
  }
  for (const std::string_view prefix : kTravellingPrefixes) {
    if (key.starts_with(prefix)) {
      return true;
    }
  }
  return std::any_of(extra.begin(), extra.end(), [key](const std::string& allowed) {
    return allowed.ends_with('/') ? key.starts_with(allowed) : key == allowed;
  });
}

Json HostAdditionsPatch(const Json& virtual_object, const Json& host_object,
                        const std::vector<std::string>& extra_keys) {
  const Json before = ShownOf(virtual_object);
  Json shown = Json::object();
  Json patch = Json::object();
  for (const auto& [note, map] :
       {std::pair<std::string_view, const char*>{kAnnotationLabelKeys, "labels"},
        {kAnnotationAnnotationKeys, "annotations"}}) {
    const auto carried = kube::FindString(host_object, {"metadata", "annotations", note});
    const Json& own = MapAt(virtual_object, map);
    for (const auto& [key, value] : MapAt(host_object, map).items()) {
      const bool may_travel = !key.starts_with(kPrefix) &&
                              (MayTravel(key, extra_keys) || key.starts_with(kTopologyPrefix));
      if (!may_travel || Contains(carried, key)) {
        continue;
      }
      const auto here = own.find(key);
      if (here != own.end() && *here != value && !IsShown(before, map, key, *here)) {
        continue;  // the tenant says otherwise
      }
      shown[map][key] = value;
      if (here == own.end() || *here != value) {
        patch["metadata"][map][key] = value;
      }
    }
    const Json shown_before = before.value(map, Json::object());
    for (const auto& [key, value] : shown_before.items()) {
      if (kube::Find(shown, {map, key}) == nullptr && !Contains(carried, key) &&
          own.contains(key) && own[key] == value) {
        patch["metadata"][map][key] = nullptr;
      }
    }
  }
  if (shown != before) {
    patch["metadata"]["annotations"][std::string(kAnnotationFromHost)] =
        shown.empty() ? Json() : Json(kube::Dump(shown));
  }
  return patch.empty() ? Json() : patch;
}

Json HostLabels(const Tenant& tenant, const Json& virtual_object,
                const std::vector<std::string>& extra_keys) {
  Json labels = Json::object();
  const Json shown = ShownOf(virtual_object);
  for (const auto& [key, value] : MapAt(virtual_object, "labels").items()) {
    if ((IsMarkerKey(key) || MayTravel(key, extra_keys)) && !IsShown(shown, "labels", key, value)) {
      labels[HostLabelKey(tenant, key)] = value;
    }
  }
  const std::string_view space = kube::FindString(virtual_object, {"metadata", "namespace"});
  labels[std::string(kLabelManagedBy)] = ManagedByValue(tenant, space.empty());
  if (!space.empty()) {
    labels[std::string(kLabelNamespace)] = space;
  }
  return labels;
}

Json HostAnnotations(const Tenant& tenant, const Json& virtual_object, std::string_view kind_text,
                     std::string_view host_name, const std::vector<std::string>& extra_keys) {
  Json annotations = Json::object();
  const Json shown = ShownOf(virtual_object);
  std::string carried_annotations;
  for (const auto& [key, value] : MapAt(virtual_object, "annotations").items()) {
    if (!key.starts_with(kPrefix) && key != "kubectl.kubernetes.io/last-applied-configuration" &&
        MayTravel(key, extra_keys) && !IsShown(shown, "annotations", key, value)) {
      annotations[key] = value;
      carried_annotations += (carried_annotations.empty() ? "" : ",") + key;
    }
  }
  std::string carried_labels;
  for (const auto& [key, value] : MapAt(virtual_object, "labels").items()) {
    if ((IsMarkerKey(key) || MayTravel(key, extra_keys)) && !IsShown(shown, "labels", key, value)) {
      carried_labels += (carried_labels.empty() ? "" : ",") + HostLabelKey(tenant, key);
    }
  }
  const auto set = [&annotations](std::string_view key, std::string_view value) {
    if (!value.empty()) {
      annotations[std::string(key)] = value;
    }
  };
  const std::string_view space = kube::FindString(virtual_object, {"metadata", "namespace"});
  set(kAnnotationLabelKeys, carried_labels);
  set(kAnnotationAnnotationKeys, carried_annotations);
  set(kAnnotationName, kube::FindString(virtual_object, {"metadata", "name"}));
  set(kAnnotationNamespace, space);
  set(kAnnotationUid, kube::FindString(virtual_object, {"metadata", "uid"}));
  set(kAnnotationKind, kind_text);
  set(kAnnotationHostName, host_name);
  if (!space.empty()) {
    set(kAnnotationHostNamespace, tenant.host_namespace);
  }
  return annotations;
}

void RemoveStaleKeys(const Json& host_object, const Json& wanted, Json* patch) {
  for (const auto& [note, map] :
       {std::pair<std::string_view, const char*>{kAnnotationLabelKeys, "labels"},
        {kAnnotationAnnotationKeys, "annotations"}}) {
    const std::string_view carried =
        kube::FindString(host_object, {"metadata", "annotations", note});
    const Json& want = MapAt(wanted, map);
    const Json& have = MapAt(host_object, map);
    std::size_t at = 0;
    while (at < carried.size()) {
      const std::size_t end = std::min(carried.find(',', at), carried.size());
      const std::string key(carried.substr(at, end - at));
      if (!want.contains(key) && have.contains(key)) {
        (*patch)["metadata"][map][key] = nullptr;
      }
      at = end + 1;
    }
    if (!carried.empty() && !MapAt(wanted, "annotations").contains(note)) {
      (*patch)["metadata"]["annotations"][std::string(note)] = nullptr;
    }
  }
}

Json HostLabelSelector(const Tenant& tenant, const Json& selector,
                       std::string_view virtual_namespace) {
  Json out = Json::object();
  Json& match = out["matchLabels"] = Json::object();
  if (const auto labels = selector.find("matchLabels");
      labels != selector.end() && labels->is_object()) {
    for (const auto& [key, value] : labels->items()) {
      match[HostLabelKey(tenant, key)] = value;
    }
  }
  match[std::string(kLabelManagedBy)] = ManagedByValue(tenant, false);
  if (!virtual_namespace.empty()) {
    match[std::string(kLabelNamespace)] = virtual_namespace;
  }
  if (const auto rules = selector.find("matchExpressions");
      rules != selector.end() && rules->is_array() && !rules->empty()) {
    Json& expressions = out["matchExpressions"] = Json::array();
    for (Json rule : *rules) {
      if (rule.is_object() && rule.contains("key") && rule["key"].is_string()) {
        rule["key"] = HostLabelKey(tenant, rule["key"].get<std::string>());
      }
      expressions.push_back(std::move(rule));
    }
  }
  return out;
}

}  // namespace sublet::syncer
