// Charging memory: reserve against the slice's cap before the driver is asked, give back after it
// has freed. The rules are protocol.h's invariants; the hooks in memory.cc, pools.cc, arrays.cc use
// this. Threads: any.
#pragma once

#include <cstdint>

#include "gpu/hooks/state.h"

#define SUBLET_HOOK extern "C" __attribute__((visibility("default")))

namespace sublet::gpu {

inline constexpr std::uint64_t kGranuleBytes = std::uint64_t{2} << 20;

constexpr std::uint64_t RoundUp(std::uint64_t bytes, std::uint64_t to) {
  return bytes > ~std::uint64_t{0} - to ? ~std::uint64_t{0} / to * to : (bytes + to - 1) / to * to;
}

// Adds `bytes` to the slice's total when it stays within the cap. False: it does not fit; counted
// as a refusal when `is_final`.
bool Reserve(ProcessState& state, int device, std::uint64_t bytes, Charge charge,
             bool is_final = true);
// Adds without asking: for what the driver took on its own. The total may pass the cap, and then
// nothing more fits.
void ForceReserve(ProcessState& state, int device, std::uint64_t bytes, Charge charge);
void Release(ProcessState& state, int device, std::uint64_t bytes, Charge charge);
// Bytes the slice may still take.
std::uint64_t Room(ProcessState& state, int device);

// Linear memory: large blocks in granules, small ones out of granules this process already has, as
// the driver does. ReserveLinear tries once more after the pools gave back what they keep.
bool ReserveLinear(ProcessState& state, int device, std::uint64_t bytes);
void ReleaseLinear(ProcessState& state, int device, std::uint64_t bytes);
// Reserve with one retry after TrimPools.
bool ReserveOrTrim(ProcessState& state, int device, std::uint64_t bytes, Charge charge);

// Gives unused pool and graph memory of the device back to the driver and to the slice (pools.cc).
void TrimPools(ProcessState& state, int device);

// The control page's place of a device or of the current context's device; -1 when there is no
// context or the device is not the slice's.
int PlaceOfDevice(ProcessState& state, cuda::CUdevice device);
int CurrentPlace(ProcessState& state);

// The connected and enforced state for a hook, or nullptr: forward untouched. *refuse is set when
// the process must not touch the device at all (no gpud).
ProcessState* Charged(bool* refuse);

}  // namespace sublet::gpu
