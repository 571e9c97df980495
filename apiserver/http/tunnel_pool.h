// TunnelPool: threads for upgraded connections, one each, at most `tunnels_max`; a slot is reserved
// before "101" is sent, so that a client over the bound gets a proper refusal.
// Threads: any. Lifetime: Stop cuts the connections and joins.
#pragma once

#include <functional>
#include <list>
#include <memory>
#include <thread>

#include "apiserver/http/tls.h"
#include "apiserver/response.h"
#include "base/mutex.h"

namespace sublet::apiserver {

class TunnelPool {
 public:
  explicit TunnelPool(std::size_t tunnels_max) : tunnels_max_(tunnels_max) {}
  ~TunnelPool() { Stop(); }

  // False when all slots are taken or the pool is stopped. A reserved slot must be given back
  // (Release) or used (Run).
  bool Reserve() SUBLET_EXCLUDES(mutex_);
  void Release() SUBLET_EXCLUDES(mutex_);
  // Runs `upgrade` on a thread of its own with the connection `fd` + `tls`, which it then closes.
  // `early` is plaintext the client sent ahead. Uses the reserved slot.
  void Run(int fd, std::unique_ptr<TlsSession> tls, std::string early, Upgrade upgrade)
      SUBLET_EXCLUDES(mutex_);
  std::size_t size() const SUBLET_EXCLUDES(mutex_);
  void Stop() SUBLET_EXCLUDES(mutex_);

 private:
  struct Tunnel;
  void Reap() SUBLET_EXCLUDES(mutex_);

  const std::size_t tunnels_max_;
  mutable Mutex mutex_;
  std::size_t reserved_ SUBLET_GUARDED_BY(mutex_) = 0;
  bool stopped_ SUBLET_GUARDED_BY(mutex_) = false;
  std::list<std::shared_ptr<Tunnel>> tunnels_ SUBLET_GUARDED_BY(mutex_);
};

}  // namespace sublet::apiserver
