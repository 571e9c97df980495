// What the interceptor costs a program that has its device to itself: nanoseconds per launch
// through the gate, per call through a trampoline, per allocation with its free; over a driver that
// does nothing. Prints one JSON line. No GPU is involved: these are the interceptor's own
// nanoseconds.
#include <cstdio>

#include "gpu/testing/bench.h"

int main() {
  using namespace sublet::gpu::testing;  // NOLINT: one short program
  Bench bench({.unmanaged = sublet::gpu::UnmanagedPolicy::kReport});
  if (!bench.engine().AddSlice(bench.MakeSlice("a", 8000 * kMebibyte, 500)).ok()) {
    return 1;
  }
  Program probe = bench.Spawn({SUBLET_GPU_PROBE, "gate", "2000000"},
                              {{"LD_PRELOAD", SUBLET_CUDA_HOOKS},
                               {"SUBLET_GPU_FOLDER", bench.engine().FolderOf("a")},
                               {"SUBLET_REAL_LIBCUDA", SUBLET_NULL_DRIVER}});
  std::string output;
  const int code = probe.Wait(&output);
  std::printf("%s", output.c_str());
  return code;
}
