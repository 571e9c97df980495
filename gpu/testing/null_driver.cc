// A driver that does nothing, for measuring what the interceptor itself costs. Names that are not
// here answer success at once (null_stubs.S).
#include <cstdint>

#include "gpu/hooks/cuda_abi.h"

namespace sublet::gpu::cuda {

#define SUBLET_EXPORT extern "C" __attribute__((visibility("default")))

SUBLET_EXPORT CUresult cuDeviceGetCount(int* count) {
  *count = 1;
  return kSuccess;
}
SUBLET_EXPORT CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  *device = ordinal;
  return kSuccess;
}
SUBLET_EXPORT CUresult cuCtxGetDevice(CUdevice* device) {
  *device = 0;
  return kSuccess;
}
// The simulator's first device.
SUBLET_EXPORT CUresult cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice device) {
  for (int i = 0; i < 16; ++i) {
    uuid->bytes[i] = static_cast<unsigned char>(i == 15 ? device : 0x51 + i * 7);
  }
  return kSuccess;
}
SUBLET_EXPORT CUresult cuMemAlloc_v2(CUdeviceptr* out, std::size_t bytes) {
  (void)bytes;
  static CUdeviceptr next = 0x7f0000000000;
  *out = next += 0x1000000;
  return kSuccess;
}

}  // namespace sublet::gpu::cuda
