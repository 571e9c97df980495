#include "gpu/hooks/charge.h"

#include <string.h>

#include "gpu/hooks/real_driver.h"

extern "C" {
sublet::gpu::cuda::CUresult cuCtxGetDevice(sublet::gpu::cuda::CUdevice* device);
sublet::gpu::cuda::CUresult cuDeviceGetUuid_v2(sublet::gpu::cuda::CUuuid* uuid,
                                               sublet::gpu::cuda::CUdevice device);
sublet::gpu::cuda::CUresult cuDeviceGetUuid(sublet::gpu::cuda::CUuuid* uuid,
                                            sublet::gpu::cuda::CUdevice device);
}

namespace sublet::gpu {
namespace {

// Marks a change of the slot's books, so that gpud can tell a quiet moment.
class Change {
 public:
  explicit Change(Slot& slot) : slot_(slot) { slot_.begun.fetch_add(1); }
  ~Change() { slot_.ended.fetch_add(1); }
  Change(const Change&) = delete;
  Change& operator=(const Change&) = delete;

 private:
  Slot& slot_;
};

bool IsSmall(std::uint64_t bytes) { return bytes < kGranuleBytes / 2; }

}  // namespace

bool Reserve(ProcessState& state, int device, std::uint64_t bytes, Charge charge, bool is_final) {
  const std::uint64_t cap =
      state.control.load(std::memory_order_relaxed)->devices[device].cap_bytes;
  UsageDevice& usage = state.usage.load(std::memory_order_relaxed)->devices[device];
  Slot& slot = *state.slot.load(std::memory_order_relaxed);
  Change change(slot);
  std::uint64_t total = usage.total.load();
#if defined(SUBLET_PLANT_CHECK_THEN_ALLOCATE)
  // For the test that must notice it: look first, add later.
  if (bytes > cap || total > cap - bytes) {
    usage.refusals.fetch_add(1);
    return false;
  }
  NapNs(1000);
  usage.total.fetch_add(bytes);
#else
  do {
    if (bytes > cap || total > cap - bytes) {
      if (is_final) {
        usage.refusals.fetch_add(1, std::memory_order_relaxed);
        slot.refusals.fetch_add(1, std::memory_order_relaxed);
      }
      return false;
    }
  } while (!usage.total.compare_exchange_weak(total, total + bytes));
#endif
  slot.devices[device].bytes[static_cast<int>(charge)].fetch_add(bytes);
  std::uint64_t peak = usage.peak.load(std::memory_order_relaxed);
  while (peak < total + bytes &&
         !usage.peak.compare_exchange_weak(peak, total + bytes, std::memory_order_relaxed)) {
  }
  (void)is_final;
  return true;
}

void ForceReserve(ProcessState& state, int device, std::uint64_t bytes, Charge charge) {
  Slot& slot = *state.slot.load(std::memory_order_relaxed);
  Change change(slot);
  state.usage.load(std::memory_order_relaxed)->devices[device].total.fetch_add(bytes);
  slot.devices[device].bytes[static_cast<int>(charge)].fetch_add(bytes);
}

void Release(ProcessState& state, int device, std::uint64_t bytes, Charge charge) {
  Slot& slot = *state.slot.load(std::memory_order_relaxed);
  Change change(slot);
  slot.devices[device].bytes[static_cast<int>(charge)].fetch_sub(bytes);
  state.usage.load(std::memory_order_relaxed)->devices[device].total.fetch_sub(bytes);
}

std::uint64_t Room(ProcessState& state, int device) {
  const std::uint64_t cap =
      state.control.load(std::memory_order_relaxed)->devices[device].cap_bytes;
  const std::uint64_t total =
      state.usage.load(std::memory_order_relaxed)->devices[device].total.load();
  return total < cap ? cap - total : 0;
}

bool ReserveOrTrim(ProcessState& state, int device, std::uint64_t bytes, Charge charge) {
  if (Reserve(state, device, bytes, charge, false)) {
    return true;
  }
  TrimPools(state, device);
  return Reserve(state, device, bytes, charge);
}

bool ReserveLinear(ProcessState& state, int device, std::uint64_t bytes) {
  if (!IsSmall(bytes)) {
    return ReserveOrTrim(state, device, RoundUp(bytes, kGranuleBytes), Charge::kLinear);
  }
  LockHolder hold(state.small_lock);
  const std::uint64_t want = state.small_bytes[device] + RoundUp(bytes, 512);
  const std::uint64_t charged = state.small_charged[device];
  if (want > charged) {
    const std::uint64_t more = RoundUp(want - charged, kGranuleBytes);
    if (!Reserve(state, device, more, Charge::kLinear)) {
      return false;
    }
    state.small_charged[device] += more;
  }
  state.small_bytes[device] = want;
  return true;
}

void ReleaseLinear(ProcessState& state, int device, std::uint64_t bytes) {
  if (!IsSmall(bytes)) {
    Release(state, device, RoundUp(bytes, kGranuleBytes), Charge::kLinear);
    return;
  }
  LockHolder hold(state.small_lock);
  state.small_bytes[device] -= RoundUp(bytes, 512);
  const std::uint64_t keep = RoundUp(state.small_bytes[device], kGranuleBytes);
  if (state.small_charged[device] > keep) {
    Release(state, device, state.small_charged[device] - keep, Charge::kLinear);
    state.small_charged[device] = keep;
  }
}

int PlaceOfDevice(ProcessState& state, cuda::CUdevice device) {
  if (device < 0 || device >= 64) {
    return -1;
  }
  const int known = state.device_of_ordinal[device].load(std::memory_order_relaxed);
  if (known != 0) {
    return known > 0 ? known - 1 : -1;
  }
  cuda::CUuuid uuid;
  cuda::CUresult result = cuda::kNotFound;
  if (FindRealFunction(kSym_cuDeviceGetUuid_v2) != nullptr) {
    result = SUBLET_REAL(cuDeviceGetUuid_v2)(&uuid, device);
  } else {
    result = SUBLET_REAL(cuDeviceGetUuid)(&uuid, device);
  }
  if (result != cuda::kSuccess) {
    return -1;  // not remembered: the driver may not be initialised yet
  }
  const ControlPage& page = *state.control.load(std::memory_order_relaxed);
  int place = -1;
  for (std::uint32_t i = 0; i < page.device_count && i < kPageDevicesMax; ++i) {
    if (memcmp(page.devices[i].uuid_bytes, uuid.bytes, sizeof uuid.bytes) == 0) {
      place = static_cast<int>(i);
    }
  }
  state.device_of_ordinal[device].store(place >= 0 ? place + 1 : -1, std::memory_order_relaxed);
  return place;
}

int CurrentPlace(ProcessState& state) {
  cuda::CUdevice device = -1;
  if (SUBLET_REAL(cuCtxGetDevice)(&device) != cuda::kSuccess) {
    return -1;
  }
  return PlaceOfDevice(state, device);
}

ProcessState* Charged(bool* refuse) {
  ProcessState* state = ConnectedState();
  *refuse = false;
  if (state == nullptr || state->pid == 0) {
    *refuse = !Connect();
    state = *refuse ? nullptr : ConnectedState();
  }
  return state != nullptr && IsEnforced(*state) ? state : nullptr;
}

}  // namespace sublet::gpu
