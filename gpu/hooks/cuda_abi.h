// The part of the CUDA driver's binary interface that the interceptor and the simulator interpret,
// declared for ourselves so that a build needs no CUDA. Sizes and offsets are checked against
// cuda_sizes.inc, which generate.py took from the published headers. x86-64 Linux.
// Depends on nothing but the compiler.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sublet::gpu::cuda {

using CUresult = int;
using CUdevice = int;
using CUdeviceptr = unsigned long long;
using CUdeviceptr_v1 = unsigned int;  // the 32-bit pointers of the oldest ABI
using CUcontext = void*;
using CUstream = void*;
using CUevent = void*;
using CUmodule = void*;
using CUfunction = void*;
using CUarray = void*;
using CUmipmappedArray = void*;
using CUmemoryPool = void*;
using CUgraph = void*;
using CUgraphNode = void*;
using CUgraphExec = void*;
using CUexternalMemory = void*;
using CUmemHandle = unsigned long long;  // CUmemGenericAllocationHandle

enum : int {
  kSuccess = 0,
  kInvalidValue = 1,
  kOutOfMemory = 2,
  kNotInitialized = 3,
  kNoDevice = 100,
  kInvalidDevice = 101,
  kInvalidContext = 201,
  kInvalidHandle = 400,
  kNotFound = 500,
  kNotReady = 600,
  kLaunchFailed = 719,
  kNotPermitted = 800,
  kNotSupported = 801,
  kSystemNotReady = 802,
  kStreamCaptureUnsupported = 900,
};

enum : int {
  kAttributePoolReservedCurrent = 5,
  kAttributePoolReservedHigh = 6,
  kAttributePoolUsedCurrent = 7
};
enum : int {
  kGraphMemUsedCurrent = 0,
  kGraphMemUsedHigh = 1,
  kGraphMemReservedCurrent = 2,
  kGraphMemReservedHigh = 3
};
enum : int { kCaptureModeGlobal = 0, kCaptureModeThreadLocal = 1, kCaptureModeRelaxed = 2 };
enum : int { kNodeKernel = 0, kNodeMemAlloc = 10, kNodeMemFree = 11 };
enum : int { kLocationDevice = 1, kLocationHost = 2 };
// Streams that are not handles.
inline constexpr std::uintptr_t kStreamLegacy = 1;
inline constexpr std::uintptr_t kStreamPerThread = 2;
// cuGetProcAddress flags.
inline constexpr unsigned long long kProcLegacyStream = 1;
inline constexpr unsigned long long kProcPerThreadStream = 2;

struct CUuuid {
  unsigned char bytes[16];
};
struct CUmemLocation {
  int type;
  int id;
};
struct CUmemAllocationProp {
  int type;
  int requestedHandleTypes;
  CUmemLocation location;
  void* win32HandleMetaData;
  unsigned char allocFlags[8];
};
struct CUmemPoolProps {
  int allocType;
  int handleTypes;
  CUmemLocation location;
  void* win32SecurityAttributes;
  std::size_t maxSize;
  unsigned short usage;
  unsigned char reserved[54];
};
struct CUDA_ARRAY_DESCRIPTOR {
  std::size_t Width, Height;
  int Format;
  unsigned int NumChannels;
};
struct CUDA_ARRAY_DESCRIPTOR_v1 {
  unsigned int Width, Height;
  int Format;
  unsigned int NumChannels;
};
struct CUDA_ARRAY3D_DESCRIPTOR {
  std::size_t Width, Height, Depth;
  int Format;
  unsigned int NumChannels, Flags;
};
struct CUDA_ARRAY3D_DESCRIPTOR_v1 {
  unsigned int Width, Height, Depth;
  int Format;
  unsigned int NumChannels, Flags;
};
struct CUDA_ARRAY_MEMORY_REQUIREMENTS {
  std::size_t size, alignment;
  unsigned int reserved[4];
};
struct CUDA_MEM_ALLOC_NODE_PARAMS {
  CUmemPoolProps poolProps;
  const void* accessDescs;
  std::size_t accessDescCount;
  std::size_t bytesize;
  CUdeviceptr dptr;
};
using CUDA_MEM_ALLOC_NODE_PARAMS_v2 = CUDA_MEM_ALLOC_NODE_PARAMS;
struct CUDA_KERNEL_NODE_PARAMS_v3 {
  CUfunction func;
  unsigned int gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes;
  void** kernelParams;
  void** extra;
  void* kern;
  CUcontext ctx;
};
struct CUgraphNodeParams {
  int type;
  int reserved0[3];
  union {
    long long reserved1[29];
    CUDA_MEM_ALLOC_NODE_PARAMS_v2 alloc;
    CUDA_KERNEL_NODE_PARAMS_v3 kernel;
  };
  long long reserved2;
};
struct CUlaunchConfig {
  unsigned int gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes;
  CUstream hStream;
  void* attrs;
  unsigned int numAttrs;
};
struct CUDA_LAUNCH_PARAMS {
  CUfunction function;
  unsigned int gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes;
  CUstream hStream;
  void** kernelParams;
};
struct CUDA_MEMCPY2D {
  unsigned char before[112];
  std::size_t WidthInBytes, Height;
};
struct CUDA_MEMCPY3D {
  unsigned char before[176];
  std::size_t WidthInBytes, Height, Depth;
};
struct CUmulticastObjectProp {
  unsigned int numDevices;
  std::size_t size;
  unsigned long long handleTypes, flags;
};
struct CUDA_GRAPH_INSTANTIATE_PARAMS {
  unsigned long long flags;
  CUstream hUploadStream;
  CUgraphNode hErrNode_out;
  int result_out;
};

#define SUBLET_SIZE(type, bytes) static_assert(sizeof(type) == (bytes), #type);
#define SUBLET_OFFSET(type, member, bytes) \
  static_assert(offsetof(type, member) == (bytes), #type "." #member);
#include "gpu/hooks/cuda_sizes.inc"
#undef SUBLET_SIZE
#undef SUBLET_OFFSET

// Bytes per element of an array format (CUarray_format); 0 for a format we do not know.
constexpr std::size_t FormatBytes(int format) {
  switch (format) {
    case 0x01:
    case 0x08:
    case 0xc0:
    case 0xc3: return 1;
    case 0x02:
    case 0x09:
    case 0x10:
    case 0xc6:
    case 0xc9: return 2;
    case 0x03:
    case 0x0a:
    case 0x20:
    case 0xc1:
    case 0xc4: return 4;
    default: return 0;
  }
}

// The bytes an array takes when the driver cannot be asked: unknown formats count 16 bytes an
// element.
constexpr std::uint64_t ArrayBytes(const CUDA_ARRAY3D_DESCRIPTOR& array) {
  const std::uint64_t element =
      FormatBytes(array.Format) == 0 ? 16 : FormatBytes(array.Format) * array.NumChannels;
  const std::uint64_t height = array.Height == 0 ? 1 : array.Height;
  const std::uint64_t depth = array.Depth == 0 ? 1 : array.Depth;
  const unsigned __int128 bytes =
      static_cast<unsigned __int128>(array.Width) * height * depth * element;
  constexpr std::uint64_t kGranule = 65536;
  if (bytes > (static_cast<unsigned __int128>(1) << 62)) {
    return std::uint64_t{1} << 62;
  }
  return (static_cast<std::uint64_t>(bytes) + kGranule - 1) / kGranule * kGranule;
}

}  // namespace sublet::gpu::cuda
