#include "scheduler/admission.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "kube/object.h"

namespace sublet::scheduler {

namespace {

using kube::Find;
using kube::FindInt;
using kube::FindString;
using kube::Json;
using Causes = std::vector<StatusCause>;

StatusCause Forbid(std::string field, const std::string& why) {
  return {"FieldValueForbidden", "Forbidden: " + why, std::move(field)};
}

StatusCause Wrong(std::string field, const std::string& value, const std::string& why) {
  return {"FieldValueInvalid", "Invalid value: " + value + ": " + why, std::move(field)};
}

Result<void> Outcome(const Json& object, std::string_view group, std::string_view kind,
                     Causes causes) {
  if (causes.empty()) {
    return Ok();
  }
  return Invalid(group, kind, kube::NameOf(object), std::move(causes));
}

}  // namespace

Result<void> CheckQueue(const Json& queue) {
  Causes causes;
  const Json* resources = Find(queue, {"spec", "resources"});
  if (resources == nullptr || !resources->is_object()) {
    causes.push_back(
        {"FieldValueRequired", "Required value: resources must be specified", "spec.resources"});
  } else {
    for (const char* resource : {"cpu", "gpu", "memory"}) {
      for (const char* amount : {"quota", "limit", "overQuotaWeight"}) {
        const Json* value = Find(*resources, {resource, amount});
        const double number = value != nullptr && value->is_number() ? value->get<double>() : 0;
        const bool weight = std::string_view(amount) == "overQuotaWeight";
        if (number < 0 && (weight || number != -1)) {
          causes.push_back(Wrong(
              std::string("spec.resources.") + resource + "." + amount, value->dump(),
              weight ? "must not be negative" : "must not be negative, but -1 for unlimited"));
        }
      }
    }
  }
  if (const auto parent = FindString(queue, {"spec", "parentQueue"});
      !parent.empty() && parent == kube::NameOf(queue)) {
    causes.push_back(Wrong("spec.parentQueue", "\"" + std::string(parent) + "\"",
                           "a queue cannot be its own parent"));
  }
  return Outcome(queue, "scheduling.run.ai", "Queue", std::move(causes));
}

Result<void> CheckQueueDelete(const std::string& name, const std::vector<Json>& queues) {
  std::vector<std::string> children;
  for (const Json& queue : queues) {
    if (FindString(queue, {"spec", "parentQueue"}) == name) {
      children.emplace_back(kube::NameOf(queue));
    }
  }
  if (children.empty()) {
    return Ok();
  }
  std::sort(children.begin(), children.end());
  std::string list = children[0];
  for (std::size_t i = 1; i < children.size() && i < 10; ++i) {
    list += ", " + children[i];
  }
  return Forbidden({"scheduling.run.ai", "queues"}, name, "it has child queues: " + list);
}

namespace {

struct SubGroupRow {
  std::string parent;
  std::size_t children = 0;
  bool has_member = false;
  std::optional<std::int64_t> sub_group;
};

// Whether the chain of parents of `name` comes back to it.
bool InCycle(const std::map<std::string, SubGroupRow>& rows, const std::string& name) {
  std::string at = name;
  for (std::size_t step = 0; step <= rows.size(); ++step) {
    const auto found = rows.find(at);
    if (found == rows.end() || found->second.parent.empty()) {
      return false;
    }
    at = found->second.parent;
    if (at == name) {
      return true;
    }
  }
  return false;
}

std::map<std::string, SubGroupRow> RowsOf(const Json& list, Causes* causes) {
  std::map<std::string, SubGroupRow> rows;
  for (std::size_t i = 0; i < list.size(); ++i) {
    const std::string name(FindString(list[i], {"name"}));
    SubGroupRow row;
    row.parent = FindString(list[i], {"parent"});
    row.has_member = list[i].contains("minMember");
    if (list[i].contains("minSubGroup")) {
      row.sub_group = FindInt(list[i], {"minSubGroup"});
    }
    if (!rows.emplace(name, std::move(row)).second) {
      causes->push_back({"FieldValueDuplicate", "Duplicate value: \"" + name + "\"",
                         "spec.subGroups[" + std::to_string(i) + "].name"});
    }
  }
  return rows;
}

void CheckRow(const std::string& name, const SubGroupRow& row, const std::string& field,
              bool create, Causes* causes, std::vector<std::string>* warnings) {
  if (row.children == 0) {
    if (row.sub_group) {
      causes->push_back(
          Forbid(field + ".minSubGroup", "subgroup \"" + name + "\" has no children"));
    }
    return;
  }
  if (row.has_member && create && row.sub_group) {
    causes->push_back(
        Forbid(field + ".minMember", "a subgroup with children has minSubGroup or none, not both"));
  } else if (row.has_member) {
    warnings->push_back("subgroup \"" + name + "\" has children: its minMember is ignored");
  }
  if (row.sub_group && *row.sub_group > static_cast<std::int64_t>(row.children)) {
    warnings->push_back("subgroup \"" + name + "\" asks for " + std::to_string(*row.sub_group) +
                        " of " + std::to_string(row.children) + " children and can never start");
  }
}

}  // namespace

Result<void> CheckPodGroup(const Json& group, const Json* old, std::vector<std::string>* warnings) {
  Causes causes;
  const Json* list = Find(group, {"spec", "subGroups"});
  if (list == nullptr || !list->is_array()) {
    return Ok();
  }
  auto rows = RowsOf(*list, &causes);
  for (std::size_t i = 0; i < list->size(); ++i) {
    const std::string field = "spec.subGroups[" + std::to_string(i) + "].parent";
    const std::string parent(FindString((*list)[i], {"parent"}));
    if (parent.empty()) {
      continue;
    }
    const auto found = rows.find(parent);
    if (found == rows.end()) {
      causes.push_back({"FieldValueNotFound", "Not found: \"" + parent + "\"", field});
    } else {
      ++found->second.children;
      if (InCycle(rows, std::string(FindString((*list)[i], {"name"})))) {
        causes.push_back(
            Wrong(field, "\"" + parent + "\"", "the parents of subgroups form a cycle"));
      }
    }
  }
  if (causes.empty()) {
    for (std::size_t i = 0; i < list->size(); ++i) {
      const std::string name(FindString((*list)[i], {"name"}));
      CheckRow(name, rows[name], "spec.subGroups[" + std::to_string(i) + "]", old == nullptr,
               &causes, warnings);
    }
  }
  return Outcome(group, "scheduling.run.ai", "PodGroup", std::move(causes));
}

Result<void> CheckTopology(const Json& topology, const Json* old) {
  Causes causes;
  const Json* levels = Find(topology, {"spec", "levels"});
  if (levels == nullptr || !levels->is_array()) {
    return Ok();  // the schema requires them
  }
  std::vector<std::string> labels;
  for (const Json& level : *levels) {
    labels.emplace_back(FindString(level, {"nodeLabel"}));
  }
  std::set<std::string> names(labels.begin(), labels.end());
  if (names.size() != labels.size()) {
    causes.push_back(
        Wrong("spec.levels", levels->dump().substr(0, 200), "nodeLabel must be unique"));
  }
  for (std::size_t i = 0; i < levels->size(); ++i) {
    const std::string alias(FindString((*levels)[i], {"alias"}));
    if (!alias.empty() && !names.insert(alias).second) {
      causes.push_back(Wrong("spec.levels[" + std::to_string(i) + "].alias", alias,
                             "must be unique and no nodeLabel of this topology"));
    }
  }
  for (std::size_t i = 0; i + 1 < labels.size(); ++i) {
    if (labels[i] == "kubernetes.io/hostname") {
      causes.push_back(Wrong(
          "spec.levels", levels->dump().substr(0, 200),
          "the kubernetes.io/hostname label can only be used at the lowest level of topology"));
    }
  }
  if (old != nullptr) {
    std::vector<std::string> before;
    if (const Json* had = Find(*old, {"spec", "levels"}); had != nullptr && had->is_array()) {
      for (const Json& level : *had) {
        before.emplace_back(FindString(level, {"nodeLabel"}));
      }
    }
    if (before != labels) {
      causes.push_back(Wrong("spec.levels", levels->dump().substr(0, 200),
                             "nodeLabel structure is immutable; only aliases may be edited"));
    }
  }
  return Outcome(topology, "kai.scheduler", "Topology", std::move(causes));
}

}  // namespace sublet::scheduler
