#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "kube/field_error.h"
#include "kube/kinds/validate_common.h"
#include "kube/kinds/warn_kinds.h"
#include "kube/object.h"
#include "kube/quantity.h"

namespace sublet::kube::warn {
namespace {

using validate::Get;
using validate::Has;
using validate::Items;
using validate::Str;

constexpr std::pair<std::string_view, std::string_view> kNodeLabels[] = {
    {"beta.kubernetes.io/arch", "deprecated since v1.14; use \"kubernetes.io/arch\" instead"},
    {"beta.kubernetes.io/os", "deprecated since v1.14; use \"kubernetes.io/os\" instead"},
    {"failure-domain.beta.kubernetes.io/region",
     "deprecated since v1.17; use \"topology.kubernetes.io/region\" instead"},
    {"failure-domain.beta.kubernetes.io/zone",
     "deprecated since v1.17; use \"topology.kubernetes.io/zone\" instead"},
    {"beta.kubernetes.io/instance-type",
     "deprecated since v1.17; use \"node.kubernetes.io/instance-type\" instead"},
    {"app.kubernetes.io/created-by", "deprecated since v1.9"},
    {"scheduler.alpha.kubernetes.io/preferAvoidPods",
     "deprecated since v1.22; use Taints and Tolerations instead"},
    {"node-role.kubernetes.io/master", "use \"node-role.kubernetes.io/control-plane\" instead"},
};

constexpr std::pair<std::string_view, std::string_view> kAnnotations[] = {
    {"scheduler.alpha.kubernetes.io/critical-pod",
     "non-functional in v1.16+; use the \"priorityClassName\" field instead"},
    {"security.alpha.kubernetes.io/sysctls",
     "non-functional in v1.11+; use the \"sysctls\" field instead"},
    {"security.alpha.kubernetes.io/unsafe-sysctls",
     "non-functional in v1.11+; use the \"sysctls\" field instead"},
};

constexpr std::pair<const char*, const char*> kVolumes[] = {
    {"photonPersistentDisk", "deprecated in v1.11, non-functional in v1.16+"},
    {"gitRepo", "deprecated in v1.11, and disabled by default in v1.33+"},
    {"scaleIO", "deprecated in v1.16, non-functional in v1.22+"},
    {"flocker", "deprecated in v1.22, non-functional in v1.25+"},
    {"storageos", "deprecated in v1.22, non-functional in v1.25+"},
    {"quobyte", "deprecated in v1.22, non-functional in v1.25+"},
    {"glusterfs", "deprecated in v1.25, non-functional in v1.26+"},
    {"cephfs", "deprecated in v1.28, non-functional in v1.31+"},
    {"rbd", "deprecated in v1.28, non-functional in v1.31+"},
};

// Upstream's Go names where they differ from the wire's.
std::string ShownVolume(std::string_view member) {
  return member == "storageos" ? "storageOS" : std::string(member);
}

std::string At(const std::string& path, std::size_t index) {
  return path + "[" + std::to_string(index) + "]";
}

constexpr char kNoSelector[] = ".labelSelector: a null labelSelector results in matching no pod";

class SpecWarnings {
 public:
  SpecWarnings(std::string prefix, const Json& owner, Warnings* warnings)
      : prefix_(std::move(prefix)),
        path_(prefix_ + "spec"),
        spec_(Get(owner, "spec")),
        annotations_(Get(Get(owner, "metadata"), "annotations")),
        warnings_(warnings) {}

  void Run() {
    Placement();
    Annotations();
    Volumes();
    OverlappingPaths(spec_, warnings_);
    Duplicates("hostAliases", "ip");
    Duplicates("imagePullSecrets", "name");
    EmptyPullSecrets();
    FractionalBytes(path_ + ".overhead", Get(spec_, "overhead"), "memory", warnings_);
    FractionalBytes(path_ + ".overhead", Get(spec_, "overhead"), "ephemeral-storage", warnings_);
    Seccomp("seccomp.security.alpha.kubernetes.io/pod", Get(spec_, "securityContext"));
    EachContainer([this](const std::string& at, const Json& one) { Container(at, one); });
    EachContainer([this](const std::string& at, const Json& one) { Ports(at, one); });
    EachContainer([this](const std::string& at, const Json& one) { PortNames(at, one); });
    PodAffinity("podAffinity");
    PodAffinity("podAntiAffinity");
  }

 private:
  struct Port {
    std::string path;
    std::string host_ip;
    std::int64_t host_port = 0;
  };

  void Say(std::string text) { warnings_->push_back(std::move(text)); }

  template <typename Visit>
  void EachContainer(const Visit& visit) {
    for (const char* list : {"initContainers", "containers", "ephemeralContainers"}) {
      std::size_t index = 0;
      for (const Json& container : Items(spec_, list)) {
        visit(At(path_ + "." + list, index++), container);
      }
    }
  }

  void Placement() {
    if (const Json& selector = Get(spec_, "nodeSelector"); selector.is_object()) {
      for (const auto& [key, value] : selector.items()) {
        if (const std::string_view text = DeprecatedNodeLabel(key); !text.empty()) {
          Say(path_ + ".nodeSelector[" + key + "]: " + std::string(text));
        }
      }
    }
    const Json& affinity = Get(Get(spec_, "affinity"), "nodeAffinity");
    const std::string path = path_ + ".affinity.nodeAffinity.";
    constexpr char kRequired[] = "requiredDuringSchedulingIgnoredDuringExecution";
    constexpr char kPreferred[] = "preferredDuringSchedulingIgnoredDuringExecution";
    NodeSelectorTerms(path + kRequired + ".nodeSelectorTerms",
                      Get(Get(affinity, kRequired), "nodeSelectorTerms"), false, warnings_);
    NodeSelectorTerms(path + kPreferred, Get(affinity, kPreferred), true, warnings_);
    std::size_t index = 0;
    for (const Json& spread : Items(spec_, "topologySpreadConstraints")) {
      const std::string at = At(path_ + ".topologySpreadConstraints", index++);
      const std::string key = Str(spread, "topologyKey");
      if (const std::string_view text = DeprecatedNodeLabel(key); !text.empty()) {
        Say(at + ".topologyKey: " + key + " is " + std::string(text));
      }
      if (!Has(spread, "labelSelector")) {
        Say(at + kNoSelector);
      }
    }
  }

  void Annotations() {
    for (const auto& [key, text] : kAnnotations) {
      if (Has(annotations_, key)) {
        Say(prefix_ + "metadata.annotations[" + std::string(key) + "]: " + std::string(text));
      }
    }
  }

  void Volumes() {
    std::size_t index = 0;
    for (const Json& volume : Items(spec_, "volumes")) {
      const std::string at = At(path_ + ".volumes", index++) + ".";
      for (const auto& [member, text] : kVolumes) {
        if (Has(volume, member)) {
          Say(at + ShownVolume(member) + ": " + text);
        }
      }
      const Json& claim = Get(Get(Get(volume, "ephemeral"), "volumeClaimTemplate"), "spec");
      const Json& resources = Get(claim, "resources");
      for (const char* list : {"requests", "limits"}) {
        FractionalBytes(at + "ephemeral.volumeClaimTemplate.spec.resources." + list,
                        Get(resources, list), "storage", warnings_);
      }
    }
  }

  void Duplicates(const char* list, const char* key) {
    std::set<std::string> seen;
    std::size_t index = 0;
    for (const Json& item : Items(spec_, list)) {
      const std::string value = Str(item, key);
      if (!seen.insert(value).second) {
        Say(At(path_ + "." + list, index) + "." + key + ": duplicate " + key + " " +
            GoQuote(value));
      }
      ++index;
    }
  }

  void EmptyPullSecrets() {
    std::size_t index = 0;
    for (const Json& item : Items(spec_, "imagePullSecrets")) {
      if (Str(item, "name").empty()) {
        Say(At(path_ + ".imagePullSecrets", index) + ".name: invalid empty name \"\"");
      }
      ++index;
    }
  }

  void Seccomp(const std::string& key, const Json& context) {
    if (!Has(context, "seccompProfile") && Has(annotations_, key)) {
      Say(prefix_ + "metadata.annotations[" + key +
          "]: non-functional in v1.27+; use the \"seccompProfile\" field instead");
    }
  }

  void Container(const std::string& at, const Json& container) {
    const Json& context = Get(container, "securityContext");
    const std::string name = Str(container, "name");
    Seccomp("container.seccomp.security.alpha.kubernetes.io/" + name, context);
    const std::string armor = "container.apparmor.security.beta.kubernetes.io/" + name;
    if (Has(annotations_, armor) && !Has(context, "appArmorProfile") &&
        !Has(Get(spec_, "securityContext"), "appArmorProfile")) {
      Say(prefix_ + "metadata.annotations[" + armor +
          "]: deprecated since v1.30; use the \"appArmorProfile\" field instead");
    }
    const Json& resources = Get(container, "resources");
    for (const char* resource : {"memory", "ephemeral-storage"}) {
      for (const char* list : {"limits", "requests"}) {
        FractionalBytes(at + ".resources." + list, Get(resources, list), resource, warnings_);
      }
    }
    std::set<std::string> names;
    std::size_t index = 0;
    for (const Json& variable : Items(container, "env")) {
      const std::string variable_name = Str(variable, "name");
      const std::string reference = "$(" + variable_name + ")";
      const std::string value = Str(variable, "value");
      const bool extends = !Has(variable, "valueFrom") && value != reference &&
                           value.find(reference) != std::string::npos;
      if (!names.insert(variable_name).second && !extends) {
        Say(At(at + ".env", index) + ": hides previous definition of " + GoQuote(variable_name) +
            ", which may be dropped when using apply");
      }
      ++index;
    }
  }

  void Ports(const std::string& container, const Json& value) {
    std::size_t index = 0;
    for (const Json& json : Items(value, "ports")) {
      const Port port{At(container + ".ports", index++), Str(json, "hostIP"),
                      FindInt(json, {"hostPort"})};
      const std::string key =
          std::to_string(FindInt(json, {"containerPort"})) + "/" + Str(json, "protocol");
      for (const Port& other : ports_[key]) {
        const char* what = nullptr;
        if (port.host_ip == other.host_ip && port.host_port == other.host_port) {
          what = "duplicate";
        } else if (port.host_port == 0 || other.host_port == 0) {
          what = "overlapping";
        } else if (port.host_port == other.host_port &&
                   port.host_ip.empty() != other.host_ip.empty()) {
          what = "dangerously ambiguous";
        }
        if (what != nullptr) {
          Say(port.path + ": " + what + " port definition with " + other.path);
        }
      }
      ports_[key].push_back(port);
    }
  }

  void PortNames(const std::string& container, const Json& value) {
    std::size_t index = 0;
    for (const Json& json : Items(value, "ports")) {
      const std::string at = At(container + ".ports", index++);
      const std::string name = Str(json, "name");
      if (name.empty()) {
        continue;
      }
      const auto [other, added] = names_.emplace(name, at);
      if (!added) {
        Say(at + ": duplicate port name " + GoQuote(name) + " with " + other->second +
            ", services and probes that select ports by name will use " + other->second);
      }
    }
  }

  void PodAffinity(const char* member) {
    const Json& affinity = Get(Get(spec_, "affinity"), member);
    const std::string path = path_ + ".affinity." + member + ".";
    constexpr char kRequired[] = "requiredDuringSchedulingIgnoredDuringExecution";
    constexpr char kPreferred[] = "preferredDuringSchedulingIgnoredDuringExecution";
    std::size_t index = 0;
    for (const Json& term : Items(affinity, kRequired)) {
      if (!Has(term, "labelSelector")) {
        Say(At(path + kRequired, index) + kNoSelector);
      }
      ++index;
    }
    index = 0;
    for (const Json& term : Items(affinity, kPreferred)) {
      if (!Has(Get(term, "podAffinityTerm"), "labelSelector")) {
        Say(At(path + kPreferred, index) + ".podAffinityTerm" + kNoSelector);
      }
      ++index;
    }
  }

  std::string prefix_;
  std::string path_;
  const Json& spec_;
  const Json& annotations_;
  Warnings* warnings_;
  std::map<std::string, std::vector<Port>> ports_;
  std::map<std::string, std::string> names_;
};

}  // namespace

std::string_view DeprecatedNodeLabel(std::string_view key) {
  for (const auto& [label, text] : kNodeLabels) {
    if (label == key) {
      return text;
    }
  }
  return "";
}

void NodeSelectorTerms(const std::string& path, const Json& terms, bool preferred,
                       Warnings* warnings) {
  if (!terms.is_array()) {
    return;
  }
  for (std::size_t i = 0; i < terms.size(); ++i) {
    const Json& term = preferred ? Get(terms[i], "preference") : terms[i];
    const std::string at = At(path, i) + (preferred ? ".preference" : "") + ".matchExpressions";
    std::size_t index = 0;
    for (const Json& expression : Items(term, "matchExpressions")) {
      const std::string here = At(at, index++);
      const std::string key = Str(expression, "key");
      if (const std::string_view text = DeprecatedNodeLabel(key); !text.empty()) {
        warnings->push_back(here + ".key: " + key + " is " + std::string(text));
      }
      const auto& values = Items(expression, "values");
      for (std::size_t v = 0; preferred && v < values.size(); ++v) {
        const std::string value = values[v].is_string() ? values[v].get<std::string>() : "";
        for (const std::string& problem : IsLabelValue(value)) {
          warnings->push_back(At(here + ".values", v) + ": " + value + " is invalid, " + problem);
        }
      }
    }
  }
}

void FractionalBytes(const std::string& path, const Json& amounts, std::string_view resource,
                     Warnings* warnings) {
  const std::string text = Str(amounts, resource);
  if (text.empty()) {
    return;
  }
  const Quantity amount = Quantity::ParseOrZero(text);
  if (!amount.IsInteger()) {
    warnings->push_back(path + "[" + std::string(resource) + "]: fractional byte value " +
                        GoQuote(amount.Text()) + " is invalid, must be an integer");
  }
}

void PodTemplate(const std::string& prefix, const Json& pod_template, Warnings* warnings) {
  SpecWarnings(prefix, pod_template, warnings).Run();
}

void Pod(const Json& object, const Json* old, Warnings* warnings) {
  if (old != nullptr) {
    return;  // nobody changes pods by hand
  }
  if (const Problems problems = IsDns1123Label(std::string(NameOf(object))); !problems.empty()) {
    warnings->push_back(
        "metadata.name: this is used in the Pod's hostname, which can result in surprising "
        "behavior; a DNS label is recommended: [" +
        Join(problems, " ") + "]");
  }
  PodTemplate("", object, warnings);
}

}  // namespace sublet::kube::warn
