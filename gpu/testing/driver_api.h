// The driver API as a program sees it: every function looked up by name in libcuda.so.1, so that
// the test programs need neither headers nor stubs. Test code; depends on nothing but libc.
#pragma once

#include <dlfcn.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "gpu/hooks/cuda_abi.h"

namespace sublet::gpu::testing {

using namespace cuda;  // NOLINT

inline void* Library() {
  static void* library = [] {
    void* opened = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    if (opened == nullptr) {
      std::fprintf(stderr, "%s\n", dlerror());
      std::exit(70);
    }
    return opened;
  }();
  return library;
}

template <typename... Parameters>
struct Call {
  CUresult (*function)(Parameters...);
  template <typename... Arguments>
  CUresult operator()(Arguments... arguments) const {
    return function(arguments...);
  }
};

// Cu<CUdeviceptr*, size_t>("cuMemAlloc_v2")(&p, n)
template <typename... Parameters>
Call<Parameters...> Cu(const char* name) {
  void* found = dlsym(Library(), name);
  if (found == nullptr) {
    std::fprintf(stderr, "no %s\n", name);
    std::exit(71);
  }
  return {reinterpret_cast<CUresult (*)(Parameters...)>(found)};
}

inline void Check(CUresult result, const char* what) {
  if (result != kSuccess) {
    std::fprintf(stderr, "%s: %d\n", what, result);
    std::exit(result == kSystemNotReady ? 82 : 72);
  }
}

// cuInit and the primary context of device 0, current. With `patient`, while the slice is full of
// other processes' memory, for a while.
inline CUcontext Start(bool patient = false) {
  Check(Cu<unsigned>("cuInit")(0U), "cuInit");
  CUdevice device = 0;
  Check(Cu<CUdevice*, int>("cuDeviceGet")(&device, 0), "cuDeviceGet");
  CUcontext context = nullptr;
  CUresult result = kOutOfMemory;
  for (int attempt = 0; result == kOutOfMemory && attempt < (patient ? 50000 : 1); ++attempt) {
    usleep(attempt == 0 ? 0 : 200);
    result = Cu<CUcontext*, CUdevice>("cuDevicePrimaryCtxRetain")(&context, device);
  }
  Check(result, "retain");
  Check(Cu<CUcontext>("cuCtxSetCurrent")(context), "set current");
  return context;
}

inline CUresult Launch(CUstream stream, std::uint64_t ns) {
  static const auto launch = Cu<CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned,
                                unsigned, unsigned, CUstream, void**, void**>("cuLaunchKernel");
  void* parameters[] = {&ns};
  return launch(nullptr, 1U, 1U, 1U, 1U, 1U, 1U, 0U, stream, parameters,
                static_cast<void**>(nullptr));
}

}  // namespace sublet::gpu::testing
