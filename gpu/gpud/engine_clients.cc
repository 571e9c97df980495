// The engine's side towards containers: sockets, hellos, deaths, and what survives a restart.
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/log.h"
#include "gpu/gpud/engine_impl.h"
#include "gpu/gpud/identity.h"
#include "kube/json.h"

namespace sublet::gpu {

Result<int> Engine::Impl::Listen(const std::string& name) const {
  const std::string folder = options.socket_root + "/" + name;
  const std::string path = folder + "/" + kSocketName;
  struct sockaddr_un address {};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) {
    return BadRequest("socket path too long: " + path);
  }
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  if (mkdir(folder.c_str(), 0755) != 0 && errno != EEXIST) {
    return InternalError("cannot make " + folder + ": " + std::strerror(errno));
  }
  unlink(path.c_str());
  const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0 || bind(fd, reinterpret_cast<struct sockaddr*>(&address), sizeof address) != 0 ||
      chmod(path.c_str(), 0666) != 0 || listen(fd, 128) != 0) {
    const int error = errno;
    if (fd >= 0) {
      close(fd);
    }
    return InternalError("cannot listen at " + path + ": " + std::strerror(error));
  }
  return fd;
}

void Engine::Impl::Accept(Slice& slice) {
  // Bounded per wake-up, so that one slice's flood does not keep the others waiting.
  for (int i = 0; i < 16; ++i) {
    const int fd = accept4(slice.listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) {
      return;
    }
    if (slice.connections.size() >= options.connections_max) {
      close(fd);
      ++refused_hellos;
      continue;
    }
    slice.connections.insert(fd);
    Watch(fd, {FdKind::kConnection, slice.id});
  }
}

void Engine::Impl::CloseConnection(int fd) {
  const auto found = fds.find(fd);
  if (found == fds.end()) {
    return;
  }
  if (Slice* slice = Find(found->second.slice)) {
    slice->connections.erase(fd);
    if (const auto process = slice->processes.find(found->second.pid);
        process != slice->processes.end() && process->second.connection == fd) {
      // The process lives on (its pidfd says so): a child may hold the other end, or it will
      // reconnect.
      process->second.connection = -1;
    }
  }
  Forget(fd);
}

void Engine::Impl::Receive(int fd) {
  const Fd what = fds.at(fd);
  Slice* slice = Find(what.slice);
  if (slice == nullptr) {
    CloseConnection(fd);
    return;
  }
  for (int i = 0; i < 16; ++i) {
    alignas(8) char buffer[64];
    const ssize_t got = recv(fd, buffer, sizeof buffer, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
      return;
    }
    std::uint32_t magic = 0;
    if (got >= static_cast<ssize_t>(sizeof magic)) {
      std::memcpy(&magic, buffer, sizeof magic);
    }
    if (magic == kPageMagic && got == static_cast<ssize_t>(sizeof(Hello)) && fds.at(fd).pid == 0) {
      Hello hello{};
      std::memcpy(&hello, buffer, sizeof hello);
      Greet(*slice, fd, hello);
      if (!fds.contains(fd)) {
        return;
      }
    } else if (magic == kPageMagic && got == static_cast<ssize_t>(sizeof(Notice)) &&
               fds.at(fd).pid > 0) {
      Notice notice{};
      std::memcpy(&notice, buffer, sizeof notice);
      if (notice.device >= slice->config.devices.size()) {
        continue;
      }
      Device& device = devices[slice->config.devices[notice.device].device.uuid];
      if (notice.kind == kNoticeWant) {
        device.arbiter.Want(slice->id);
      } else if (notice.kind == kNoticeIdle) {
        device.arbiter.Idle(slice->id);
      }
      StepDevice(device, MonotonicNs());
    } else {
      CloseConnection(fd);  // end of file, or not our protocol
      return;
    }
  }
}

// Whether a peer belongs to the slice: within the cgroup of the first process that came through
// this folder. When all are gone and the container was made anew, the next one is the first again.
bool Engine::Impl::IsOwn(Slice& slice, int pid) {
  const std::string cgroup = ProcessCgroup(pid);
  if (cgroup.empty()) {
    return false;
  }
  if (!options.check_cgroups || slice.cgroup.empty() || slice.processes.empty()) {
    slice.cgroup = cgroup;
    return true;
  }
  return IsWithinCgroup(cgroup, slice.cgroup);
}

void Engine::Impl::Answer(int fd, std::uint32_t status, const Slice* slice, int slot, bool observer,
                          bool same) const {
  Welcome welcome{kPageMagic,
                  kProtocolVersion,
                  status,
                  static_cast<std::uint32_t>(slot),
                  slot >= 0 && slice != nullptr ? slice->pages->Generation(slot) : 0,
                  same ? 1U : 0U};
  struct iovec part = {&welcome, sizeof welcome};
  struct msghdr message {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  alignas(struct cmsghdr) char space[CMSG_SPACE(2 * sizeof(int))] = {};
  if (status == kWelcome) {
    const int both[2] = {slice->pages->control_fd(),
                         observer ? slice->pages->usage_read_fd() : slice->pages->usage_fd()};
    message.msg_control = space;
    message.msg_controllen = sizeof space;
    struct cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof both);
    std::memcpy(CMSG_DATA(header), both, sizeof both);
  }
  sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

void Engine::Impl::Greet(Slice& slice, int fd, const Hello& hello) {
  int pidfd = -1;
  const int pid = PeerPid(fd, &pidfd);
  const auto refuse = [&](std::uint32_t status) {
    ++refused_hellos;
    Answer(fd, status, nullptr, -1, false, false);
    if (pidfd >= 0) {
      close(pidfd);
    }
    CloseConnection(fd);
  };
  if (hello.version < kProtocolVersionOldest || hello.version > kProtocolVersion) {
    refuse(kWelcomeWrongVersion);
    return;
  }
  if (pid <= 0 || pidfd < 0 || !IsOwn(slice, pid)) {
    on_event({slice.config.name, "GpuStrangerRefused",
              "a process outside the slice's container asked for its pages"});
    refuse(kWelcomeStranger);
    return;
  }
  if (hello.kind == kHelloObserver) {
    Answer(fd, kWelcome, &slice, -1, true, false);
    close(pidfd);
    fds.at(fd).pid = -1;
    return;
  }
  if (const auto known = slice.processes.find(pid); known != slice.processes.end()) {
    // The same process again: after a restart of gpud, or its first connection broke.
    if (known->second.connection >= 0 && known->second.connection != fd) {
      CloseConnection(known->second.connection);
    }
    known->second.connection = fd;
    fds.at(fd).pid = pid;
    close(pidfd);
    const bool same = hello.kind == kHelloResume &&
                      slice.pages->HasSlot(static_cast<int>(hello.slot), hello.generation) &&
                      static_cast<int>(hello.slot) == known->second.slot;
    Answer(fd, kWelcome, &slice, known->second.slot, false, same);
    return;
  }
  const int slot = slice.pages->TakeSlot(hello.container_pid);
  if (slot < 0) {
    refuse(kWelcomeFull);
    return;
  }
  fds.at(fd).pid = pid;
  Register(slice, {pid, pidfd, ProcessStartTime(pid), slot, fd});
  Answer(fd, kWelcome, &slice, slot, false, false);
  if (!slice.has_native_cap && slice.config.enforce == Enforce::kOn && driver != nullptr &&
      driver->HasNativeCaps()) {
    slice.has_native_cap = true;
    std::vector<std::pair<std::int32_t, std::uint64_t>> caps;
    for (const GrantedDevice& granted : slice.config.devices) {
      caps.emplace_back(devices[granted.device.uuid].index,
                        static_cast<std::uint64_t>(granted.device.memory_bytes));
    }
    MutexLock lock(mutex);
    driver_inbox.push_back([cgroup = "/sys/fs/cgroup" + slice.cgroup, caps](GpuDriver& native) {
      for (const auto& [index, bytes] : caps) {
        const auto result = native.SetNativeCap(index, cgroup, bytes);
        if (!result.ok()) {
          log::Warn("native memory cap refused", {{"error", result.error()}});
        }
      }
    });
  }
}

void Engine::Impl::Register(Slice& slice, Process process) {
  Watch(process.pidfd, {FdKind::kPidfd, slice.id, process.pid});
  slice.processes[process.pid] = process;
  state_is_dirty = true;
}

void Engine::Impl::Died(int slice_id, int pid) {
  Slice* slice = Find(slice_id);
  const auto found =
      slice == nullptr ? decltype(slice->processes.begin()){} : slice->processes.find(pid);
  if (slice == nullptr || found == slice->processes.end()) {
    return;
  }
  const Process process = found->second;
  slice->processes.erase(found);
  const auto bytes = slice->pages->ClearSlot(process.slot);
  for (std::size_t i = 0; i < slice->config.devices.size(); ++i) {
    if (bytes[i] == 0) {
      continue;
    }
    if (driver == nullptr) {
      slice->pages->ReleaseHeld(static_cast<int>(i), bytes[i]);
      continue;
    }
    held.push_back({.slice = slice_id,
                    .pid = pid,
                    .device = static_cast<int>(i),
                    .index = devices[slice->config.devices[i].device.uuid].index,
                    .bytes = bytes[i],
                    .poll = poll_number.load() + 1,
                    .until = MonotonicNs() + std::chrono::nanoseconds(options.held_max).count()});
  }
  Forget(process.pidfd);
  if (process.connection >= 0) {
    CloseConnection(process.connection);
  }
  needs_repair = true;
  state_is_dirty = true;
  AskDriver();
  // If it held a turn, the turn is over.
  const Nanoseconds now = MonotonicNs();
  for (const GrantedDevice& device : slice->config.devices) {
    Device& mine = devices[device.device.uuid];
    mine.arbiter.Idle(slice_id);
    StepDevice(mine, now);
  }
}

void Engine::Impl::Restore(Slice& slice) {
  const auto old = remembered.find(slice.config.name);
  if (old == remembered.end()) {
    return;
  }
  slice.cgroup = old->second.cgroup;
  for (Process process : old->second.processes) {
    process.pidfd = OpenPidfd(process.pid, process.start_time);
    if (process.pidfd < 0 ||
        !slice.pages->HasSlot(process.slot, slice.pages->Generation(process.slot))) {
      if (process.pidfd >= 0) {
        close(process.pidfd);
      }
      continue;
    }
    process.connection = -1;
    Register(slice, process);
  }
  // Slots whose process died while no gpud was there.
  for (int slot = 0; slot < kPageSlotsMax; ++slot) {
    bool used = slice.pages->Generation(slot) == 0;
    for (const auto& [pid, process] : slice.processes) {
      used = used || process.slot == slot;
    }
    if (!used) {
      const auto bytes = slice.pages->ClearSlot(slot);
      for (std::size_t i = 0; i < slice.config.devices.size(); ++i) {
        slice.pages->ReleaseHeld(static_cast<int>(i), bytes[i]);
      }
    }
  }
  needs_repair = true;
  remembered.erase(old);
}

void Engine::Impl::SaveState() {
  state_is_dirty = false;
  if (options.state_file.empty()) {
    return;
  }
  kube::Json all = kube::Json::object();
  for (const auto& [id, slice] : slices) {
    kube::Json list = kube::Json::array();
    for (const auto& [pid, process] : slice.processes) {
      list.push_back({{"pid", pid}, {"start", process.start_time}, {"slot", process.slot}});
    }
    all[slice.config.name] = {{"cgroup", slice.cgroup}, {"processes", std::move(list)}};
  }
  const std::string temporary = options.state_file + ".new";
  {
    std::ofstream file(temporary, std::ios::trunc);
    file << kube::Dump(all);
    if (!file.flush()) {
      log::Warn("cannot write state", {{"path", temporary}});
      return;
    }
  }
  rename(temporary.c_str(), options.state_file.c_str());
}

void Engine::Impl::LoadState() {
  std::ifstream file(options.state_file);
  std::stringstream text;
  text << file.rdbuf();
  if (options.state_file.empty() || text.str().empty()) {
    return;
  }
  auto parsed = kube::ParseJson(text.str());
  if (!parsed.ok() || !parsed->is_object()) {
    log::Warn("state file is damaged; clients register anew", {{"path", options.state_file}});
    return;
  }
  for (const auto& [name, entry] : parsed->items()) {
    Remembered& slice = remembered[name];
    slice.cgroup = std::string(kube::FindString(entry, {"cgroup"}));
    const kube::Json* list = kube::Find(entry, {"processes"});
    for (const kube::Json& item :
         list != nullptr && list->is_array() ? *list : kube::Json::array()) {
      Process process;
      process.pid = static_cast<int>(kube::FindInt(item, {"pid"}));
      process.start_time = static_cast<std::uint64_t>(kube::FindInt(item, {"start"}));
      process.slot = static_cast<int>(kube::FindInt(item, {"slot"}, -1));
      if (process.pid > 0 && process.slot >= 0 && process.slot < kPageSlotsMax) {
        slice.processes.push_back(process);
      }
    }
  }
}

}  // namespace sublet::gpu
