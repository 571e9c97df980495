#include "apiserver/tunnel/tunnel_service.h"

#include <pthread.h>

#include <charconv>
#include <nlohmann/json.hpp>

#include "apiserver/handlers/respond.h"
#include "apiserver/registry/builtin.h"
#include "apiserver/registry/object_codec.h"
#include "apiserver/status_response.h"
#include "apiserver/tunnel/pump.h"
#include "apiserver/tunnel/targets.h"
#include "kube/field_error.h"

namespace sublet::apiserver {
namespace {

std::string KeyOf(std::string_view resource, std::string_view namespace_name,
                  std::string_view name) {
  return StoragePrefix({"", std::string(resource)}) + std::string(namespace_name) + "/" +
         std::string(name);
}

std::string LowerCase(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  }
  return out;
}

// Headers that belong to one connection, or that the next transport writes itself.
bool IsHopHeader(std::string_view lower_case_name) {
  return lower_case_name == "host" || lower_case_name == "content-length" ||
         lower_case_name == "transfer-encoding" || lower_case_name == "keep-alive" ||
         lower_case_name == "te" || lower_case_name == "trailer" ||
         lower_case_name == "proxy-connection" || lower_case_name == "expect";
}

client::HttpRequest ForwardedRequest(const Call& call, const Destination& destination,
                                     bool is_upgrade) {
  client::HttpRequest request;
  request.method = call.request->method;
  request.target = destination.target;
  for (const auto& [name, value] : call.request->headers) {
    const bool is_connection = name == "connection" || name == "upgrade";
    if (!IsHopHeader(name) && (is_upgrade || !is_connection)) {
      request.headers.emplace_back(name, value);
    }
  }
  request.body = std::move(call.request->body);
  return request;
}

Response AnsweredHead(const client::HttpResponse& from, bool is_upgrade) {
  Response head;
  head.code = from.code;
  head.content_type = "";
  for (const auto& [name, value] : from.headers) {
    const std::string lower = LowerCase(name);
    if (lower == "content-type") {
      head.content_type = value;
    } else if (!IsHopHeader(lower) && lower != "date" &&
               (is_upgrade || (lower != "connection" && lower != "upgrade"))) {
      head.headers.emplace_back(name, value);
    }
  }
  return head;
}

bool WantsUpgrade(const Request& request) { return !request.Header("upgrade").empty(); }

}  // namespace

TunnelService::TunnelService(const ApiContext& context, NodeDialer& dialer, TunnelOptions options)
    : context_(context), dialer_(dialer), options_(options), queue_(options.dial_queue_max) {}

TunnelService::~TunnelService() { Stop(); }

void TunnelService::Start() {
  for (int i = 0; i < options_.dial_threads; ++i) {
    threads_.emplace_back([this, i] {
      pthread_setname_np(pthread_self(), ("dial-" + std::to_string(i)).c_str());
      while (auto work = queue_.Pop()) {
        (*work)();
      }
    });
  }
}

void TunnelService::Stop() {
  queue_.Close();
  for (auto& thread : threads_) {
    thread.join();
  }
  threads_.clear();
}

void TunnelService::AddTo(ApiContext& context) {
  for (const char* subresource : {"exec", "attach", "portforward"}) {
    context.extensions[std::string("/pods/") + subresource] = [this](CallPtr call) {
      Queue(call, [this, call] { Stream(call); });
    };
  }
  context.extensions["/pods/log"] = [this](CallPtr call) {
    Queue(call, [this, call] { Log(call); });
  };
  context.extensions["/pods/proxy"] = [this](CallPtr call) {
    Queue(call, [this, call] { ProxyPod(call); });
  };
  context.extensions["/services/proxy"] = [this](CallPtr call) {
    Queue(call, [this, call] { ProxyService(call); });
  };
  context.extensions["/nodes/proxy"] = [this](CallPtr call) {
    Queue(call, [this, call] { ProxyNode(call); });
  };
}

void TunnelService::Queue(const CallPtr& call, std::function<void()> work) {
  if (!queue_.Push(std::move(work))) {
    SendError(*call, TooManyRequests("too many connections to nodes are being opened", 1));
  }
}

Result<void> TunnelService::CheckCreate(const Call& call) const {
  const RequestInfo& info = call.request->info;
  if (info.verb != "get") {
    return {};
  }
  return context_.authorize(call.request->user, {.verb = "create",
                                                 .group = info.group,
                                                 .version = info.version,
                                                 .resource = info.resource,
                                                 .subresource = info.subresource,
                                                 .namespace_name = info.namespace_name,
                                                 .name = info.name});
}

Result<kube::Json> TunnelService::ReadPod(std::string_view namespace_name,
                                          std::string_view name) const {
  const auto record = context_.store->Get(KeyOf("pods", namespace_name, name));
  if (!record) {
    return NotFound({"", "pods"}, name);
  }
  return ParseStored(*record->value);
}

Result<PodTunnel> TunnelService::MakeTunnel(const Call& call, bool needs_container) const {
  PodTunnel tunnel;
  tunnel.subresource = call.request->info.subresource;
  tunnel.namespace_name = call.namespace_name();
  tunnel.pod = call.name();
  tunnel.raw_query = call.request->raw_query;
  SUBLET_TRY(const kube::Json pod, ReadPod(tunnel.namespace_name, tunnel.pod));
  if (needs_container) {
    SUBLET_TRY(tunnel.container, ChooseContainer(pod, call.request->query.Get("container")));
  }
  tunnel.node = kube::FindString(pod, {"spec", "nodeName"});
  return tunnel;
}

void TunnelService::Stream(const CallPtr& call) {
  if (const auto allowed = CheckCreate(*call); !allowed.ok()) {
    return SendError(*call, allowed.error());
  }
  auto tunnel = MakeTunnel(*call, call->request->info.subresource != "portforward");
  if (!tunnel.ok()) {
    return SendError(*call, tunnel.error());
  }
  if (tunnel->node.empty()) {
    return SendError(*call, BadRequest("pod " + tunnel->pod + " does not have a host assigned"));
  }
  if (!WantsUpgrade(*call->request)) {
    return SendError(*call, BadRequest("Upgrade request required"));
  }
  const auto destination = dialer_.ToPod(*tunnel);
  if (!destination.ok()) {
    return SendError(*call, destination.error());
  }
  Forward(call, *destination);
}

void TunnelService::Forward(const CallPtr& call, const Destination& destination) {
  client::HttpRequest request = ForwardedRequest(*call, destination, true);
  request.deadline = After(options_.dial_timeout);
  auto opened = destination.transport->OpenTunnel(request);
  if (!opened.ok()) {
    const Status& error = opened.error();
    return SendError(*call, error.Is(Reason::kServiceUnavailable)
                                ? InternalError("error dialing backend: " + error.message())
                                : error);
  }
  Response head = AnsweredHead((*opened)->response(), true);
  head.code = 101;
  std::shared_ptr<client::Tunnel> tunnel = std::move(*opened);
  call->responder->SendUpgrade(
      std::move(head), {[tunnel](RawConnection& connection) { Pump(connection, *tunnel); }});
}

void TunnelService::Log(const CallPtr& call) {
  if (const auto valid = CheckLogOptions(call->request->query, call->name()); !valid.ok()) {
    return SendError(*call, valid.error());
  }
  auto tunnel = MakeTunnel(*call, true);
  if (!tunnel.ok()) {
    return SendError(*call, tunnel.error());
  }
  if (tunnel->node.empty()) {
    Response head;
    head.content_type = "text/plain";
    return call->responder->Send(std::move(head));  // not started anywhere: no lines yet
  }
  const auto destination = dialer_.ToPod(*tunnel);
  if (!destination.ok()) {
    return SendError(*call, destination.error());
  }
  SendLog(call, *destination);
}

void TunnelService::SendLog(const CallPtr& call, const Destination& destination) {
  client::HttpRequest request;
  request.target = destination.target;
  request.deadline = After(options_.dial_timeout);
  auto stream = destination.transport->OpenStream(request);
  if (!stream.ok()) {
    const Status& error = stream.error();
    return SendError(*call,
                     error.Is(Reason::kServiceUnavailable)
                         ? InternalError("Get \"" + destination.target + "\": " + error.message())
                         : error);
  }
  Response head;
  head.content_type = "text/plain";
  call->responder->SendStream(std::move(head), MakeLogStream(std::move(*stream)));
}

void TunnelService::Proxy(const CallPtr& call, Result<Destination> destination) {
  if (!destination.ok()) {
    return SendError(*call, destination.error());
  }
  if (destination->is_log && call->request->method == "GET") {
    return SendLog(call, *destination);
  }
  if (WantsUpgrade(*call->request)) {
    return Forward(call, *destination);
  }
  client::HttpRequest request = ForwardedRequest(*call, *destination, false);
  request.deadline = After(options_.dial_timeout);
  auto answered = destination->transport->RoundTrip(request);
  if (!answered.ok()) {
    return SendError(
        *call, ServiceUnavailable("error trying to reach service: " + answered.error().message()));
  }
  Response response = AnsweredHead(*answered, false);
  response.body = Body(std::move(answered->body));
  call->responder->Send(std::move(response));
}

void TunnelService::ProxyPod(const CallPtr& call) {
  if (SendProxyRedirect(*call)) {
    return;
  }
  auto target = SplitProxyName(call->name());
  if (!target) {
    return SendError(*call, BadRequest("invalid pod request " + kube::GoQuote(call->name())));
  }
  const auto pod = ReadPod(call->namespace_name(), target->name);
  if (!pod.ok()) {
    return SendError(*call, pod.error());
  }
  const std::string address(kube::FindString(*pod, {"status", "podIP"}));
  if (!IsProxyAddress(address)) {
    return SendError(*call, BadRequest("address not allowed"));
  }
  Proxy(call, dialer_.ToPodPort({call->namespace_name(), target->name, address, target->scheme,
                                 target->port.empty() ? FirstPort(*pod) : target->port,
                                 ProxiedTarget(*call->request)}));
}

void TunnelService::ProxyService(const CallPtr& call) {
  if (SendProxyRedirect(*call)) {
    return;
  }
  const auto target = SplitProxyName(call->name());
  if (!target) {
    return SendError(*call, BadRequest("invalid service request " + kube::GoQuote(call->name())));
  }
  const auto service = context_.store->Get(KeyOf("services", call->namespace_name(), target->name));
  if (!service) {
    return SendError(*call, NotFound({"", "services"}, target->name));
  }
  const std::string prefix =
      StoragePrefix({"discovery.k8s.io", "endpointslices"}) + call->namespace_name() + "/";
  const auto slices = context_.store->List(prefix, "", 0, 0);
  std::vector<kube::Json> trees;
  if (slices.ok()) {
    for (const auto& record : slices->records) {
      trees.push_back(ParseStored(*record.value));
    }
  }
  auto backend = ChooseBackend(ParseStored(*service->value), trees, *target, call->name());
  if (!backend.ok()) {
    return SendError(*call, backend.error());
  }
  Proxy(call, dialer_.ToPodPort({call->namespace_name(), backend->pod, backend->address,
                                 target->scheme, backend->port, ProxiedTarget(*call->request)}));
}

void TunnelService::ProxyNode(const CallPtr& call) {
  if (SendProxyRedirect(*call)) {
    return;
  }
  const auto target = SplitProxyName(call->name());
  if (!target) {
    return SendError(*call, BadRequest("invalid node request " + kube::GoQuote(call->name())));
  }
  Proxy(call,
        dialer_.ToNode(target->name, target->scheme, target->port, ProxiedTarget(*call->request)));
}

}  // namespace sublet::apiserver
