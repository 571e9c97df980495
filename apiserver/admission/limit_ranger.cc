// LimitRanger: what a namespace's LimitRanges say is filled into pods and claims, and bounds them.
// Source: k8s.io/kubernetes plugin/pkg/admission/limitranger.
#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "apiserver/admission/registry.h"
#include "apiserver/registry/object_codec.h"
#include "kube/field_error.h"
#include "kube/object.h"
#include "kube/pod_resources.h"

namespace sublet::apiserver {
namespace {

using kube::Json;
using kube::ResourceAmounts;

// All limits of one type in a namespace.
std::vector<Json> LimitsOf(const AdmissionEnvironment& environment, std::string_view space,
                           std::string_view type) {
  std::vector<Json> found;
  for (const auto& record : ListObjects(environment, "", "limitranges", space)) {
    const Json range = ParseStored(*record.value);
    const Json* limits = kube::Find(range, {"spec", "limits"});
    if (limits == nullptr || !limits->is_array()) {
      continue;
    }
    for (const auto& limit : *limits) {
      if (kube::FindString(limit, {"type"}) == type) {
        found.push_back(limit);
      }
    }
  }
  return found;
}

// Fills absent entries of resources.<which>; returns their names.
std::vector<std::string> Fill(Json& container, const char* which, const Json* defaults) {
  std::vector<std::string> set;
  if (defaults == nullptr || !defaults->is_object() || defaults->empty()) {
    return set;
  }
  Json& own = kube::EnsureObject(&kube::EnsureObject(&container, "resources"), which);
  for (auto it = defaults->begin(); it != defaults->end(); ++it) {
    if (!own.contains(it.key())) {
      own[it.key()] = it.value();
      set.push_back(it.key());
    }
  }
  std::sort(set.begin(), set.end());
  return set;
}

void FillPod(const std::vector<Json>& limits, Json& pod) {
  std::vector<std::string> notes;
  for (const auto& limit : limits) {
    for (const char* list : {"containers", "initContainers"}) {
      Json* containers = kube::Find(pod, {"spec", list});
      if (containers == nullptr || !containers->is_array()) {
        continue;
      }
      const bool init = std::string_view(list) == "initContainers";
      for (auto& container : *containers) {
        const auto limit_names = Fill(container, "limits", kube::Find(limit, {"default"}));
        const auto request_names =
            Fill(container, "requests", kube::Find(limit, {"defaultRequest"}));
        const std::string who = std::string(init ? " for init container " : " for container ") +
                                std::string(kube::FindString(container, {"name"}));
        if (!request_names.empty()) {
          notes.push_back(kube::Join(request_names, ", ") + " request" + who);
        }
        if (!limit_names.empty()) {
          notes.push_back(kube::Join(limit_names, ", ") + " limit" + who);
        }
      }
    }
  }
  if (!notes.empty()) {
    kube::SetAnnotation(&pod, "kubernetes.io/limit-ranger",
                        "LimitRanger plugin set: " + kube::Join(notes, "; "));
  }
}

struct Usage {
  ResourceAmounts requests;
  ResourceAmounts limits;
};

// The sentences for one limit against one usage.
class Judge {
 public:
  Judge(std::string_view type, const Usage& usage, std::vector<std::string>& problems)
      : type_(type), usage_(usage), problems_(problems) {}

  void Limit(const Json& limit) {
    for (const auto& [name, bound] : kube::AmountsOf(kube::Find(limit, {"min"}))) {
      Min(name, bound);
    }
    for (const auto& [name, bound] : kube::AmountsOf(kube::Find(limit, {"max"}))) {
      Max(name, bound);
    }
    for (const auto& [name, bound] : kube::AmountsOf(kube::Find(limit, {"maxLimitRequestRatio"}))) {
      Ratio(name, bound);
    }
  }

 private:
  const kube::Quantity* Of(const ResourceAmounts& amounts, const std::string& name) const {
    const auto it = amounts.find(name);
    return it == amounts.end() ? nullptr : &it->second;
  }

  std::string Text(std::string_view kind, const std::string& name, const kube::Quantity& bound,
                   std::string_view rest) const {
    return std::string(kind) + " " + name + " usage per " + type_ + " is " + bound.Text() +
           std::string(rest);
  }

  void Min(const std::string& name, const kube::Quantity& bound) {
    const auto* request = Of(usage_.requests, name);
    const auto* limit = Of(usage_.limits, name);
    if (request == nullptr) {
      problems_.push_back(Text("minimum", name, bound, ".  No request is specified"));
    } else if (*request < bound) {
      problems_.push_back(Text("minimum", name, bound, ", but request is " + request->Text()));
    }
    if (limit != nullptr && *limit < bound) {
      problems_.push_back(Text("minimum", name, bound, ", but limit is " + limit->Text()));
    }
  }

  void Max(const std::string& name, const kube::Quantity& bound) {
    const auto* request = Of(usage_.requests, name);
    const auto* limit = Of(usage_.limits, name);
    const bool is_claim = type_ == "PersistentVolumeClaim";
    if (limit == nullptr && !is_claim) {
      problems_.push_back(Text("maximum", name, bound, ".  No limit is specified"));
    } else if (limit != nullptr && *limit > bound) {
      problems_.push_back(Text("maximum", name, bound, ", but limit is " + limit->Text()));
    }
    if (request != nullptr && *request > bound) {
      problems_.push_back(Text("maximum", name, bound, ", but request is " + request->Text()));
    }
  }

  void Ratio(const std::string& name, const kube::Quantity& bound) {
    const auto* request = Of(usage_.requests, name);
    const auto* limit = Of(usage_.limits, name);
    const std::string start =
        name + " max limit to request ratio per " + type_ + " is " + bound.Text() + ", but ";
    if (request == nullptr || request->IsZero()) {
      problems_.push_back(start + "no request is specified or request is 0.");
    } else if (limit == nullptr || limit->IsZero()) {
      problems_.push_back(start + "no limit is specified or limit is 0.");
    } else if (limit->AsDouble() > bound.AsDouble() * request->AsDouble()) {
      char ratio[64];
      std::snprintf(ratio, sizeof(ratio), "%f", limit->AsDouble() / request->AsDouble());
      problems_.push_back(start + "provided ratio is " + ratio);
    }
  }

  const std::string type_;
  const Usage& usage_;
  std::vector<std::string>& problems_;
};

void JudgeContainers(const std::vector<Json>& limits, const Json& pod,
                     std::vector<std::string>& problems) {
  for (const char* list : {"containers", "initContainers"}) {
    const Json* containers = kube::Find(pod, {"spec", list});
    if (containers == nullptr || !containers->is_array()) {
      continue;
    }
    for (const auto& container : *containers) {
      const Usage usage{kube::AmountsOf(kube::Find(container, {"resources", "requests"})),
                        kube::AmountsOf(kube::Find(container, {"resources", "limits"}))};
      for (const auto& limit : limits) {
        Judge("Container", usage, problems).Limit(limit);
      }
    }
  }
}

Result<void> ValidateLimits(const AdmissionEnvironment& environment, AdmissionRequest& request) {
  std::vector<std::string> problems;
  const std::string& space = request.namespace_name;
  if (request.Is("", "pods") && (request.subresource.empty() || request.subresource == "resize")) {
    if (request.operation == Operation::kUpdate && request.subresource.empty()) {
      return Ok();  // an update cannot change resources
    }
    JudgeContainers(LimitsOf(environment, space, "Container"), *request.object, problems);
    const Usage usage{kube::PodAmounts(*request.object, "requests"),
                      kube::PodAmounts(*request.object, "limits")};
    for (const auto& limit : LimitsOf(environment, space, "Pod")) {
      Judge("Pod", usage, problems).Limit(limit);
    }
  } else if (IsMain(request, "", "persistentvolumeclaims")) {
    const Usage usage{
        kube::AmountsOf(kube::Find(*request.object, {"spec", "resources", "requests"})), {}};
    for (const auto& limit : LimitsOf(environment, space, "PersistentVolumeClaim")) {
      Judge("PersistentVolumeClaim", usage, problems).Limit(limit);
    }
  }
  if (problems.empty()) {
    return Ok();
  }
  return AdmissionForbidden(
      request, problems.size() == 1 ? problems.front() : "[" + kube::Join(problems, ", ") + "]");
}

}  // namespace

AdmissionPlugin LimitRanger(const AdmissionEnvironment& environment) {
  AdmissionPlugin plugin;
  plugin.name = "LimitRanger";
  plugin.operations = Operations({Operation::kCreate, Operation::kUpdate});
  plugin.mutate = [environment](AdmissionRequest& request) -> Result<void> {
    if (request.operation == Operation::kCreate && IsMain(request, "", "pods")) {
      FillPod(LimitsOf(environment, request.namespace_name, "Container"), *request.object);
    }
    return Ok();
  };
  plugin.validate = [environment](AdmissionRequest& request) {
    return ValidateLimits(environment, request);
  };
  return plugin;
}

}  // namespace sublet::apiserver
