#include <algorithm>
#include <nlohmann/json.hpp>

#include "kube/base64.h"
#include "kube/kinds/default_functions.h"
#include "kube/object.h"
#include "kube/quantity.h"

namespace sublet::kube::defaults {
namespace {

bool IsLowerDigit(char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); }
bool IsWord(char c) { return IsLowerDigit(c) || (c >= 'A' && c <= 'Z') || c == '_'; }

// Path components of an image name: lower case, digits and single separators between them.
bool IsImagePath(std::string_view path) {
  if (path.empty()) {
    return false;
  }
  bool separator = true;
  for (std::size_t i = 0; i < path.size(); ++i) {
    const char c = path[i];
    if (IsLowerDigit(c)) {
      separator = false;
      continue;
    }
    const bool run = c == '-' || (c == '_' && i + 1 < path.size() && path[i + 1] == '_');
    if (separator && !(run || (i > 0 && (c == '-' || c == '_') && path[i - 1] == c))) {
      return false;
    }
    if (c != '.' && c != '_' && c != '-' && c != '/') {
      return false;
    }
    separator = true;
  }
  return !separator;
}

// Requests that are not named follow the limits.
void RequestsFromLimits(Json* containers) {
  if (containers == nullptr || !containers->is_array()) {
    return;
  }
  for (Json& container : *containers) {
    const Json* limits = Find(container, {"resources", "limits"});
    if (limits == nullptr || !limits->is_object()) {
      continue;
    }
    const Json copy = *limits;
    Json& requests = EnsureObject(Find(container, {"resources"}), "requests");
    for (const auto& [name, value] : copy.items()) {
      requests.emplace(name, value);
    }
  }
}

void HostPorts(Json* containers) {
  if (containers == nullptr || !containers->is_array()) {
    return;
  }
  for (Json& container : *containers) {
    if (Json* ports = Find(container, {"ports"}); ports != nullptr && ports->is_array()) {
      for (Json& port : *ports) {
        SetIfZero(&port, "hostPort", FindInt(port, {"containerPort"}));
      }
    }
  }
}

// Requests of a pod as a whole follow its containers' sums, then its limits.
void PodLevelRequests(Json* spec) {
  const Json* limits = Find(*spec, {"resources", "limits"});
  if (limits == nullptr || !limits->is_object() || limits->empty()) {
    return;
  }
  const Json limits_copy = *limits;
  Json& requests = EnsureObject(Find(*spec, {"resources"}), "requests");
  const auto supported = [](const std::string& name) {
    return name == "cpu" || name == "memory" || name.starts_with("hugepages-");
  };
  Json sums = Json::object();
  if (const Json* containers = Find(*spec, {"containers"});
      containers != nullptr && containers->is_array()) {
    for (const Json& container : *containers) {
      const Json* own = Find(container, {"resources", "requests"});
      if (own == nullptr || !own->is_object()) {
        continue;
      }
      for (const auto& [name, value] : own->items()) {
        if (value.is_string() && (name == "cpu" || name == "memory")) {
          const Quantity sum = Quantity::ParseOrZero(sums.value(name, std::string("0"))) +
                               Quantity::ParseOrZero(value.get_ref<const std::string&>());
          sums[name] = sum.Text();
        }
      }
    }
  }
  for (const Json* source : {const_cast<const Json*>(&sums), &limits_copy}) {
    for (const auto& [name, value] : source->items()) {
      if (supported(name)) {
        requests.emplace(name, value);
      }
    }
  }
  if (requests.empty()) {
    EraseMember(Find(*spec, {"resources"}), "requests");
  }
}

}  // namespace

void SetIfAbsent(Json* object, std::string_view key, Json value) {
  Json& member = (*object)[std::string(key)];
  if (member.is_null()) {
    member = std::move(value);
  }
}

void SetIfEmpty(Json* object, std::string_view key, std::string_view value) {
  Json& member = (*object)[std::string(key)];
  if (member.is_null() || member == "") {
    member = std::string(value);
  }
}

void SetIfZero(Json* object, std::string_view key, std::int64_t value) {
  Json& member = (*object)[std::string(key)];
  if (member.is_null() || member == 0) {
    member = value;
  }
}

std::string_view PullPolicyOf(std::string_view image) {
  constexpr std::string_view kNotPresent = "IfNotPresent";
  const std::size_t at = image.find('@');
  std::string_view name = image.substr(0, at);
  std::string_view tag;
  const std::size_t slash = name.rfind('/');
  const std::size_t colon = name.find(':', slash == std::string_view::npos ? 0 : slash);
  if (colon != std::string_view::npos) {
    tag = name.substr(colon + 1);
    name = name.substr(0, colon);
    const bool good = !tag.empty() && tag.size() <= 128 && IsWord(tag[0]) &&
                      std::all_of(tag.begin(), tag.end(),
                                  [](char c) { return IsWord(c) || c == '.' || c == '-'; });
    if (!good) {
      return kNotPresent;
    }
  }
  // The first component is a host when it looks like one.
  const std::size_t first = name.find('/');
  if (first != std::string_view::npos) {
    const std::string_view host = name.substr(0, first);
    if (host.find_first_of(".:") != std::string_view::npos || host == "localhost" ||
        std::any_of(host.begin(), host.end(), [](char c) { return c >= 'A' && c <= 'Z'; })) {
      name.remove_prefix(first + 1);
    }
  }
  if (!IsImagePath(name)) {
    return kNotPresent;  // what cannot be parsed has no tag
  }
  return tag == "latest" || (tag.empty() && at == std::string_view::npos) ? "Always" : kNotPresent;
}

void Pod(Json* pod) {
  Json* spec = Find(*pod, {"spec"});
  if (spec == nullptr || !spec->is_object()) {
    return;
  }
  RequestsFromLimits(Find(*spec, {"containers"}));
  RequestsFromLimits(Find(*spec, {"initContainers"}));
  PodLevelRequests(spec);
  SetIfAbsent(spec, "enableServiceLinks", true);
  if (FindBool(*spec, {"hostNetwork"})) {
    HostPorts(Find(*spec, {"containers"}));
    HostPorts(Find(*spec, {"initContainers"}));
  }
  // The old single address and the first of the list are one.
  if (Json* status = Find(*pod, {"status"}); status != nullptr && status->is_object()) {
    const std::string ip(FindString(*status, {"podIP"}));
    const Json* ips = Find(*status, {"podIPs"});
    const bool known = ips != nullptr && ips->is_array() && !ips->empty();
    if (!ip.empty() && (!known || FindString(ips->front(), {"ip"}) != ip)) {
      (*status)["podIPs"] = Json::array({{{"ip", ip}}});
    }
  }
}

void PodSpec(Json* spec) {
  SetIfEmpty(spec, "dnsPolicy", "ClusterFirst");
  SetIfEmpty(spec, "restartPolicy", "Always");
  SetIfAbsent(spec, "securityContext", Json::object());
  SetIfAbsent(spec, "terminationGracePeriodSeconds", 30);
  if (FindInt(*spec, {"terminationGracePeriodSeconds"}) < 0) {
    (*spec)["terminationGracePeriodSeconds"] = 1;
  }
  SetIfEmpty(spec, "schedulerName", "default-scheduler");
  // The deprecated name of the same field is always written beside it.
  if (const std::string account(FindString(*spec, {"serviceAccountName"})); !account.empty()) {
    (*spec)["serviceAccount"] = account;
  } else if (const std::string old(FindString(*spec, {"serviceAccount"})); !old.empty()) {
    (*spec)["serviceAccountName"] = old;
  }
}

void Container(Json* container) {
  SetIfEmpty(container, "imagePullPolicy", PullPolicyOf(FindString(*container, {"image"})));
  SetIfEmpty(container, "terminationMessagePath", "/dev/termination-log");
  SetIfEmpty(container, "terminationMessagePolicy", "File");
}

void Probe(Json* probe) {
  SetIfZero(probe, "timeoutSeconds", 1);
  SetIfZero(probe, "periodSeconds", 10);
  SetIfZero(probe, "successThreshold", 1);
  SetIfZero(probe, "failureThreshold", 3);
}

void HttpGetAction(Json* action) {
  SetIfEmpty(action, "path", "/");
  SetIfEmpty(action, "scheme", "HTTP");
}

void Volume(Json* volume) {
  if (volume->size() <= (volume->contains("name") ? 1u : 0u)) {
    (*volume)["emptyDir"] = Json::object();
  }
  if (Json* image = Find(*volume, {"image"}); image != nullptr && image->is_object()) {
    SetIfEmpty(image, "pullPolicy", PullPolicyOf(FindString(*image, {"reference"})));
  }
}

void DefaultMode(Json* source) { SetIfAbsent(source, "defaultMode", 420); }
void HostPath(Json* source) { SetIfAbsent(source, "type", ""); }
void ServiceAccountToken(Json* projection) { SetIfAbsent(projection, "expirationSeconds", 3600); }
void ObjectFieldSelector(Json* selector) { SetIfEmpty(selector, "apiVersion", "v1"); }

void Service(Json* service) {
  Json* spec = Find(*service, {"spec"});
  if (spec == nullptr || !spec->is_object()) {
    return;
  }
  SetIfEmpty(spec, "sessionAffinity", "None");
  const std::string affinity(FindString(*spec, {"sessionAffinity"}));
  if (affinity == "None") {
    EraseMember(spec, "sessionAffinityConfig");
  } else if (affinity == "ClientIP" &&
             Find(*spec, {"sessionAffinityConfig", "clientIP", "timeoutSeconds"}) == nullptr) {
    (*spec)["sessionAffinityConfig"] = {{"clientIP", {{"timeoutSeconds", 10800}}}};
  }
  SetIfEmpty(spec, "type", "ClusterIP");
  const std::string type(FindString(*spec, {"type"}));
  if (Json* ports = Find(*spec, {"ports"}); ports != nullptr && ports->is_array()) {
    for (Json& port : *ports) {
      SetIfEmpty(&port, "protocol", "TCP");
      Json& target = port["targetPort"];
      if (target.is_null() || target == 0 || target == "") {
        target = FindInt(port, {"port"});
      }
    }
  }
  const Json* external_ips = Find(*spec, {"externalIPs"});
  const bool external = type == "LoadBalancer" || type == "NodePort" ||
                        (type == "ClusterIP" && external_ips != nullptr && !external_ips->empty());
  if (external) {
    SetIfEmpty(spec, "externalTrafficPolicy", "Cluster");
  }
  if (type == "NodePort" || type == "LoadBalancer" || type == "ClusterIP") {
    SetIfAbsent(spec, "internalTrafficPolicy", "Cluster");
  }
  if (type == "LoadBalancer") {
    SetIfAbsent(spec, "allocateLoadBalancerNodePorts", true);
    if (Json* list = Find(*service, {"status", "loadBalancer", "ingress"});
        list != nullptr && list->is_array()) {
      for (Json& ingress : *list) {
        if (!FindString(ingress, {"ip"}).empty()) {
          SetIfAbsent(&ingress, "ipMode", "VIP");
        }
      }
    }
  }
}

void Secret(Json* secret) {
  SetIfEmpty(secret, "type", "Opaque");
  // stringData is write-only: it ends up in data.
  Json* text = Find(*secret, {"stringData"});
  if (text != nullptr && text->is_object()) {
    const Json values = std::move(*text);
    EraseMember(secret, "stringData");
    Json& data = EnsureObject(secret, "data");
    for (const auto& [key, value] : values.items()) {
      data[key] =
          EncodeBase64(value.is_string() ? value.get_ref<const std::string&>() : std::string());
    }
    if (data.empty()) {
      EraseMember(secret, "data");
    }
  }
}

void Namespace(Json* object) {
  const std::string name(NameOf(*object));
  if (!name.empty()) {
    SetLabel(object, "kubernetes.io/metadata.name", name);
  }
  SetIfEmpty(&EnsureObject(object, "status"), "phase", "Active");
}

// One field has an old and a new form; the old one leads where they differ.
void NodeSpec(Json* spec) {
  const std::string cidr(FindString(*spec, {"podCIDR"}));
  const Json* list = Find(*spec, {"podCIDRs"});
  const bool listed = list != nullptr && list->is_array() && !list->empty();
  if (!cidr.empty() && (!listed || (*list)[0] != cidr)) {
    (*spec)["podCIDRs"] = Json::array({cidr});
  } else if (cidr.empty() && listed) {
    Json first = (*list)[0];
    (*spec)["podCIDR"] = std::move(first);
  }
}

void NodeStatus(Json* status) {
  const Json* capacity = Find(*status, {"capacity"});
  if (capacity != nullptr && Find(*status, {"allocatable"}) == nullptr) {
    (*status)["allocatable"] = Json(*capacity);
  }
}

void LimitRangeItem(Json* item) {
  if (FindString(*item, {"type"}) != "Container") {
    return;
  }
  const auto fill = [item](const char* into, const char* from) {
    if (const Json* source = Find(*item, {from}); source != nullptr && source->is_object()) {
      const Json copy = *source;
      Json& target = EnsureObject(item, into);
      for (const auto& [name, value] : copy.items()) {
        target.emplace(name, value);
      }
    }
  };
  fill("default", "max");
  fill("defaultRequest", "default");
  fill("defaultRequest", "min");
}

void ReplicationController(Json* object) {
  Json& spec = EnsureObject(object, "spec");
  SetIfAbsent(&spec, "replicas", 1);
  const Json* labels = Find(spec, {"template", "metadata", "labels"});
  if (labels == nullptr || !labels->is_object()) {
    return;
  }
  const Json copy = *labels;
  if (const Json* selector = Find(spec, {"selector"}); selector == nullptr || selector->empty()) {
    spec["selector"] = copy;
  }
  if (const Json* own = LabelsOf(*object); own == nullptr || own->empty()) {
    (*object)["metadata"]["labels"] = copy;
  }
}

void PersistentVolume(Json* object) {
  SetIfEmpty(&EnsureObject(object, "status"), "phase", "Pending");
  Json& spec = EnsureObject(object, "spec");
  SetIfEmpty(&spec, "persistentVolumeReclaimPolicy", "Retain");
  SetIfAbsent(&spec, "volumeMode", "Filesystem");
}

void PersistentVolumeClaim(Json* object) {
  SetIfEmpty(&EnsureObject(object, "status"), "phase", "Pending");
}

void PersistentVolumeClaimSpec(Json* spec) { SetIfAbsent(spec, "volumeMode", "Filesystem"); }
void EndpointsPort(Json* port) { SetIfEmpty(port, "protocol", "TCP"); }

void ResourceList(Json* list) {
  for (auto& [name, value] : list->get_ref<Json::object_t&>()) {
    if (!value.is_string()) {
      continue;
    }
    // Nothing finer than a thousandth is kept; only these suffixes can be finer.
    const std::string& text = value.get_ref<const std::string&>();
    if (text.ends_with('n') || text.ends_with('u')) {
      value = Quantity::FromMilli(Quantity::ParseOrZero(text).MilliValue()).Text();
    }
  }
}

}  // namespace sublet::kube::defaults
