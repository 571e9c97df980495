// Service address ranges, the addresses taken of them, and the API's own services.
// Source: k8s.io/kubernetes pkg/apis/networking/validation, k8s.io/kube-aggregator
// pkg/apis/apiregistration/validation.
#include <nlohmann/json.hpp>

#include "kube/kinds/go_shown.h"
#include "kube/kinds/validate_common.h"
#include "kube/kinds/validate_kinds.h"

namespace sublet::kube::validate {
namespace {

bool IsV6(const Json& cidr) { return cidr.get<std::string>().find(':') != std::string::npos; }

}  // namespace

void IpAddress(const Json& object, FieldErrors* errors) {
  const Json& parent = Get(Get(object, "spec"), "parentRef");
  const Path path = kSpec.Child("parentRef");
  if (!parent.is_object()) {
    errors->Required(path);
    return;
  }
  if (const std::string group = Str(parent, "group"); !group.empty()) {
    Check(path.Child("group"), group, &IsDns1123Subdomain, errors);
  }
  CheckRequired(path.Child("resource"), Str(parent, "resource"), &IsPathSegmentName, errors);
  CheckRequired(path.Child("name"), Str(parent, "name"), &IsPathSegmentName, errors);
  if (const std::string space = Str(parent, "namespace"); !space.empty()) {
    Check(path.Child("namespace"), space, &IsPathSegmentName, errors);
  }
}

void IpAddressUpdate(const Json& object, const Json& old, FieldErrors* errors) {
  IpAddress(object, errors);
  const Json& reference = Get(Get(object, "spec"), "parentRef");
  if (reference != Get(Get(old, "spec"), "parentRef")) {
    errors->InvalidShown(kSpec.Child("parentRef"), ShownAsGo("*ParentReference", reference),
                         kImmutable);
  }
}

void ServiceCidr(const Json& object, FieldErrors* errors) {
  const Json& spec = Get(object, "spec");
  const auto& cidrs = Items(spec, "cidrs");
  const Path path = kSpec.Child("cidrs");
  if (cidrs.empty()) {
    return errors->Required(path, "at least one CIDR required");
  }
  if (cidrs.size() > 2) {
    return errors->InvalidShown(path, "{\"CIDRs\":" + Json(cidrs).dump() + "}",
                                "may only hold up to 2 values");
  }
  const std::size_t before = errors->size();
  for (std::size_t i = 0; i < cidrs.size(); ++i) {
    Cidr(path.Index(i), cidrs[i].get<std::string>(), errors);
  }
  if (errors->size() == before && cidrs.size() == 2 && IsV6(cidrs[0]) == IsV6(cidrs[1])) {
    errors->Invalid(path, Json(cidrs),
                    "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and "
                    "2001:db8::/64");
  }
}

void ServiceCidrUpdate(const Json& object, const Json& old, FieldErrors* errors) {
  const auto& cidrs = Items(Get(object, "spec"), "cidrs");
  const auto& before = Items(Get(old, "spec"), "cidrs");
  const Path path = kSpec.Child("cidrs");
  const bool grows = before.size() == 1 && cidrs.size() == 2;
  if (cidrs.size() != before.size() && !grows) {
    errors->Invalid(path, Get(Get(object, "spec"), "cidrs"), kImmutable);
    return;
  }
  for (std::size_t i = 0; i < before.size(); ++i) {
    if (cidrs[i] != before[i]) {
      errors->Invalid(path.Index(i), cidrs[i], kImmutable);
    }
  }
  if (grows) {
    ServiceCidr(object, errors);
  }
}

void ApiService(const Json& object, FieldErrors* errors) {
  const Json& spec = Get(object, "spec");
  const std::string group = Str(spec, "group");
  const std::string version = Str(spec, "version");
  const std::string name = Str(Get(object, "metadata"), "name");
  if (const std::string required = version + "." + group; name != required) {
    const Path metadata("metadata");
    errors->Invalid(metadata.Child("name"), name,
                    "must be `spec.version+\".\"+spec.group`: " + GoQuote(required));
  }
  if (group.empty() && version != "v1") {
    errors->Required(kSpec.Child("group"),
                     "only v1 may have an empty group and it better be legacy kube");
  } else if (!group.empty()) {
    Check(kSpec.Child("group"), group, &IsDns1123Subdomain, errors);
  }
  Check(kSpec.Child("version"), version, &IsDns1035Label, errors);
  const std::int64_t of_group = FindInt(spec, {"groupPriorityMinimum"});
  if (of_group <= 0 || of_group > 20000) {
    errors->Invalid(kSpec.Child("groupPriorityMinimum"), of_group,
                    "must be positive and less than 20000");
  }
  const std::int64_t of_version = FindInt(spec, {"versionPriority"});
  if (of_version <= 0 || of_version > 1000) {
    errors->Invalid(kSpec.Child("versionPriority"), of_version,
                    "must be positive and less than 1000");
  }
  const Json& service = Get(spec, "service");
  const bool insecure = FindBool(spec, {"insecureSkipTLSVerify"});
  const Path insecure_path = kSpec.Child("insecureSkipTLSVerify");
  if (!service.is_object()) {
    if (insecure) {
      errors->Invalid(insecure_path, true, "local APIServices may not have insecureSkipTLSVerify");
    }
    return;
  }
  const Path at = kSpec.Child("service");
  for (const char* key : {"namespace", "name"}) {
    if (Str(service, key).empty()) {
      errors->Required(at.Child(key));
    }
  }
  const std::int64_t port = FindInt(service, {"port"}, 443);
  if (const Problems problems = IsPortNumber(port); !problems.empty()) {
    errors->Invalid(at.Child("port"), port, "port is not valid: " + Join(problems, ", "));
  }
  if (insecure && !Str(spec, "caBundle").empty()) {
    errors->Invalid(insecure_path, true, "may not be true if caBundle is present");
  }
}

void ApiServiceUpdate(const Json& object, const Json&, FieldErrors* errors) {
  ApiService(object, errors);
}

}  // namespace sublet::kube::validate
