#include "node/pod/exit_watcher.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "base/check.h"
#include "node/pod/payload_volume.h"

namespace sublet::node {

struct ExitWatcher::Entry {
  std::string container_id;
  OnExit on_exit;
  int pidfd = -1;
  int oom_event = -1;    // v1
  int oom_control = -1;  // v1
  std::string cgroup;
  bool is_v2 = false;
  std::uint64_t kills_before = 0;  // v2

  ~Entry() {
    for (const int fd : {pidfd, oom_event, oom_control}) {
      if (fd >= 0) {
        ::close(fd);
      }
    }
  }
  void RegisterOom(int pid);
  bool SawOom() const;
};

namespace {

std::uint64_t KillsOf(const std::string& cgroup) {
  const std::string events = ReadFile(cgroup + "/memory.events", 4096);
  const auto at = events.find("\noom_kill ");
  return at == std::string::npos ? 0 : std::strtoull(events.c_str() + at + 10, nullptr, 10);
}

bool Exists(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0;
}

}  // namespace

bool KernelLogSaysOom(const std::string& container_id) {
  const int fd = ::open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) {
    return false;
  }
  bool found = false;
  char record[8192];
  // One record per read; EPIPE says that the ring went over the next one, EAGAIN is its end.
  for (int i = 0; i < 1 << 20 && !found; ++i) {
    const ssize_t n = ::read(fd, record, sizeof(record));
    if (n < 0 && (errno == EPIPE || errno == EINTR)) {
      continue;
    }
    if (n <= 0) {
      break;
    }
    const std::string_view line(record, static_cast<std::size_t>(n));
    const auto at = line.find("oom_memcg=");
    found = at != std::string_view::npos &&
            line.substr(at, line.find(',', at) - at).find(container_id) != std::string_view::npos;
  }
  ::close(fd);
  return found;
}

std::string MemoryCgroupOf(int pid, bool* is_v2) {
  const std::string text = ReadFile("/proc/" + std::to_string(pid) + "/cgroup", 16384);
  std::string unified;
  std::size_t at = 0;
  while (at < text.size()) {
    auto end = text.find('\n', at);
    end = end == std::string::npos ? text.size() : end;
    const std::string line = text.substr(at, end - at);
    at = end + 1;
    const auto first = line.find(':');
    const auto second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) {
      continue;
    }
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const std::string path = line.substr(second + 1);
    if (controllers.find(",memory,") != std::string::npos) {
      *is_v2 = false;
      return "/sys/fs/cgroup/memory" + path;
    }
    if (controllers == ",,") {
      unified = "/sys/fs/cgroup" + path;
    }
  }
  *is_v2 = true;
  return unified;
}

void ExitWatcher::Entry::RegisterOom(int pid) {
  cgroup = MemoryCgroupOf(pid, &is_v2);
  if (cgroup.empty()) {
    return;
  }
  if (is_v2) {
    kills_before = KillsOf(cgroup);
    return;
  }
  oom_control = ::open((cgroup + "/memory.oom_control").c_str(), O_RDONLY | O_CLOEXEC);
  const int control = ::open((cgroup + "/cgroup.event_control").c_str(), O_WRONLY | O_CLOEXEC);
  oom_event = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  bool registered = false;
  if (oom_control >= 0 && control >= 0 && oom_event >= 0) {
    const std::string text = std::to_string(oom_event) + " " + std::to_string(oom_control);
    registered = ::write(control, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  }
  if (control >= 0) {
    ::close(control);
  }
  if (!registered && oom_event >= 0) {
    ::close(oom_event);
    oom_event = -1;
  }
}

bool ExitWatcher::Entry::SawOom() const {
  if (is_v2) {
    return !cgroup.empty() && KillsOf(cgroup) > kills_before;
  }
  if (oom_event < 0) {
    return false;
  }
  std::uint64_t count = 0;
  if (::read(oom_event, &count, sizeof(count)) < 0) {
    count = 0;
  }
  if (Exists(cgroup)) {
    return count >= 1;
  }
  // The cgroup's removal signals once as well; it may have come after the read above.
  std::uint64_t more = 0;
  if (::read(oom_event, &more, sizeof(more)) < 0) {
    more = 0;
  }
  return count + more >= 2;
}

ExitWatcher::ExitWatcher()
    : epoll_(::epoll_create1(EPOLL_CLOEXEC)), wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  SUBLET_CHECK(epoll_ >= 0 && wake_ >= 0);
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = 0;
  SUBLET_CHECK(::epoll_ctl(epoll_, EPOLL_CTL_ADD, wake_, &event) == 0);
}

ExitWatcher::~ExitWatcher() {
  Stop();
  ::close(epoll_);
  ::close(wake_);
}

void ExitWatcher::Start() {
  thread_ = std::thread([this] {
    ::pthread_setname_np(::pthread_self(), "exits");
    Run();
  });
}

void ExitWatcher::Stop() {
  {
    MutexLock lock(mutex_);
    stopped_ = true;
  }
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t n = ::write(wake_, &one, sizeof(one));
  if (thread_.joinable()) {
    thread_.join();
  }
}

Result<void> ExitWatcher::Watch(const std::string& container_id, int pid, OnExit on_exit) {
  auto entry = std::make_shared<Entry>();
  entry->container_id = container_id;
  entry->on_exit = std::move(on_exit);
  entry->pidfd = static_cast<int>(::syscall(SYS_pidfd_open, pid, 0));
  if (entry->pidfd < 0 && errno != ESRCH) {
    return InternalError(std::string("pidfd_open: ") + std::strerror(errno));
  }
  // The number may have been given to a stranger since the engine told it.
  if (entry->pidfd >= 0 &&
      ReadFile("/proc/" + std::to_string(pid) + "/cgroup", 16384).find(container_id) ==
          std::string::npos) {
    ::close(entry->pidfd);
    entry->pidfd = -1;
  }
  if (entry->pidfd < 0) {
    // An eventfd that is readable at once takes the place of the process that is gone.
    entry->pidfd = ::eventfd(1, EFD_CLOEXEC);
  } else {
    entry->RegisterOom(pid);
  }
  MutexLock lock(mutex_);
  if (stopped_) {
    return {};
  }
  const std::uint64_t key = next_++;
  entries_[key] = entry;
  epoll_event event{};
  event.events = EPOLLIN | EPOLLONESHOT;
  event.data.u64 = key;
  if (::epoll_ctl(epoll_, EPOLL_CTL_ADD, entry->pidfd, &event) != 0) {
    const Status error = InternalError(std::string("epoll_ctl: ") + std::strerror(errno));
    entries_.erase(key);
    return error;
  }
  return {};
}

void ExitWatcher::Forget(const std::string& container_id) {
  std::vector<std::shared_ptr<Entry>> dropped;  // closed outside the lock
  MutexLock lock(mutex_);
  for (auto it = entries_.begin(); it != entries_.end();) {
    if (it->second->container_id == container_id) {
      dropped.push_back(it->second);
      it = entries_.erase(it);
    } else {
      ++it;
    }
  }
}

void ExitWatcher::Run() {
  for (;;) {
    epoll_event events[64];
    const int n = ::epoll_wait(epoll_, events, 64, -1);
    for (int i = 0; i < n; ++i) {
      std::shared_ptr<Entry> entry;
      {
        MutexLock lock(mutex_);
        if (stopped_) {
          return;
        }
        if (const auto it = entries_.find(events[i].data.u64); it != entries_.end()) {
          entry = it->second;
          entries_.erase(it);
        }
      }
      if (entry != nullptr) {
        entry->on_exit(entry->container_id, entry->SawOom());
      }
    }
    if (n < 0 && errno != EINTR) {
      return;
    }
  }
}

}  // namespace sublet::node
