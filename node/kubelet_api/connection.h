// One connection of the kubelet API. Private to server.cc and handlers.cc.
// Threads: its own; Cut from any.
#pragma once

#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <thread>
#include <utility>

#include "base/mutex.h"
#include "node/kubelet_api/http_request.h"
#include "node/kubelet_api/server.h"
#include "node/kubelet_api/tls_connection.h"

namespace sublet::node {

struct KubeletServer::Connection {
  explicit Connection(int raw) : fd(raw) {}
  ~Connection() {
    if (fd >= 0) {
      ::close(fd);
    }
  }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // Ends the connection, also in the middle of its handshake.
  void Cut() {
    cancel.Cancel();
    MutexLock lock(mutex);
    cut = true;
    if (tls != nullptr) {
      tls->Shutdown();
    } else if (handshake_fd >= 0) {
      ::shutdown(handshake_fd, SHUT_RDWR);
    }
  }
  int TakeFd() {
    MutexLock lock(mutex);
    handshake_fd = std::exchange(fd, -1);
    return handshake_fd;
  }
  // False when the connection was cut meanwhile.
  bool Adopt(std::unique_ptr<TlsConnection> connection) {
    MutexLock lock(mutex);
    tls = std::move(connection);
    return !cut;
  }
  void Answer(int code, std::string_view type, std::string_view body, bool close) {
    static_cast<void>(tls->Write(MakeResponse(code, type, body, close)).ok());
  }

  std::thread thread;
  std::atomic<bool> done{false};
  Canceller cancel;
  // Set once by the connection's thread; read by it alone and by Cut.
  std::unique_ptr<TlsConnection> tls;
  Mutex mutex;
  int fd SUBLET_GUARDED_BY(mutex);
  int handshake_fd SUBLET_GUARDED_BY(mutex) = -1;
  bool cut SUBLET_GUARDED_BY(mutex) = false;
};

}  // namespace sublet::node
