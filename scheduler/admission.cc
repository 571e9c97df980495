#include "scheduler/admission.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "gpu/api/request.h"
#include "kube/object.h"
#include "kube/quantity.h"

namespace sublet::scheduler {

namespace {

using kube::Find;
using kube::FindInt;
using kube::FindString;
using kube::Json;
using Causes = std::vector<StatusCause>;

constexpr std::string_view kMps = "mps";

std::map<std::string, std::string, std::less<>> AnnotationMap(const Json& object) {
  std::map<std::string, std::string, std::less<>> out;
  if (const Json* notes = kube::AnnotationsOf(object); notes != nullptr && notes->is_object()) {
    for (const auto& [key, value] : notes->items()) {
      if (value.is_string()) {
        out[key] = value.get<std::string>();
      }
    }
  }
  return out;
}

std::string FieldOf(std::string_view annotation) {
  return "metadata.annotations[" + std::string(annotation) + "]";
}

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

bool AsksFor(const Json& container, std::string_view prefix) {
  for (const char* part : {"limits", "requests"}) {
    const Json* list = Find(container, {"resources", part});
    if (list == nullptr || !list->is_object()) {
      continue;
    }
    for (const auto& [name, value] : list->items()) {
      if (name.compare(0, prefix.size(), prefix) == 0 &&
          (!value.is_string() || !kube::Quantity::ParseOrZero(value.get<std::string>()).IsZero())) {
        return true;
      }
    }
  }
  return false;
}

// Calls `visit` with every container and init container.
template <typename Visit>
void EachContainer(const Json& pod, const Visit& visit) {
  for (const char* list : {"containers", "initContainers"}) {
    if (const Json* found = Find(pod, {"spec", list}); found != nullptr && found->is_array()) {
      for (const Json& container : *found) {
        visit(container);
      }
    }
  }
}

// The sharing annotations that a placed pod is counted by.
std::map<std::string, std::string, std::less<>> Counted(const Json& pod) {
  auto all = AnnotationMap(pod);
  std::erase_if(all, [](const auto& item) {
    return item.first != gpu::kFractionAnnotation && item.first != gpu::kMemoryAnnotation &&
           item.first != gpu::kNumDevicesAnnotation && item.first != gpu::kContainerAnnotation;
  });
  return all;
}

void CheckClashes(const Json& pod, const std::map<std::string, std::string, std::less<>>& notes,
                  Causes* causes) {
  const bool fraction = notes.contains(gpu::kFractionAnnotation);
  const bool memory = notes.contains(gpu::kMemoryAnnotation);
  bool whole = false;
  EachContainer(pod, [&whole](const Json& container) {
    whole = whole || AsksFor(container, "nvidia.com/gpu") || AsksFor(container, "amd.com/gpu") ||
            AsksFor(container, "nvidia.com/mig-");
  });
  if (const auto mps = notes.find(kMps); mps != notes.end() && mps->second == "true" && !fraction) {
    causes->push_back(Forbid(FieldOf(kMps), "MPS is only supported with a GPU fraction"));
  }
  if (fraction && whole) {
    causes->push_back(Forbid(FieldOf(gpu::kFractionAnnotation),
                             "cannot have both a GPU fraction and a whole GPU request or limit"));
  }
  if (memory && (fraction || whole)) {
    causes->push_back(
        Forbid(FieldOf(gpu::kMemoryAnnotation), "cannot request both GPU and GPU memory"));
  }
  if (notes.contains(gpu::kNumDevicesAnnotation) && !fraction && !memory) {
    causes->push_back(Forbid(FieldOf(gpu::kNumDevicesAnnotation),
                             "several fractional devices need gpu-fraction or gpu-memory"));
  }
  const auto name = notes.find(gpu::kContainerAnnotation);
  if (name == notes.end()) {
    return;
  }
  if (!fraction && !memory) {
    causes->push_back(Forbid(FieldOf(gpu::kContainerAnnotation),
                             "only allowed together with gpu-fraction or gpu-memory"));
    return;
  }
  bool found = false;
  EachContainer(pod, [&](const Json& container) {
    found = found || FindString(container, {"name"}) == name->second;
  });
  if (!found) {
    causes->push_back({"FieldValueNotFound", "Not found: \"" + name->second.substr(0, 64) + "\"",
                       FieldOf(gpu::kContainerAnnotation)});
  }
}

}  // namespace

Result<void> CheckSharingRequest(const Json& pod, const Json* old) {
  const auto notes = AnnotationMap(pod);
  Causes causes;
  // Bad values first. What belongs together is said below, in KAI's words.
  if (const auto parsed = gpu::ParseGpuRequest(notes); !parsed.ok()) {
    for (const StatusCause& cause : parsed.error().details().causes) {
      if (cause.reason == "FieldValueInvalid" ||
          cause.field.find("compute-") != std::string::npos) {
        causes.push_back(cause);
      }
    }
  }
  CheckClashes(pod, notes, &causes);
  if (old != nullptr && causes.empty() && !FindString(*old, {"spec", "nodeName"}).empty() &&
      Counted(pod) != Counted(*old)) {
    for (const std::string_view key : {gpu::kFractionAnnotation, gpu::kMemoryAnnotation,
                                       gpu::kNumDevicesAnnotation, gpu::kContainerAnnotation}) {
      if (kube::AnnotationOf(pod, key) != kube::AnnotationOf(*old, key)) {
        causes.push_back(
            Forbid(FieldOf(key), "the GPU request of a pod that has a node cannot be changed"));
      }
    }
  }
  return Outcome(pod, "", "Pod", std::move(causes));
}

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
  if (std::set<std::string>(labels.begin(), labels.end()).size() != labels.size()) {
    causes.push_back(Wrong("spec.levels", levels->dump().substr(0, 200), "must be unique"));
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
      causes.push_back(Wrong("spec.levels", levels->dump().substr(0, 200), "field is immutable"));
    }
  }
  return Outcome(topology, "kai.scheduler", "Topology", std::move(causes));
}

}  // namespace sublet::scheduler
