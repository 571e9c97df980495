#include "config/tenant_config.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <tuple>

#include "base/nearest.h"
#include "kube/pod_security.h"
#include "kube/quantity.h"

namespace sublet::config {
namespace {

using kube::Json;

constexpr std::size_t kProblemsMax = 20;

// Reads one value; returns "" or what is wrong with it.
using Reader = std::function<std::string(const YAML::Node&, TenantConfig&)>;

struct Key {
  std::string_view path;
  std::string_view type;
  std::string_view meaning;
  Reader read;
};

std::string ReadBool(const YAML::Node& node, bool& out) {
  bool value = false;
  if (!node.IsScalar() || !YAML::convert<bool>::decode(node, value)) {
    return "must be true or false";
  }
  out = value;
  return "";
}

std::string ReadText(const YAML::Node& node, std::string& out) {
  if (!node.IsScalar()) {
    return "must be a text";
  }
  out = node.Scalar();
  return "";
}

std::string ReadTextMap(const YAML::Node& node, std::map<std::string, std::string>& out) {
  if (!node.IsMap()) {
    return "must be a map of texts";
  }
  for (const auto& entry : node) {
    if (!entry.second.IsScalar()) {
      return "must be a map of texts; \"" + entry.first.Scalar() + "\" is none";
    }
    out[entry.first.Scalar()] = entry.second.Scalar();
  }
  return "";
}

std::string ReadTexts(const YAML::Node& node, std::vector<std::string>& out) {
  if (!node.IsSequence()) {
    return "must be a list of texts";
  }
  for (const auto& item : node) {
    if (!item.IsScalar()) {
      return "must be a list of texts";
    }
    out.push_back(item.Scalar());
  }
  return "";
}

std::string ReadOneOf(const YAML::Node& node, std::string& out,
                      const std::vector<std::string>& allowed) {
  if (node.IsScalar() &&
      std::find(allowed.begin(), allowed.end(), node.Scalar()) != allowed.end()) {
    out = node.Scalar();
    return "";
  }
  std::string list;
  for (const std::string& word : allowed) {
    list += (list.empty() ? "" : ", ") + word;
  }
  return "must be one of: " + list;
}

std::string ReadQuantityText(const YAML::Node& node, std::string& out) {
  if (!node.IsScalar() || !kube::Quantity::Parse(node.Scalar()).ok()) {
    return "must be a quantity such as 500m, 64Mi or 5Gi";
  }
  out = node.Scalar();
  return "";
}

// Lists of {from, to}.
std::string ReadReplications(const YAML::Node& node, std::vector<Replication>& out) {
  if (!node.IsSequence()) {
    return "must be a list of {from, to}";
  }
  for (const auto& item : node) {
    if (!item.IsMap() || !item["from"] || !item["to"] || item.size() != 2) {
      return "must be a list of {from, to}, each \"namespace/name\"";
    }
    out.push_back({item["from"].Scalar(), item["to"].Scalar()});
  }
  return "";
}

std::string ReadProfiles(const YAML::Node& node, std::vector<SchedulerProfile>& out) {
  constexpr const char* kWanted = "must be a list of {schedulerName, profile, arguments}";
  if (!node.IsSequence()) {
    return kWanted;
  }
  for (const auto& item : node) {
    const bool arguments = item.IsMap() && item["arguments"];
    if (!item.IsMap() || !item["schedulerName"] || !item["profile"] ||
        item.size() != (arguments ? 3U : 2U) || (arguments && !item["arguments"].IsMap())) {
      return kWanted;
    }
    SchedulerProfile profile;
    for (const auto& argument : item["arguments"]) {
      if (!argument.second.IsScalar()) {
        return "argument " + argument.first.Scalar() + " must be a single value";
      }
      profile.arguments[argument.first.Scalar()] = argument.second.Scalar();
    }
    profile.scheduler_name = item["schedulerName"].Scalar();
    if (auto wrong = ReadOneOf(item["profile"], profile.profile, KnownProfiles()); !wrong.empty()) {
      return "profile " + wrong;
    }
    out.push_back(std::move(profile));
  }
  return "";
}

std::string ReadTolerations(const YAML::Node& node, Json& out) {
  if (!node.IsSequence()) {
    return "must be a list of tolerations";
  }
  out = Json::array();
  for (const auto& item : node) {
    if (!item.IsMap()) {
      return "must be a list of tolerations {key, operator, value, effect}";
    }
    Json toleration = Json::object();
    for (const auto& entry : item) {
      const std::string& name = entry.first.Scalar();
      if (name != "key" && name != "operator" && name != "value" && name != "effect") {
        return "has an unknown member \"" + name + "\"; allowed: key, operator, value, effect";
      }
      toleration[name] = entry.second.Scalar();
    }
    out.push_back(std::move(toleration));
  }
  return "";
}

Reader Bool(bool TenantConfig::*member) {
  return [member](const YAML::Node& node, TenantConfig& c) { return ReadBool(node, c.*member); };
}
Reader AlwaysOn() {
  return [](const YAML::Node& node, TenantConfig&) {
    bool on = true;
    const std::string wrong = ReadBool(node, on);
    return !wrong.empty() ? wrong : on ? "" : std::string("cannot be switched off");
  };
}
Reader TextMap(std::map<std::string, std::string> TenantConfig::*member) {
  return [member](const YAML::Node& node, TenantConfig& c) { return ReadTextMap(node, c.*member); };
}
Reader Texts(std::vector<std::string> TenantConfig::*member) {
  return [member](const YAML::Node& node, TenantConfig& c) { return ReadTexts(node, c.*member); };
}
Reader Text(std::string TenantConfig::*member) {
  return [member](const YAML::Node& node, TenantConfig& c) { return ReadText(node, c.*member); };
}

// The schema, in the order of the documentation.
const std::vector<Key>& Schema() {
  using C = TenantConfig;
  using N = YAML::Node;
  static const std::vector<Key> schema = {
      {"controlPlane.statefulSet.image", "text",
       "image of the tenant pod; default: made from this binary on the embedded host",
       [](const N& n, C& c) { return ReadText(n, c.control_plane.image); }},
      {"controlPlane.statefulSet.resources.requests.cpu", "quantity",
       "cpu the tenant pod asks for (20m)",
       [](const N& n, C& c) { return ReadQuantityText(n, c.control_plane.cpu_request); }},
      {"controlPlane.statefulSet.resources.requests.memory", "quantity",
       "memory the tenant pod asks for (64Mi)",
       [](const N& n, C& c) { return ReadQuantityText(n, c.control_plane.memory_request); }},
      {"controlPlane.statefulSet.resources.limits.memory", "quantity",
       "memory the tenant pod may use (1Gi)",
       [](const N& n, C& c) { return ReadQuantityText(n, c.control_plane.memory_limit); }},
      {"controlPlane.statefulSet.persistence.enabled", "bool",
       "keep /data on a volume; default: when the host has a default StorageClass",
       [](const N& n, C& c) {
         c.control_plane.persistence_auto = false;
         return ReadBool(n, c.control_plane.persistence);
       }},
      {"controlPlane.statefulSet.persistence.size", "quantity", "size of the volume (5Gi)",
       [](const N& n, C& c) { return ReadQuantityText(n, c.control_plane.persistence_size); }},
      {"controlPlane.statefulSet.persistence.storageClass", "text",
       "its StorageClass; default: the host's default",
       [](const N& n, C& c) { return ReadText(n, c.control_plane.storage_class); }},
      {"controlPlane.service.type", "ClusterIP|NodePort|LoadBalancer",
       "how the tenant's API is published (ClusterIP)",
       [](const N& n, C& c) {
         return ReadOneOf(n, c.control_plane.service_type,
                          {"ClusterIP", "NodePort", "LoadBalancer"});
       }},
      {"controlPlane.proxy.extraSANs", "list of texts", "further names in the serving certificate",
       [](const N& n, C& c) { return ReadTexts(n, c.control_plane.extra_sans); }},
      {"controlPlane.scheduler.enabled", "bool",
       "the embedded scheduler; off: the host schedules (true)",
       [](const N& n, C& c) { return ReadBool(n, c.control_plane.scheduler_enabled); }},
      {"controlPlane.scheduler.profiles", "list of {schedulerName, profile, arguments}",
       "behaviour per scheduler name; arguments as KAI names them, for example kValue, or "
       "usageDBConfig.usageParams.halfLifePeriod (168h: past use counts in the fair share, half of "
       "it after a week; also windowType sliding, tumbling or cron, windowSize, "
       "tumblingWindowStartTime, cronString); "
       "profiles: default, kai-0.7, kai-0.9, kai-0.13, kai-0.17",
       [](const N& n, C& c) { return ReadProfiles(n, c.control_plane.scheduler_profiles); }},
      {"controlPlane.scheduler.kai.enabled", "bool", "KAI's CRDs, queues and admission (true)",
       [](const N& n, C& c) { return ReadBool(n, c.control_plane.kai_crds); }},
      {"controlPlane.gpu.enforce", "on|off", "hold fractions on the device (on)",
       [](const N& n, C& c) {
         return ReadOneOf(n, c.control_plane.gpu_enforce, {"on", "off"});
       }},
      {"sync.toHost.pods.enabled", "bool", "pods are always synced: only true is allowed",
       AlwaysOn()},
      {"sync.toHost.pods.translateImage", "map", "image used on the host instead, by exact name",
       TextMap(&C::translate_images)},
      {"sync.toHost.pods.enforceTolerations", "list of tolerations", "added to every host pod",
       [](const N& n, C& c) { return ReadTolerations(n, c.enforced_tolerations); }},
      {"sync.toHost.pods.runtimeClassName", "text", "RuntimeClass of every host pod",
       Text(&C::runtime_class_name)},
      {"sync.toHost.pods.priorityClassName", "text", "host PriorityClass of every host pod",
       Text(&C::priority_class_name)},
      {"sync.toHost.pods.allowedMetadata", "list of texts",
       "label and annotation keys, or prefixes ending in '/', that may travel besides the built-in "
       "ones",
       Texts(&C::allowed_metadata)},
      {"sync.toHost.pods.hybridScheduling.hostSchedulers", "list of texts",
       "scheduler names whose pods the host places", Texts(&C::host_schedulers)},
      {"sync.toHost.services.enabled", "bool", "(true)", Bool(&C::services)},
      {"sync.toHost.endpoints.enabled", "bool", "(true)", Bool(&C::endpoints)},
      {"sync.toHost.endpointSlices.enabled", "bool", "(true)", Bool(&C::endpoint_slices)},
      {"sync.toHost.persistentVolumeClaims.enabled", "bool", "(true)",
       Bool(&C::persistent_volume_claims)},
      {"sync.toHost.configMaps.enabled", "bool", "those a pod mentions always are: only true",
       AlwaysOn()},
      {"sync.toHost.configMaps.all", "bool", "also those no pod mentions (false)",
       Bool(&C::config_maps_all)},
      {"sync.toHost.secrets.enabled", "bool", "those a pod mentions always are: only true",
       AlwaysOn()},
      {"sync.toHost.secrets.all", "bool", "also those no pod mentions (false)",
       Bool(&C::secrets_all)},
      {"sync.toHost.serviceAccounts.enabled", "bool", "(false)", Bool(&C::service_accounts)},
      {"sync.toHost.ingresses.enabled", "bool", "(false)", Bool(&C::ingresses)},
      {"sync.toHost.networkPolicies.enabled", "bool", "(false)", Bool(&C::network_policies)},
      {"sync.toHost.podDisruptionBudgets.enabled", "bool", "(false)",
       Bool(&C::pod_disruption_budgets)},
      {"sync.toHost.storageClasses.enabled", "bool",
       "the tenant's own classes; its control plane may then write every StorageClass of the host "
       "(false)",
       Bool(&C::storage_classes_to_host)},
      {"sync.toHost.persistentVolumes.enabled", "bool",
       "the tenant's own volumes; its control plane may then write every PersistentVolume of the "
       "host (false)",
       Bool(&C::persistent_volumes_to_host)},
      {"sync.toHost.priorityClasses.enabled", "bool", "(false)",
       Bool(&C::priority_classes_to_host)},
      {"sync.toHost.priorityClasses.max", "number",
       "the highest value a class may have on the host (1000000000)",
       [](const N& n, C& c) {
         return n.IsScalar() && YAML::convert<std::int64_t>::decode(n, c.priority_max) &&
                        c.priority_max >= 0 && c.priority_max <= 1000000000
                    ? ""
                    : std::string("must be a whole number from 0 to 1000000000");
       }},
      {"sync.fromHost.events.enabled", "bool", "(true)", Bool(&C::events)},
      {"sync.fromHost.nodes.enabled", "bool", "nodes are always shown: only true is allowed",
       AlwaysOn()},
      {"sync.fromHost.nodes.selector.all", "bool",
       "all nodes, the default; use labels to choose some",
       [](const N& n, C&) {
         bool ignored = true;
         return ReadBool(n, ignored);
       }},
      {"sync.fromHost.nodes.selector.labels", "map", "only nodes with these labels",
       TextMap(&C::node_labels)},
      {"sync.fromHost.storageClasses.enabled", "bool",
       "(true, unless sync.toHost.storageClasses is on)",
       [](const N& n, C& c) {
         c.storage_classes_auto = false;
         return ReadBool(n, c.storage_classes);
       }},
      {"sync.fromHost.ingressClasses.enabled", "bool", "(false)", Bool(&C::ingress_classes)},
      {"sync.fromHost.runtimeClasses.enabled", "bool", "(false)", Bool(&C::runtime_classes)},
      {"sync.fromHost.priorityClasses.enabled", "bool", "(false)",
       Bool(&C::priority_classes_from_host)},
      {"networking.replicateServices.toHost", "list of {from, to}",
       "tenant Services that appear on the host",
       [](const N& n, C& c) { return ReadReplications(n, c.replicate_to_host); }},
      {"networking.replicateServices.fromHost", "list of {from, to}",
       "host Services that appear in the tenant",
       [](const N& n, C& c) { return ReadReplications(n, c.replicate_from_host); }},
      {"networking.advanced.clusterDomain", "text", "DNS domain (cluster.local)",
       Text(&C::cluster_domain)},
      {"policies.podSecurityStandard", "privileged|baseline|restricted",
       "what tenant pods may do on the host (baseline)",
       [](const N& n, C& c) {
         return ReadOneOf(n, c.pod_security, {"privileged", "baseline", "restricted"});
       }},
      {"policies.resourceQuota.enabled", "bool",
       "a ResourceQuota in the tenant's host namespace (false)", Bool(&C::quota_enabled)},
      {"policies.resourceQuota.quota", "map", "its hard limits", TextMap(&C::quota)},
      {"policies.limitRange.enabled", "bool", "a LimitRange in the tenant's host namespace (false)",
       Bool(&C::limit_range_enabled)},
      {"policies.limitRange.default", "map", "its default limits", TextMap(&C::limit_default)},
      {"policies.limitRange.defaultRequest", "map", "its default requests",
       TextMap(&C::limit_default_request)},
      {"policies.networkPolicy.enabled", "bool",
       "close the tenant's host namespace to others (false)", Bool(&C::network_policy)},
      {"policies.gpu.devices", "number",
       "whole GPUs the tenant may hold at once, fractions added up",
       [](const N& n, C& c) {
         return n.IsScalar() && YAML::convert<std::int64_t>::decode(n, c.gpu_devices) &&
                        c.gpu_devices >= 0
                    ? ""
                    : std::string("must be a whole number, 0 or more");
       }},
      {"policies.gpu.memory", "quantity", "GPU memory the tenant may hold at once",
       [](const N& n, C& c) {
         std::string text;
         if (auto wrong = ReadQuantityText(n, text); !wrong.empty()) {
           return wrong;
         }
         c.gpu_memory_bytes = kube::Quantity::ParseOrZero(text).Value();
         return std::string();
       }},
      {"experimental.syncSettings.setOwner", "bool", "owner references on synced objects (true)",
       Bool(&C::set_owner)},
  };
  return schema;
}

class Walker {
 public:
  Walker(std::string_view file, TenantConfig& config) : file_(file), config_(config) {}

  void Walk(const YAML::Node& node, const std::string& path) {
    for (const auto& entry : node) {
      if (problems_.size() >= kProblemsMax) {
        return;
      }
      if (!entry.first.IsScalar()) {
        Problem(entry.first, (path.empty() ? "the file" : path) + " has a key that is no text");
        continue;
      }
      const std::string name = entry.first.Scalar();
      const std::string full = path.empty() ? name : path + "." + name;
      Value(entry.first, entry.second, full, path, name);
    }
  }
  const std::vector<std::string>& problems() const { return problems_; }

 private:
  void Value(const YAML::Node& key_node, const YAML::Node& value, const std::string& full,
             const std::string& path, const std::string& name) {
    for (const Key& key : Schema()) {
      if (key.path == full) {
        if (const std::string wrong = key.read(value, config_); !wrong.empty()) {
          Problem(value.Mark().is_null() ? key_node : value, full + " " + wrong);
        }
        return;
      }
    }
    const auto is_section = [&full](const Key& key) { return key.path.starts_with(full + "."); };
    if (std::any_of(Schema().begin(), Schema().end(), is_section)) {
      if (value.IsMap()) {
        Walk(value, full);
      } else if (!value.IsNull()) {
        Problem(key_node, full + " must be a map of: " + List(full));
      }
      return;
    }
    std::string text = "unknown key " + full;
    if (const std::string nearest = NearestWord(name, Children(path)); !nearest.empty()) {
      text += "; did you mean " + nearest + "?";
    } else {
      text += ";";
    }
    Problem(key_node, text + " allowed here: " + List(path));
  }

  static std::vector<std::string> Children(const std::string& path) {
    std::vector<std::string> names;
    for (const Key& key : Schema()) {
      std::string_view rest = key.path;
      if (!path.empty()) {
        if (!rest.starts_with(path + ".")) {
          continue;
        }
        rest.remove_prefix(path.size() + 1);
      }
      std::string child(rest.substr(0, rest.find('.')));
      if (std::find(names.begin(), names.end(), child) == names.end()) {
        names.push_back(std::move(child));
      }
    }
    return names;
  }
  static std::string List(const std::string& path) {
    std::string text;
    for (const std::string& child : Children(path)) {
      text += (text.empty() ? "" : ", ") + child;
    }
    return text;
  }
  void Problem(const YAML::Node& where, std::string text) {
    problems_.push_back(file_ + ":" + std::to_string(where.Mark().line + 1) + ": " +
                        std::move(text));
  }

  const std::string file_;
  TenantConfig& config_;
  std::vector<std::string> problems_;
};

Result<YAML::Node> LoadYaml(std::string_view text, std::string_view file) {
  // yaml-cpp expands aliases lazily and has its own depth limit; the size is bounded here.
  if (text.size() > (1u << 20)) {
    return BadRequest(std::string(file) + ": more than 1 MiB");
  }
  try {
    return YAML::Load(std::string(text));
  } catch (const YAML::Exception& error) {
    return BadRequest(std::string(file) + ":" + std::to_string(error.mark.line + 1) + ": " +
                      error.msg);
  }
}

void MergeInto(YAML::Node base, const YAML::Node& over) {
  for (const auto& entry : over) {
    const std::string name = entry.first.Scalar();
    if (entry.second.IsMap() && base[name] && base[name].IsMap()) {
      MergeInto(base[name], entry.second);
    } else {
      base[name] = entry.second;
    }
  }
}

std::string Emit(const YAML::Node& node) {
  YAML::Emitter out;
  out << node;
  return std::string(out.c_str()) + "\n";
}

}  // namespace

const std::vector<std::string>& KnownProfiles() {
  static const std::vector<std::string> profiles = {"default", "kai-0.7", "kai-0.9", "kai-0.13",
                                                    "kai-0.17"};
  return profiles;
}

Result<std::string> ProfileOfVersion(std::string_view version) {
  std::string_view digits = version;
  if (digits.starts_with('v')) {
    digits.remove_prefix(1);
  }
  // Behaviour changed with these minor versions; the ones between behave like the earlier one.
  static const std::vector<std::pair<int, std::string>> kSince = {
      {5, "kai-0.7"}, {9, "kai-0.9"}, {13, "kai-0.13"}, {17, "kai-0.17"}};
  int minor = -1;
  if (digits.starts_with("0.")) {
    const std::string rest(digits.substr(2, digits.find('.', 2) - 2));
    if (!rest.empty() && rest.size() < 3 &&
        rest.find_first_not_of("0123456789") == std::string::npos) {
      minor = std::stoi(rest);
    }
  }
  if (minor >= kSince.front().first && minor <= kSince.back().first) {
    std::string profile;
    for (const auto& [since, name] : kSince) {
      if (minor >= since) {
        profile = name;
      }
    }
    return profile;
  }
  return BadRequest("unknown scheduler version \"" + std::string(version) +
                    "\"; known: v0.5 to v0.8 (profile kai-0.7), v0.9 to v0.12 (kai-0.9), v0.13 to "
                    "v0.16 (kai-0.13), v0.17 (kai-0.17)");
}

Result<TenantConfig> ParseTenantConfig(std::string_view yaml, std::string_view file) {
  SUBLET_TRY(const YAML::Node root, LoadYaml(yaml, file));
  TenantConfig config;
  if (root.IsNull()) {
    return config;
  }
  if (!root.IsMap()) {
    return BadRequest(std::string(file) + ":1: the file must be a map of keys");
  }
  Walker walker(file, config);
  try {
    walker.Walk(root, "");
  } catch (const YAML::Exception& error) {
    return BadRequest(std::string(file) + ":" + std::to_string(error.mark.line + 1) + ": " +
                      error.msg);
  }
  std::vector<std::string> problems = walker.problems();
  if (config.storage_classes_auto) {
    config.storage_classes = !config.storage_classes_to_host;
  }
  // A name would mean two objects.
  for (const auto& [to_host, from_host, name] :
       {std::tuple<bool, bool, const char*>{config.storage_classes_to_host, config.storage_classes,
                                            "storageClasses"},
        {config.priority_classes_to_host, config.priority_classes_from_host, "priorityClasses"}}) {
    if (to_host && from_host) {
      problems.push_back(std::string(file) + ": sync.toHost." + name + " and sync.fromHost." +
                         name + " cannot both be on");
    }
  }
  if (!problems.empty()) {
    std::string text;
    for (const std::string& problem : problems) {
      text += (text.empty() ? "" : "\n") + problem;
    }
    return BadRequest(text);
  }
  return config;
}

Result<std::string> MergeValues(std::string_view base, std::string_view over,
                                std::string_view over_file) {
  SUBLET_TRY(YAML::Node merged, LoadYaml(base, "values"));
  SUBLET_TRY(const YAML::Node top, LoadYaml(over, over_file));
  if (top.IsNull()) {
    return std::string(base);
  }
  if (!top.IsMap()) {
    return BadRequest(std::string(over_file) + ":1: the file must be a map of keys");
  }
  if (!merged.IsMap()) {
    return std::string(over);
  }
  MergeInto(merged, top);
  return Emit(merged);
}

Result<std::string> SetValue(std::string_view yaml, std::string_view assignment) {
  const auto equals = assignment.find('=');
  if (equals == std::string_view::npos || equals == 0) {
    return BadRequest("--set " + std::string(assignment) + ": write it as key.path=value");
  }
  SUBLET_TRY(const YAML::Node value, LoadYaml(assignment.substr(equals + 1), "--set"));
  YAML::Node top(YAML::NodeType::Map);
  std::vector<std::string> parts;
  std::string_view path = assignment.substr(0, equals);
  while (!path.empty()) {
    const auto dot = path.find('.');
    parts.emplace_back(path.substr(0, dot));
    path = dot == std::string_view::npos ? "" : path.substr(dot + 1);
  }
  YAML::Node nested = value;
  for (auto part = parts.rbegin(); part != parts.rend(); ++part) {
    YAML::Node outer(YAML::NodeType::Map);
    outer[*part] = nested;
    nested = outer;
  }
  return MergeValues(yaml, Emit(nested), "--set");
}

std::vector<KeyInfo> AllKeys() {
  std::vector<KeyInfo> keys;
  for (const Key& key : Schema()) {
    keys.push_back({key.path, key.type, key.meaning});
  }
  return keys;
}

}  // namespace sublet::config
