// Hooks for start, devices, contexts and the queries that show memory: a process sees its slice's
// devices and nothing else, and its cap as the size of the device.
#include "gpu/hooks/charge.h"
#include "gpu/hooks/real_driver.h"

namespace sublet::gpu {

using namespace cuda;  // NOLINT: the driver's names are the subject of this file

void ForgetMarks(ProcessState& state, int device);  // launch.cc

namespace {

constexpr int kOrdinalsMax = 64;
// Where a device's primary context stands in the table of handles; no driver handle is that high.
constexpr std::uint64_t kPrimaryKey = 0xf000000000000000ULL;

// The real ordinals of the slice's devices, in the driver's order (which CUDA_VISIBLE_DEVICES may
// have narrowed or turned). Returns how many.
int OwnOrdinals(ProcessState& state, int* ordinals);

template <typename Call>
CUresult MakeContext(CUdevice device, bool is_primary, Call call,
                     std::uint64_t* charged = nullptr) {
  bool refuse = false;
  ProcessState* state = Charged(&refuse);
  if (refuse) {
    return kSystemNotReady;
  }
  if (state == nullptr) {
    return call();
  }
  const int place = PlaceOfDevice(*state, device);
  if (place < 0) {
    return kInvalidDevice;
  }
  LockHolder hold(state->contexts_lock);
  const bool costs = !is_primary || state->primary_references[place] == 0;
  const std::uint64_t bytes =
      state->control.load()->devices[place].context_bytes.load(std::memory_order_relaxed);
  if (costs && !ReserveOrTrim(*state, place, bytes, Charge::kContext)) {
    return kOutOfMemory;
  }
  if (charged != nullptr) {
    *charged = bytes;
  }
  const CUresult result = call();
  if (result != kSuccess) {
    if (costs) {
      Release(*state, place, bytes, Charge::kContext);
    }
    return result;
  }
  state->primary_references[place] += is_primary ? 1 : 0;
  if (is_primary && costs) {
    // Remembered with the bytes that were charged: gpud may learn a better figure meanwhile.
    state->handles.Insert({kPrimaryKey + static_cast<std::uint64_t>(place), bytes, 0, 1,
                           static_cast<std::uint16_t>(place),
                           static_cast<std::uint16_t>(Charge::kContext)});
  }
  return result;
}

void DropPrimary(ProcessState& state, int place, bool all) {
  LockHolder hold(state.contexts_lock);
  if (state.primary_references[place] == 0) {
    return;
  }
  state.primary_references[place] = all ? 0 : state.primary_references[place] - 1;
  Allocation gone;
  if (state.primary_references[place] == 0 &&
      state.handles.Take(kPrimaryKey + static_cast<std::uint64_t>(place), &gone)) {
    ForgetMarks(state, place);
    Release(state, place, gone.bytes, Charge::kContext);
  }
}

// cuCtxCreate in all its forms: the context itself carries the charge.
template <typename Call>
CUresult CreateContext(CUcontext* out, CUdevice device, Call call) {
  std::uint64_t charged = 0;
  const CUresult result = MakeContext(device, false, call, &charged);
  ProcessState* state = ConnectedState();
  if (result == kSuccess && state != nullptr && IsEnforced(*state)) {
    const int place = PlaceOfDevice(*state, device);
    state->handles.Insert({reinterpret_cast<std::uint64_t>(*out), charged, 0, 1,
                           static_cast<std::uint16_t>(place),
                           static_cast<std::uint16_t>(Charge::kContext)});
  }
  return result;
}

template <typename Call>
CUresult DestroyContext(CUcontext context, Call call) {
  ProcessState* state = ConnectedState();
  Allocation gone;
  const bool known =
      state != nullptr && state->handles.Take(reinterpret_cast<std::uint64_t>(context), &gone);
  if (known) {
    ForgetMarks(*state, gone.device);
  }
  const CUresult result = call();
  if (known && result == kSuccess) {
    Release(*state, gone.device, gone.bytes, Charge::kContext);
  } else if (known) {
    state->handles.Insert(gone);
  }
  return result;
}

// What a query shows: the cap as total; free is what is left of it, never more than the device has.
template <typename Size>
void Virtualise(ProcessState& state, int place, Size* free_bytes, Size* total_bytes) {
  const std::uint64_t room = Room(state, place);
  if (free_bytes != nullptr && static_cast<std::uint64_t>(*free_bytes) > room) {
    *free_bytes = static_cast<Size>(room);
  }
  if (total_bytes != nullptr) {
    *total_bytes = static_cast<Size>(state.control.load()->devices[place].cap_bytes);
  }
}

}  // namespace

SUBLET_HOOK CUresult cuInit(unsigned int flags) {
  // Fail closed: without gpud nobody would hold this process to its slice.
  if (!Connect()) {
    return kSystemNotReady;
  }
  return SUBLET_REAL(cuInit)(flags);
}

SUBLET_HOOK CUresult cuDeviceGetCount(int* count) {
  const CUresult result = SUBLET_REAL(cuDeviceGetCount)(count);
  ProcessState* state = ConnectedState();
  if (result == kSuccess && state != nullptr && count != nullptr) {
    int ordinals[kOrdinalsMax];
    *count = OwnOrdinals(*state, ordinals);
  }
  return result;
}
SUBLET_HOOK CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  ProcessState* state = ConnectedState();
  if (state == nullptr) {
    return SUBLET_REAL(cuDeviceGet)(device, ordinal);
  }
  int ordinals[kOrdinalsMax];
  const int count = OwnOrdinals(*state, ordinals);
  if (ordinal < 0 || ordinal >= count) {
    return kInvalidDevice;
  }
  return SUBLET_REAL(cuDeviceGet)(device, ordinals[ordinal]);
}
SUBLET_HOOK CUresult cuDeviceGetByPCIBusId(CUdevice* device, const char* text) {
  const CUresult result = SUBLET_REAL(cuDeviceGetByPCIBusId)(device, text);
  ProcessState* state = ConnectedState();
  return result == kSuccess && state != nullptr && PlaceOfDevice(*state, *device) < 0
             ? kInvalidDevice
             : result;
}

SUBLET_HOOK CUresult cuDevicePrimaryCtxRetain(CUcontext* out, CUdevice device) {
  return MakeContext(device, true,
                     [&] { return SUBLET_REAL(cuDevicePrimaryCtxRetain)(out, device); });
}
namespace {
template <typename Call>
CUresult ReleasePrimary(CUdevice device, bool all, Call call) {
  const CUresult result = call();
  ProcessState* state = ConnectedState();
  const int place = result == kSuccess && state != nullptr ? PlaceOfDevice(*state, device) : -1;
  if (place >= 0) {
    DropPrimary(*state, place, all);
  }
  return result;
}
}  // namespace
SUBLET_HOOK CUresult cuDevicePrimaryCtxRelease(CUdevice device) {
  return ReleasePrimary(device, false,
                        [&] { return SUBLET_REAL(cuDevicePrimaryCtxRelease)(device); });
}
SUBLET_HOOK CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
  return ReleasePrimary(device, false,
                        [&] { return SUBLET_REAL(cuDevicePrimaryCtxRelease_v2)(device); });
}
SUBLET_HOOK CUresult cuDevicePrimaryCtxReset(CUdevice device) {
  return ReleasePrimary(device, true, [&] { return SUBLET_REAL(cuDevicePrimaryCtxReset)(device); });
}
SUBLET_HOOK CUresult cuDevicePrimaryCtxReset_v2(CUdevice device) {
  return ReleasePrimary(device, true,
                        [&] { return SUBLET_REAL(cuDevicePrimaryCtxReset_v2)(device); });
}
SUBLET_HOOK CUresult cuCtxCreate(CUcontext* out, unsigned int flags, CUdevice device) {
  return CreateContext(out, device, [&] { return SUBLET_REAL(cuCtxCreate)(out, flags, device); });
}
SUBLET_HOOK CUresult cuCtxCreate_v2(CUcontext* out, unsigned int flags, CUdevice device) {
  return CreateContext(out, device,
                       [&] { return SUBLET_REAL(cuCtxCreate_v2)(out, flags, device); });
}
SUBLET_HOOK CUresult cuCtxCreate_v3(CUcontext* out, void* affinity, int count, unsigned int flags,
                                    CUdevice device) {
  return CreateContext(out, device, [&] {
    return SUBLET_REAL(cuCtxCreate_v3)(out, affinity, count, flags, device);
  });
}
SUBLET_HOOK CUresult cuCtxCreate_v4(CUcontext* out, void* params, unsigned int flags,
                                    CUdevice device) {
  return CreateContext(out, device,
                       [&] { return SUBLET_REAL(cuCtxCreate_v4)(out, params, flags, device); });
}
SUBLET_HOOK CUresult cuCtxDestroy(CUcontext context) {
  return DestroyContext(context, [&] { return SUBLET_REAL(cuCtxDestroy)(context); });
}
SUBLET_HOOK CUresult cuCtxDestroy_v2(CUcontext context) {
  return DestroyContext(context, [&] { return SUBLET_REAL(cuCtxDestroy_v2)(context); });
}

SUBLET_HOOK CUresult cuMemGetInfo_v2(std::size_t* free_bytes, std::size_t* total_bytes) {
  const CUresult result = SUBLET_REAL(cuMemGetInfo_v2)(free_bytes, total_bytes);
  ProcessState* state = ConnectedState();
  const int place =
      result == kSuccess && state != nullptr && IsEnforced(*state) ? CurrentPlace(*state) : -1;
  if (place >= 0) {
    Virtualise(*state, place, free_bytes, total_bytes);
  }
  return result;
}
SUBLET_HOOK CUresult cuMemGetInfo(unsigned int* free_bytes, unsigned int* total_bytes) {
  const CUresult result = SUBLET_REAL(cuMemGetInfo)(free_bytes, total_bytes);
  ProcessState* state = ConnectedState();
  const int place =
      result == kSuccess && state != nullptr && IsEnforced(*state) ? CurrentPlace(*state) : -1;
  if (place >= 0) {
    Virtualise(*state, place, free_bytes, total_bytes);
  }
  return result;
}
SUBLET_HOOK CUresult cuDeviceTotalMem_v2(std::size_t* bytes, CUdevice device) {
  const CUresult result = SUBLET_REAL(cuDeviceTotalMem_v2)(bytes, device);
  ProcessState* state = ConnectedState();
  const int place = result == kSuccess && state != nullptr && IsEnforced(*state)
                        ? PlaceOfDevice(*state, device)
                        : -1;
  if (place >= 0) {
    Virtualise<std::size_t>(*state, place, nullptr, bytes);
  }
  return result;
}
SUBLET_HOOK CUresult cuDeviceTotalMem(unsigned int* bytes, CUdevice device) {
  const CUresult result = SUBLET_REAL(cuDeviceTotalMem)(bytes, device);
  ProcessState* state = ConnectedState();
  const int place = result == kSuccess && state != nullptr && IsEnforced(*state)
                        ? PlaceOfDevice(*state, device)
                        : -1;
  if (place >= 0) {
    Virtualise<unsigned int>(*state, place, nullptr, bytes);
  }
  return result;
}

namespace {
int OwnOrdinals(ProcessState& state, int* ordinals) {
  int all = 0;
  if (SUBLET_REAL(cuDeviceGetCount)(&all) != kSuccess) {
    return 0;
  }
  int count = 0;
  for (int ordinal = 0; ordinal < all && ordinal < kOrdinalsMax; ++ordinal) {
    CUdevice device = -1;
    if (SUBLET_REAL(cuDeviceGet)(&device, ordinal) == kSuccess &&
        PlaceOfDevice(state, device) >= 0) {
      ordinals[count++] = ordinal;
    }
  }
  return count;
}
}  // namespace

}  // namespace sublet::gpu
