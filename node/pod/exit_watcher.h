// ExitWatcher: tells at once when the main process of a container ends, by pidfd, and whether the
// kernel had killed for memory in its cgroup. Neither engine's events are prompt (Podman's come up
// to 250 ms late), and Podman never reports OOMKilled.
// cgroup v1: an eventfd on memory.oom_control counts kills, plus one for the removal of the cgroup.
// cgroup v2: `oom_kill` in memory.events, read when the process has ended; the engine's own word
// counts as well.
// Threads: one ("exits") that only waits and calls back; Watch and Forget from any.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>

#include "base/mutex.h"
#include "base/result.h"

namespace sublet::node {

class ExitWatcher {
 public:
  // Called once per Watch from the watcher's thread, without a lock held; must not block.
  using OnExit = std::function<void(const std::string& container_id, bool out_of_memory)>;

  ExitWatcher();
  ~ExitWatcher();
  ExitWatcher(const ExitWatcher&) = delete;
  ExitWatcher& operator=(const ExitWatcher&) = delete;

  void Start();
  void Stop();  // idempotent; joins; no call back afterwards

  // Watches process `pid` for the container. A process that is gone already is reported at once.
  // Errors: InternalError (no pidfd on this kernel).
  Result<void> Watch(const std::string& container_id, int pid, OnExit on_exit);
  void Forget(const std::string& container_id);

 private:
  struct Entry;
  void Run();

  int epoll_ = -1;
  int wake_ = -1;
  std::thread thread_;
  Mutex mutex_;
  bool stopped_ SUBLET_GUARDED_BY(mutex_) = false;
  std::map<std::uint64_t, std::shared_ptr<Entry>> entries_ SUBLET_GUARDED_BY(mutex_);
  std::uint64_t next_ SUBLET_GUARDED_BY(mutex_) = 1;
};

// Whether the kernel's log holds a kill for memory in a cgroup named by the container's id. For
// containers that ended before anybody could watch their cgroup; false where the log may not be
// read. Costs one pass over the log's ring (up to some ten thousand lines).
bool KernelLogSaysOom(const std::string& container_id);

// The folder of the process in the memory hierarchy ("/sys/fs/cgroup/memory/..." or the unified
// one), or "" when there is none. `is_v2` says which.
std::string MemoryCgroupOf(int pid, bool* is_v2);

}  // namespace sublet::node
