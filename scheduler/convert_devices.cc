// Dynamic resource allocation (scheduler/convert.h).
#include <algorithm>
#include <nlohmann/json.hpp>

#include "kube/object.h"
#include "scheduler/convert.h"
#include "scheduler/convert_internal.h"
#include "scheduler/device_selector.h"

namespace sublet::scheduler {

using internal::Array;
using internal::NodeTermFrom;
using internal::Text;
using kube::Find;
using kube::FindBool;
using kube::FindInt;
using kube::FindString;
using kube::Json;

namespace {

constexpr std::int64_t kCountMax = 1024;  // of one request; Kubernetes allocates at most 32

// Returns "" or what is wrong with the expressions at `selectors`.
std::string ReadSelectors(const Json& object,
                          std::vector<std::shared_ptr<const DeviceSelector>>* out) {
  for (const Json& selector : Array(object, {"selectors"})) {
    const std::string expression = Text(selector, {"cel", "expression"});
    auto parsed = DeviceSelector::Parse(expression);
    if (!parsed.ok()) {
      return "the CEL expression \"" + expression.substr(0, 200) +
             "\" cannot be evaluated by this scheduler: " + parsed.error().message();
    }
    out->push_back(std::move(*parsed));
  }
  return "";
}

// What a request and an alternative of one have in common.
std::string ReadDemand(const Json& demand, ClaimRequest* out) {
  out->device_class = Text(demand, {"deviceClassName"});
  const std::string mode(FindString(demand, {"allocationMode"}, "ExactCount"));
  out->all = mode == "All";
  out->count = std::clamp<std::int64_t>(FindInt(demand, {"count"}, 1), 1, kCountMax);
  if (mode != "All" && mode != "ExactCount") {
    return "allocation mode " + mode + " is not supported by this scheduler";
  }
  out->admin = FindBool(demand, {"adminAccess"});
  out->tolerations = internal::TolerationsFrom(Array(demand, {"tolerations"}));
  if (const Json* capacity = Find(demand, {"capacity", "requests"});
      capacity != nullptr && capacity->is_object()) {
    for (const auto& [name, amount] : capacity->items()) {
      out->capacity.emplace_back(name, internal::Amount(amount).MilliValue());
    }
  }
  return ReadSelectors(demand, &out->selectors);
}

std::string ReadRequest(const Json& request, ClaimRequest* out) {
  out->name = Text(request, {"name"});
  if (const Json* exactly = Find(request, {"exactly"}); exactly != nullptr) {
    return ReadDemand(*exactly, out);
  }
  std::string problem;
  for (const Json& alternative : Array(request, {"firstAvailable"})) {
    ClaimRequest one;
    one.name = out->name + "/" + Text(alternative, {"name"});
    const std::string found = ReadDemand(alternative, &one);
    problem = problem.empty() ? found : problem;
    out->alternatives.push_back(std::move(one));
  }
  return problem.empty() && out->alternatives.empty() ? "it asks for nothing that is known here"
                                                      : problem;
}

void ReadConstraints(const Json& claim, ClaimSpec* out) {
  for (const Json& object : Array(claim, {"spec", "devices", "constraints"})) {
    DeviceConstraint constraint;
    constraint.attribute = Text(object, {"matchAttribute"});
    if (constraint.attribute.empty()) {
      constraint.attribute = Text(object, {"distinctAttribute"});
      constraint.distinct = true;
    }
    if (constraint.attribute.empty() && out->problem.empty()) {
      out->problem = "resource claim " + out->Key() +
                     ": a constraint between devices is of a kind that is not known here";
    }
    constraint.requests = internal::Strings(Array(object, {"requests"}));
    out->constraints.push_back(std::move(constraint));
  }
}

std::vector<NodeTerm> TermsOf(const Json& selector) {
  std::vector<NodeTerm> terms;
  for (const Json& term : Array(selector, {"nodeSelectorTerms"})) {
    terms.push_back(NodeTermFrom(term));
  }
  return terms;
}

std::string DomainName(const std::string& name, const std::string& driver) {
  return name.find('/') == std::string::npos ? driver + "/" + name : name;
}

void ReadAllocation(const Json& claim, ClaimSpec* out) {
  const Json* allocation = Find(claim, {"status", "allocation"});
  if (allocation == nullptr) {
    return;
  }
  for (const Json& device : Array(*allocation, {"devices", "results"})) {
    out->allocated.push_back(
        {Text(device, {"driver"}), Text(device, {"pool"}), Text(device, {"device"})});
    out->allocated_for.push_back(Text(device, {"request"}));
    DeviceHold hold;
    hold.admin = FindBool(device, {"adminAccess"});
    hold.shared = !FindString(device, {"shareID"}).empty();
    if (const Json* parts = Find(device, {"consumedCapacity"});
        parts != nullptr && parts->is_object()) {
      for (const auto& [name, amount] : parts->items()) {
        hold.parts[DomainName(name, Text(device, {"driver"}))] =
            internal::Amount(amount).MilliValue();
      }
    }
    out->holds.push_back(std::move(hold));
  }
  const Json* nodes = Find(*allocation, {"nodeSelector"});
  out->allocated_on = nodes == nullptr ? std::vector<NodeTerm>{} : TermsOf(*nodes);
}

std::map<std::string, std::int64_t> CountersFrom(const Json& object) {
  std::map<std::string, std::int64_t> out;
  if (const Json* counters = Find(object, {"counters"});
      counters != nullptr && counters->is_object()) {
    for (const auto& [name, counter] : counters->items()) {
      const Json* value = Find(counter, {"value"});
      out[name] = value == nullptr ? 0 : internal::Amount(*value).MilliValue();
    }
  }
  return out;
}

DevicePart PartFrom(const Json& capacity) {
  const auto amount = [&](std::initializer_list<std::string_view> path) {
    const Json* value = Find(capacity, path);
    return value == nullptr ? std::nullopt : std::optional(internal::Amount(*value).MilliValue());
  };
  DevicePart out;
  out.value = amount({"value"}).value_or(0);
  out.ruled = Find(capacity, {"requestPolicy"}) != nullptr;
  out.fallback = amount({"requestPolicy", "default"});
  for (const Json& value : Array(capacity, {"requestPolicy", "validValues"})) {
    out.values.push_back(internal::Amount(value).MilliValue());
  }
  std::sort(out.values.begin(), out.values.end());
  out.least = amount({"requestPolicy", "validRange", "min"});
  out.most = amount({"requestPolicy", "validRange", "max"});
  out.step = amount({"requestPolicy", "validRange", "step"});
  return out;
}

SliceDevice DeviceFrom(const Json& object, const std::string& driver) {
  SliceDevice out;
  out.name = Text(object, {"name"});
  if (const Json* attributes = Find(object, {"attributes"});
      attributes != nullptr && attributes->is_object()) {
    for (const auto& [name, value] : attributes->items()) {
      DeviceAttribute attribute;
      if (const Json* number = Find(value, {"int"}); number != nullptr) {
        attribute.kind = DeviceAttribute::Kind::kNumber;
        attribute.number = FindInt(value, {"int"});
      } else if (Find(value, {"bool"}) != nullptr) {
        attribute.kind = DeviceAttribute::Kind::kBool;
        attribute.number = FindBool(value, {"bool"}) ? 1 : 0;
      } else if (Find(value, {"version"}) != nullptr) {
        attribute.kind = DeviceAttribute::Kind::kVersion;
        attribute.text = Text(value, {"version"});
      } else {
        attribute.text = Text(value, {"string"});
      }
      out.attributes[DomainName(name, driver)] = std::move(attribute);
    }
  }
  if (const Json* capacity = Find(object, {"capacity"});
      capacity != nullptr && capacity->is_object()) {
    for (const auto& [name, value] : capacity->items()) {
      out.capacity[DomainName(name, driver)] = Text(value, {"value"});
      out.parts[DomainName(name, driver)] = PartFrom(value);
    }
  }
  for (const Json& taint : Array(object, {"taints"})) {
    const std::string effect = Text(taint, {"effect"});
    if (effect == "NoSchedule" || effect == "NoExecute") {
      out.taints.push_back({Text(taint, {"key"}), Text(taint, {"value"}), effect});
    }
  }
  out.shared = FindBool(object, {"allowMultipleAllocations"});
  out.binds_to_node = FindBool(object, {"bindsToNode"});
  out.usable = Array(object, {"bindingConditions"}).empty();
  for (const Json& use : Array(object, {"consumesCounters"})) {
    out.uses.push_back({Text(use, {"counterSet"}), CountersFrom(use)});
  }
  out.node = Text(object, {"nodeName"});
  if (const Json* selector = Find(object, {"nodeSelector"}); selector != nullptr) {
    out.nodes = TermsOf(*selector);
  }
  return out;
}

}  // namespace

DeviceClassFacts DeviceClassFromJson(const Json& device_class) {
  DeviceClassFacts out;
  if (const Json* spec = Find(device_class, {"spec"}); spec != nullptr) {
    out.problem = ReadSelectors(*spec, &out.selectors);
  }
  return out;
}

ClaimSpec ClaimFromJson(const Json& claim) {
  ClaimSpec out;
  out.ns = std::string(kube::NamespaceOf(claim));
  out.name = std::string(kube::NameOf(claim));
  out.uid = std::string(kube::UidOf(claim));
  out.deleting = kube::IsDeleting(claim);
  out.queue_label = std::string(kube::LabelOf(claim, "kai.scheduler/queue"));
  for (const Json& request : Array(claim, {"spec", "devices", "requests"})) {
    ClaimRequest read;
    if (std::string problem = ReadRequest(request, &read);
        !problem.empty() && out.problem.empty()) {
      out.problem = "resource claim " + out.Key() + ", request " + read.name + ": " + problem;
    }
    out.requests.push_back(std::move(read));
  }
  ReadConstraints(claim, &out);
  ReadAllocation(claim, &out);
  for (const Json& consumer : Array(claim, {"status", "reservedFor"})) {
    if (FindString(consumer, {"resource"}) == "pods") {
      out.reserved_for.push_back(Text(consumer, {"uid"}));
    } else {
      ++out.reserved_for_others;
    }
  }
  for (const kube::OwnerReference& owner : kube::OwnersOf(claim)) {
    if (owner.kind == "Pod") {
      out.from_template = true;
      out.owner_uid = owner.uid;
    }
  }
  return out;
}

void ResolveClasses(
    const std::function<std::optional<DeviceClassFacts>(const std::string& name)>& find,
    ClaimSpec* claim) {
  const auto resolve = [&](ClaimRequest& request) {
    const auto facts = find(request.device_class);
    std::string problem;
    if (!facts) {
      problem =
          "request " + request.name + ": device class " + request.device_class + " does not exist";
    } else if (!facts->problem.empty()) {
      problem = "device class " + request.device_class + ": " + facts->problem;
    } else {
      request.selectors.insert(request.selectors.end(), facts->selectors.begin(),
                               facts->selectors.end());
    }
    if (claim->problem.empty()) {
      claim->problem = std::move(problem);
    }
  };
  for (ClaimRequest& request : claim->requests) {
    if (request.alternatives.empty()) {
      resolve(request);
    }
    std::for_each(request.alternatives.begin(), request.alternatives.end(), resolve);
  }
}

std::vector<std::string> ClassesOf(const ClaimSpec& claim) {
  std::vector<std::string> names;
  for (const ClaimRequest& request : claim.requests) {
    if (request.alternatives.empty()) {
      names.push_back(request.device_class);
    }
    for (const ClaimRequest& alternative : request.alternatives) {
      names.push_back(alternative.device_class);
    }
  }
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

DeviceSlice SliceFromJson(const Json& slice) {
  DeviceSlice out;
  out.name = std::string(kube::NameOf(slice));
  out.driver = Text(slice, {"spec", "driver"});
  out.pool = Text(slice, {"spec", "pool", "name"});
  out.generation = FindInt(slice, {"spec", "pool", "generation"});
  out.pool_slices = FindInt(slice, {"spec", "pool", "resourceSliceCount"});
  out.node = Text(slice, {"spec", "nodeName"});
  if (const Json* selector = Find(slice, {"spec", "nodeSelector"}); selector != nullptr) {
    out.nodes = TermsOf(*selector);
  }
  out.each_device_says = FindBool(slice, {"spec", "perDeviceNodeSelection"});
  for (const Json& device : Array(slice, {"spec", "devices"})) {
    out.devices.push_back(DeviceFrom(device, out.driver));
  }
  for (const Json& set : Array(slice, {"spec", "sharedCounters"})) {
    out.counters[Text(set, {"name"})] = CountersFrom(set);
  }
  return out;
}

}  // namespace sublet::scheduler
