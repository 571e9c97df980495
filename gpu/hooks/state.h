// ProcessState: everything the interceptor knows about its own process, in one mapping that the
// kernel wipes in a forked child: the child starts with zeros, that is as a stranger, and connects
// for itself. Nothing runs at load; the first call that needs the state makes it.
//
// Locks are futex words here (pthread is not a dependency). Order: pools_lock before a table
// stripe; gate locks stand alone. No lock is held while the real driver allocates, except
// pools_lock. Depends on nothing but libc. Threads: any.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "gpu/hooks/cuda_abi.h"
#include "gpu/hooks/protocol.h"

namespace sublet::gpu {

class FutexLock {
 public:
  void Lock();
  void Unlock();

 private:
  std::atomic<std::uint32_t> word_;  // 0 free, 1 held, 2 held and waited for
};

class LockHolder {
 public:
  explicit LockHolder(FutexLock& lock) : lock_(lock) { lock_.Lock(); }
  ~LockHolder() { lock_.Unlock(); }
  LockHolder(const LockHolder&) = delete;
  LockHolder& operator=(const LockHolder&) = delete;

 private:
  FutexLock& lock_;
};

// What an allocation costs and whom; found again by its address or handle when it is freed.
struct Allocation {
  std::uint64_t key;
  std::uint64_t bytes;       // charged
  std::uint64_t other;       // handle of a mapping; references of a handle; flags of a graph
  std::uint32_t references;  // of a VMM handle
  std::uint16_t device;      // index in the control page
  std::uint16_t charge;      // Charge
};

// Address or handle → Allocation. 64 stripes, open addressing, memory from mmap.
class AllocationTable {
 public:
  // False: no host memory; the caller undoes its allocation.
  bool Insert(const Allocation& allocation);
  bool Find(std::uint64_t key, Allocation* out);
  // Removes and returns it.
  bool Take(std::uint64_t key, Allocation* out);
  // Adds to references; returns the new count, or 0 when the key is unknown.
  std::uint32_t AddReferences(std::uint64_t key, int count);
  bool SetOther(std::uint64_t key, std::uint64_t other);
  // Removes every entry with key in [from, from+bytes); calls taken for each, without a lock.
  void TakeRange(std::uint64_t from, std::uint64_t bytes, void (*taken)(const Allocation&));

 private:
  struct Stripe {
    FutexLock lock;
    std::uint32_t count;
    std::uint32_t capacity;
    Allocation* entries;
  };
  static constexpr int kStripes = 64;
  static bool Put(Stripe& stripe, const Allocation& allocation);
  static bool Grow(Stripe& stripe);
  static Allocation* Locate(Stripe& stripe, std::uint64_t key);
  static void Erase(Stripe& stripe, Allocation* entry);
  Stripe stripes_[kStripes];
};

// The gate's books for one device, used only while the device is contended.
struct GateDevice {
  static constexpr int kMarks = 128;
  static constexpr int kDirtyMax = 8;
  struct Mark {
    void* event;
    std::uint64_t launches;  // submitted when it was recorded
    std::uint64_t recorded_ns;
  };
  FutexLock lock;
  std::uint32_t has_events;
  void* context;  // the events' context; launches from others are not marked
  void* free_events[kMarks];
  int free_count;
  Mark marks[kMarks];
  int first;
  int count;
  void* dirty[kDirtyMax];  // streams with launches behind the last mark
  int dirty_count;
  std::uint64_t unmarked;
  std::uint64_t last_mark_ns;
  std::uint64_t last_launch_ns;
  std::uint64_t busy_since_ns;  // when the oldest unfinished launch could start
  std::uint64_t mean_ns;        // of a launch, learned
  std::uint32_t idle_said;
};

struct KnownPool {
  void* handle;
  std::uint32_t device;
};

struct ProcessState {
  // 0 not connected, 1 connected, 2 refused.
  std::atomic<std::uint32_t> phase;
  std::atomic<std::uint32_t> captures;  // streams being captured, about
  FutexLock connect_lock;
  std::atomic<ControlPage*> control;
  std::atomic<UsagePage*> usage;
  std::atomic<Slot*> slot;
  std::uint32_t slot_index;
  std::uint32_t generation;
  std::atomic<int> socket;
  int pid;
  int single_device;  // 0 when the slice has one device, else -1
  std::atomic<std::uint32_t> helper_started;
  std::atomic<int> helper_event;  // eventfd that wakes it, plus one; 0 = none
  std::atomic<std::uint32_t> helper_asleep;
  // Ordinal of the real driver → place in the control page, plus one; -1 foreign.
  std::atomic<int> device_of_ordinal[64];
  AllocationTable memory;   // addresses and arrays
  AllocationTable handles;  // VMM handles and graph executables
  FutexLock small_lock;
  std::uint64_t small_bytes[kPageDevicesMax];
  std::uint64_t small_charged[kPageDevicesMax];
  FutexLock contexts_lock;
  int primary_references[kPageDevicesMax];
  FutexLock pools_lock;
  KnownPool pools[1024];
  int pool_count;
  std::uint64_t pool_charged[kPageDevicesMax];
  std::uint64_t graph_charged[kPageDevicesMax];
  GateDevice gates[kPageDevicesMax];
};

// The state of this process, made on the first call; nullptr only without host memory.
ProcessState* State();
// The state if it exists and is connected, else nullptr: one load and one test.
ProcessState* ConnectedState();
// Connects to gpud if that has not happened. True: connected, everything is charged. False: refused
// or gpud was not there for 5 s; the caller answers SYSTEM_NOT_READY.
bool Connect();
// True when this process is in a slice whose caps hold (a slice with enforce off is only watched).
bool IsEnforced(ProcessState& state);
// Tells gpud; reconnects once when the connection is gone. Never blocks.
void SendNotice(ProcessState& state, NoticeKind kind, std::uint32_t device);

// Monotonic nanoseconds.
std::uint64_t NowNs();
void NapNs(std::uint64_t ns);
// Waits while *word is `value`, at most `ns`. Works on read-only mappings.
void FutexWait(const std::atomic<std::uint32_t>* word, std::uint32_t value, std::uint64_t ns,
               bool shared);
void FutexWake(std::atomic<std::uint32_t>* word);

// Wakes the helper thread when it sleeps: there are marks to ask for.
void WakeHelper(ProcessState& state);
// One round of the helper thread for contended devices (launch.cc). Returns true while any is.
bool ServeContended(ProcessState& state);

}  // namespace sublet::gpu
