// KubeletServer: the kubelet's HTTPS API for the pods of this node: logs, exec, attach,
// port-forward, pods, stats and metrics. This is the one place in Sublet where SPDY and WebSocket
// streams are taken apart. Threads: "kubelet-api" accepts; each connection has a thread
// ("kubelet-conn") that reads requests one after the other, and streams add their own
// (remote_command.h, port_forward.h). Bounds: kConnectionsMax connections (more are closed), 64 KiB
// of request head, an idle connection is closed after 90 s. Source: kubelet server/server.go.
#pragma once

#include <atomic>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <thread>

#include "base/mutex.h"
#include "node/agent/pod_manager.h"
#include "node/kubelet_api/access.h"
#include "node/kubelet_api/tls_connection.h"
#include "node/net/pod_network.h"

namespace sublet::node {

struct KubeletServerOptions {
  std::string address = "0.0.0.0";
  int port = 10250;  // 0 = a free one
  std::string certificate_pem;
  std::string key_pem;
  std::string client_ca_pem;
  std::string node_name;
  std::string root;
};

class KubeletServer {
 public:
  KubeletServer(KubeletServerOptions options, PodManager& pods, ContainerEngine& engine,
                PodNetwork& network, Access& access, const Clock& clock);
  ~KubeletServer();
  KubeletServer(const KubeletServer&) = delete;
  KubeletServer& operator=(const KubeletServer&) = delete;

  // Errors: Conflict (address in use), BadRequest (certificates).
  Result<void> Start();
  void Stop();  // idempotent; cuts all connections; joins
  int port() const { return port_; }

  static constexpr std::size_t kConnectionsMax = 512;

 private:
  struct Connection;
  void RunAccept();
  void RunConnection(Connection& connection);
  // False when the connection cannot be used for another request.
  bool Serve(Connection& connection, const KubeletRequest& request, std::string* early);
  void Dispatch(Connection& connection, const KubeletRequest& request, std::string early,
                bool* reusable);
  void ServeLogs(Connection& connection, const KubeletRequest& request);
  void ServeExec(Connection& connection, const KubeletRequest& request, std::string early,
                 bool is_attach);
  void ServeForward(Connection& connection, const KubeletRequest& request, std::string early);
  void ServeRun(Connection& connection, const KubeletRequest& request);

  // A container of a pod by path parts [ns, pod, (uid,) container]. Errors: NotFound.
  struct Found {
    std::shared_ptr<const PodSnapshot> pod;
    Incarnation run;
    const ContainerPlan* container = nullptr;
  };
  Result<Found> FindContainer(const std::vector<std::string>& parts, bool running) const;

  const KubeletServerOptions options_;
  PodManager& pods_;
  ContainerEngine& engine_;
  PodNetwork& network_;
  Access& access_;
  const Clock& clock_;
  std::unique_ptr<TlsContext> tls_;
  int listener_ = -1;
  int port_ = 0;
  Canceller stopping_;
  std::thread accept_;
  Mutex mutex_;
  std::list<std::unique_ptr<Connection>> connections_ SUBLET_GUARDED_BY(mutex_);
};

}  // namespace sublet::node
