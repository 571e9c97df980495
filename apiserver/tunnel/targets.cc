#include "apiserver/tunnel/targets.h"

#include <arpa/inet.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/random.h"
#include "kube/field_error.h"

namespace sublet::apiserver {
namespace {

constexpr const char* kContainerLists[] = {"initContainers", "containers", "ephemeralContainers"};

std::vector<std::string> ContainerNames(const kube::Json& pod) {
  std::vector<std::string> names;
  for (const char* list_name : kContainerLists) {
    const kube::Json* list = kube::Find(pod, {"spec", list_name});
    if (list != nullptr && list->is_array()) {
      for (const auto& container : *list) {
        names.emplace_back(kube::FindString(container, {"name"}));
      }
    }
  }
  return names;
}

// Errors: BadRequest in the words of Go's strconv.
Result<std::optional<std::int64_t>> IntOption(const Query& query, std::string_view name) {
  const auto text = query.Get(name);
  if (text.empty()) {
    return std::optional<std::int64_t>();
  }
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) {
    return BadRequest("strconv.ParseInt: parsing " + kube::GoQuote(text) + ": invalid syntax");
  }
  return std::optional(number);
}

}  // namespace

Result<std::string> ChooseContainer(const kube::Json& pod, std::string_view asked) {
  const std::string pod_name(kube::FindString(pod, {"metadata", "name"}));
  const auto names = ContainerNames(pod);
  if (!asked.empty()) {
    if (std::find(names.begin(), names.end(), asked) == names.end()) {
      return BadRequest("container " + std::string(asked) + " is not valid for pod " + pod_name);
    }
    return std::string(asked);
  }
  const kube::Json* containers = kube::Find(pod, {"spec", "containers"});
  const std::size_t count =
      containers != nullptr && containers->is_array() ? containers->size() : 0;
  if (count == 1) {
    return std::string(kube::FindString(containers->front(), {"name"}));
  }
  std::string text = "a container name must be specified for pod " + pod_name;
  if (count > 1) {
    text += ", choose one of: [" + kube::Join(names, " ") + "]";
  }
  return BadRequest(text);
}

Result<void> CheckLogOptions(const Query& query, std::string_view pod) {
  SUBLET_TRY(const auto tail, IntOption(query, "tailLines"));
  SUBLET_TRY(const auto limit, IntOption(query, "limitBytes"));
  SUBLET_TRY(const auto since, IntOption(query, "sinceSeconds"));
  kube::FieldErrors errors;
  if (tail && *tail < 0) {
    errors.Invalid(std::string("tailLines"), *tail, "must be greater than or equal to 0");
  }
  if (limit && *limit < 1) {
    errors.Invalid(std::string("limitBytes"), *limit, "must be greater than 0");
  }
  if (since && !query.Get("sinceTime").empty()) {
    errors.Forbidden(std::string(),
                     "at most one of `sinceTime` or `sinceSeconds` may be specified");
  } else if (since && *since < 1) {
    errors.Invalid(std::string("sinceSeconds"), *since, "must be greater than 0");
  }
  const auto stream = query.Get("stream");
  if (!stream.empty() && stream != "All" && stream != "Stdout" && stream != "Stderr") {
    errors.NotSupported(std::string("stream"), std::string(stream), {"All", "Stdout", "Stderr"});
  }
  if (!stream.empty() && stream != "All" && tail) {
    errors.Forbidden(std::string(),
                     "`tailLines` and specific `stream` are mutually exclusive for now");
  }
  if (!errors.empty()) {
    return Invalid("", "PodLogOptions", pod, errors.Take());
  }
  return {};
}

std::optional<ProxyName> SplitProxyName(std::string_view text) {
  std::vector<std::string> parts;
  for (;;) {
    const auto colon = text.find(':');
    parts.emplace_back(text.substr(0, colon));
    if (colon == std::string_view::npos) {
      break;
    }
    text.remove_prefix(colon + 1);
  }
  ProxyName name;
  name.scheme = parts.size() == 3 ? parts[0] : "";
  name.name = parts.size() == 3 ? parts[1] : parts[0];
  name.port = parts.size() == 3 ? parts[2] : parts.size() == 2 ? parts[1] : "";
  if (parts.size() > 3 || name.name.empty() ||
      (!name.scheme.empty() && name.scheme != "http" && name.scheme != "https")) {
    return std::nullopt;
  }
  if (name.scheme.empty()) {
    name.scheme = "http";
  }
  return name;
}

std::string FirstPort(const kube::Json& pod) {
  const kube::Json* containers = kube::Find(pod, {"spec", "containers"});
  if (containers != nullptr && containers->is_array()) {
    for (const auto& container : *containers) {
      const kube::Json* ports = kube::Find(container, {"ports"});
      if (ports != nullptr && ports->is_array() && !ports->empty()) {
        const std::int64_t port = kube::FindInt(ports->front(), {"containerPort"});
        return port > 0 ? std::to_string(port) : "";
      }
    }
  }
  return "";
}

bool IsProxyAddress(const std::string& address) {
  in_addr v4{};
  if (inet_pton(AF_INET, address.c_str(), &v4) == 1) {
    const std::uint32_t ip = ntohl(v4.s_addr);
    return ip != 0 && ip != 0xffffffffu && (ip >> 24) != 127 && (ip >> 16) != 0xa9fe &&
           (ip >> 28) != 0xe;
  }
  in6_addr v6{};
  return inet_pton(AF_INET6, address.c_str(), &v6) == 1 && !IN6_IS_ADDR_LOOPBACK(&v6) &&
         !IN6_IS_ADDR_UNSPECIFIED(&v6) && !IN6_IS_ADDR_LINKLOCAL(&v6) &&
         !IN6_IS_ADDR_MULTICAST(&v6) && !IN6_IS_ADDR_V4MAPPED(&v6);
}

std::string ProxiedTarget(const Request& request) {
  // From the raw path, so that escapes reach the backend as they were sent: what follows the first
  // "/proxy" after the name.
  static constexpr std::string_view kMark = "/proxy";
  const std::string& raw = request.raw_path;
  std::string target = "/";
  const std::string resource = "/" + request.info.resource + "/";
  const auto from = raw.find(resource);
  const auto name_end =
      from == std::string::npos ? std::string::npos : raw.find('/', from + resource.size());
  if (name_end != std::string::npos && raw.compare(name_end, kMark.size(), kMark) == 0) {
    const std::string rest = raw.substr(name_end + kMark.size());
    target = rest.empty() ? "/" : rest;
  } else if (!request.info.rest.empty()) {
    target = request.info.rest;
  }
  return request.raw_query.empty() ? target : target + "?" + request.raw_query;
}

bool SendProxyRedirect(Call& call) {
  const Request& request = *call.request;
  if (!request.info.rest.empty() || request.path.ends_with('/') ||
      (request.method != "GET" && request.method != "HEAD") || !request.Header("upgrade").empty()) {
    return false;
  }
  Response response;
  response.code = 301;
  response.content_type = "";
  response.headers.emplace_back(
      "Location",
      request.raw_path + "/" + (request.raw_query.empty() ? "" : "?" + request.raw_query));
  call.responder->Send(std::move(response));
  return true;
}

Result<Backend> ChooseBackend(const kube::Json& service, const std::vector<kube::Json>& slices,
                              const ProxyName& asked, std::string_view id) {
  const std::string name(kube::FindString(service, {"metadata", "name"}));
  std::string port_name = asked.port;
  if (!asked.port.empty() && asked.port.find_first_not_of("0123456789") == std::string::npos) {
    const kube::Json* ports = kube::Find(service, {"spec", "ports"});
    bool found = false;
    for (const auto& port : ports != nullptr ? *ports : kube::Json::array()) {
      if (!found && std::to_string(kube::FindInt(port, {"port"})) == asked.port) {
        port_name = kube::FindString(port, {"name"});
        found = true;
      }
    }
    if (!found) {
      return ServiceUnavailable("no service port " + asked.port + " found for service " +
                                kube::GoQuote(name));
    }
  }
  std::vector<Backend> backends;
  for (const kube::Json& slice : slices) {
    if (kube::FindString(slice, {"metadata", "labels", "kubernetes.io/service-name"}) != name) {
      continue;
    }
    const kube::Json* ports = kube::Find(slice, {"ports"});
    const kube::Json* endpoints = kube::Find(slice, {"endpoints"});
    if (ports == nullptr || endpoints == nullptr || !ports->is_array() || !endpoints->is_array()) {
      continue;
    }
    for (const auto& port : *ports) {
      if (kube::FindString(port, {"name"}) != port_name) {
        continue;
      }
      for (const auto& endpoint : *endpoints) {
        const kube::Json* addresses = kube::Find(endpoint, {"addresses"});
        if (kube::FindBool(endpoint, {"conditions", "ready"}, true) && addresses != nullptr &&
            addresses->is_array() && !addresses->empty() && addresses->front().is_string()) {
          Backend backend{addresses->front().get<std::string>(),
                          std::to_string(kube::FindInt(port, {"port"})),
                          std::string(kube::FindString(endpoint, {"targetRef", "name"}))};
          if (IsProxyAddress(backend.address)) {
            backends.push_back(std::move(backend));
          }
        }
      }
    }
  }
  if (backends.empty()) {
    return ServiceUnavailable("no endpoints available for service " + kube::GoQuote(id));
  }
  return backends[RandomUint64() % backends.size()];
}

}  // namespace sublet::apiserver
