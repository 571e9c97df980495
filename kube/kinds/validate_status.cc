// Statuses of kinds that have few rules for them, and the conditions that newer kinds share.
#include "kube/kinds/validate_status.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "kube/kinds/validate_common.h"
#include "kube/kinds/validate_kinds.h"

namespace sublet::kube::validate {
namespace {

constexpr std::size_t kReasonMax = 1024;
constexpr std::size_t kConditionTextMax = 32 * 1024;

// A letter, then letters, digits, '_', ',' and ':'; ends with neither ',' nor ':'.
bool IsConditionReason(std::string_view text) {
  const auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  const auto inner = [&](char c) {
    return letter(c) || (c >= '0' && c <= '9') || c == '_' || c == ',' || c == ':';
  };
  return !text.empty() && letter(text.front()) && std::all_of(text.begin(), text.end(), inner) &&
         text.back() != ',' && text.back() != ':';
}

void Reason(const Path& at, const std::string& reason, FieldErrors* errors) {
  if (reason.empty()) {
    return errors->Required(at);
  }
  if (!IsConditionReason(reason)) {
    errors->Invalid(
        at, reason,
        "a condition reason must start with alphabetic character, optionally followed by a string "
        "of alphanumeric characters or '_,:', and must end with an alphanumeric character or '_' "
        "(e.g. 'my_name',  or 'MY_NAME',  or 'MyName',  or 'ReasonA,ReasonB',  or "
        "'ReasonA:ReasonB', regex used for validation is "
        "'[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?')");
  }
  if (reason.size() > kReasonMax) {
    errors->TooLong(at, static_cast<int>(kReasonMax));
  }
}

// Conditions of which each has a type of its own and little else is asked.
void TypedConditions(const Json& object, FieldErrors* errors) {
  const Path path = kStatus.Child("conditions");
  std::set<std::string> types;
  std::size_t index = 0;
  for (const Json& condition : Items(Get(object, "status"), "conditions")) {
    const Path at = path.Index(index++);
    const std::string type = Str(condition, "type");
    if (!types.insert(type).second) {
      errors->Duplicate(at.Child("type"), type);
    }
    if (type.empty()) {
      errors->Required(at.Child("type"));
    }
  }
}

}  // namespace

void Conditions(const Path& path, const Json& owner, FieldErrors* errors) {
  std::set<std::string> types;
  std::size_t index = 0;
  for (const Json& condition : Items(owner, "conditions")) {
    const Path at = path.Index(index++);
    const std::string type = Str(condition, "type");
    if (!types.insert(type).second) {
      errors->Duplicate(at.Child("type"), type);
    }
    Check(at.Child("type"), type, &IsQualifiedName, errors);
    const std::string status = Str(condition, "status");
    if (status != "True" && status != "False" && status != "Unknown") {
      errors->NotSupported(at.Child("status"), status, {"False", "True", "Unknown"});
    }
    if (const std::int64_t seen = FindInt(condition, {"observedGeneration"}); seen < 0) {
      errors->Invalid(at.Child("observedGeneration"), seen,
                      "must be greater than or equal to zero");
    }
    if (!Has(condition, "lastTransitionTime")) {
      errors->Required(at.Child("lastTransitionTime"));
    }
    Reason(at.Child("reason"), Str(condition, "reason"), errors);
    if (Str(condition, "message").size() > kConditionTextMax) {
      errors->TooLong(at.Child("message"), static_cast<int>(kConditionTextMax));
    }
  }
}

void HorizontalPodAutoscalerStatus(const Json& object, const Json&, FieldErrors* errors) {
  for (const char* field : {"currentReplicas", "desiredReplicas"}) {
    NotNegative(Get(object, "status"), field, kStatus, errors);
  }
}

void PodDisruptionBudgetStatus(const Json& object, const Json&, FieldErrors* errors) {
  const Json& status = Get(object, "status");
  Conditions(kStatus.Child("conditions"), status, errors);
  for (const char* field :
       {"disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"}) {
    NotNegative(status, field, kStatus, errors);
  }
}

void FlowStatus(const Json& object, const Json&, FieldErrors* errors) {
  TypedConditions(object, errors);
}

void IngressStatus(const Json& object, const Json& old, FieldErrors* errors) {
  const Path balancer = kStatus.Child("loadBalancer");
  const Path path = balancer.Child("ingress");
  const auto& before = Items(Get(Get(old, "status"), "loadBalancer"), "ingress");
  std::size_t index = 0;
  for (const Json& one : Items(Get(Get(object, "status"), "loadBalancer"), "ingress")) {
    const Path at = path.Index(index++);
    const std::string ip = Str(one, "ip");
    const bool known = std::any_of(before.begin(), before.end(),
                                   [&](const Json& then) { return Str(then, "ip") == ip; });
    if (!ip.empty() && !known) {
      Ip(at.Child("ip"), ip, errors);
    }
    if (const std::string host = Str(one, "hostname"); !host.empty()) {
      Check(at.Child("hostname"), host, &IsDns1123Subdomain, errors);
      if (IsIpAddress(host).empty()) {
        errors->Invalid(at.Child("hostname"), host, "must be a DNS name, not an IP address");
      }
    }
  }
}

void ApiServiceStatus(const Json& object, const Json&, FieldErrors* errors) {
  const Path path = kStatus.Child("conditions");
  std::size_t index = 0;
  for (const Json& condition : Items(Get(object, "status"), "conditions")) {
    const Path at = path.Index(index++);
    const std::string status = Str(condition, "status");
    if (status != "True" && status != "False" && status != "Unknown") {
      errors->NotSupported(at.Child("status"), status, {"True", "False", "Unknown"});
    }
  }
}

void ValidatingPolicyStatus(const Json& object, const Json&, FieldErrors* errors) {
  const Json& status = Get(object, "status");
  const Path checking = kStatus.Child("typeChecking");
  const Path path = checking.Child("expressionWarnings");
  std::size_t index = 0;
  for (const Json& warning : Items(Get(status, "typeChecking"), "expressionWarnings")) {
    const Path at = path.Index(index++);
    for (const char* field : {"warning", "fieldRef"}) {
      if (Str(warning, field).empty()) {
        errors->Required(at.Child(field));
      }
    }
  }
  Conditions(kStatus.Child("conditions"), status, errors);
}

}  // namespace sublet::kube::validate
