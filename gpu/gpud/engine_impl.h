// Engine's inside: see engine.h. Everything here but `inbox` and `driver` belongs to the engine
// thread.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>

#include "gpu/gpud/engine.h"
#include "gpu/gpud/pages.h"

namespace sublet::gpu {

struct Engine::Impl {
  struct Process {
    int pid = 0;  // on the node
    int pidfd = -1;
    std::uint64_t start_time = 0;
    int slot = -1;
    int connection = -1;  // -1: not connected (gpud restarted)
  };
  struct Slice {
    int id = 0;
    EngineSlice config;
    std::unique_ptr<SlicePages> pages;
    int listener = -1;
    std::string cgroup;                // of the first process; others must be within it
    std::map<int, Process> processes;  // by node pid
    std::set<int> connections;
    std::uint64_t unmanaged = 0;
    std::vector<int> over_cap_polls;          // per device, in a row
    std::vector<std::uint64_t> drift_low[2];  // smallest surplus of the last polls
    bool has_native_cap = false;
    std::vector<Nanoseconds> solo_busy;   // per device, by the driver's samples
    std::vector<Nanoseconds> turns_used;  // per device: the arbiter's account at the last samples
    std::vector<Nanoseconds> over_share;  // per device: for how long in a row
    std::vector<bool> over_share_said;
  };
  struct Device {
    std::int32_t index = 0;
    Arbiter arbiter;
    Nanoseconds next_step = 0;
    std::uint64_t context_bytes = 0;
  };
  enum class FdKind : std::uint8_t { kWake, kTimer, kListener, kConnection, kPidfd };
  struct Fd {
    FdKind kind;
    int slice = 0;
    int pid = 0;  // kPidfd, and kConnection after its hello
  };
  // A dead process's bytes until the driver has let go of them.
  struct Held {
    int slice = 0;
    int pid = 0;
    int device = 0;  // in the slice's pages
    std::int32_t index = 0;
    std::uint64_t bytes = 0;
    std::uint64_t poll = 0;  // the first driver round that began after the death
    Nanoseconds until = 0;
  };
  struct Snapshot {
    std::uint64_t poll = 0;
    double seconds = 0;
    std::map<std::int32_t, std::vector<DriverProcess>>
        processes;                     // by NVML index; absent: not known
    Nanoseconds utilization_over = 0;  // 0: not asked this time
    std::map<std::int32_t, std::vector<DriverUtilization>> utilization;  // by NVML index
  };
  struct Remembered {
    std::string cgroup;
    std::vector<Process> processes;
  };

  EngineOptions options;
  std::unique_ptr<GpuDriver> driver;  // gpud-driver's after Start
  OnEvent on_event;
  DriverInventory inventory;

  int epoll_fd = -1;
  int wake_fd = -1;
  int timer_fd = -1;
  std::unordered_map<int, Fd> fds;
  std::map<int, Slice> slices;  // by id
  std::map<std::string, int> slice_ids;
  std::map<std::string, Device> devices;  // by UUID
  std::deque<Held> held;
  std::map<int, std::pair<std::uint64_t, Nanoseconds>> unmanaged;  // pid → start time, first seen
  std::map<std::string, Remembered> remembered;
  int next_slice_id = 1;
  bool needs_repair = false;
  Nanoseconds next_repair = 0;
  Nanoseconds repair_delay = 0;
  bool state_is_dirty = false;
  Nanoseconds next_beat = 0;
  double reconcile_seconds = 0;
  std::uint64_t unmanaged_total = 0;
  std::uint64_t refused_hellos = 0;
  std::map<std::int32_t, int> silent_polls;      // by NVML index: rounds in a row without an answer
  std::map<std::string, std::string> unhealthy;  // UUID → why

  Mutex mutex;
  CondVar changed;
  std::deque<std::function<void()>> inbox SUBLET_GUARDED_BY(mutex);
  std::uint64_t polls_wanted SUBLET_GUARDED_BY(mutex) = 0;
  std::deque<std::function<void(GpuDriver&)>> driver_inbox SUBLET_GUARDED_BY(mutex);
  bool stopping SUBLET_GUARDED_BY(mutex) = false;
  bool is_running SUBLET_GUARDED_BY(mutex) = false;  // the engine thread takes work
  std::atomic<std::uint64_t> poll_number{0};
  std::thread engine_thread;
  std::thread driver_thread;

  // engine.cc
  Result<void> Open();
  void Run();
  void RunDriver();
  bool Post(std::function<void()> work);  // false: the engine thread is not there
  void Wake() const;
  void AskDriver();
  void ArmTimer(Nanoseconds at) const;
  void Beat(Nanoseconds now);
  void Watch(int fd, Fd what);
  void Forget(int fd);
  Result<void> Add(const EngineSlice& config);
  void Remove(const std::string& name);
  Slice* Find(int id);

  // engine_clients.cc
  Result<int> Listen(const std::string& name) const;
  void Accept(Slice& slice);
  void Receive(int fd);
  void Greet(Slice& slice, int fd, const struct Hello& hello);
  bool IsOwn(Slice& slice, int pid);
  void Answer(int fd, std::uint32_t status, const Slice* slice, int slot, bool observer,
              bool same) const;
  void Register(Slice& slice, Process process);
  void Died(int slice_id, int pid);
  void CloseConnection(int fd);
  void Restore(Slice& slice);
  void SaveState();
  void LoadState();

  // engine_reconcile.cc
  void StepDevice(Device& device, Nanoseconds now);
  void StepAll(Nanoseconds now);
  // Turns of a slice of several devices: together.
  void Gather(const Slice& slice, Nanoseconds now);
  void Reconcile(const Snapshot& snapshot);
  void ReleaseDead(const Snapshot& snapshot, Nanoseconds now);
  void CompareSlice(Slice& slice, const Snapshot& snapshot);
  void CompareShares(Slice& slice, const Snapshot& snapshot);
  void WatchHealth(const Snapshot& snapshot);
  void FindUnmanaged(const Snapshot& snapshot, Nanoseconds now);
  void KillLargest(Slice& slice, int device, const std::vector<DriverProcess>& list);
  EngineStatus MakeStatus();
};

Nanoseconds MonotonicNs();

}  // namespace sublet::gpu
