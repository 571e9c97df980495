#include "gpu/hooks/state.h"

#include <linux/futex.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#ifndef MADV_WIPEONFORK
#define MADV_WIPEONFORK 18
#endif

namespace sublet::gpu {
namespace {
std::atomic<ProcessState*> state_pointer;
bool is_wiped_on_fork = false;
}  // namespace

std::uint64_t NowNs() {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1000000000ULL +
         static_cast<std::uint64_t>(now.tv_nsec);
}

void NapNs(std::uint64_t ns) {
  struct timespec time = {static_cast<time_t>(ns / 1000000000ULL),
                          static_cast<long>(ns % 1000000000ULL)};
  syscall(SYS_nanosleep, &time, nullptr);
}

void FutexWait(const std::atomic<std::uint32_t>* word, std::uint32_t value, std::uint64_t ns,
               bool shared) {
  struct timespec time = {static_cast<time_t>(ns / 1000000000ULL),
                          static_cast<long>(ns % 1000000000ULL)};
  syscall(SYS_futex, word, shared ? FUTEX_WAIT : FUTEX_WAIT_PRIVATE, value, &time, nullptr, 0);
}

void FutexWake(std::atomic<std::uint32_t>* word) {
  syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
}

void FutexLock::Lock() {
  std::uint32_t expected = 0;
  if (word_.compare_exchange_strong(expected, 1, std::memory_order_acquire)) {
    return;
  }
  while (word_.exchange(2, std::memory_order_acquire) != 0) {
    FutexWait(&word_, 2, 1000000000ULL, false);
  }
}

void FutexLock::Unlock() {
  if (word_.exchange(0, std::memory_order_release) == 2) {
    FutexWake(&word_);
  }
}

ProcessState* State() {
  ProcessState* state = state_pointer.load(std::memory_order_acquire);
  if (state != nullptr) {
    if (!is_wiped_on_fork && state->pid != 0 && state->pid != static_cast<int>(getpid())) {
      // No wipe on this kernel: a child does by hand what it would have found. Its other threads do
      // not exist yet.
      memset(static_cast<void*>(state), 0, sizeof *state);
    }
    return state;
  }
  void* memory = mmap(nullptr, sizeof(ProcessState), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    return nullptr;
  }
  is_wiped_on_fork = madvise(memory, sizeof(ProcessState), MADV_WIPEONFORK) == 0;
  ProcessState* expected = nullptr;
  if (!state_pointer.compare_exchange_strong(expected, static_cast<ProcessState*>(memory),
                                             std::memory_order_acq_rel)) {
    munmap(memory, sizeof(ProcessState));
    return expected;
  }
  return static_cast<ProcessState*>(memory);
}

ProcessState* ConnectedState() {
  ProcessState* state = state_pointer.load(std::memory_order_relaxed);
  return state != nullptr && state->phase.load(std::memory_order_acquire) == 1 ? state : nullptr;
}

bool AllocationTable::Grow(Stripe& stripe) {
  const std::uint32_t capacity = stripe.capacity == 0 ? 128 : stripe.capacity * 2;
  void* memory = mmap(nullptr, capacity * sizeof(Allocation), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    return false;
  }
  Allocation* old = stripe.entries;
  const std::uint32_t old_capacity = stripe.capacity;
  stripe.entries = static_cast<Allocation*>(memory);
  stripe.capacity = capacity;
  stripe.count = 0;
  for (std::uint32_t i = 0; i < old_capacity; ++i) {
    if (old[i].key != 0) {
      Put(stripe, old[i]);
    }
  }
  if (old != nullptr) {
    munmap(old, old_capacity * sizeof(Allocation));
  }
  return true;
}

namespace {
std::uint64_t Mix(std::uint64_t key) {
  key ^= key >> 33;
  key *= 0xff51afd7ed558ccdULL;
  key ^= key >> 33;
  return key;
}
}  // namespace

bool AllocationTable::Put(Stripe& stripe, const Allocation& allocation) {
  if ((stripe.count + 1) * 2 > stripe.capacity && !Grow(stripe)) {
    return false;
  }
  for (std::uint64_t at = Mix(allocation.key) >> 8;; ++at) {
    Allocation& place = stripe.entries[at & (stripe.capacity - 1)];
    if (place.key == 0) {
      place = allocation;
      ++stripe.count;
      return true;
    }
  }
}

Allocation* AllocationTable::Locate(Stripe& stripe, std::uint64_t key) {
  if (stripe.capacity == 0) {
    return nullptr;
  }
  for (std::uint64_t at = Mix(key) >> 8;; ++at) {
    Allocation& place = stripe.entries[at & (stripe.capacity - 1)];
    if (place.key == key) {
      return &place;
    }
    if (place.key == 0) {
      return nullptr;
    }
  }
}

void AllocationTable::Erase(Stripe& stripe, Allocation* entry) {
  entry->key = 0;
  --stripe.count;
  for (std::uint64_t at = static_cast<std::uint64_t>(entry - stripe.entries) + 1;; ++at) {
    Allocation& place = stripe.entries[at & (stripe.capacity - 1)];
    if (place.key == 0) {
      return;
    }
    const Allocation moved = place;
    place.key = 0;
    --stripe.count;
    Put(stripe, moved);
  }
}

bool AllocationTable::Insert(const Allocation& allocation) {
  Stripe& stripe = stripes_[Mix(allocation.key) & (kStripes - 1)];
  LockHolder hold(stripe.lock);
  return Put(stripe, allocation);
}

bool AllocationTable::Find(std::uint64_t key, Allocation* out) {
  if (key == 0) {
    return false;
  }
  Stripe& stripe = stripes_[Mix(key) & (kStripes - 1)];
  LockHolder hold(stripe.lock);
  const Allocation* found = Locate(stripe, key);
  if (found == nullptr) {
    return false;
  }
  *out = *found;
  return true;
}

bool AllocationTable::Take(std::uint64_t key, Allocation* out) {
  if (key == 0) {
    return false;
  }
  Stripe& stripe = stripes_[Mix(key) & (kStripes - 1)];
  LockHolder hold(stripe.lock);
  Allocation* found = Locate(stripe, key);
  if (found == nullptr) {
    return false;
  }
  *out = *found;
  Erase(stripe, found);
  return true;
}

std::uint32_t AllocationTable::AddReferences(std::uint64_t key, int count) {
  if (key == 0) {
    return 0;
  }
  Stripe& stripe = stripes_[Mix(key) & (kStripes - 1)];
  LockHolder hold(stripe.lock);
  Allocation* found = Locate(stripe, key);
  if (found == nullptr) {
    return 0;
  }
  found->references += static_cast<std::uint32_t>(count);
  return found->references;
}

bool AllocationTable::SetOther(std::uint64_t key, std::uint64_t other) {
  Stripe& stripe = stripes_[Mix(key) & (kStripes - 1)];
  LockHolder hold(stripe.lock);
  Allocation* found = key == 0 ? nullptr : Locate(stripe, key);
  if (found == nullptr) {
    return false;
  }
  found->other = other;
  return true;
}

void AllocationTable::TakeRange(std::uint64_t from, std::uint64_t bytes,
                                void (*taken)(const Allocation&)) {
  for (Stripe& stripe : stripes_) {
    for (;;) {
      Allocation found{};
      {
        LockHolder hold(stripe.lock);
        for (std::uint32_t i = 0; i < stripe.capacity && found.key == 0; ++i) {
          if (stripe.entries[i].key != 0 && stripe.entries[i].key - from < bytes) {
            found = stripe.entries[i];
            Erase(stripe, &stripe.entries[i]);
          }
        }
      }
      if (found.key == 0) {
        break;
      }
      taken(found);
    }
  }
}

}  // namespace sublet::gpu
