// Hooks for arrays and mipmapped arrays: charged by the driver's own answer about their size, after
// a reserve by our estimate.
#include "gpu/hooks/charge.h"
#include "gpu/hooks/real_driver.h"

namespace sublet::gpu {

using namespace cuda;  // NOLINT: the driver's names are the subject of this file

extern "C" {
CUresult cuArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS* out, CUarray array,
                                      CUdevice device);
CUresult cuMipmappedArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS* out,
                                               CUmipmappedArray array, CUdevice device);
CUresult cuCtxGetDevice(CUdevice* device);
}

namespace {

// The size the driver states, or 0 when it does not say (older drivers, some formats).
template <typename Query>
std::uint64_t StatedBytes(Query query, Symbol symbol, void* array) {
  CUDA_ARRAY_MEMORY_REQUIREMENTS answer = {};
  CUdevice device = 0;
  if (FindRealFunction(symbol) == nullptr || SUBLET_REAL(cuCtxGetDevice)(&device) != kSuccess ||
      query(&answer, array, device) != kSuccess) {
    return 0;
  }
  return RoundUp(answer.size, kGranuleBytes);
}

template <typename Call, typename Stated, typename Destroy>
CUresult CreateArray(std::uint64_t estimate, void** out, Call call, Stated stated,
                     Destroy destroy) {
  bool refuse = false;
  ProcessState* state = Charged(&refuse);
  if (refuse) {
    return kSystemNotReady;
  }
  const int device = state != nullptr && out != nullptr ? CurrentPlace(*state) : -1;
  if (device < 0) {
    return call();
  }
  std::uint64_t charged = RoundUp(estimate, kGranuleBytes);
  if (!ReserveOrTrim(*state, device, charged, Charge::kArray)) {
    return kOutOfMemory;
  }
  const CUresult result = call();
  if (result != kSuccess) {
    Release(*state, device, charged, Charge::kArray);
    return result;
  }
  const std::uint64_t real = stated(*out);
  if (real > charged) {
    if (!Reserve(*state, device, real - charged, Charge::kArray)) {
      destroy(*out);
      Release(*state, device, charged, Charge::kArray);
      return kOutOfMemory;
    }
    charged = real;
  } else if (real != 0 && real < charged) {
    Release(*state, device, charged - real, Charge::kArray);
    charged = real;
  }
  state->memory.Insert({reinterpret_cast<std::uint64_t>(*out), charged, 0, 0,
                        static_cast<std::uint16_t>(device),
                        static_cast<std::uint16_t>(Charge::kArray)});
  return result;
}

template <typename Call>
CUresult DestroyArray(void* array, Call call) {
  ProcessState* state = ConnectedState();
  Allocation gone;
  const bool known =
      state != nullptr && state->memory.Take(reinterpret_cast<std::uint64_t>(array), &gone);
  const CUresult result = call();
  if (known && result == kSuccess) {
    Release(*state, gone.device, gone.bytes, Charge::kArray);
  } else if (known) {
    state->memory.Insert(gone);
  }
  return result;
}

std::uint64_t StatedArray(void* array) {
  return StatedBytes(SUBLET_REAL(cuArrayGetMemoryRequirements), kSym_cuArrayGetMemoryRequirements,
                     array);
}
std::uint64_t StatedMipmap(void* array) {
  return StatedBytes(SUBLET_REAL(cuMipmappedArrayGetMemoryRequirements),
                     kSym_cuMipmappedArrayGetMemoryRequirements, array);
}

}  // namespace

SUBLET_HOOK CUresult cuArrayDestroy(CUarray array) {
  return DestroyArray(array, [&] { return SUBLET_REAL(cuArrayDestroy)(array); });
}
SUBLET_HOOK CUresult cuMipmappedArrayDestroy(CUmipmappedArray array) {
  return DestroyArray(array, [&] { return SUBLET_REAL(cuMipmappedArrayDestroy)(array); });
}

namespace {
void DropArray(void* array) { SUBLET_REAL(cuArrayDestroy)(array); }
void DropMipmap(void* array) { SUBLET_REAL(cuMipmappedArrayDestroy)(array); }
}  // namespace

SUBLET_HOOK CUresult cuArrayCreate_v2(CUarray* out, const CUDA_ARRAY_DESCRIPTOR* d) {
  const std::uint64_t estimate =
      d == nullptr ? 0 : ArrayBytes({d->Width, d->Height, 0, d->Format, d->NumChannels, 0});
  return CreateArray(
      estimate, out, [&] { return SUBLET_REAL(cuArrayCreate_v2)(out, d); }, StatedArray, DropArray);
}
SUBLET_HOOK CUresult cuArrayCreate(CUarray* out, const CUDA_ARRAY_DESCRIPTOR_v1* d) {
  const std::uint64_t estimate =
      d == nullptr ? 0 : ArrayBytes({d->Width, d->Height, 0, d->Format, d->NumChannels, 0});
  return CreateArray(
      estimate, out, [&] { return SUBLET_REAL(cuArrayCreate)(out, d); }, StatedArray, DropArray);
}
SUBLET_HOOK CUresult cuArray3DCreate_v2(CUarray* out, const CUDA_ARRAY3D_DESCRIPTOR* d) {
  return CreateArray(
      d == nullptr ? 0 : ArrayBytes(*d), out,
      [&] { return SUBLET_REAL(cuArray3DCreate_v2)(out, d); }, StatedArray, DropArray);
}
SUBLET_HOOK CUresult cuArray3DCreate(CUarray* out, const CUDA_ARRAY3D_DESCRIPTOR_v1* d) {
  const std::uint64_t estimate =
      d == nullptr ? 0 : ArrayBytes({d->Width, d->Height, d->Depth, d->Format, d->NumChannels, 0});
  return CreateArray(
      estimate, out, [&] { return SUBLET_REAL(cuArray3DCreate)(out, d); }, StatedArray, DropArray);
}
// The levels of a mipmap add up to less than 4/3 of the first (8/7 in three dimensions).
SUBLET_HOOK CUresult cuMipmappedArrayCreate(CUmipmappedArray* out, const CUDA_ARRAY3D_DESCRIPTOR* d,
                                            unsigned int levels) {
  const std::uint64_t first = d == nullptr ? 0 : ArrayBytes(*d);
  const std::uint64_t estimate = levels > 1 ? first / 3 * 4 + 65536 * 2 : first;
  return CreateArray(
      estimate, out, [&] { return SUBLET_REAL(cuMipmappedArrayCreate)(out, d, levels); },
      StatedMipmap, DropMipmap);
}

}  // namespace sublet::gpu
