#include "gpu/gpud/engine.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/log.h"
#include "gpu/gpud/engine_impl.h"

namespace sublet::gpu {
namespace {

constexpr Nanoseconds kBeat = 100'000'000;
// A slot in the middle of a change is looked at again soon; one that stays so (a stopped process,
// or a tenant that scribbles) ever more rarely.
constexpr Nanoseconds kRepairMin = 1'000'000;
constexpr Nanoseconds kRepairMax = 256'000'000;

}  // namespace

Nanoseconds MonotonicNs() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

Engine::Engine(EngineOptions options, std::unique_ptr<GpuDriver> driver, OnEvent on_event)
    : impl_(std::make_unique<Impl>()) {
  impl_->options = std::move(options);
  impl_->driver = std::move(driver);
  impl_->on_event = std::move(on_event);
}

Engine::~Engine() { Stop(); }

Result<void> Engine::Start() {
  Impl& impl = *impl_;
  SUBLET_RETURN_IF_ERROR(impl.Open());
  if (impl.driver != nullptr) {
    auto inventory = impl.driver->Inventory();
    if (!inventory.ok()) {
      return std::move(inventory).error();
    }
    impl.inventory = std::move(inventory).value();
  }
  impl.LoadState();
  {
    MutexLock lock(impl.mutex);
    impl.is_running = true;
  }
  impl.engine_thread = std::thread([&impl] { impl.Run(); });
  pthread_setname_np(impl.engine_thread.native_handle(), "gpud-engine");
  if (impl.driver != nullptr) {
    impl.driver_thread = std::thread([&impl] { impl.RunDriver(); });
    pthread_setname_np(impl.driver_thread.native_handle(), "gpud-driver");
  }
  return Ok();
}

void Engine::Stop() {
  Impl& impl = *impl_;
  {
    MutexLock lock(impl.mutex);
    impl.stopping = true;
  }
  impl.changed.NotifyAll();
  impl.Wake();
  if (impl.driver_thread.joinable()) {
    impl.driver_thread.join();
  }
  if (impl.engine_thread.joinable()) {
    impl.engine_thread.join();
    impl.SaveState();
  }
  for (const auto& [fd, what] : impl.fds) {
    close(fd);
  }
  impl.fds.clear();
  impl.slices.clear();
  if (impl.epoll_fd >= 0) {
    close(impl.epoll_fd);
    impl.epoll_fd = -1;
  }
}

Result<void> Engine::Impl::Open() {
  epoll_fd = epoll_create1(EPOLL_CLOEXEC);
  wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
  if (epoll_fd < 0 || wake_fd < 0 || timer_fd < 0) {
    return InternalError(std::string("cannot make descriptors: ") + std::strerror(errno));
  }
  Watch(wake_fd, {FdKind::kWake});
  Watch(timer_fd, {FdKind::kTimer});
  // For root alone: a container gets its own slice's folder by a mount, nobody else gets any.
  if (mkdir(options.socket_root.c_str(), 0700) != 0 && errno != EEXIST) {
    return InternalError("cannot make " + options.socket_root + ": " + std::strerror(errno));
  }
  return Ok();
}

void Engine::Impl::Watch(int fd, Fd what) {
  struct epoll_event event {};
  event.events = EPOLLIN;
  event.data.fd = fd;
  epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event);
  fds[fd] = what;
}

void Engine::Impl::Forget(int fd) {
  epoll_ctl(epoll_fd, EPOLL_CTL_DEL, fd, nullptr);
  fds.erase(fd);
  close(fd);
}

void Engine::Impl::Wake() const {
  const std::uint64_t one = 1;
  if (wake_fd >= 0 && write(wake_fd, &one, sizeof one) < 0) {
    return;  // the counter is full: it is awake
  }
}

bool Engine::Impl::Post(std::function<void()> work) {
  {
    MutexLock lock(mutex);
    if (!is_running) {
      return false;
    }
    inbox.push_back(std::move(work));
  }
  Wake();
  return true;
}

void Engine::Impl::AskDriver() {
  {
    MutexLock lock(mutex);
    ++polls_wanted;
  }
  changed.NotifyAll();
}

void Engine::Impl::ArmTimer(Nanoseconds at) const {
  struct itimerspec when {};
  when.it_value.tv_sec = at / 1'000'000'000;
  when.it_value.tv_nsec = std::max<Nanoseconds>(at % 1'000'000'000, 1);
  timerfd_settime(timer_fd, TFD_TIMER_ABSTIME, &when, nullptr);
}

Engine::Impl::Slice* Engine::Impl::Find(int id) {
  const auto found = slices.find(id);
  return found == slices.end() ? nullptr : &found->second;
}

void Engine::Impl::Beat(Nanoseconds now) {
  if (now < next_beat) {
    return;
  }
  next_beat = now + kBeat;
  for (auto& [id, slice] : slices) {
    slice.pages->BeatEpoch();
  }
  if (state_is_dirty) {
    SaveState();
  }
}

void Engine::Impl::Run() {
  for (;;) {
    std::deque<std::function<void()>> work;
    {
      MutexLock lock(mutex);
      if (stopping && inbox.empty()) {
        is_running = false;
        return;
      }
      work.swap(inbox);
    }
    for (const auto& item : work) {
      item();
    }
    const Nanoseconds now = MonotonicNs();
    Beat(now);
    StepAll(now);
    Nanoseconds next = next_beat;
    for (const auto& [uuid, device] : devices) {
      if (device.next_step != 0) {
        next = std::min(next, device.next_step);
      }
    }
    if (needs_repair && now >= next_repair) {
      needs_repair = false;
      for (auto& [id, slice] : slices) {
        needs_repair = !slice.pages->Repair() || needs_repair;
      }
      repair_delay = needs_repair ? std::clamp(repair_delay * 2, kRepairMin, kRepairMax) : 0;
      next_repair = now + repair_delay;
    }
    next = needs_repair ? std::min(next, next_repair) : next;
    ArmTimer(next);
    struct epoll_event events[64];
    const int count = epoll_wait(epoll_fd, events, 64, -1);
    for (int i = 0; i < count; ++i) {
      const auto found = fds.find(events[i].data.fd);
      if (found == fds.end()) {
        continue;  // closed by an earlier event of this batch
      }
      const Fd what = found->second;
      std::uint64_t value = 0;
      switch (what.kind) {
        case FdKind::kWake:
        case FdKind::kTimer:
          if (read(events[i].data.fd, &value, sizeof value) < 0) {
            break;
          }
          break;
        case FdKind::kListener:
          if (Slice* slice = Find(what.slice)) {
            Accept(*slice);
          }
          break;
        case FdKind::kConnection: Receive(events[i].data.fd); break;
        case FdKind::kPidfd: Died(what.slice, what.pid); break;
      }
    }
  }
}

void Engine::Impl::RunDriver() {
  std::uint64_t seen = 0;
  auto asked_utilization = std::chrono::steady_clock::now();
  for (;;) {
    std::deque<std::function<void(GpuDriver&)>> tasks;
    {
      MutexLock lock(mutex);
      const MonotonicTime until = std::chrono::steady_clock::now() + options.poll;
      while (!stopping && polls_wanted == seen && driver_inbox.empty()) {
        if (!changed.WaitUntil(mutex, until)) {
          break;
        }
      }
      if (stopping) {
        return;
      }
      seen = polls_wanted;
      tasks.swap(driver_inbox);
    }
    for (const auto& task : tasks) {
      task(*driver);
    }
    Snapshot snapshot;
    snapshot.poll = ++poll_number;
    const auto start = std::chrono::steady_clock::now();
    for (const DriverDevice& device : inventory.devices) {
      auto list = driver->Processes(device.index);
      if (list.ok()) {
        snapshot.processes[device.index] = std::move(list).value();
      }
    }
    if (const auto passed = start - asked_utilization; passed >= options.utilization_poll) {
      asked_utilization = start;
      snapshot.utilization_over = std::chrono::nanoseconds(passed).count();
      for (const DriverDevice& device : inventory.devices) {
        if (auto list = driver->Utilization(device.index); list.ok()) {
          snapshot.utilization[device.index] = std::move(list).value();
        }
      }
    }
    snapshot.seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    Post([this, snapshot = std::move(snapshot)] { Reconcile(snapshot); });
  }
}

Result<void> Engine::Impl::Add(const EngineSlice& config) {
  if (slice_ids.contains(config.name)) {
    return Ok();
  }
  std::vector<PageDevice> page_devices;
  for (const GrantedDevice& granted : config.devices) {
    PageDevice device{.uuid = granted.device.uuid,
                      .cap_bytes = static_cast<std::uint64_t>(granted.device.memory_bytes),
                      .share_milli = static_cast<std::uint32_t>(granted.device.share_milli)};
    for (const DriverDevice& known : inventory.devices) {
      if (known.uuid == device.uuid) {
        device.model = known.model;
        device.index = static_cast<std::uint32_t>(known.index);
      }
    }
    Device& mine = devices[device.uuid];
    mine.index = static_cast<std::int32_t>(device.index);
    mine.context_bytes = mine.context_bytes == 0 ? options.context_bytes : mine.context_bytes;
    device.context_bytes = mine.context_bytes;
    page_devices.push_back(std::move(device));
  }
  const bool is_enforced = config.enforce == Enforce::kOn;
  Slice slice;
  slice.id = next_slice_id;
  slice.config = config;
  slice.over_cap_polls.resize(config.devices.size());
  slice.drift_low[0].resize(config.devices.size());
  slice.drift_low[1].resize(config.devices.size());
  if (const auto old = remembered.find(config.name); old != remembered.end()) {
    for (const Process& process : old->second.processes) {
      auto adopted = SlicePages::Adopt(config.name, page_devices, is_enforced, process.pid);
      if (adopted.ok()) {
        slice.pages = std::move(adopted).value();
        break;
      }
    }
  }
  if (slice.pages == nullptr) {
    SUBLET_TRY(slice.pages, SlicePages::Create(config.name, page_devices, is_enforced));
  }
  SUBLET_TRY(slice.listener, Listen(config.name));
  ++next_slice_id;
  slice_ids[config.name] = slice.id;
  Slice& stored = slices[slice.id] = std::move(slice);
  Watch(stored.listener, {FdKind::kListener, stored.id});
  for (std::size_t i = 0; i < config.devices.size() && is_enforced; ++i) {
    const SliceDevice& device = config.devices[i].device;
    LeasePolicy policy;
    policy.weight = config.compute.weight > 0 ? config.compute.weight : device.share_milli;
    policy.request_milli = device.share_milli;
    policy.limit_milli = config.compute.mode == ComputeMode::kStrict
                             ? std::min(device.share_milli, config.compute.limit_milli)
                             : config.compute.limit_milli;
    // A weight that is asked for decides alone; without one the share is both.
    if (config.compute.weight > 0) {
      policy.request_milli = 0;
    }
    policy.is_gang = config.devices.size() > 1;
    devices[device.uuid].arbiter.Add(stored.id, policy);
  }
  Restore(stored);
  state_is_dirty = true;
  return Ok();
}

void Engine::Impl::Remove(const std::string& name) {
  const auto found = slice_ids.find(name);
  if (found == slice_ids.end()) {
    return;
  }
  const int id = found->second;
  Slice& slice = slices.at(id);
  Forget(slice.listener);
  const std::set<int> connections = slice.connections;
  for (const int fd : connections) {
    Forget(fd);
  }
  for (const auto& [pid, process] : slice.processes) {
    Forget(process.pidfd);
  }
  for (auto& [uuid, device] : devices) {
    device.arbiter.Remove(id);
  }
  std::erase_if(held, [&](const Held& item) { return item.slice == id; });
  const std::string folder = options.socket_root + "/" + name;
  unlink((folder + "/" + kSocketName).c_str());
  rmdir(folder.c_str());
  slices.erase(id);
  slice_ids.erase(found);
  state_is_dirty = true;
  StepAll(MonotonicNs());
}

namespace {

// Runs `work` on the engine thread and waits for its answer; `otherwise` when that thread is gone.
template <typename Work, typename Answer>
Answer CallOn(const std::function<bool(std::function<void()>)>& post, Answer otherwise, Work work) {
  Mutex mutex;
  CondVar done;
  std::optional<Answer> answer;
  const bool posted = post([&] {
    Answer result = work();
    MutexLock lock(mutex);
    answer.emplace(std::move(result));
    done.NotifyOne();
  });
  if (!posted) {
    return otherwise;
  }
  MutexLock lock(mutex);
  while (!answer) {
    done.Wait(mutex);
  }
  return std::move(*answer);
}

}  // namespace

Result<void> Engine::AddSlice(const EngineSlice& slice) {
  return CallOn([this](auto work) { return impl_->Post(std::move(work)); },
                Result<void>(ServiceUnavailable("gpud's engine has stopped")),
                [&] { return impl_->Add(slice); });
}

void Engine::RemoveSlice(const std::string& name) {
  CallOn([this](auto work) { return impl_->Post(std::move(work)); }, false,
         [&] {
           impl_->Remove(name);
           return true;
         });
}

int Engine::ProcessesOf(const std::string& name) {
  return CallOn([this](auto work) { return impl_->Post(std::move(work)); }, 0,
                [&] {
                  const auto found = impl_->slice_ids.find(name);
                  if (found == impl_->slice_ids.end()) {
                    return 0;
                  }
                  int count = static_cast<int>(impl_->slices.at(found->second).processes.size());
                  for (const auto& item : impl_->held) {
                    count += item.slice == found->second ? 1 : 0;
                  }
                  return count;
                });
}

EngineStatus Engine::ReadStatus() {
  return CallOn([this](auto work) { return impl_->Post(std::move(work)); }, EngineStatus{},
                [&] { return impl_->MakeStatus(); });
}

std::string Engine::FolderOf(const std::string& name) const {
  return impl_->options.socket_root + "/" + name;
}

Result<DriverInventory> Engine::Inventory() { return impl_->inventory; }

}  // namespace sublet::gpu
