// The real libcuda.so.1 behind this library: found by path on the first call that needs it, one
// slot per export. Depends on nothing but libc. Threads: any.
#pragma once

namespace sublet::gpu {

// One per export, in the order of cuda_symbols.inc.
enum Symbol : unsigned {
#define SUBLET_SYMBOL(name) kSym_##name,
#include "gpu/hooks/cuda_symbols.inc"
#undef SUBLET_SYMBOL
  kSymbolCount
};

// The real function, or one that answers NOT_FOUND when this driver has none or there is no driver.
// Costs one load after the first call.
void* RealFunction(Symbol symbol);
// nullptr when the driver lacks it.
void* FindRealFunction(Symbol symbol);
// The handle of the real library, or nullptr.
void* RealLibrary();

}  // namespace sublet::gpu

// Calls the real function behind a hook of the same name and type.
#define SUBLET_REAL(name) \
  (reinterpret_cast<decltype(&name)>(::sublet::gpu::RealFunction(::sublet::gpu::kSym_##name)))
