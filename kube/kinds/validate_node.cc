// Nodes.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "kube/kinds/go_shown.h"
#include "kube/kinds/validate_common.h"
#include "kube/kinds/validate_kinds.h"

namespace sublet::kube::validate {
namespace {

void Taints(const Json& spec, FieldErrors* errors) {
  const Path metadata("metadata");
  const Path taints = metadata.Child("taints");  // where upstream reports them
  std::set<std::string> seen;
  std::size_t index = 0;
  for (const Json& taint : Items(spec, "taints")) {
    const Path at = taints.Index(index++);
    const std::string key = Str(taint, "key");
    const std::string value = Str(taint, "value");
    const std::string effect = Str(taint, "effect");
    Check(at.Child("key"), key, &IsQualifiedName, errors);
    if (const Problems problems = IsLabelValue(value); !problems.empty()) {
      errors->Invalid(at.Child("value"), value, Join(problems, ";"));
    }
    OneOf(at.Child("effect"), effect, {"NoSchedule", "PreferNoSchedule", "NoExecute"}, true,
          errors);
    if (!seen.insert(key + "\n" + effect).second) {
      errors->DuplicateShown(
          at, ShownAsGo("Taint", taint) + ": taints must be unique by key and effect pair");
    }
  }
}

void PodCidrs(const Json& spec, FieldErrors* errors) {
  Json list = Get(spec, "podCIDRs");
  if (const std::string one = Str(spec, "podCIDR"); !list.is_array() && !one.empty()) {
    list = Json::array({one});
  }
  if (!list.is_array()) {
    return;
  }
  const Path path = kSpec.Child("podCIDRs");
  for (std::size_t i = 0; i < list.size(); ++i) {
    Cidr(path.Index(i), list[i].get<std::string>(), errors);
  }
  const auto six = std::count_if(list.begin(), list.end(), [](const Json& one) {
    return one.get_ref<const std::string&>().find(':') != std::string::npos;
  });
  if (list.size() > 1 && (list.size() > 2 || six != 1)) {
    errors->Invalid(path, list, "may specify no more than one CIDR for each IP family");
  }
}

void Amounts(const Json& object, FieldErrors* errors) {
  const Path status("status");
  for (const char* list : {"capacity", "allocatable"}) {
    const Path path = status.Child(list);
    for (const auto& [name, value] : Get(Get(object, "status"), list).items()) {
      QuantityValue(path.Child(name), name, value.get<std::string>(), errors);
    }
  }
}

}  // namespace

void Node(const Json& object, FieldErrors* errors) {
  const Json& spec = Get(object, "spec");
  Taints(spec, errors);
  Amounts(object, errors);
  PodCidrs(spec, errors);
}

void NodeUpdate(const Json& object, const Json& old, FieldErrors* errors) {
  const Json& spec = Get(object, "spec");
  const Json& before = Get(old, "spec");
  // Looked at as a new node too; messages do not show what is said twice, the list of causes does.
  Node(object, errors);
  Amounts(object, errors);
  const Path status("status");
  const Path addresses = status.Child("addresses");
  std::set<Json> seen;
  std::size_t index = 0;
  for (const Json& address : Items(Get(object, "status"), "addresses")) {
    if (!seen.insert(address).second) {
      errors->DuplicateShown(addresses.Index(index), ShownAsGo("NodeAddress", address));
    }
    ++index;
  }
  if (!Items(before, "podCIDRs").empty() && !SameMember(spec, before, "podCIDRs")) {
    errors->Forbidden(kSpec.Child("podCIDRs"),
                      "node updates may not change podCIDR except from \"\" to valid");
  }
  if (!Str(before, "providerID").empty() && !SameMember(spec, before, "providerID")) {
    errors->Forbidden(kSpec.Child("providerID"),
                      "node updates may not change providerID except from \"\" to valid");
  }
  Taints(spec, errors);
}

}  // namespace sublet::kube::validate
