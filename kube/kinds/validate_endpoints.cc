// Endpoints and endpoint slices. Source: k8s.io/kubernetes pkg/apis/discovery/validation.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "kube/kinds/validate_common.h"
#include "kube/kinds/validate_kinds.h"
#include "kube/object.h"

namespace sublet::kube::validate {
namespace {

constexpr std::size_t kPortsMax = 20000;
constexpr std::size_t kEndpointsMax = 1000;
constexpr std::size_t kAddressesMax = 100;
constexpr std::size_t kHintsMax = 8;
constexpr std::size_t kTopologyMax = 16;

void TooMany(const Path& path, std::size_t count, std::size_t max, FieldErrors* errors) {
  errors->TooMany(path, static_cast<std::int64_t>(count), static_cast<std::int64_t>(max));
}

void CheckIfThere(const Path& parent, const Json& object, const char* key,
                  Problems (*rule)(std::string_view), FieldErrors* errors) {
  if (Has(object, key)) {
    Check(parent.Child(key), Str(object, key), rule, errors);
  }
}

void Port(const Path& at, const Json& port, bool needs_name, FieldErrors* errors) {
  const std::string name = Str(port, "name");
  if (!name.empty()) {
    Check(at.Child("name"), name, &IsDns1123Label, errors);
  } else if (needs_name) {
    errors->Required(at.Child("name"));
  }
}

void SlicePorts(const Json& object, FieldErrors* errors) {
  const Path ports("ports");
  const auto& items = Items(object, "ports");
  if (items.size() > kPortsMax) {
    return TooMany(ports, items.size(), kPortsMax, errors);
  }
  std::set<std::string> names;
  for (std::size_t i = 0; i < items.size(); ++i) {
    const Path at = ports.Index(i);
    Port(at, items[i], false, errors);
    if (const std::string name = Str(items[i], "name"); !names.insert(name).second) {
      errors->Duplicate(at.Child("name"), name);
    }
    const std::string protocol = Str(items[i], "protocol");
    if (protocol != "TCP" && protocol != "UDP" && protocol != "SCTP") {
      errors->NotSupported(at.Child("protocol"), protocol, {"SCTP", "TCP", "UDP"});
    }
    CheckIfThere(at, items[i], "appProtocol", &IsQualifiedName, errors);
  }
}

void DomainName(const Path& path, std::string name, FieldErrors* errors) {
  if (name.empty()) {
    return errors->Required(path);
  }
  if (name.ends_with('.')) {
    name.pop_back();
  }
  if (const Problems problems = IsDns1123Subdomain(name); !problems.empty()) {
    return errors->Invalid(path, name, Join(problems, ","));
  }
  if (name.find('.') == std::string::npos) {
    return errors->Invalid(path, name,
                           "should be a domain with at least two segments separated by dots");
  }
  for (std::size_t start = 0; start < name.size();) {
    const std::size_t end = std::min(name.find('.', start), name.size());
    const std::string label = name.substr(start, end - start);
    if (const Problems problems = IsDns1123Label(label); !problems.empty()) {
      return errors->Invalid(path, label, Join(problems, ","));
    }
    start = end + 1;
  }
}

void Address(const Path& list, std::size_t index, const std::string& type,
             const std::string& address, FieldErrors* errors) {
  const Path at = list.Index(index);
  if (type == "FQDN") {
    return DomainName(at, address, errors);
  }
  const std::size_t before = errors->size();
  Ip(at, address, errors);
  if (errors->size() != before) {
    return;
  }
  const bool six = address.find(':') != std::string::npos;
  if (six != (type == "IPv6")) {
    errors->Invalid(list, address, six ? "must be an IPv4 address" : "must be an IPv6 address");
  }
  NoSpecialIp(at, address, errors);
}

// Zones or nodes for which an endpoint is meant. False: too many, nothing more is looked at.
bool Hints(const Path& path, const Json& hints, const char* list,
           Problems (*rule)(std::string_view), FieldErrors* errors) {
  const Path names = path.Child(list);
  const auto& items = Items(hints, list);
  if (items.size() > kHintsMax) {
    TooMany(names, items.size(), kHintsMax, errors);
    return false;
  }
  std::set<std::string> seen;
  for (std::size_t i = 0; i < items.size(); ++i) {
    const Path at = names.Index(i);
    const std::string name = Str(items[i], "name");
    if (!seen.insert(name).second) {
      errors->Duplicate(at.Child("name"), name);
    }
    Check(at.Child("name"), name, rule, errors);
  }
  return true;
}

void Endpoint(const Path& at, const Json& endpoint, const std::string& type, FieldErrors* errors) {
  const Path addresses = at.Child("addresses");
  const auto& list = Items(endpoint, "addresses");
  if (list.empty()) {
    errors->Required(addresses, "must contain at least 1 address");
  } else if (list.size() > kAddressesMax) {
    TooMany(addresses, list.size(), kAddressesMax, errors);
  }
  const bool known = type == "FQDN" || type == "IPv4" || type == "IPv6";
  for (std::size_t j = 0; known && j < list.size(); ++j) {
    Address(addresses, j, type, list[j].get<std::string>(), errors);
  }
  CheckIfThere(at, endpoint, "nodeName", &IsDns1123Subdomain, errors);
  const Path topology = at.Child("deprecatedTopology");
  const Json& labels = Get(endpoint, "deprecatedTopology");
  if (labels.size() > kTopologyMax) {
    TooMany(topology, labels.size(), kTopologyMax, errors);
  }
  Labels(topology, labels, errors);
  CheckIfThere(at, endpoint, "hostname", &IsDns1123Label, errors);
  if (const Json& hints = Get(endpoint, "hints"); hints.is_object()) {
    const Path path = at.Child("hints");
    if (Hints(path, hints, "forZones", &IsLabelValue, errors)) {
      Hints(path, hints, "forNodes", &IsDns1123Subdomain, errors);
    }
  }
}

void SliceEndpoints(const Json& object, FieldErrors* errors) {
  const Path endpoints("endpoints");
  const auto& items = Items(object, "endpoints");
  if (items.size() > kEndpointsMax) {
    return TooMany(endpoints, items.size(), kEndpointsMax, errors);
  }
  for (std::size_t i = 0; i < items.size(); ++i) {
    Endpoint(endpoints.Index(i), items[i], Str(object, "addressType"), errors);
  }
}

void Slice(const Json& object, const Json* old, FieldErrors* errors) {
  OneOf(Path("addressType"), Str(object, "addressType"), {"FQDN", "IPv4", "IPv6"}, true, errors);
  SlicePorts(object, errors);
  // What older versions took stays as it is.
  if (old == nullptr || !SameMember(object, *old, "endpoints")) {
    SliceEndpoints(object, errors);
  }
}

void SubsetAddress(const Path& at, const Json& address, FieldErrors* errors) {
  Ip(at.Child("ip"), Str(address, "ip"), errors);
  if (const std::string host = Str(address, "hostname"); !host.empty()) {
    Check(at.Child("hostname"), host, &IsDns1123Label, errors);
  }
  CheckIfThere(at, address, "nodeName", &IsDns1123Subdomain, errors);
  NoSpecialIp(at.Child("ip"), Str(address, "ip"), errors);
}

}  // namespace

void NoSpecialIp(const Path& path, const std::string& ip, FieldErrors* errors) {
  if (!IsIpAddress(ip).empty()) {
    return errors->Invalid(path, ip, "must be a valid IP address");
  }
  if (ip == "0.0.0.0" || ip == "::") {
    errors->Invalid(path, ip, "may not be unspecified (" + ip + ")");
  }
  if (ip.starts_with("127.") || ip == "::1") {
    errors->Invalid(path, ip, "may not be in the loopback range (127.0.0.0/8, ::1/128)");
  }
  if (ip.starts_with("169.254.") || ip.starts_with("fe80:")) {
    errors->Invalid(path, ip, "may not be in the link-local range (169.254.0.0/16, fe80::/10)");
  }
  if (ip.starts_with("224.0.0.") || ip.starts_with("ff02:")) {
    errors->Invalid(path, ip,
                    "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)");
  }
}

void Endpoints(const Json& object, FieldErrors* errors) {
  const Path subsets("subsets");
  std::size_t index = 0;
  for (const Json& subset : Items(object, "subsets")) {
    const Path at = subsets.Index(index++);
    if (Items(subset, "addresses").empty() && Items(subset, "notReadyAddresses").empty()) {
      errors->Required(at, "must specify `addresses` or `notReadyAddresses`");
    }
    for (const char* list : {"addresses", "notReadyAddresses"}) {
      const Path addresses = at.Child(list);
      std::size_t i = 0;
      for (const Json& address : Items(subset, list)) {
        SubsetAddress(addresses.Index(i++), address, errors);
      }
    }
    const Path ports = at.Child("ports");
    const auto& items = Items(subset, "ports");
    for (std::size_t i = 0; i < items.size(); ++i) {
      const Path here = ports.Index(i);
      Port(here, items[i], items.size() > 1, errors);
      const std::int64_t number = FindInt(items[i], {"port"});
      errors->InvalidEach(here.Child("port"), number, IsPortNumber(number));
      OneOf(here.Child("protocol"), Str(items[i], "protocol"), {"SCTP", "TCP", "UDP"}, true,
            errors);
      CheckIfThere(here, items[i], "appProtocol", &IsQualifiedName, errors);
    }
  }
}

void EndpointsUpdate(const Json& object, const Json&, FieldErrors* errors) {
  Endpoints(object, errors);
}

void EndpointSlice(const Json& object, FieldErrors* errors) { Slice(object, nullptr, errors); }

void EndpointSliceUpdate(const Json& object, const Json& old, FieldErrors* errors) {
  Slice(object, &old, errors);
  if (!SameMember(object, old, "addressType")) {
    errors->Invalid(Path("addressType"), Get(object, "addressType"), kImmutable);
  }
}

}  // namespace sublet::kube::validate
