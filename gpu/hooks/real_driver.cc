#include "gpu/hooks/real_driver.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gpu/hooks/libc_floor.h"
#include "gpu/hooks/protocol.h"

extern "C" {
__attribute__((visibility("hidden"))) void* sublet_slots[sublet::gpu::kSymbolCount];
__attribute__((visibility("hidden"))) void* sublet_resolve(unsigned long index);
}

namespace sublet::gpu {
namespace {

const char* const kNames[] = {
#define SUBLET_SYMBOL(name) #name,
#include "gpu/hooks/cuda_symbols.inc"
#undef SUBLET_SYMBOL
};

void* library = nullptr;

int Missing() { return 500; }  // CUDA_ERROR_NOT_FOUND

void* OpenLibrary() {
  // Inside a slice's container the place is fixed; the environment counts only outside one.
  void* opened = dlopen("/run/sublet/real/libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (opened != nullptr || access(kContainerFolder, F_OK) == 0) {
    return opened;
  }
  const char* path = getenv("SUBLET_REAL_LIBCUDA");
  if (path != nullptr && path[0] == '/') {
    return dlopen(path, RTLD_NOW | RTLD_LOCAL);
  }
  for (const char* place : {"/usr/lib/x86_64-linux-gnu/libcuda.so.1", "/usr/lib64/libcuda.so.1",
                            "/usr/lib/libcuda.so.1"}) {
    opened = dlopen(place, RTLD_NOW | RTLD_LOCAL);
    if (opened != nullptr) {
      return opened;
    }
  }
  return nullptr;
}

}  // namespace

void* RealLibrary() {
  void* current = __atomic_load_n(&library, __ATOMIC_ACQUIRE);
  if (current == nullptr) {
    // Two threads may both open it; dlopen counts references and answers the same handle.
    current = OpenLibrary();
    __atomic_store_n(&library, current, __ATOMIC_RELEASE);
  }
  return current;
}

void* FindRealFunction(Symbol symbol) {
  void* handle = RealLibrary();
  return handle == nullptr ? nullptr : dlsym(handle, kNames[symbol]);
}

void* RealFunction(Symbol symbol) {
  void* function = __atomic_load_n(&sublet_slots[symbol], __ATOMIC_RELAXED);
  return function != nullptr ? function : sublet_resolve(symbol);
}

}  // namespace sublet::gpu

void* sublet_resolve(unsigned long index) {
  using namespace sublet::gpu;
  void* function = FindRealFunction(static_cast<Symbol>(index));
  if (function == nullptr) {
    function = reinterpret_cast<void*>(&Missing);
    if (RealLibrary() == nullptr) {
      return function;  // not remembered: the driver may be mounted later
    }
  }
  __atomic_store_n(&sublet_slots[index], function, __ATOMIC_RELAXED);
  return function;
}
