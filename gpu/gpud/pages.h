// SlicePages: the two memory pages of one slice (gpu/hooks/protocol.h) as gpud sees them: it writes
// the control page and repairs the usage page when processes die. Everything read from the usage
// page is the tenant's word: it is clamped, never trusted to be sane. Threads: one (gpud's engine
// thread); clients write the usage page concurrently.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "gpu/gpud/arbiter.h"
#include "gpu/hooks/protocol.h"

namespace sublet::gpu {

struct PageDevice {
  std::string uuid;
  std::string model;
  std::uint64_t cap_bytes = 0;
  std::uint64_t context_bytes = 0;
  std::uint32_t index = 0;
  std::uint32_t share_milli = 0;
};

// "GPU-xxxxxxxx-xxxx-..." (or "MIG-...") to its 16 bytes; false when it is not of that form.
bool ParseDeviceUuid(std::string_view uuid, unsigned char (&bytes)[16]);

class SlicePages {
 public:
  // Makes both pages; the control page is sealed so that nobody else can ever map it writable.
  // Errors: InternalError (memfd or mmap refused).
  static Result<std::unique_ptr<SlicePages>> Create(const std::string& slice,
                                                    const std::vector<PageDevice>& devices,
                                                    bool is_enforced);
  // The same with the usage page of an earlier gpud, taken from a living client's memory
  // (/proc/PID/map_files). Errors: NotFound (no such mapping, or not of our size).
  static Result<std::unique_ptr<SlicePages>> Adopt(const std::string& slice,
                                                   const std::vector<PageDevice>& devices,
                                                   bool is_enforced, int pid);
  ~SlicePages();
  SlicePages(const SlicePages&) = delete;
  SlicePages& operator=(const SlicePages&) = delete;

  int control_fd() const { return control_fd_; }
  int usage_fd() const { return usage_fd_; }
  int usage_read_fd() const { return usage_read_fd_; }  // for observers
  int device_count() const { return static_cast<int>(control_->device_count); }

  // The next free slot, marked with a new generation; -1: all 512 are in use.
  int TakeSlot(std::uint32_t container_pid);
  // A slot that a resuming client of an earlier gpud holds.
  bool HasSlot(int slot, std::uint32_t generation) const;
  std::uint32_t Generation(int slot) const;
  // Empties a dead process's slot. Its bytes stay in the total as held until ReleaseHeld.
  // Returns the bytes per device.
  std::array<std::uint64_t, kPageDevicesMax> ClearSlot(int slot);
  void ReleaseHeld(int device, std::uint64_t bytes);
  // Takes the surplus that killed processes left in the totals; false: some process is in the
  // middle of a change, try again.
  bool Repair();

  // The bytes charged to a slot, host memory excluded.
  std::uint64_t SlotBytes(int slot, int device) const;
  std::uint64_t ClassBytes(int device, Charge charge) const;
  std::uint64_t Total(int device) const;
  std::uint64_t Peak(int device) const;
  std::uint64_t Refusals(int device) const;
  std::uint64_t Held(int device) const { return held_[static_cast<std::size_t>(device)]; }
  std::uint64_t WaitNs(int device) const;
  std::uint64_t Ungated() const;
  std::uint64_t Passthrough() const;
  std::uint64_t PrivateTables() const;
  LeaseObservation Observe(int device) const;

  // What the driver shows beyond the charges; joins the total, so that the cap holds for it too.
  void SetDrift(int device, std::uint64_t bytes);
  std::uint64_t Drift(int device) const { return drift_[static_cast<std::size_t>(device)]; }

  void BeatEpoch();
  void SetLease(int device, const LeaseWord& word);  // wakes waiters when it opens
  void SetContextBytes(int device, std::uint64_t bytes);
  void SetBusy(int device, std::uint64_t ns);

 private:
  SlicePages() = default;
  Result<void> MakeControl(const std::string& slice, const std::vector<PageDevice>& devices,
                           bool is_enforced);
  Result<void> MapUsage(int fd, bool is_new);
  std::uint64_t LiveBytes(int device) const;

  int control_fd_ = -1;
  int usage_fd_ = -1;
  int usage_read_fd_ = -1;
  ControlPage* control_ = nullptr;
  UsagePage* usage_ = nullptr;
  std::array<std::uint64_t, kPageDevicesMax> held_{};
  std::array<std::uint64_t, kPageDevicesMax> drift_{};
  std::uint32_t next_generation_ = 1;
  // Which slots gpud itself gave out; the page's generation word is only a copy for the client.
  std::array<std::uint32_t, kPageSlotsMax> generation_{};
  int slot_high_water_ = 0;
};

// The name of the usage memfd, by which Adopt finds it.
inline constexpr char kUsageName[] = "sublet-gpu-usage";

}  // namespace sublet::gpu
