// The names by which Kubernetes addresses things, as values: group and version, kind, resource,
// object key.
#pragma once

#include <compare>
#include <string>
#include <string_view>

namespace sublet::kube {

struct GroupVersion {
  std::string group;  // "" = core
  std::string version;
  // "v1", "apps/v1": the apiVersion of objects.
  std::string ApiVersion() const { return group.empty() ? version : group + "/" + version; }
  // Splits an apiVersion; "v1" has group "".
  static GroupVersion Parse(std::string_view api_version) {
    const auto slash = api_version.find('/');
    if (slash == std::string_view::npos) {
      return {"", std::string(api_version)};
    }
    return {std::string(api_version.substr(0, slash)), std::string(api_version.substr(slash + 1))};
  }
  auto operator<=>(const GroupVersion&) const = default;
};

struct GroupVersionKind {
  std::string group;
  std::string version;
  std::string kind;
  std::string ApiVersion() const { return group.empty() ? version : group + "/" + version; }
  auto operator<=>(const GroupVersionKind&) const = default;
};

// resource is the plural ("pods").
struct GroupVersionResource {
  std::string group;
  std::string version;
  std::string resource;
  std::string ApiVersion() const { return group.empty() ? version : group + "/" + version; }
  auto operator<=>(const GroupVersionResource&) const = default;
};

struct GroupResource {
  std::string group;
  std::string resource;
  auto operator<=>(const GroupResource&) const = default;
};

// namespace_name is "" for cluster scope.
struct ObjectKey {
  std::string namespace_name;
  std::string name;
  // "ns/name" or "name".
  std::string Text() const { return namespace_name.empty() ? name : namespace_name + "/" + name; }
  auto operator<=>(const ObjectKey&) const = default;
};

}  // namespace sublet::kube
