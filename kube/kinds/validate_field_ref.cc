// References from a container or a volume to fields and resources of its own pod.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "kube/kinds/validate_common.h"

namespace sublet::kube::validate {

void FieldRef(const Path& path, const Json& reference,
              std::initializer_list<std::string_view> supported, FieldErrors* errors) {
  if (Str(reference, "apiVersion").empty()) {
    errors->Required(path.Child("apiVersion"));
    return;
  }
  const std::string field = Str(reference, "fieldPath");
  if (field.empty()) {
    errors->Required(path.Child("fieldPath"));
    return;
  }
  if (const std::string version = Str(reference, "apiVersion"); version != "v1") {
    errors->Invalid(path.Child("fieldPath"), field,
                    "error converting fieldPath: unsupported pod version: " + version);
    return;
  }
  const std::size_t bracket = field.find("['");
  if (bracket != std::string::npos && field.ends_with("']")) {
    std::string key = field.substr(bracket + 2, field.size() - bracket - 4);
    const std::string map = field.substr(0, bracket);
    if (map == "metadata.annotations") {
      std::transform(key.begin(), key.end(), key.begin(),
                     [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
    } else if (map != "metadata.labels") {
      errors->Invalid(
          path.Child("fieldPath"), field,
          "error converting fieldPath: field label does not support subscript: " + field);
      return;
    }
    Check(path, key, &IsQualifiedName, errors);
    return;
  }
  static constexpr std::string_view kKnown[] = {
      "metadata.annotations", "metadata.labels", "metadata.name",      "metadata.namespace",
      "metadata.uid",         "spec.nodeName",   "spec.restartPolicy", "spec.serviceAccountName",
      "spec.schedulerName",   "status.phase",    "status.hostIP",      "status.hostIPs",
      "status.podIP",         "status.podIPs",   "spec.host"};
  if (std::find(std::begin(kKnown), std::end(kKnown), field) == std::end(kKnown)) {
    errors->Invalid(path.Child("fieldPath"), field,
                    "error converting fieldPath: field label not supported: " + field);
  } else if (std::find(supported.begin(), supported.end(), field) == supported.end()) {
    errors->NotSupported(path.Child("fieldPath"), field, std::vector<std::string_view>(supported));
  }
}

void ResourceFieldRef(const Path& path, const Json& reference, bool volume, FieldErrors* errors) {
  static constexpr std::string_view kResources[] = {
      "limits.cpu",   "limits.ephemeral-storage",   "limits.memory",
      "requests.cpu", "requests.ephemeral-storage", "requests.memory"};
  const std::string resource = Str(reference, "resource");
  const std::size_t before = errors->size();
  if (volume && Str(reference, "containerName").empty()) {
    errors->Required(path.Child("containerName"));
  } else if (resource.empty()) {
    errors->Required(path.Child("resource"));
  } else if (std::find(std::begin(kResources), std::end(kResources), resource) ==
                 std::end(kResources) &&
             !resource.starts_with("limits.hugepages-") &&
             !resource.starts_with("requests.hugepages-")) {
    errors->NotSupported(
        path.Child("resource"), resource,
        std::vector<std::string_view>(std::begin(kResources), std::end(kResources)));
  }
  const std::string divisor = Str(reference, "divisor");
  if (errors->size() != before || divisor.empty() || divisor == "0") {
    return;
  }
  static constexpr std::string_view kCpu[] = {"1m", "1"};
  static constexpr std::string_view kBytes[] = {"1",   "1k",  "1M",  "1G",  "1T",  "1P", "1E",
                                                "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei"};
  const bool cpu = resource.ends_with(".cpu");
  const bool known =
      cpu ? std::find(std::begin(kCpu), std::end(kCpu), divisor) != std::end(kCpu)
          : std::find(std::begin(kBytes), std::end(kBytes), divisor) != std::end(kBytes);
  if (!known) {
    errors->Invalid(path.Child("divisor"), resource,
                    cpu ? "only divisor's values 1m and 1 are supported with the cpu resource"
                        : "only divisor's values 1, 1k, 1M, 1G, 1T, 1P, 1E, 1Ki, 1Mi, 1Gi, 1Ti, "
                          "1Pi, 1Ei are supported with the " +
                              resource.substr(resource.find('.') + 1) + " resource");
  }
}

}  // namespace sublet::kube::validate
