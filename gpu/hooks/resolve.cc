// Hooks for cuGetProcAddress and cuGetExportTable: whoever asks the driver for an entry point gets
// our hook of exactly that ABI version and stream form. The real driver answers first; its address
// is looked up among its exports, so any version and flag works as long as the address is an
// export. Otherwise the table of (name, version, form) decides. What is not hooked is handed out as
// it is.
#include <string.h>
#include <sys/mman.h>

#include "gpu/hooks/charge.h"
#include "gpu/hooks/real_driver.h"

// Our own addresses: the export (a hook or its trampoline) and the trampoline.
#define SUBLET_SYMBOL(name)        \
  void export_##name() asm(#name); \
  __attribute__((visibility("hidden"))) void trampoline_##name() asm("sublet_trampoline_" #name);
namespace exports {
#include "gpu/hooks/cuda_symbols.inc"
}
#undef SUBLET_SYMBOL

namespace sublet::gpu {

using namespace cuda;  // NOLINT: the driver's names are the subject of this file

namespace {

struct Own {
  void (*function)();
  void (*trampoline)();
};
#define SUBLET_SYMBOL(name) {&exports::export_##name, &exports::trampoline_##name},
const Own kOwn[] = {
#include "gpu/hooks/cuda_symbols.inc"
};
#undef SUBLET_SYMBOL

struct Proc {
  const char* name;
  int version;
  int is_per_thread;
  Symbol symbol;
};
#define SUBLET_PROC(name, version, ptsz, function) {#name, version, ptsz, kSym_##function},
const Proc kProcs[] = {
#include "gpu/hooks/cuda_procs.inc"
};
#undef SUBLET_PROC

bool IsHooked(unsigned symbol) { return kOwn[symbol].function != kOwn[symbol].trampoline; }

// Address of a real export → Symbol. Built once: 700 lookups, a fraction of a millisecond.
struct Known {
  void* address;
  unsigned symbol;
};
constexpr unsigned kKnownMax = 2048;  // a power of two above twice the exports
static_assert(kSymbolCount * 2 < kKnownMax);
Known* known_exports = nullptr;

Known* KnownExports() {
  Known* table = __atomic_load_n(&known_exports, __ATOMIC_ACQUIRE);
  if (table != nullptr || RealLibrary() == nullptr) {
    return table;
  }
  void* memory = mmap(nullptr, kKnownMax * sizeof(Known), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    return nullptr;
  }
  table = static_cast<Known*>(memory);
  for (unsigned symbol = 0; symbol < kSymbolCount; ++symbol) {
    void* address = FindRealFunction(static_cast<Symbol>(symbol));
    if (address == nullptr) {
      continue;
    }
    for (std::uint64_t at =
             (reinterpret_cast<std::uint64_t>(address) * 0x9e3779b97f4a7c15ULL) >> 40;
         ; ++at) {
      Known& place = table[at & (kKnownMax - 1)];
      if (place.address == nullptr) {
        place = {address, symbol};
        break;
      }
      if (place.address == address) {
        // Two names of one function: the hooked one decides.
        if (IsHooked(symbol)) {
          place.symbol = symbol;
        }
        break;
      }
    }
  }
  Known* expected = nullptr;
  if (!__atomic_compare_exchange_n(&known_exports, &expected, table, false, __ATOMIC_ACQ_REL,
                                   __ATOMIC_ACQUIRE)) {
    munmap(memory, kKnownMax * sizeof(Known));
    return expected;
  }
  return table;
}

// The best entry of the table for a request, or nullptr.
const Proc* Match(const char* name, int version, unsigned long long flags) {
  const bool per_thread = (flags & kProcPerThreadStream) != 0;
  const Proc* best = nullptr;
  for (const Proc& proc : kProcs) {
    if (proc.version > version || (proc.is_per_thread != 0 && !per_thread) ||
        strcmp(proc.name, name) != 0) {
      continue;
    }
    if (best == nullptr || proc.version > best->version ||
        (per_thread && proc.is_per_thread > best->is_per_thread)) {
      best = &proc;
    }
  }
  return best;
}

void* Translate(const char* name, void* real, int version, unsigned long long flags) {
  // By name and version first: two of our names may be one function in the driver. The driver's own
  // address confirms it, or tells of a version that the table does not know.
  const Proc* match = Match(name, version, flags);
  if (match != nullptr && IsHooked(match->symbol) && FindRealFunction(match->symbol) == real) {
    return reinterpret_cast<void*>(kOwn[match->symbol].function);
  }
  const Known* table = KnownExports();
  if (table != nullptr) {
    for (std::uint64_t at = (reinterpret_cast<std::uint64_t>(real) * 0x9e3779b97f4a7c15ULL) >> 40;;
         ++at) {
      const Known& place = table[at & (kKnownMax - 1)];
      if (place.address == real) {
        return IsHooked(place.symbol) ? reinterpret_cast<void*>(kOwn[place.symbol].function) : real;
      }
      if (place.address == nullptr) {
        break;
      }
    }
  }
  // Not an export. The hook calls the export of the same version, which does the same.
  if (match != nullptr && IsHooked(match->symbol) && FindRealFunction(match->symbol) != nullptr) {
    return reinterpret_cast<void*>(kOwn[match->symbol].function);
  }
  if (ProcessState* state = ConnectedState(); match == nullptr && state != nullptr) {
    state->slot.load()->passthrough.fetch_add(1, std::memory_order_relaxed);
  }
  return real;
}

}  // namespace

SUBLET_HOOK CUresult cuGetProcAddress_v2(const char* name, void** out, int version,
                                         unsigned long long flags, int* status) {
  const CUresult result = SUBLET_REAL(cuGetProcAddress_v2)(name, out, version, flags, status);
  if (result == kSuccess && name != nullptr && out != nullptr && *out != nullptr) {
    *out = Translate(name, *out, version, flags);
  }
  return result;
}
SUBLET_HOOK CUresult cuGetProcAddress(const char* name, void** out, int version,
                                      unsigned long long flags) {
  const CUresult result = SUBLET_REAL(cuGetProcAddress)(name, out, version, flags);
  if (result == kSuccess && name != nullptr && out != nullptr && *out != nullptr) {
    *out = Translate(name, *out, version, flags);
  }
  return result;
}
SUBLET_HOOK CUresult cuGetExportTable(const void** table, const CUuuid* id) {
  const CUresult result = SUBLET_REAL(cuGetExportTable)(table, id);
  if (ProcessState* state = ConnectedState(); result == kSuccess && state != nullptr) {
    state->slot.load()->private_tables.fetch_add(1, std::memory_order_relaxed);
  }
  return result;
}

}  // namespace sublet::gpu
