#include "gpu/gpud/pages.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <fstream>

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

namespace sublet::gpu {
namespace {

Status Errno(std::string_view what) {
  return InternalError(std::string(what) + ": " + std::strerror(errno));
}

int HexDigit(char c) {
  if (c >= '0' && c <= '9') {
    return c - '0';
  }
  if (c >= 'a' && c <= 'f') {
    return c - 'a' + 10;
  }
  return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

void CopyText(char* out, std::size_t bytes, std::string_view text) {
  const std::size_t length = std::min(bytes - 1, text.size());
  std::memcpy(out, text.data(), length);
  out[length] = 0;
}

}  // namespace

bool ParseDeviceUuid(std::string_view uuid, unsigned char (&bytes)[16]) {
  const std::size_t dash = uuid.find('-');
  if (dash == std::string_view::npos) {
    return false;
  }
  int digits = 0;
  for (const char c : uuid.substr(dash + 1)) {
    if (c == '-') {
      continue;
    }
    const int value = HexDigit(c);
    if (value < 0 || digits == 32) {
      return false;
    }
    bytes[digits / 2] =
        static_cast<unsigned char>(digits % 2 == 0 ? value << 4 : bytes[digits / 2] | value);
    ++digits;
  }
  return digits == 32;
}

Result<void> SlicePages::MakeControl(const std::string& slice,
                                     const std::vector<PageDevice>& devices, bool is_enforced) {
  control_fd_ = memfd_create("sublet-gpu-control", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (control_fd_ < 0 || ftruncate(control_fd_, sizeof(ControlPage)) != 0) {
    return Errno("control page");
  }
  void* memory =
      mmap(nullptr, sizeof(ControlPage), PROT_READ | PROT_WRITE, MAP_SHARED, control_fd_, 0);
  if (memory == MAP_FAILED) {
    return Errno("control page");
  }
  control_ = static_cast<ControlPage*>(memory);
  control_->version = kProtocolVersion;
  control_->device_count = static_cast<std::uint32_t>(devices.size());
  control_->is_enforced = is_enforced ? 1 : 0;
  CopyText(control_->slice, sizeof control_->slice, slice);
  for (std::size_t i = 0; i < devices.size(); ++i) {
    ControlDevice& device = control_->devices[i];
    CopyText(device.uuid, sizeof device.uuid, devices[i].uuid);
    CopyText(device.model, sizeof device.model, devices[i].model);
    if (!ParseDeviceUuid(devices[i].uuid, device.uuid_bytes)) {
      return BadRequest("device UUID " + devices[i].uuid);
    }
    device.cap_bytes = devices[i].cap_bytes;
    device.context_bytes.store(devices[i].context_bytes);
    device.index = devices[i].index;
    device.share_milli = devices[i].share_milli;
    // Without enforcement the gate stands open for good.
    device.lease.store(is_enforced ? 0 : kLeaseOpen);
  }
  control_->magic = kPageMagic;
  // From here on nobody can get a writable mapping of it; ours stays. Kernels before 5.1 (and
  // gVisor) lack the seal: there a client could rewrite its own page, which NVML's view still
  // catches.
  if (fcntl(control_fd_, F_ADD_SEALS,
            F_SEAL_FUTURE_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0 &&
      errno != EINVAL) {
    return Errno("control page seal");
  }
  return Ok();
}

Result<void> SlicePages::MapUsage(int fd, bool is_new) {
  usage_fd_ = fd;
  void* memory = mmap(nullptr, sizeof(UsagePage), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) {
    return Errno("usage page");
  }
  usage_ = static_cast<UsagePage*>(memory);
  if (is_new) {
    usage_->magic = kPageMagic;
    usage_->version = kProtocolVersion;
  }
  const std::string path = "/proc/self/fd/" + std::to_string(fd);
  usage_read_fd_ = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  return usage_read_fd_ >= 0 ? Ok() : Errno("usage page");
}

Result<std::unique_ptr<SlicePages>> SlicePages::Create(const std::string& slice,
                                                       const std::vector<PageDevice>& devices,
                                                       bool is_enforced) {
  std::unique_ptr<SlicePages> pages(new SlicePages);
  SUBLET_RETURN_IF_ERROR(pages->MakeControl(slice, devices, is_enforced));
  const int fd = memfd_create(kUsageName, MFD_CLOEXEC | MFD_ALLOW_SEALING);
  // A client must not be able to cut the page off under gpud's feet.
  if (fd < 0 || ftruncate(fd, sizeof(UsagePage)) != 0 ||
      (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0 && errno != EINVAL)) {
    return Errno("usage page");
  }
  SUBLET_RETURN_IF_ERROR(pages->MapUsage(fd, true));
  return pages;
}

Result<std::unique_ptr<SlicePages>> SlicePages::Adopt(const std::string& slice,
                                                      const std::vector<PageDevice>& devices,
                                                      bool is_enforced, int pid) {
  const std::string root = "/proc/" + std::to_string(pid);
  std::ifstream maps(root + "/maps");
  std::string line;
  int fd = -1;
  for (int lines = 0; lines < 100'000 && fd < 0 && std::getline(maps, line); ++lines) {
    if (line.find(std::string("/memfd:") + kUsageName) != std::string::npos) {
      fd =
          open((root + "/map_files/" + line.substr(0, line.find(' '))).c_str(), O_RDWR | O_CLOEXEC);
    }
  }
  struct stat info {};
  if (fd < 0 || fstat(fd, &info) != 0 || info.st_size != static_cast<off_t>(sizeof(UsagePage))) {
    if (fd >= 0) {
      close(fd);
    }
    return Status(Reason::kNotFound, "process " + std::to_string(pid) + " has no usage page");
  }
  std::unique_ptr<SlicePages> pages(new SlicePages);
  SUBLET_RETURN_IF_ERROR(pages->MakeControl(slice, devices, is_enforced));
  SUBLET_RETURN_IF_ERROR(pages->MapUsage(fd, false));
  for (int slot = 0; slot < kPageSlotsMax; ++slot) {
    const std::uint32_t generation = pages->usage_->slots[slot].generation.load();
    pages->generation_[static_cast<std::size_t>(slot)] = generation;
    if (generation != 0) {
      pages->slot_high_water_ = slot + 1;
      pages->next_generation_ = std::max(pages->next_generation_, generation + 1);
    }
  }
  return pages;
}

SlicePages::~SlicePages() {
  if (control_ != nullptr) {
    munmap(control_, sizeof(ControlPage));
  }
  if (usage_ != nullptr) {
    munmap(usage_, sizeof(UsagePage));
  }
  for (const int fd : {control_fd_, usage_fd_, usage_read_fd_}) {
    if (fd >= 0) {
      close(fd);
    }
  }
}

int SlicePages::TakeSlot(std::uint32_t container_pid) {
  for (int slot = 0; slot < kPageSlotsMax; ++slot) {
    if (generation_[static_cast<std::size_t>(slot)] == 0) {
      const std::uint32_t generation = next_generation_++;
      generation_[static_cast<std::size_t>(slot)] = generation;
      slot_high_water_ = std::max(slot_high_water_, slot + 1);
      usage_->slots[slot].pid.store(container_pid);
      usage_->slots[slot].generation.store(generation);
      return slot;
    }
  }
  return -1;
}

bool SlicePages::HasSlot(int slot, std::uint32_t generation) const {
  return slot >= 0 && slot < kPageSlotsMax && generation != 0 &&
         generation_[static_cast<std::size_t>(slot)] == generation;
}

std::uint32_t SlicePages::Generation(int slot) const {
  return generation_[static_cast<std::size_t>(slot)];
}

std::uint64_t SlicePages::SlotBytes(int slot, int device) const {
  std::uint64_t sum = 0;
  for (int charge = 0; charge < kChargesMax; ++charge) {
    if (charge != static_cast<int>(Charge::kHost)) {
      sum += usage_->slots[slot].devices[device].bytes[charge].load();
    }
  }
  return sum;
}

std::uint64_t SlicePages::ClassBytes(int device, Charge charge) const {
  std::uint64_t sum = 0;
  for (int slot = 0; slot < slot_high_water_; ++slot) {
    sum += usage_->slots[slot].devices[device].bytes[static_cast<int>(charge)].load();
  }
  return sum;
}

std::array<std::uint64_t, kPageDevicesMax> SlicePages::ClearSlot(int slot) {
  std::array<std::uint64_t, kPageDevicesMax> bytes{};
  for (int device = 0; device < device_count(); ++device) {
    // More than everything charged cannot have been this process's.
    bytes[static_cast<std::size_t>(device)] =
        std::min(SlotBytes(slot, device), usage_->devices[device].total.load());
    held_[static_cast<std::size_t>(device)] += bytes[static_cast<std::size_t>(device)];
  }
  generation_[static_cast<std::size_t>(slot)] = 0;
  // Atomics of plain integers: all zero is their empty state.
  std::memset(static_cast<void*>(&usage_->slots[slot]), 0, sizeof(Slot));
  return bytes;
}

void SlicePages::ReleaseHeld(int device, std::uint64_t bytes) {
  std::uint64_t& held = held_[static_cast<std::size_t>(device)];
  bytes = std::min(bytes, held);
  held -= bytes;
  usage_->devices[device].total.fetch_sub(bytes);
}

std::uint64_t SlicePages::LiveBytes(int device) const {
  std::uint64_t sum = 0;
  for (int slot = 0; slot < slot_high_water_; ++slot) {
    sum += generation_[static_cast<std::size_t>(slot)] != 0 ? SlotBytes(slot, device) : 0;
  }
  return sum;
}

bool SlicePages::Repair() {
  // A snapshot in which no slot was in the middle of a change, before and after.
  std::array<std::uint64_t, kPageSlotsMax> begun{};
  for (int slot = 0; slot < slot_high_water_; ++slot) {
    begun[static_cast<std::size_t>(slot)] = usage_->slots[slot].begun.load();
    if (usage_->slots[slot].ended.load() != begun[static_cast<std::size_t>(slot)]) {
      return false;
    }
  }
  std::array<std::uint64_t, kPageDevicesMax> surplus{};
  for (int device = 0; device < device_count(); ++device) {
    const std::uint64_t total = usage_->devices[device].total.load();
    const std::uint64_t accounted = LiveBytes(device) + Held(device) + Drift(device);
    surplus[static_cast<std::size_t>(device)] = total > accounted ? total - accounted : 0;
  }
  for (int slot = 0; slot < slot_high_water_; ++slot) {
    if (usage_->slots[slot].begun.load() != begun[static_cast<std::size_t>(slot)]) {
      return false;
    }
  }
  for (int device = 0; device < device_count(); ++device) {
    usage_->devices[device].total.fetch_sub(surplus[static_cast<std::size_t>(device)]);
  }
  return true;
}

std::uint64_t SlicePages::Total(int device) const { return usage_->devices[device].total.load(); }
std::uint64_t SlicePages::Peak(int device) const { return usage_->devices[device].peak.load(); }
std::uint64_t SlicePages::Refusals(int device) const {
  return usage_->devices[device].refusals.load();
}

std::uint64_t SlicePages::WaitNs(int device) const {
  std::uint64_t sum = 0;
  for (int slot = 0; slot < slot_high_water_; ++slot) {
    sum += usage_->slots[slot].devices[device].wait_ns.load();
  }
  return sum;
}

std::uint64_t SlicePages::Ungated() const {
  std::uint64_t sum = 0;
  for (int slot = 0; slot < slot_high_water_; ++slot) {
    for (int device = 0; device < device_count(); ++device) {
      sum += usage_->slots[slot].devices[device].ungated.load();
    }
  }
  return sum;
}

std::uint64_t SlicePages::Passthrough() const {
  std::uint64_t sum = 0;
  for (int slot = 0; slot < slot_high_water_; ++slot) {
    sum += usage_->slots[slot].passthrough.load();
  }
  return sum;
}

std::uint64_t SlicePages::PrivateTables() const {
  std::uint64_t sum = 0;
  for (int slot = 0; slot < slot_high_water_; ++slot) {
    sum += usage_->slots[slot].private_tables.load();
  }
  return sum;
}

LeaseObservation SlicePages::Observe(int device) const {
  LeaseObservation seen;
  for (int slot = 0; slot < slot_high_water_; ++slot) {
    if (generation_[static_cast<std::size_t>(slot)] == 0) {
      continue;
    }
    const SlotDevice& mine = usage_->slots[slot].devices[device];
    seen.is_waiting = seen.is_waiting || mine.waiting.load(std::memory_order_relaxed) != 0;
    seen.is_unfinished = seen.is_unfinished || mine.submitted.load(std::memory_order_relaxed) !=
                                                   mine.completed.load(std::memory_order_relaxed);
    seen.launches += mine.launches.load(std::memory_order_relaxed);
    seen.last_done = std::max(seen.last_done,
                              static_cast<Nanoseconds>(std::min<std::uint64_t>(
                                  mine.last_done_ns.load(std::memory_order_relaxed), LLONG_MAX)));
  }
  return seen;
}

void SlicePages::SetDrift(int device, std::uint64_t bytes) {
  std::uint64_t& drift = drift_[static_cast<std::size_t>(device)];
  if (bytes >= drift) {
    usage_->devices[device].total.fetch_add(bytes - drift);
  } else {
    usage_->devices[device].total.fetch_sub(drift - bytes);
  }
  drift = bytes;
}

void SlicePages::BeatEpoch() { control_->epoch.fetch_add(1); }

void SlicePages::SetLease(int device, const LeaseWord& word) {
  ControlDevice& mine = control_->devices[device];
  mine.lease_end_ns.store(static_cast<std::uint64_t>(word.end));
  const std::uint32_t old = mine.lease.load();
  const std::uint32_t bits =
      (word.is_open ? kLeaseOpen : 0) | (word.is_contended ? kLeaseContended : 0);
  mine.lease.store(((old & ~(kLeaseStep - 1)) + kLeaseStep) | bits);
  if (word.is_open) {
    syscall(SYS_futex, &mine.lease, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
  }
}

void SlicePages::SetContextBytes(int device, std::uint64_t bytes) {
  control_->devices[device].context_bytes.store(bytes);
}
void SlicePages::SetBusy(int device, std::uint64_t ns) {
  control_->devices[device].busy_ns.store(ns);
}

}  // namespace sublet::gpu
