#include "gpu/simulator/state.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include "gpu/simulator/execution.h"

#ifndef F_OFD_SETLKW
#define F_OFD_SETLKW 38
#endif

namespace sublet::gpu::simulator {
namespace {

struct flock ByteLock(short type, off_t at) {
  struct flock lock;
  std::memset(&lock, 0, sizeof lock);
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = at;
  lock.l_len = 1;
  return lock;
}

off_t LivenessByte(int slot) { return 4096 + slot; }

void FillDevice(Device& device, int index, const CreateOptions& options) {
  std::memset(&device, 0, sizeof device);
  for (int i = 0; i < 16; ++i) {
    device.uuid_bytes[i] = static_cast<unsigned char>(0x51 + i * 7);
  }
  device.uuid_bytes[15] = static_cast<unsigned char>(index);
  const unsigned char* b = device.uuid_bytes;
  std::snprintf(device.uuid, sizeof device.uuid,
                "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0],
                b[1], b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13],
                b[14], b[15]);
  std::snprintf(device.model, sizeof device.model, "%s", options.model);
  device.total_bytes = options.memory_bytes;
  device.reserved_bytes = options.reserved_bytes;
  device.context_bytes = options.context_bytes;
  device.multiprocessors = 132;
  device.running = -1;
}

}  // namespace

int CreateState(const CreateOptions& options) {
  if (options.device_count < 1 || options.device_count > kDevicesMax ||
      options.memory_bytes <= options.reserved_bytes) {
    return EINVAL;
  }
  int fd = -1;
  if (State* old = MapState(options.path, &fd); old != nullptr) {
    const bool same = old->device_count == static_cast<std::uint32_t>(options.device_count) &&
                      old->devices[0].total_bytes == options.memory_bytes &&
                      std::strcmp(old->devices[0].model, options.model) == 0;
    munmap(old, sizeof(State));
    close(fd);
    if (same) {
      return 0;
    }
  }
  char temporary[4096];
  std::snprintf(temporary, sizeof temporary, "%s.%d.new", options.path, static_cast<int>(getpid()));
  fd = open(temporary, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd < 0) {
    return errno;
  }
  fchmod(fd, 0666);
  State* state = nullptr;
  int error = 0;
  if (ftruncate(fd, sizeof(State)) != 0) {
    error = errno;
  } else {
    void* memory = mmap(nullptr, sizeof(State), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED) {
      error = errno;
    } else {
      state = static_cast<State*>(memory);
      state->version = kStateVersion;
      state->device_count = static_cast<std::uint32_t>(options.device_count);
      state->is_virtual_clock = options.is_virtual_clock ? 1 : 0;
      state->driver_version = 13000;
      for (int i = 0; i < options.device_count; ++i) {
        FillDevice(state->devices[i], i, options);
      }
      state->magic = kStateMagic;
      munmap(memory, sizeof(State));
      if (rename(temporary, options.path) != 0) {
        error = errno;
      }
    }
  }
  close(fd);
  if (error != 0) {
    unlink(temporary);
  }
  return error;
}

State* MapState(const char* path, int* fd) {
  const int opened = open(path, O_RDWR | O_CLOEXEC);
  if (opened < 0) {
    return nullptr;
  }
  if (lseek(opened, 0, SEEK_END) != static_cast<off_t>(sizeof(State))) {
    close(opened);
    errno = EPROTO;
    return nullptr;
  }
  void* memory = mmap(nullptr, sizeof(State), PROT_READ | PROT_WRITE, MAP_SHARED, opened, 0);
  if (memory == MAP_FAILED) {
    const int error = errno;
    close(opened);
    errno = error;
    return nullptr;
  }
  State* state = static_cast<State*>(memory);
  if (state->magic != kStateMagic || state->version != kStateVersion ||
      state->device_count > kDevicesMax) {
    munmap(memory, sizeof(State));
    close(opened);
    errno = EPROTO;
    return nullptr;
  }
  *fd = opened;
  return state;
}

std::uint64_t BytesOf(const Device& device, const ProcessDevice& process) {
  const std::uint64_t small =
      (process.small_bytes + kGranuleBytes - 1) / kGranuleBytes * kGranuleBytes;
  return process.large_bytes + small + (process.has_context != 0 ? device.context_bytes : 0);
}

Machine& Machine::Get() {
  static Machine machine;
  return machine;
}

bool Machine::is_ready() const { return state_ != nullptr && pid_ == getpid(); }

int Machine::Init(bool needs_slot) {
  if (pid_ != 0 && pid_ != getpid()) {
    // A forked child: the parent's slot and locks are not ours. The driver refuses such a child
    // too.
    return EPERM;
  }
  if (state_ == nullptr) {
    const char* path = std::getenv("SUBLET_SIMULATOR");
    state_ = MapState(path != nullptr && *path != 0 ? path : kStatePath, &fd_);
    if (state_ == nullptr) {
      return errno;
    }
    pid_ = getpid();
  }
  if (!needs_slot || slot_ >= 0) {
    return 0;
  }
  Lock();
  for (int pass = 0; pass < 2 && slot_ < 0; ++pass) {
    for (int i = 0; i < kProcessesMax; ++i) {
      if (state_->processes[i].is_used != 0) {
        continue;
      }
      struct flock lock = ByteLock(F_WRLCK, LivenessByte(i));
      if (fcntl(fd_, F_SETLK, &lock) == 0) {
        std::memset(&state_->processes[i], 0, sizeof(Process));
        state_->processes[i].pid = static_cast<std::uint32_t>(getpid());
        state_->processes[i].is_used = 1;
        if (state_->process_high_water <= static_cast<std::uint32_t>(i)) {
          state_->process_high_water = static_cast<std::uint32_t>(i) + 1;
        }
        slot_ = i;
        break;
      }
    }
    if (slot_ < 0) {
      Reap();
    }
  }
  Unlock();
  return slot_ >= 0 ? 0 : EAGAIN;
}

void Machine::Lock() {
  // Threads first (the file lock belongs to the whole process), then the other processes.
  int expected = 0;
  while (!__atomic_compare_exchange_n(&lock_word_, &expected, 1, false, __ATOMIC_ACQUIRE,
                                      __ATOMIC_RELAXED)) {
    expected = 0;
    syscall(SYS_futex, &lock_word_, FUTEX_WAIT_PRIVATE, 1, nullptr, nullptr, 0);
  }
  struct flock lock = ByteLock(F_WRLCK, 0);
  while (fcntl(fd_, F_OFD_SETLKW, &lock) != 0 && errno == EINTR) {
  }
}

void Machine::Unlock() {
  struct flock lock = ByteLock(F_UNLCK, 0);
  fcntl(fd_, F_OFD_SETLKW, &lock);
  __atomic_store_n(&lock_word_, 0, __ATOMIC_RELEASE);
  syscall(SYS_futex, &lock_word_, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
}

std::uint64_t Machine::Now() const {
  if (state_->is_virtual_clock != 0) {
    return __atomic_load_n(&state_->virtual_now_ns, __ATOMIC_ACQUIRE);
  }
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 +
         static_cast<std::uint64_t>(now.tv_nsec);
}

void Machine::Advance(int device) {
  Device& d = state_->devices[device];
  const std::uint64_t now = Now();
  if (d.is_hung != 0) {
    d.now_ns = now;
    return;
  }
  ExecutorClock clock{d.now_ns, d.slice_used_ns, d.running};
  Process* processes = state_->processes;
  Execute(
      clock, static_cast<int>(state_->process_high_water), kSliceNanoseconds, now,
      [&](int i) {
        const ProcessDevice& p = processes[i].devices[device];
        return processes[i].is_used != 0 ? p.submitted_ns - p.done_ns : 0;
      },
      [&](int i, std::uint64_t ns) { processes[i].devices[device].done_ns += ns; });
  d.now_ns = clock.now_ns;
  d.slice_used_ns = clock.slice_used_ns;
  d.running = clock.running;
}

std::uint64_t Machine::UsedBytes(int device) const {
  const Device& d = state_->devices[device];
  std::uint64_t used = d.reserved_bytes;
  for (std::uint32_t i = 0; i < state_->process_high_water; ++i) {
    if (state_->processes[i].is_used != 0) {
      used += BytesOf(d, state_->processes[i].devices[device]);
    }
  }
  return used;
}

int Machine::PidOf(int slot) const {
  if (slot == slot_) {
    return pid_;
  }
  struct flock lock = ByteLock(F_WRLCK, LivenessByte(slot));
  if (fcntl(fd_, F_GETLK, &lock) != 0) {
    return 0;
  }
  if (lock.l_type == F_UNLCK) {
    // Our own process's other library holds its locks on the same file: not a conflict, so alive.
    return state_->processes[slot].pid == static_cast<std::uint32_t>(getpid()) ? getpid() : 0;
  }
  return lock.l_pid;
}

void Machine::Reap() {
  for (std::uint32_t i = 0; i < state_->process_high_water; ++i) {
    Process& process = state_->processes[i];
    if (process.is_used == 0 || static_cast<int>(i) == slot_) {
      continue;
    }
    struct flock lock = ByteLock(F_WRLCK, LivenessByte(static_cast<int>(i)));
    if (fcntl(fd_, F_GETLK, &lock) == 0 && lock.l_type == F_UNLCK &&
        PidOf(static_cast<int>(i)) == 0) {
      std::memset(&process, 0, sizeof process);
    }
  }
  while (state_->process_high_water > 0 &&
         state_->processes[state_->process_high_water - 1].is_used == 0) {
    --state_->process_high_water;
  }
}

bool Machine::Reserve(int device, std::uint64_t bytes) {
  Device& d = state_->devices[device];
  if (d.fail_allocations > 0) {
    --d.fail_allocations;
    return false;
  }
  ProcessDevice& mine = self().devices[device];
  ProcessDevice grown = mine;
  // The driver cuts small allocations out of granules; the large ones it rounds up.
  if (bytes < kGranuleBytes / 2) {
    grown.small_bytes += (bytes + 511) / 512 * 512;
  } else {
    grown.large_bytes += (bytes + kGranuleBytes - 1) / kGranuleBytes * kGranuleBytes;
  }
  const std::uint64_t more = BytesOf(d, grown) - BytesOf(d, mine);
  for (int pass = 0; pass < 2; ++pass) {
    if (UsedBytes(device) + more <= d.total_bytes && bytes <= d.total_bytes) {
      mine = grown;
      const std::uint64_t used = UsedBytes(device);
      d.peak_bytes = d.peak_bytes > used ? d.peak_bytes : used;
      return true;
    }
    if (pass == 0) {
      Reap();
    }
  }
  return false;
}

void Machine::Release(int device, std::uint64_t bytes) {
  ProcessDevice& mine = self().devices[device];
  if (bytes < kGranuleBytes / 2) {
    mine.small_bytes -= (bytes + 511) / 512 * 512;
  } else {
    mine.large_bytes -= (bytes + kGranuleBytes - 1) / kGranuleBytes * kGranuleBytes;
  }
}

bool Machine::AddContext(int device) {
  Device& d = state_->devices[device];
  if (self().devices[device].has_context != 0) {
    return true;
  }
  if (UsedBytes(device) + d.context_bytes > d.total_bytes) {
    Reap();
  }
  if (UsedBytes(device) + d.context_bytes > d.total_bytes) {
    return false;
  }
  self().devices[device].has_context = 1;
  return true;
}

void Machine::RemoveContext(int device) { self().devices[device].has_context = 0; }

}  // namespace sublet::gpu::simulator
