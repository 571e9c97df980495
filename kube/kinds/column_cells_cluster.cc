#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "kube/kinds/column_cells.h"
#include "kube/object.h"
#include "kube/timestamp.h"

namespace sublet::kube::cells {
namespace {

std::string OrUnknown(std::string text) { return text.empty() ? "<unknown>" : text; }

std::string LowerCase(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  return text;
}

std::string JoinSet(const std::set<std::string>& set) {
  std::string out;
  for (const std::string& one : set) {
    out.append(out.empty() ? "" : ",").append(one);
  }
  return out;
}

std::string NodeRoles(const Json& node) {
  constexpr std::string_view kPrefix = "node-role.kubernetes.io/";
  std::set<std::string> roles;
  if (const Json* labels = LabelsOf(node); labels != nullptr && labels->is_object()) {
    for (const auto& [key, value] : labels->items()) {
      if (key.starts_with(kPrefix)) {
        roles.insert(key.substr(kPrefix.size()));
      } else if (key == "kubernetes.io/role") {
        roles.insert(value.get<std::string>());
      }
    }
  }
  roles.erase("");
  return roles.empty() ? "<none>" : JoinSet(roles);
}

std::string NodeAddress(const Json& node, std::string_view type) {
  for (const Json& address : List(node, {"status", "addresses"})) {
    if (Text(address, {"type"}) == type) {
      return Text(address, {"address"});
    }
  }
  return "<none>";
}

std::size_t SizeOf(const Json& object, std::string_view key) {
  const Json* value = Find(object, {key});
  return value == nullptr ? 0 : value->size();
}

std::string Trimmed(const std::string& text) {
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  const std::size_t last = text.find_last_not_of(" \t\r\n");
  return first == std::string::npos ? "" : text.substr(first, last - first + 1);
}

// The first of several members that is set: core and events.k8s.io spell them differently.
std::string Either(const Json& object, std::initializer_list<std::string_view> a,
                   std::initializer_list<std::string_view> b) {
  std::string text = Text(object, a);
  return text.empty() ? Text(object, b) : text;
}

std::string Subjects(const Json& binding, std::string_view kind) {
  std::string out;
  for (const Json& subject : List(binding, {"subjects"})) {
    if (Text(subject, {"kind"}) != kind) {
      continue;
    }
    const std::string space = Text(subject, {"namespace"});
    out.append(out.empty() ? "" : ", ");
    out.append(kind == "ServiceAccount" && !space.empty() ? space + "/" : "");
    out.append(Text(subject, {"name"}));
  }
  return out;
}

}  // namespace

std::string Text(const Json& object, std::initializer_list<std::string_view> path,
                 std::string_view fallback) {
  return std::string(FindString(object, path, fallback));
}
std::string NameText(const Json& object) { return std::string(NameOf(object)); }
std::string Age(const Json& object, WallTime now) {
  return HumanAge(FindString(object, {"metadata", "creationTimestamp"}), now);
}

const Json& List(const Json& object, std::initializer_list<std::string_view> path) {
  static const Json kEmpty = Json::array();
  const Json* list = Find(object, path);
  return list != nullptr && list->is_array() ? *list : kEmpty;
}

std::string Labels(const Json* labels) {
  std::string out;
  if (labels != nullptr && labels->is_object()) {
    for (const auto& [key, value] : labels->items()) {
      out.append(out.empty() ? "" : ",").append(key).append("=");
      out.append(value.is_string() ? value.get_ref<const std::string&>() : "");
    }
  }
  return out.empty() ? "<none>" : out;
}

std::string ContainerNames(const Json& pod_spec) {
  std::string out;
  for (const Json& container : List(pod_spec, {"containers"})) {
    out.append(out.empty() ? "" : ",").append(Text(container, {"name"}));
  }
  return out;
}

std::string ContainerImages(const Json& pod_spec) {
  std::string out;
  bool first = true;
  for (const Json& container : List(pod_spec, {"containers"})) {
    out.append(first ? "" : ",").append(Text(container, {"image"}));
    first = false;
  }
  return out;
}

std::string Shortened(std::string list, bool more, std::size_t count, std::size_t max) {
  return more ? list + " + " + std::to_string(count - max) + " more..." : list;
}

Json NameAndAge(const Json& object, WallTime now) {
  return Json::array({NameText(object), Age(object, now)});
}

Json Node(const Json& node, WallTime now) {
  const Json* ready = FindCondition(node, "Ready");
  std::string status = ready == nullptr                     ? "Unknown"
                       : Text(*ready, {"status"}) == "True" ? "Ready"
                                                            : "NotReady";
  if (FindBool(node, {"spec", "unschedulable"})) {
    status += ",SchedulingDisabled";
  }
  const auto info = [&](const char* field) { return Text(node, {"status", "nodeInfo", field}); };
  std::string kernel = OrUnknown(info("kernelVersion"));
  if (const std::string architecture = info("architecture"); !architecture.empty()) {
    kernel += " (" + architecture + ")";
  }
  return Json::array({NameText(node), status, NodeRoles(node), Age(node, now),
                      info("kubeletVersion"), NodeAddress(node, "InternalIP"),
                      NodeAddress(node, "ExternalIP"), OrUnknown(info("osImage")), kernel,
                      OrUnknown(info("containerRuntimeVersion"))});
}

Json Namespace(const Json& object, WallTime now) {
  return Json::array({NameText(object), Text(object, {"status", "phase"}), Age(object, now)});
}

// Both the core form and that of events.k8s.io.
Json Event(const Json& event, WallTime now) {
  const std::string first_text = Either(event, {"firstTimestamp"}, {"deprecatedFirstTimestamp"});
  const std::string first =
      HumanAge(first_text.empty() ? Text(event, {"eventTime"}) : first_text, now);
  const std::string last_text = Either(event, {"lastTimestamp"}, {"deprecatedLastTimestamp"});
  std::string last = last_text.empty() ? first : HumanAge(last_text, now);
  std::int64_t count = FindInt(event, {"count"}, FindInt(event, {"deprecatedCount"}));
  if (const Json* series = Find(event, {"series"}); series != nullptr && series->is_object()) {
    last = HumanAge(Text(*series, {"lastObservedTime"}), now);
    count = FindInt(*series, {"count"});
  } else if (count == 0) {
    count = 1;
  }
  const Json* about = Find(event, {"involvedObject"});
  about = about == nullptr ? Find(event, {"regarding"}) : about;
  const Json none = Json::object();
  const Json& object = about == nullptr ? none : *about;
  std::string target = LowerCase(Text(object, {"kind"}));
  if (const std::string name = Text(object, {"name"}); !name.empty()) {
    target += "/" + name;
  }
  std::string source = Either(event, {"source", "component"}, {"deprecatedSource", "component"});
  source = source.empty() ? Either(event, {"reportingComponent"}, {"reportingController"}) : source;
  std::string host = Either(event, {"source", "host"}, {"deprecatedSource", "host"});
  host = host.empty() ? Text(event, {"reportingInstance"}) : host;
  return Json::array({last, Text(event, {"type"}), Text(event, {"reason"}), target,
                      Text(object, {"fieldPath"}), host.empty() ? source : source + ", " + host,
                      Trimmed(Either(event, {"message"}, {"note"})), first, count,
                      NameText(event)});
}

Json ConfigMap(const Json& object, WallTime now) {
  return Json::array(
      {NameText(object), SizeOf(object, "data") + SizeOf(object, "binaryData"), Age(object, now)});
}

Json Secret(const Json& object, WallTime now) {
  return Json::array(
      {NameText(object), Text(object, {"type"}), SizeOf(object, "data"), Age(object, now)});
}

Json ServiceAccount(const Json& object, WallTime now) { return NameAndAge(object, now); }

Json ResourceQuota(const Json& object, WallTime now) {
  std::string requests;
  std::string limits;
  if (const Json* hard = Find(object, {"status", "hard"}); hard != nullptr && hard->is_object()) {
    for (const auto& [name, value] : hard->items()) {
      std::string& out = name.starts_with("limits.") ? limits : requests;
      out.append(out.empty() ? "" : ", ").append(name).append(": ");
      out.append(Text(object, {"status", "used", name}, "0")).append("/");
      out.append(value.is_string() ? value.get_ref<const std::string&>() : "0");
    }
  }
  return Json::array({NameText(object), requests, limits, Age(object, now)});
}

Json ComponentStatus(const Json& object, WallTime) {
  for (const Json& condition : List(object, {"conditions"})) {
    if (Text(condition, {"type"}) == "Healthy") {
      return Json::array({NameText(object),
                          Text(condition, {"status"}) == "True" ? "Healthy" : "Unhealthy",
                          Text(condition, {"message"}), Text(condition, {"error"})});
    }
  }
  return Json::array({NameText(object), "Unknown", "", ""});
}

Json Lease(const Json& object, WallTime now) {
  return Json::array(
      {NameText(object), Text(object, {"spec", "holderIdentity"}), Age(object, now)});
}

Json PriorityClass(const Json& object, WallTime now) {
  return Json::array({NameText(object), FindInt(object, {"value"}),
                      FindBool(object, {"globalDefault"}), Age(object, now),
                      Text(object, {"preemptionPolicy"})});
}

Json RuntimeClass(const Json& object, WallTime now) {
  return Json::array({NameText(object), Text(object, {"handler"}), Age(object, now)});
}

Json RoleBinding(const Json& object, WallTime now) {
  return Json::array({NameText(object),
                      Text(object, {"roleRef", "kind"}) + "/" + Text(object, {"roleRef", "name"}),
                      Age(object, now), Subjects(object, "User"), Subjects(object, "Group"),
                      Subjects(object, "ServiceAccount")});
}

Json CertificateSigningRequest(const Json& object, WallTime now) {
  const bool denied = FindCondition(object, "Denied") != nullptr;
  std::string status = denied                                         ? "Denied"
                       : FindCondition(object, "Approved") != nullptr ? "Approved"
                                                                      : "Pending";
  status += FindCondition(object, "Failed") != nullptr ? ",Failed" : "";
  status += Text(object, {"status", "certificate"}).empty() ? "" : ",Issued";
  const Json* seconds = Find(object, {"spec", "expirationSeconds"});
  return Json::array(
      {NameText(object), Age(object, now), Text(object, {"spec", "signerName"}, "<none>"),
       Text(object, {"spec", "username"}),
       seconds == nullptr ? "<none>"
                          : HumanDuration(std::chrono::seconds(seconds->get<std::int64_t>())),
       status});
}

Json FlowSchema(const Json& object, WallTime now) {
  const Json* dangling = FindCondition(object, "Dangling");
  return Json::array({NameText(object),
                      Text(object, {"spec", "priorityLevelConfiguration", "name"}),
                      FindInt(object, {"spec", "matchingPrecedence"}),
                      Text(object, {"spec", "distinguisherMethod", "type"}, "<none>"),
                      Age(object, now), dangling == nullptr ? "?" : Text(*dangling, {"status"})});
}

Json PriorityLevel(const Json& object, WallTime now) {
  const auto shown = [&](std::initializer_list<std::string_view> path) {
    const Json* value = Find(object, path);
    return value == nullptr ? Json("<none>") : *value;
  };
  return Json::array({NameText(object), Text(object, {"spec", "type"}),
                      shown({"spec", "limited", "nominalConcurrencyShares"}),
                      shown({"spec", "limited", "limitResponse", "queuing", "queues"}),
                      shown({"spec", "limited", "limitResponse", "queuing", "handSize"}),
                      shown({"spec", "limited", "limitResponse", "queuing", "queueLengthLimit"}),
                      Age(object, now)});
}

Json Webhooks(const Json& object, WallTime now) {
  return Json::array({NameText(object), SizeOf(object, "webhooks"), Age(object, now)});
}

Json AdmissionPolicy(const Json& object, WallTime now) {
  std::string kind = "<unset>";
  if (const Json* param = Find(object, {"spec", "paramKind"})) {
    kind = Text(*param, {"apiVersion"}) + "/" + Text(*param, {"kind"});
  }
  const std::size_t rules =
      List(object, {"spec", "validations"}).size() + List(object, {"spec", "mutations"}).size();
  return Json::array({NameText(object), rules, kind, Age(object, now)});
}

Json AdmissionPolicyBinding(const Json& object, WallTime now) {
  std::string param = "<unset>";
  if (const std::string name = Text(object, {"spec", "paramRef", "name"}); !name.empty()) {
    const std::string space = Text(object, {"spec", "paramRef", "namespace"});
    param = (space.empty() ? "*" : space) + "/" + name;
  }
  return Json::array(
      {NameText(object), Text(object, {"spec", "policyName"}), param, Age(object, now)});
}

Json CustomResourceDefinition(const Json& object, WallTime) {
  return Json::array({NameText(object), Text(object, {"metadata", "creationTimestamp"})});
}

Json ApiService(const Json& object, WallTime now) {
  std::string service = "Local";
  if (Find(object, {"spec", "service"}) != nullptr) {
    service = Text(object, {"spec", "service", "namespace"}) + "/" +
              Text(object, {"spec", "service", "name"});
  }
  std::string available = "Unknown";
  if (const Json* condition = FindCondition(object, "Available")) {
    available = Text(*condition, {"status"});
    if (available != "True") {
      available += " (" + Text(*condition, {"reason"}) + ")";
    }
  }
  return Json::array({NameText(object), service, available, Age(object, now)});
}

}  // namespace sublet::kube::cells
