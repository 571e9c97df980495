// Hooks for linear, pitched, managed and host memory, and for virtual memory (handles and
// mappings).
#include "gpu/hooks/charge.h"
#include "gpu/hooks/real_driver.h"

namespace sublet::gpu {

using namespace cuda;  // NOLINT: the driver's names are the subject of this file

namespace {

// The body of every allocation that answers with an address: reserve, call, note or undo.
template <typename Call, typename Address>
CUresult AllocateLinear(std::uint64_t bytes, Call call, Address* out) {
  bool refuse = false;
  ProcessState* state = Charged(&refuse);
  if (refuse) {
    return kSystemNotReady;
  }
  const int device = state != nullptr && out != nullptr && bytes > 0 ? CurrentPlace(*state) : -1;
  if (device < 0) {
    return call();  // not ours to charge; the driver says what is wrong
  }
  if (!ReserveLinear(*state, device, bytes)) {
    return kOutOfMemory;
  }
  const CUresult result = call();
  if (result != kSuccess) {
    ReleaseLinear(*state, device, bytes);
    return result;
  }
  // Without host memory for the note the charge simply stays: never too little.
  state->memory.Insert({static_cast<std::uint64_t>(*out), bytes, 0, 0,
                        static_cast<std::uint16_t>(device),
                        static_cast<std::uint16_t>(Charge::kLinear)});
  return result;
}

// Takes the note before the driver frees: afterwards another thread may get the same address.
template <typename Call>
CUresult FreeLinear(std::uint64_t address, Call call) {
  ProcessState* state = ConnectedState();
  Allocation allocation;
  const bool known = state != nullptr && state->memory.Take(address, &allocation);
  const CUresult result = call();
  if (!known) {
    return result;
  }
  if (result != kSuccess) {
    state->memory.Insert(allocation);
    return result;
  }
  if (static_cast<Charge>(allocation.charge) == Charge::kLinear) {
    ReleaseLinear(*state, allocation.device, allocation.bytes);
  }
  return result;
}

// Host memory is counted for `sublet gpu top`, never capped.
void CountHost(void* address, std::uint64_t bytes) {
  ProcessState* state = ConnectedState();
  if (state == nullptr ||
      !state->memory.Insert({reinterpret_cast<std::uint64_t>(address), bytes, 0, 0, 0,
                             static_cast<std::uint16_t>(Charge::kHost)})) {
    return;
  }
  state->slot.load()->devices[0].bytes[static_cast<int>(Charge::kHost)].fetch_add(bytes);
}

// A VMM handle's memory goes with its last reference: the handle's own, retained ones and mappings.
void DropHandle(ProcessState& state, std::uint64_t handle) {
  if (state.handles.AddReferences(handle, -1) != 0) {
    return;
  }
  Allocation gone;
  if (state.handles.Take(handle, &gone) && gone.bytes > 0) {
    Release(state, gone.device, gone.bytes, Charge::kVmm);
  }
}

}  // namespace

SUBLET_HOOK CUresult cuMemAlloc_v2(CUdeviceptr* out, std::size_t bytes) {
  return AllocateLinear(
      bytes, [&] { return SUBLET_REAL(cuMemAlloc_v2)(out, bytes); }, out);
}
SUBLET_HOOK CUresult cuMemAlloc(CUdeviceptr_v1* out, unsigned int bytes) {
  return AllocateLinear(
      bytes, [&] { return SUBLET_REAL(cuMemAlloc)(out, bytes); }, out);
}
SUBLET_HOOK CUresult cuMemAllocManaged(CUdeviceptr* out, std::size_t bytes, unsigned int flags) {
  return AllocateLinear(
      bytes, [&] { return SUBLET_REAL(cuMemAllocManaged)(out, bytes, flags); }, out);
}
// The pitch is the driver's choice: rows are charged at 512 bytes' alignment, which is what it
// takes.
SUBLET_HOOK CUresult cuMemAllocPitch_v2(CUdeviceptr* out, std::size_t* pitch, std::size_t width,
                                        std::size_t height, unsigned int element) {
  const unsigned __int128 bytes = static_cast<unsigned __int128>(RoundUp(width, 512)) * height;
  const std::uint64_t charged =
      bytes >> 62 != 0 ? ~std::uint64_t{0} >> 2 : static_cast<std::uint64_t>(bytes);
  return AllocateLinear(
      charged, [&] { return SUBLET_REAL(cuMemAllocPitch_v2)(out, pitch, width, height, element); },
      out);
}
SUBLET_HOOK CUresult cuMemAllocPitch(CUdeviceptr_v1* out, unsigned int* pitch, unsigned int width,
                                     unsigned int height, unsigned int element) {
  const std::uint64_t charged = RoundUp(width, 512) * height;
  return AllocateLinear(
      charged, [&] { return SUBLET_REAL(cuMemAllocPitch)(out, pitch, width, height, element); },
      out);
}
SUBLET_HOOK CUresult cuMemFree_v2(CUdeviceptr address) {
  return FreeLinear(address, [&] { return SUBLET_REAL(cuMemFree_v2)(address); });
}
SUBLET_HOOK CUresult cuMemFree(CUdeviceptr_v1 address) {
  return FreeLinear(address, [&] { return SUBLET_REAL(cuMemFree)(address); });
}

SUBLET_HOOK CUresult cuMemAllocHost_v2(void** out, std::size_t bytes) {
  const CUresult result = SUBLET_REAL(cuMemAllocHost_v2)(out, bytes);
  if (result == kSuccess) {
    CountHost(*out, bytes);
  }
  return result;
}
SUBLET_HOOK CUresult cuMemHostAlloc(void** out, std::size_t bytes, unsigned int flags) {
  const CUresult result = SUBLET_REAL(cuMemHostAlloc)(out, bytes, flags);
  if (result == kSuccess) {
    CountHost(*out, bytes);
  }
  return result;
}
SUBLET_HOOK CUresult cuMemFreeHost(void* address) {
  ProcessState* state = ConnectedState();
  Allocation gone;
  if (state != nullptr && state->memory.Take(reinterpret_cast<std::uint64_t>(address), &gone)) {
    state->slot.load()->devices[0].bytes[static_cast<int>(Charge::kHost)].fetch_sub(gone.bytes);
  }
  return SUBLET_REAL(cuMemFreeHost)(address);
}

SUBLET_HOOK CUresult cuMemCreate(CUmemHandle* out, std::size_t bytes,
                                 const CUmemAllocationProp* prop, unsigned long long flags) {
  bool refuse = false;
  ProcessState* state = Charged(&refuse);
  if (refuse) {
    return kSystemNotReady;
  }
  if (state == nullptr || prop == nullptr || out == nullptr ||
      prop->location.type != kLocationDevice) {
    return SUBLET_REAL(cuMemCreate)(out, bytes, prop, flags);
  }
  const int device = PlaceOfDevice(*state, prop->location.id);
  if (device < 0) {
    return kInvalidDevice;
  }
  const std::uint64_t charged = RoundUp(bytes, kGranuleBytes);
  if (!ReserveOrTrim(*state, device, charged, Charge::kVmm)) {
    return kOutOfMemory;
  }
  const CUresult result = SUBLET_REAL(cuMemCreate)(out, bytes, prop, flags);
  if (result != kSuccess) {
    Release(*state, device, charged, Charge::kVmm);
    return result;
  }
  state->handles.Insert({*out, charged, 0, 1, static_cast<std::uint16_t>(device),
                         static_cast<std::uint16_t>(Charge::kVmm)});
  return result;
}
SUBLET_HOOK CUresult cuMemRelease(CUmemHandle handle) {
  const CUresult result = SUBLET_REAL(cuMemRelease)(handle);
  ProcessState* state = ConnectedState();
  Allocation known;
  if (result == kSuccess && state != nullptr && state->handles.Find(handle, &known)) {
    DropHandle(*state, handle);
  }
  return result;
}
SUBLET_HOOK CUresult cuMemRetainAllocationHandle(CUmemHandle* out, void* address) {
  const CUresult result = SUBLET_REAL(cuMemRetainAllocationHandle)(out, address);
  ProcessState* state = ConnectedState();
  if (result == kSuccess && state != nullptr) {
    state->handles.AddReferences(*out, 1);
  }
  return result;
}
SUBLET_HOOK CUresult cuMemMap(CUdeviceptr address, std::size_t bytes, std::size_t offset,
                              CUmemHandle handle, unsigned long long flags) {
  const CUresult result = SUBLET_REAL(cuMemMap)(address, bytes, offset, handle, flags);
  ProcessState* state = ConnectedState();
  if (result == kSuccess && state != nullptr && state->handles.AddReferences(handle, 1) != 0) {
    state->memory.Insert({address, bytes, handle, 0, 0, static_cast<std::uint16_t>(Charge::kVmm)});
  }
  return result;
}
SUBLET_HOOK CUresult cuMemUnmap(CUdeviceptr address, std::size_t bytes) {
  const CUresult result = SUBLET_REAL(cuMemUnmap)(address, bytes);
  ProcessState* state = ConnectedState();
  if (result != kSuccess || state == nullptr) {
    return result;
  }
  Allocation mapping;
  if (state->memory.Find(address, &mapping) && mapping.bytes == bytes) {
    if (state->memory.Take(address, &mapping)) {
      DropHandle(*state, mapping.other);
    }
  } else {
    // One call may end several mappings that lie side by side.
    state->memory.TakeRange(address, bytes, [](const Allocation& taken) {
      if (static_cast<Charge>(taken.charge) == Charge::kVmm) {
        DropHandle(*ConnectedState(), taken.other);
      }
    });
  }
  return result;
}

}  // namespace sublet::gpu
