// What a kubelet or a controller may say in a pod's status.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "kube/kinds/go_shown.h"
#include "kube/kinds/validate_kinds.h"
#include "kube/kinds/validate_pod.h"
#include "kube/kinds/validate_status.h"
#include "kube/object.h"

namespace sublet::kube::validate {
namespace {

constexpr std::string_view kNonNegative = "must be a non-negative integer";
constexpr std::size_t kResourceTextMax = 2048;

void Conditions(const Json& status, FieldErrors* errors) {
  const Path path = kStatus.Child("conditions");
  std::size_t index = 0;
  for (const Json& condition : Items(status, "conditions")) {
    const Path at = path.Index(index++);
    if (const std::int64_t seen = FindInt(condition, {"observedGeneration"}); seen < 0) {
      errors->Invalid(at.Child("observedGeneration"), seen, kNonNegative);
    }
    const std::string type = Str(condition, "type");
    if (type != "PodScheduled" && type != "Ready" && type != "Initialized") {
      Check(at.Child("Type"), type, &IsQualifiedName, errors);
    }
  }
}

bool RuleMatches(const Json& container, std::int64_t exit_code) {
  for (const Json& rule : Items(container, "restartPolicyRules")) {
    const Json& codes = Get(rule, "exitCodes");
    const auto& values = Items(codes, "values");
    const bool in = std::find(values.begin(), values.end(), Json(exit_code)) != values.end();
    if (codes.is_object() && in == (Str(codes, "operator") == "In")) {
      return true;  // the only actions are restarts
    }
  }
  return false;
}

// Whether a container that ended with this code may run again.
bool MayRestart(const Json& spec, const char* list, const std::string& name,
                std::int64_t exit_code) {
  for (const Json& container : Items(spec, list)) {
    if (Str(container, "name") != name) {
      continue;
    }
    const std::string own = Str(container, "restartPolicy");
    if (!own.empty() && RuleMatches(container, exit_code)) {
      return true;
    }
    const std::string policy = own.empty() ? Str(spec, "restartPolicy") : own;
    return policy == "Always" || (policy == "OnFailure" && exit_code != 0);
  }
  return false;
}

// A container that ended stays so unless its policy lets it run again.
void Transitions(const Json& object, const Json& old, const char* statuses, const char* list,
                 FieldErrors* errors) {
  const Path path = kStatus.Child(statuses);
  const Json& spec = Get(old, "spec");
  std::size_t index = 0;
  for (const Json& before : Items(Get(old, "status"), statuses)) {
    const Path at = path.Index(index++);
    const Json& ended = Get(Get(before, "state"), "terminated");
    if (!ended.is_object()) {
      continue;
    }
    for (const Json& now : Items(Get(object, "status"), statuses)) {
      if (Str(now, "name") != Str(before, "name") || Has(Get(now, "state"), "terminated")) {
        continue;
      }
      if (list == nullptr ||
          !MayRestart(spec, list, Str(before, "name"), FindInt(ended, {"exitCode"}))) {
        errors->Forbidden(at.Child("state"), "may not be transitioned to non-terminated state");
      }
      break;
    }
  }
}

void ClaimStatuses(const Json& spec, const Json& status, FieldErrors* errors) {
  const Path path = kStatus.Child("resourceClaimStatuses");
  std::set<std::string> names;
  std::size_t index = 0;
  for (const Json& one : Items(status, "resourceClaimStatuses")) {
    const Path at = path.Index(index++);
    const std::string name = Str(one, "name");
    const auto& claims = Items(spec, "resourceClaims");
    if (std::none_of(claims.begin(), claims.end(),
                     [&](const Json& claim) { return Str(claim, "name") == name; })) {
      errors->Invalid(at.Child("name"), name,
                      "must match the name of an entry in `spec.resourceClaims`");
    }
    if (!names.insert(name).second) {
      errors->Duplicate(at.Child("name"), name);
    }
    if (Has(one, "resourceClaimName")) {
      Check(at.Child("resourceClaimName"), Str(one, "resourceClaimName"), &IsDns1123Subdomain,
            errors);
    }
  }
}

void ExtendedClaim(const Json& spec, const Json& status, FieldErrors* errors) {
  const Json& claim = Get(status, "extendedResourceClaimStatus");
  if (!claim.is_object()) {
    return;
  }
  const Path path = kStatus.Child("extendedResourceClaimStatus");
  const Path mappings = path.Child("requestMappings");
  if (Items(claim, "requestMappings").empty()) {
    errors->Required(mappings, "at least one request mapping is required");
  }
  std::set<std::string> seen;
  std::size_t index = 0;
  for (const Json& mapping : Items(claim, "requestMappings")) {
    const Path at = mappings.Index(index++);
    const std::string container = Str(mapping, "containerName");
    const std::string resource = Str(mapping, "resourceName");
    const std::string request = Str(mapping, "requestName");
    const Json* owner = nullptr;
    for (const char* list : {"initContainers", "containers"}) {
      for (const Json& one : Items(spec, list)) {
        owner = Str(one, "name") == container ? &one : owner;
      }
    }
    if (owner == nullptr) {
      errors->Invalid(at.Child("containerName"), container,
                      "must match the name of an entry in spec.initContainers.name or "
                      "spec.containers.name");
    } else if (!Has(Get(Get(*owner, "resources"), "requests"), resource)) {
      errors->Invalid(at.Child("resourceName"), resource,
                      "must match the extended resource name of an entry in "
                      "spec.initContainers.resources.requests or "
                      "spec.containers.resources.requests");
    }
    Check(path.Child("requestName"), request, &IsDns1123Label, errors);
    if (!seen.insert(container + "\n" + resource + "\n" + request).second) {
      errors->Duplicate(at.Child("containerName"), container);
      errors->Duplicate(at.Child("resourceName"), resource);
      errors->Duplicate(at.Child("requestName"), request);
    }
  }
  CheckRequired(path.Child("resourceClaimName"), Str(claim, "resourceClaimName"),
                &IsDns1123Subdomain, errors);
}

void Addresses(const Json& status, const Json& old_status, const char* list, const char* type,
               FieldErrors* errors) {
  const Path path = kStatus.Child(list);
  const auto& items = Items(status, list);
  const auto& before = Items(old_status, list);
  bool four = false;
  bool six = false;
  for (std::size_t i = 0; i < items.size(); ++i) {
    const std::string ip = Str(items[i], "ip");
    if (std::none_of(before.begin(), before.end(),
                     [&](const Json& one) { return Str(one, "ip") == ip; })) {
      Ip(path.Index(i), ip, errors);
    }
    if (items.size() > 1 && !IsIpAddress(ip).empty()) {
      errors->Add({"InternalError",
                   "Internal error: failed to check for dual stack with error:invalid IP[" +
                       std::to_string(i) + "]: " + ip,
                   path.Text()});
      four = six = false;
      break;
    }
    (ip.find(':') == std::string::npos ? four : six) = true;
  }
  if (items.size() > 1 && (!(four && six) || items.size() > 2)) {
    errors->InvalidShown(path, ShownAsGo(type, Json(items)),
                         "may specify no more than one IP for each IP family");
  }
}

void Users(const Json& spec, const Json& status, const char* list, FieldErrors* errors) {
  const Path path = kStatus.Child(list);
  const std::string os(FindString(spec, {"os", "name"}));
  std::size_t index = 0;
  for (const Json& one : Items(status, list)) {
    const Path at = path.Index(index++);
    const Path user = at.Child("user");
    const Path linux_path = user.Child("linux");
    const Json& ids = Get(Get(one, "user"), "linux");
    if (!ids.is_object()) {
      continue;
    }
    if (os == "windows") {
      errors->Forbidden(linux_path, "cannot be set for a windows pod");
      continue;
    }
    for (const char* id : {"uid", "gid"}) {
      const std::int64_t value = FindInt(ids, {id});
      errors->InvalidEach(linux_path.Child(id), value, IsInRange(value, 0, INT32_MAX));
    }
    const Path groups = linux_path.Child("supplementalGroups");
    std::size_t i = 0;
    for (const Json& group : Items(ids, "supplementalGroups")) {
      errors->InvalidEach(groups.Index(i++), group,
                          IsInRange(group.get<std::int64_t>(), 0, INT32_MAX));
    }
  }
}

// A device's name is one that the container asked for.
bool IsAsked(const Json& container, const std::string& name) {
  const Json& resources = Get(container, "resources");
  if (!name.starts_with("claim:")) {
    return Has(Get(resources, "requests"), name);
  }
  const auto& claims = Items(resources, "claims");
  return std::any_of(claims.begin(), claims.end(), [&](const Json& claim) {
    const std::string request = Str(claim, "request");
    return name == "claim:" + Str(claim, "name") + (request.empty() ? "" : "/" + request);
  });
}

void Health(const Path& at, const Json& device, FieldErrors* errors) {
  const Path resources = at.Child("resources");
  std::set<std::string> ids;
  std::size_t index = 0;
  for (const Json& one : Items(device, "resources")) {
    const Path here = resources.Index(index++);
    const std::string health = Str(one, "health");
    if (health != "Healthy" && health != "Unhealthy" && health != "Unknown") {
      errors->NotSupported(here.Child("health"), health, {"Healthy", "Unhealthy", "Unknown"});
    }
    if (Has(one, "message") && Str(one, "message").empty()) {
      errors->Required(here.Child("message"), "must be non-empty if specified");
    } else if (Str(one, "message").size() > kResourceTextMax) {
      errors->TooLong(here.Child("message"), kResourceTextMax);
    }
    if (!ids.insert(Str(one, "resourceID")).second) {
      errors->Duplicate(here.Child("resourceID"), Str(one, "resourceID"));
    }
  }
}

void AllocatedDevices(const Json& spec, const Json& status, const char* statuses, const char* list,
                      FieldErrors* errors) {
  const Path path = kStatus.Child(statuses);
  std::size_t index = 0;
  for (const Json& one : Items(status, statuses)) {
    const Path at = path.Index(index++);
    const Path devices = at.Child("allocatedResourcesStatus");
    if (list == nullptr) {
      if (!Items(one, "allocatedResourcesStatus").empty()) {
        errors->Forbidden(devices, "must not be specified in container status");
      }
      continue;
    }
    const auto& containers = Items(spec, list);
    const auto owner = std::find_if(containers.begin(), containers.end(), [&](const Json& c) {
      return Str(c, "name") == Str(one, "name");
    });
    std::size_t i = 0;
    for (const Json& device : Items(one, "allocatedResourcesStatus")) {
      const Path here = devices.Index(i++);
      const std::string name = Str(device, "name");
      if (owner != containers.end() && !IsAsked(*owner, name)) {
        errors->Invalid(here.Child("name"), name,
                        name.starts_with("claim:")
                            ? "must match one of the container's resource claims in a format "
                              "'claim:<claimName>/<request>' or 'claim:<claimName>' if request is "
                              "empty"
                            : "must match one of the container's resource requests");
      }
      Health(here, device, errors);
    }
  }
}

}  // namespace

void PodStatus(const Json& object, const Json& old, FieldErrors* errors) {
  const Json& spec = Get(object, "spec");
  const Json& status = Get(object, "status");
  const Json& old_status = Get(old, "status");
  PodAnnotationsUpdate(object, old, errors);
  Conditions(status, errors);
  const std::string nominated = Str(status, "nominatedNodeName");
  if (!nominated.empty() && nominated != Str(old_status, "nominatedNodeName")) {
    Check(kStatus.Child("nominatedNodeName"), nominated, &IsDns1123Subdomain, errors);
    if (!FindString(old, {"spec", "nodeName"}).empty()) {
      errors->Forbidden(kStatus.Child("nominatedNodeName"),
                        "may not be set on pods that are already bound to a node");
    }
  }
  if (const std::int64_t seen = FindInt(status, {"observedGeneration"}); seen < 0) {
    errors->Invalid(kStatus.Child("observedGeneration"), seen, kNonNegative);
  }
  Immutable(status, old_status, "qosClass", kStatus, errors);
  Transitions(object, old, "containerStatuses", "containers", errors);
  Transitions(object, old, "initContainerStatuses", "initContainers", errors);
  Transitions(object, old, "ephemeralContainerStatuses", nullptr, errors);
  ClaimStatuses(spec, status, errors);
  ExtendedClaim(spec, status, errors);
  Addresses(status, old_status, "podIPs", "[]PodIP", errors);
  const auto& hosts = Items(status, "hostIPs");
  if (!hosts.empty() && Str(hosts[0], "ip") != Str(status, "hostIP")) {
    const Path list = kStatus.Child("hostIPs");
    const Path first = list.Index(0);
    errors->Invalid(first.Child("ip"), Str(hosts[0], "ip"), "must be equal to `hostIP`");
  }
  Addresses(status, old_status, "hostIPs", "[]HostIP", errors);
  for (const char* list :
       {"containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"}) {
    Users(spec, status, list, errors);
  }
  AllocatedDevices(spec, status, "containerStatuses", "containers", errors);
  AllocatedDevices(spec, status, "initContainerStatuses", "initContainers", errors);
  AllocatedDevices(spec, status, "ephemeralContainerStatuses", nullptr, errors);
}

}  // namespace sublet::kube::validate
