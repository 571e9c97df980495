// ReadablePoller: one thread ("http-poll") that tells when a descriptor has something to read.
// Private to client/http_transport.cc.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <unordered_map>

#include "base/mutex.h"

namespace sublet::client {

class ReadablePoller {
 public:
  ReadablePoller();
  ~ReadablePoller();  // joins

  // From now on every Arm leads to one call of `ready`, on the poller's thread, without a lock
  // held.
  std::uint64_t Add(int fd, std::function<void()> ready);
  void Arm(std::uint64_t id);
  // No call starts after this returned; one under way may still end later.
  void Remove(std::uint64_t id);

 private:
  struct Entry {
    int fd;
    std::shared_ptr<const std::function<void()>> ready;
  };
  void Run();

  const int epoll_;
  const int wake_;
  Mutex mutex_;
  std::uint64_t next_id_ SUBLET_GUARDED_BY(mutex_) = 1;
  std::unordered_map<std::uint64_t, Entry> entries_ SUBLET_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace sublet::client
