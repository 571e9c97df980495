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

constexpr std::int64_t kDevicesMax = 1024;  // of one request; Kubernetes allocates at most 32

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

std::string ReadRequest(const Json& request, ClaimRequest* out) {
  out->name = Text(request, {"name"});
  const Json* exactly = Find(request, {"exactly"});
  if (exactly == nullptr) {
    return "firstAvailable is not supported by this scheduler";
  }
  out->device_class = Text(*exactly, {"deviceClassName"});
  const std::string mode(FindString(*exactly, {"allocationMode"}, "ExactCount"));
  out->all = mode == "All";
  out->count = std::clamp<std::int64_t>(FindInt(*exactly, {"count"}, 1), 1, kDevicesMax);
  if (mode != "All" && mode != "ExactCount") {
    return "allocation mode " + mode + " is not supported by this scheduler";
  }
  if (FindBool(*exactly, {"adminAccess"})) {
    return "adminAccess is not supported by this scheduler";
  }
  if (Find(*exactly, {"capacity"}) != nullptr) {
    return "requests for a part of a device's capacity are not supported by this scheduler";
  }
  return ReadSelectors(*exactly, &out->selectors);
}

std::vector<NodeTerm> TermsOf(const Json& selector) {
  std::vector<NodeTerm> terms;
  for (const Json& term : Array(selector, {"nodeSelectorTerms"})) {
    terms.push_back(NodeTermFrom(term));
  }
  return terms;
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
  }
  const Json* nodes = Find(*allocation, {"nodeSelector"});
  out->allocated_on = nodes == nullptr ? std::vector<NodeTerm>{} : TermsOf(*nodes);
}

std::string DomainName(const std::string& name, const std::string& driver) {
  return name.find('/') == std::string::npos ? driver + "/" + name : name;
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
    }
  }
  const Json& taints = Array(object, {"taints"});
  out.usable = Array(object, {"consumesCounters"}).empty() &&
               std::none_of(taints.begin(), taints.end(), [](const Json& taint) {
                 const auto effect = FindString(taint, {"effect"});
                 return effect == "NoSchedule" || effect == "NoExecute";
               });
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
  if (!Array(claim, {"spec", "devices", "constraints"}).empty() && out.problem.empty()) {
    out.problem = "resource claim " + out.Key() +
                  ": constraints between devices are not supported by this scheduler";
  }
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
  for (ClaimRequest& request : claim->requests) {
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
  }
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
  const bool each = FindBool(slice, {"spec", "perDeviceNodeSelection"});
  for (const Json& device : Array(slice, {"spec", "devices"})) {
    out.devices.push_back(DeviceFrom(device, out.driver));
    out.devices.back().usable = out.devices.back().usable && !each;
  }
  return out;
}

}  // namespace sublet::scheduler
