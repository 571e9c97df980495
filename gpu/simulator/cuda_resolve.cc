// The simulated driver: cuGetProcAddress with versions and flags over every export (stubs.S has
// those without an implementation).
#include "gpu/simulator/driver.h"

// The addresses, under names of their own: the real declarations stand elsewhere with their types.
#define SUBLET_SYMBOL(name) void name() asm(#name);
namespace exports {
#include "gpu/hooks/cuda_symbols.inc"
}
#undef SUBLET_SYMBOL

namespace sublet::gpu::simulator {
namespace {

struct Proc {
  const char* name;
  int version;
  int is_per_thread;
  void (*function)();
};
#define SUBLET_PROC(name, version, ptsz, function) {#name, version, ptsz, &exports::function},
const Proc kProcs[] = {
#include "gpu/hooks/cuda_procs.inc"
};
#undef SUBLET_PROC

int Resolve(const char* symbol, void** out, int version, unsigned long long flags) {
  const Proc* best = nullptr;
  const bool per_thread = (flags & kProcPerThreadStream) != 0;
  for (const Proc& proc : kProcs) {
    if (std::strcmp(proc.name, symbol) != 0 || proc.version > version) {
      continue;
    }
    // Per-thread wins when asked for and present; otherwise the plain form.
    if (proc.is_per_thread != 0 && !per_thread) {
      continue;
    }
    if (best == nullptr || proc.version > best->version ||
        (per_thread && proc.is_per_thread > best->is_per_thread)) {
      best = &proc;
    }
  }
  *out = best != nullptr ? reinterpret_cast<void*>(best->function) : nullptr;
  return best != nullptr ? kSuccess : kNotFound;
}

}  // namespace

SUBLET_EXPORT CUresult cuGetProcAddress_v2(const char* symbol, void** out, int version,
                                           unsigned long long flags, int* status) {
  if (symbol == nullptr || out == nullptr) {
    return kInvalidValue;
  }
  if (symbol[0] == 0) {
    *out = nullptr;
    return kNotFound;
  }
  const int result = Resolve(symbol, out, version, flags);
  if (status != nullptr) {
    *status = result == kSuccess ? 0 : 1;
  }
  return result;
}
SUBLET_EXPORT CUresult cuGetProcAddress(const char* symbol, void** out, int version,
                                        unsigned long long flags) {
  return cuGetProcAddress_v2(symbol, out, version, flags, nullptr);
}
SUBLET_EXPORT CUresult cuGetExportTable(const void** table, const CUuuid* id) {
  (void)id;
  *table = nullptr;
  return kNotFound;
}

}  // namespace sublet::gpu::simulator
