// TunnelService: exec, attach, log, port-forward and proxy of pods, services and nodes. A request
// is checked here, then led on through a NodeDialer; the bytes of upgraded connections are copied
// unparsed. Threads: requests are taken on transport threads and dialled on threads dial-N; an
// upgraded connection then lives on a tunnel thread of its transport plus one of its own for the
// way back. Bounds: dial_queue_max waiting dials (then 429); a proxied answer's body as client/
// bounds it. Source: k8s.io/kubernetes pkg/registry/core/pod/rest, pod/strategy.go; apimachinery
// util/proxy.
#pragma once

#include <functional>
#include <thread>
#include <vector>

#include "apiserver/handlers/api_context.h"
#include "apiserver/tunnel/node_dialer.h"
#include "base/bounded_queue.h"

namespace sublet::apiserver {

struct TunnelOptions {
  int dial_threads = 8;
  std::size_t dial_queue_max = 256;
  std::chrono::milliseconds dial_timeout = std::chrono::seconds(30);
};

class TunnelService {
 public:
  // context and dialer outlive the service.
  TunnelService(const ApiContext& context, NodeDialer& dialer, TunnelOptions options = {});
  ~TunnelService();

  // Puts its handlers into `extensions` (ApiContext::extensions).
  void AddTo(ApiContext& context);
  void Start();
  void Stop();  // idempotent; joins

 private:
  void Queue(const CallPtr& call, std::function<void()> work);
  void Stream(const CallPtr& call);  // exec, attach, portforward
  void Log(const CallPtr& call);
  void ProxyPod(const CallPtr& call);
  void ProxyService(const CallPtr& call);
  void ProxyNode(const CallPtr& call);
  void Proxy(const CallPtr& call, Result<Destination> destination);
  void SendLog(const CallPtr& call, const Destination& destination);
  void Forward(const CallPtr& call, const Destination& destination);
  // GET of exec, attach and port-forward also needs "create", as POST does.
  Result<void> CheckCreate(const Call& call) const;
  Result<kube::Json> ReadPod(std::string_view namespace_name, std::string_view name) const;
  Result<PodTunnel> MakeTunnel(const Call& call, bool needs_container) const;

  const ApiContext& context_;
  NodeDialer& dialer_;
  const TunnelOptions options_;
  BoundedQueue<std::function<void()>> queue_;
  std::vector<std::thread> threads_;
};

}  // namespace sublet::apiserver
