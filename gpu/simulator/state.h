// The simulated GPUs of one machine: one file that every process maps, written by the simulated
// libcuda.so.1 in each process and read by the simulated libnvidia-ml.so.1. It gives the
// interceptor and gpud something to hold that behaves like a driver: memory with granularity and
// context overhead, several processes, time-sliced execution, faults. It computes nothing: memory
// has no contents and kernels are durations.
//
// How processes are told apart: each takes a slot and holds a POSIX lock on one byte of the file.
// F_GETLK answers with the holder's pid in the asker's own pid namespace, and the kernel drops the
// lock when the process dies however it dies: no daemon, and NVML's host pids come out right from
// inside a container. The state itself is guarded by an open-file-description lock on byte 0.
//
// Invariants (under the lock): (1) a device's use is the sum over slots, never stored; (2) a slot's
// numbers are changed by its own process only, except that a dead one's are cleared; (3) done_ns ≤
// submitted_ns. A process killed inside the lock leaves each of them true.
//
// Depends on nothing but libc. Threads: any, unless said otherwise.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sublet::gpu::simulator {

inline constexpr std::uint32_t kStateMagic = 0x534d4753;
inline constexpr std::uint32_t kStateVersion = 1;
inline constexpr int kDevicesMax = 16;
inline constexpr int kProcessesMax = 1024;
inline constexpr std::uint64_t kGranuleBytes = std::uint64_t{2} << 20;
inline constexpr std::uint64_t kSliceNanoseconds = 2'000'000;
// Where the libraries look for the file; SUBLET_SIMULATOR in the environment wins.
inline constexpr char kStatePath[] = "/run/sublet/simulator/state";

struct Device {
  char uuid[64];  // "GPU-..."
  unsigned char uuid_bytes[16];
  char model[96];
  std::uint64_t total_bytes;
  std::uint64_t reserved_bytes;  // the driver's own
  std::uint64_t context_bytes;   // of each process that has a context
  std::uint64_t peak_bytes;      // the most that was ever in use, for tests
  std::uint32_t multiprocessors;
  // Faults, set by whoever holds the file: 0 means off.
  std::uint32_t fail_allocations;  // so many of the next allocations answer OUT_OF_MEMORY
  std::uint32_t is_hung;           // nothing executes
  std::uint32_t is_lost;           // NVML answers GPU_IS_LOST
  std::uint64_t xid;               // the last fault, for NVML's event set
  // The executor.
  std::uint64_t now_ns;
  std::uint64_t slice_used_ns;
  std::int32_t running;  // slot, or -1
};

struct ProcessDevice {
  std::uint64_t large_bytes;  // whole granules
  std::uint64_t small_bytes;  // cut out of granules
  std::uint32_t has_context;
  std::uint32_t reserved;
  std::uint64_t submitted_ns;  // all work ever launched
  std::uint64_t done_ns;       // all work ever executed
};

struct Process {
  std::uint32_t is_used;
  std::uint32_t pid;  // as the process sees itself
  ProcessDevice devices[kDevicesMax];
};

struct State {
  std::uint32_t magic;
  std::uint32_t version;
  std::uint32_t device_count;
  std::uint32_t is_virtual_clock;
  std::uint64_t virtual_now_ns;
  std::uint32_t driver_version;       // 13000
  std::uint32_t hide_proc_addresses;  // cuGetProcAddress answers with pointers that are no exports
  std::uint32_t has_memory_limits;    // NVML has the per-cgroup caps of newer drivers
  std::uint32_t process_high_water;   // slots above are unused
  Device devices[kDevicesMax];
  Process processes[kProcessesMax];
};

struct CreateOptions {
  const char* path = kStatePath;
  int device_count = 1;
  const char* model = "Simulated GPU";
  std::uint64_t memory_bytes = std::uint64_t{16} << 30;
  std::uint64_t reserved_bytes = std::uint64_t{256} << 20;
  std::uint64_t context_bytes = std::uint64_t{300} << 20;
  bool is_virtual_clock = false;
};

// Makes the file (0666, its folder must exist), or leaves a valid one with the same devices alone.
// UUIDs depend on the index only. Returns 0 or an errno.
int CreateState(const CreateOptions& options);
// Maps the file. Returns nullptr with errno set (EPROTO: not a state file of this version).
State* MapState(const char* path, int* fd);

// This process's view. Init maps and takes a slot; a forked child has none (its parent keeps its
// own).
class Machine {
 public:
  static Machine& Get();
  // 0, or an errno. Idempotent; needs_slot false is for NVML.
  int Init(bool needs_slot);
  bool is_ready() const;
  State* state() { return state_; }
  Process& self() { return state_->processes[slot_]; }
  int slot() const { return slot_; }
  int fd() const { return fd_; }
  void Lock();
  void Unlock();

  // The rest is called with the lock held.
  std::uint64_t Now() const;
  void Advance(int device);  // executes up to Now()
  // Physical bytes in use on a device, dead processes' included until Reap.
  std::uint64_t UsedBytes(int device) const;
  // Clears the slots of dead processes. Costs a system call per used slot.
  void Reap();
  // Adds bytes to this process when the device has room (reaping when it has not). False: no room.
  bool Reserve(int device, std::uint64_t bytes);
  void Release(int device, std::uint64_t bytes);
  bool AddContext(int device);
  void RemoveContext(int device);
  // The pid of a slot in this process's pid namespace; 0 dead or not visible here.
  int PidOf(int slot) const;

 private:
  State* state_ = nullptr;
  int fd_ = -1;
  int slot_ = -1;
  int pid_ = 0;
  int lock_word_ = 0;  // threads of this process
};

std::uint64_t BytesOf(const Device& device, const ProcessDevice& process);

}  // namespace sublet::gpu::simulator
