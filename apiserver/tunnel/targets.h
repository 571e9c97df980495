// What a tunnel request is about: container, log options, proxied name, backend of a Service. Pure,
// but for SendProxyRedirect. Threads: any.
// Source: k8s.io/kubernetes pkg/registry/core/pod/strategy.go, service/storage; apimachinery
// util/net.SplitSchemeNamePort.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "apiserver/handlers/api_context.h"
#include "kube/json.h"

namespace sublet::apiserver {

// The container that is meant: `asked`, or the only one. Errors: BadRequest with Kubernetes' texts.
Result<std::string> ChooseContainer(const kube::Json& pod, std::string_view asked);

// Errors: Invalid (PodLogOptions), BadRequest (a number that is none).
Result<void> CheckLogOptions(const Query& query, std::string_view pod);

// "name", "name:port", "scheme:name:port".
struct ProxyName {
  std::string scheme;  // "http" or "https"
  std::string name;
  std::string port;
};
std::optional<ProxyName> SplitProxyName(std::string_view text);

// The first declared container port, or "".
std::string FirstPort(const kube::Json& pod);
// False for loopback, link-local, multicast and what is no address: the API server must not be led
// to itself. Source: net.IP.IsGlobalUnicast.
bool IsProxyAddress(const std::string& address);
// Path and query behind ".../proxy".
std::string ProxiedTarget(const Request& request);
// ".../proxy" without anything behind it: answers GET and HEAD with the way to ".../proxy/".
bool SendProxyRedirect(Call& call);

struct Backend {
  std::string address;
  std::string port;
  std::string pod;
};
// A ready endpoint of `service` for the asked port (number or name). `slices` are those of its
// namespace. Errors: ServiceUnavailable.
Result<Backend> ChooseBackend(const kube::Json& service, const std::vector<kube::Json>& slices,
                              const ProxyName& asked, std::string_view id);

}  // namespace sublet::apiserver
