// Pods (scheduler/convert.h).
#include "scheduler/convert.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>

#include "kube/object.h"
#include "kube/quantity.h"
#include "kube/timestamp.h"
#include "scheduler/convert_internal.h"

namespace sublet::scheduler {

using kube::Find;
using kube::FindBool;
using kube::FindInt;
using kube::FindString;
using kube::Json;

namespace internal {

const Json& Array(const Json& object, std::initializer_list<std::string_view> path) {
  static const Json kEmpty = Json::array();
  const Json* found = Find(object, path);
  return found != nullptr && found->is_array() ? *found : kEmpty;
}

std::string Text(const Json& object, std::initializer_list<std::string_view> path) {
  return std::string(FindString(object, path));
}

Labels LabelMap(const Json* object) {
  Labels labels;
  if (object != nullptr && object->is_object()) {
    for (const auto& [key, value] : object->items()) {
      if (value.is_string()) {
        labels.emplace_back(key, value.get<std::string>());
      }
    }
    std::sort(labels.begin(), labels.end());
  }
  return labels;
}

Millis TimeOf(std::string_view text) {
  const auto time = kube::FindTime(text);
  return time.has_value()
             ? std::chrono::duration_cast<std::chrono::milliseconds>(time->time_since_epoch())
                   .count()
             : 0;
}

std::optional<Millis> DurationOf(std::string_view text) {
  if (text.empty()) {
    return std::nullopt;
  }
  const auto duration = kube::ParseDuration(text);
  if (!duration.ok()) {
    return std::nullopt;
  }
  return std::chrono::duration_cast<std::chrono::milliseconds>(*duration).count();
}

std::vector<Toleration> TolerationsFrom(const Json& array) {
  std::vector<Toleration> out;
  for (const Json& item : array) {
    out.push_back({Text(item, {"key"}), FindString(item, {"operator"}) == "Exists",
                   Text(item, {"value"}), Text(item, {"effect"})});
  }
  return out;
}

kube::Quantity Amount(const Json& value) {
  if (value.is_string()) {
    return kube::Quantity::ParseOrZero(value.get<std::string>());
  }
  return value.is_number_integer() ? kube::Quantity::FromInt(value.get<std::int64_t>())
                                   : kube::Quantity();
}

std::vector<std::string> Strings(const Json& array) {
  std::vector<std::string> list;
  for (const Json& item : array) {
    if (item.is_string()) {
      list.push_back(item.get<std::string>());
    }
  }
  return list;
}

SelectorOperator OperatorOf(std::string_view name) {
  return name == "NotIn"          ? SelectorOperator::kNotIn
         : name == "Exists"       ? SelectorOperator::kExists
         : name == "DoesNotExist" ? SelectorOperator::kDoesNotExist
         : name == "Gt"           ? SelectorOperator::kGt
         : name == "Lt"           ? SelectorOperator::kLt
                                  : SelectorOperator::kIn;
}

Selector Requirements(const Json& expressions) {
  Selector selector;
  for (const Json& item : expressions) {
    selector.push_back({Text(item, {"key"}), OperatorOf(FindString(item, {"operator"})),
                        Strings(Array(item, {"values"}))});
  }
  return selector;
}

NodeTerm NodeTermFrom(const Json& term) {
  return {Requirements(Array(term, {"matchExpressions"})),
          Requirements(Array(term, {"matchFields"}))};
}

}  // namespace internal

using namespace internal;

Selector SelectorFromJson(const Json* object, bool* nothing) {
  *nothing = object == nullptr || !object->is_object();
  if (*nothing) {
    return {};
  }
  Selector selector = Requirements(Array(*object, {"matchExpressions"}));
  for (const auto& [key, value] : LabelMap(Find(*object, {"matchLabels"}))) {
    selector.push_back({key, SelectorOperator::kIn, {value}});
  }
  return selector;
}

namespace {

using Sums = std::map<std::string, std::int64_t>;

// cpu in millis, everything else in units.
Sums RequestsOf(const Json& container) {
  Sums sums;
  const auto read = [&](const char* part, bool only_missing) {
    const Json* list = Find(container, {"resources", part});
    if (list == nullptr || !list->is_object()) {
      return;
    }
    for (const auto& [name, value] : list->items()) {
      const kube::Quantity amount = Amount(value);
      if (!only_missing || sums.count(name) == 0) {
        sums[name] = name == "cpu" ? amount.MilliValue() : amount.Value();
      }
    }
  };
  read("requests", false);
  read("limits", true);  // a limit without a request is the request
  return sums;
}

void AddAll(Sums* to, const Sums& what) {
  for (const auto& [name, amount] : what) {
    (*to)[name] += amount;
  }
}

Sums PodSums(const Json& pod) {
  Sums running;
  for (const Json& container : Array(pod, {"spec", "containers"})) {
    AddAll(&running, RequestsOf(container));
  }
  Sums sidecars;
  Sums most;
  for (const Json& container : Array(pod, {"spec", "initContainers"})) {
    Sums now = RequestsOf(container);
    if (FindString(container, {"restartPolicy"}) == "Always") {
      AddAll(&sidecars, now);
      now = sidecars;
    } else {
      AddAll(&now, sidecars);
    }
    for (const auto& [name, amount] : now) {
      most[name] = std::max(most[name], amount);
    }
  }
  AddAll(&running, sidecars);
  for (const auto& [name, amount] : most) {
    running[name] = std::max(running[name], amount);
  }
  if (const Json* overhead = Find(pod, {"spec", "overhead"});
      overhead != nullptr && overhead->is_object()) {
    for (const auto& [name, value] : overhead->items()) {
      running[name] += name == "cpu" ? Amount(value).MilliValue() : Amount(value).Value();
    }
  }
  return running;
}

bool PositiveInteger(std::string_view text, std::int64_t* value) {
  const std::string copy(text);
  char* end = nullptr;
  *value = std::strtoll(copy.c_str(), &end, 10);
  return !copy.empty() && *end == '\0' && *value > 0;
}

}  // namespace

Request RequestFromJson(const Json& pod) {
  Request request;
  std::int64_t mig = 0;
  for (const auto& [name, amount] : PodSums(pod)) {
    if (name == "cpu") {
      request.cpu = amount;
    } else if (name == "memory") {
      request.memory = amount;
    } else if (name == "nvidia.com/gpu" || name == "amd.com/gpu") {
      request.gpu_count += amount;
    } else if (amount > 0) {
      mig += name.compare(0, 15, "nvidia.com/mig-") == 0 ? amount : 0;
      request.scalars.emplace_back(name, amount);
    }
  }
  if (mig > 0) {
    request.gpu = GpuKind::kMig;
    return request;
  }
  std::int64_t devices = 1;
  PositiveInteger(kube::AnnotationOf(pod, "gpu-fraction-num-devices"), &devices);
  devices = std::max<std::int64_t>(devices, 1);
  const std::string fraction(kube::AnnotationOf(pod, "gpu-fraction"));
  std::int64_t memory = 0;
  if (PositiveInteger(kube::AnnotationOf(pod, "gpu-memory"), &memory)) {
    request.gpu = GpuKind::kMemory;
    request.gpu_memory_mib = memory;
    request.gpu_count = devices;
  } else if (!fraction.empty()) {
    char* end = nullptr;
    const double portion = std::strtod(fraction.c_str(), &end);
    if (*end == '\0' && std::isfinite(portion) && portion > 0 && portion < 1) {
      request.gpu = GpuKind::kFraction;
      request.portion = portion;
      request.gpu_count = devices;
    }
  }
  return request;
}

namespace {

PodAffinityTerm AffinityTerm(const Json& object, const std::string& ns, const Labels& labels) {
  PodAffinityTerm term;
  term.topology_key = Text(object, {"topologyKey"});
  term.selector = SelectorFromJson(Find(object, {"labelSelector"}), &term.selects_nothing);
  for (const std::string& key : Strings(Array(object, {"matchLabelKeys"}))) {
    if (const std::string* value = FindLabel(labels, key)) {
      term.selector.push_back({key, SelectorOperator::kIn, {*value}});
    }
  }
  for (const std::string& key : Strings(Array(object, {"mismatchLabelKeys"}))) {
    if (const std::string* value = FindLabel(labels, key)) {
      term.selector.push_back({key, SelectorOperator::kNotIn, {*value}});
    }
  }
  term.namespaces = Strings(Array(object, {"namespaces"}));
  bool absent = false;
  Selector by_label = SelectorFromJson(Find(object, {"namespaceSelector"}), &absent);
  if (!absent && by_label.empty()) {
    term.all_namespaces = true;
  } else if (!absent) {
    term.selects_namespaces = true;
    term.namespace_selector = std::move(by_label);
  } else if (absent && term.namespaces.empty()) {
    term.namespaces = {ns};
  }
  return term;
}

void ReadAffinity(const Json& pod, const std::string& ns, const Labels& labels, Constraints* out) {
  const Json* affinity = Find(pod, {"spec", "affinity"});
  if (affinity == nullptr) {
    return;
  }
  if (const Json* required =
          Find(*affinity, {"nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution"})) {
    out->has_affinity = true;
    for (const Json& term : Array(*required, {"nodeSelectorTerms"})) {
      out->required.push_back(NodeTermFrom(term));
    }
  }
  for (const Json& item :
       Array(*affinity, {"nodeAffinity", "preferredDuringSchedulingIgnoredDuringExecution"})) {
    if (const Json* preference = Find(item, {"preference"})) {
      out->preferred.push_back(
          {static_cast<int>(FindInt(item, {"weight"})), NodeTermFrom(*preference)});
    }
  }
  const auto required = [&](const char* kind, std::vector<PodAffinityTerm>* to) {
    for (const Json& item :
         Array(*affinity, {kind, "requiredDuringSchedulingIgnoredDuringExecution"})) {
      to->push_back(AffinityTerm(item, ns, labels));
    }
  };
  const auto preferred = [&](const char* kind, std::vector<PodAffinityTerm>* to) {
    for (const Json& item :
         Array(*affinity, {kind, "preferredDuringSchedulingIgnoredDuringExecution"})) {
      if (const Json* term = Find(item, {"podAffinityTerm"})) {
        to->push_back(AffinityTerm(*term, ns, labels));
        to->back().weight = static_cast<int>(FindInt(item, {"weight"}));
      }
    }
  };
  required("podAffinity", &out->affinity);
  required("podAntiAffinity", &out->anti_affinity);
  preferred("podAffinity", &out->preferred_affinity);
  preferred("podAntiAffinity", &out->preferred_anti_affinity);
}

void ReadSpread(const Json& pod, const Labels& labels, Constraints* out) {
  for (const Json& item : Array(pod, {"spec", "topologySpreadConstraints"})) {
    SpreadConstraint spread;
    spread.topology_key = Text(item, {"topologyKey"});
    spread.max_skew = static_cast<int>(FindInt(item, {"maxSkew"}, 1));
    spread.min_domains = static_cast<int>(FindInt(item, {"minDomains"}, 1));
    spread.hard = FindString(item, {"whenUnsatisfiable"}) != "ScheduleAnyway";
    spread.honor_affinity = FindString(item, {"nodeAffinityPolicy"}) != "Ignore";
    spread.honor_taints = FindString(item, {"nodeTaintsPolicy"}) == "Honor";
    bool nothing = false;
    spread.selector = SelectorFromJson(Find(item, {"labelSelector"}), &nothing);
    for (const std::string& key : Strings(Array(item, {"matchLabelKeys"}))) {
      if (const std::string* value = FindLabel(labels, key)) {
        spread.selector.push_back({key, SelectorOperator::kIn, {*value}});
      }
    }
    out->spread.push_back(std::move(spread));
  }
}

void ReadStatus(const Json& pod, PodSpec* out) {
  const std::string phase = Text(pod, {"status", "phase"});
  out->node = Text(pod, {"spec", "nodeName"});
  out->nominated_node = Text(pod, {"status", "nominatedNodeName"});
  out->deleted = TimeOf(FindString(pod, {"metadata", "deletionTimestamp"}));
  if (phase == "Succeeded" || phase == "Failed") {
    out->phase = phase == "Failed" ? Phase::kFailed : Phase::kSucceeded;
  } else if (out->deleted != 0) {
    out->phase = Phase::kReleasing;
  } else if (phase == "Running") {
    out->phase = Phase::kRunning;
  } else if (!out->node.empty()) {
    out->phase = Phase::kBound;
  } else {
    out->phase = Array(pod, {"spec", "schedulingGates"}).empty() ? Phase::kPending : Phase::kGated;
  }
  const Json* scheduled = kube::FindCondition(pod, "PodScheduled");
  if (out->node.empty() && scheduled != nullptr &&
      FindString(*scheduled, {"reason"}) == "RejectedByHost") {
    out->refused = TimeOf(FindString(*scheduled, {"lastTransitionTime"}));
    out->refusals =
        std::atoi(std::string(kube::AnnotationOf(pod, "sublet.dev/rejections")).c_str());
  }
}

void ReadSharing(const Json& pod, PodSpec* out) {
  for (const auto& [key, value] : out->labels) {
    static const std::string kOne = "runai-gpu-group";
    if (key == kOne) {
      out->gpu_groups.push_back(value);
    } else if (key.compare(0, kOne.size() + 1, kOne + "/") == 0) {
      out->gpu_groups.push_back(key.substr(kOne.size() + 1));
    }
  }
  std::sort(out->gpu_groups.begin(), out->gpu_groups.end());
  out->gpu_groups.erase(std::unique(out->gpu_groups.begin(), out->gpu_groups.end()),
                        out->gpu_groups.end());
  const Json* annotations = kube::AnnotationsOf(pod);
  if (annotations != nullptr && annotations->is_object()) {
    for (const auto& [key, value] : annotations->items()) {
      out->legacy_mig = out->legacy_mig || key.compare(0, 15, "nvidia.com/mig-") == 0;
    }
  }
}

}  // namespace

PodSpec PodFromJson(const Json& pod, const PodLookups& lookups) {
  PodSpec out;
  out.uid = std::string(kube::UidOf(pod));
  out.ns = std::string(kube::NamespaceOf(pod));
  out.name = std::string(kube::NameOf(pod));
  out.scheduler_name = Text(pod, {"spec", "schedulerName"});
  out.labels = LabelMap(kube::LabelsOf(pod));
  if (const std::string group(kube::AnnotationOf(pod, "pod-group-name")); !group.empty()) {
    out.group = out.ns + "/" + group;
  }
  out.sub_group = std::string(kube::LabelOf(pod, "kai.scheduler/subgroup-name"));
  out.created = TimeOf(FindString(pod, {"metadata", "creationTimestamp"}));
  out.priority = static_cast<int>(FindInt(pod, {"spec", "priority"}));
  out.never_preempts = FindString(pod, {"spec", "preemptionPolicy"}) == "Never";
  out.request = RequestFromJson(pod);
  if (const std::string text(kube::LabelOf(pod, "kai.scheduler/task-priority")); !text.empty()) {
    char* end = nullptr;
    const long value = std::strtol(text.c_str(), &end, 10);
    if (*end == '\0') {
      out.task_priority = static_cast<int>(value);
    }
  }
  const std::string_view role = kube::LabelOf(pod, "training.kubeflow.org/job-role");
  out.role_rank =
      role == "master" || role == "launcher" || kube::LabelOf(pod, "ray.io/node-type") == "head"
          ? 0
          : 1;
  ReadStatus(pod, &out);
  ReadSharing(pod, &out);
  Constraints& constraints = out.constraints;
  constraints.node_selector = LabelMap(Find(pod, {"spec", "nodeSelector"}));
  constraints.tolerations = internal::TolerationsFrom(Array(pod, {"spec", "tolerations"}));
  for (const Json& container : Array(pod, {"spec", "containers"})) {
    for (const Json& port : Array(container, {"ports"})) {
      if (const auto number = FindInt(port, {"hostPort"}); number > 0) {
        constraints.ports.push_back({Text(port, {"hostIP"}),
                                     std::string(FindString(port, {"protocol"}, "TCP")),
                                     static_cast<int>(number)});
      }
    }
  }
  ReadAffinity(pod, out.ns, out.labels, &constraints);
  ReadSpread(pod, out.labels, &constraints);
  ResolveVolumes(VolumesOf(pod), lookups, &out);
  for (const Json& claim : Array(pod, {"spec", "resourceClaims"})) {
    std::string name = Text(claim, {"resourceClaimName"});
    bool needs_none = false;
    for (const Json& made : Array(pod, {"status", "resourceClaimStatuses"})) {
      if (name.empty() && FindString(made, {"name"}) == FindString(claim, {"name"})) {
        name = Text(made, {"resourceClaimName"});
        needs_none = name.empty();
      }
    }
    if (needs_none) {
      continue;
    }
    if (name.empty()) {
      out.unschedulable_reason =
          "waiting for the resource claim of \"" + Text(claim, {"name"}) + "\"";
    } else {
      out.claims.push_back(std::move(name));
    }
  }
  return out;
}

}  // namespace sublet::scheduler
