// What the parts of the probe (probe.cc) share. Test code.
#pragma once

#include <time.h>

#include <cstdint>

#include "gpu/testing/driver_api.h"

namespace sublet::gpu::testing {

using Size = std::size_t;
inline constexpr Size kMebibyte = Size{1} << 20;

inline std::uint64_t Now() {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 +
         static_cast<std::uint64_t>(now.tv_nsec);
}

inline Size Free() {
  Size free_bytes = 0;
  Size total = 0;
  Check(Cu<Size*, Size*>("cuMemGetInfo_v2")(&free_bytes, &total), "cuMemGetInfo");
  return free_bytes;
}

// Each is a mode of the program and returns its exit status. probe_memory.cc:
int Matrix();
int Race(double seconds, unsigned seed);
int Hold(Size bytes);
int Fork(int count);
// probe_launch.cc. kTick prints the launches of every second of the machine's clock, the first one
// begun, until `seconds` lines are out.
enum class LaunchMode : std::uint8_t { kPlain, kCheat, kTick };
int LaunchFor(std::uint64_t ns, double seconds, LaunchMode mode);
int Burn(Size bytes, std::uint64_t ns);
int Capture();
int Gate(long rounds);

}  // namespace sublet::gpu::testing
