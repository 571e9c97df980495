// The probe's modes about time: launches through the gate and past it, bursts, captures, and what the
// gate costs.
#include <unistd.h>

#include "gpu/testing/probe.h"

namespace sublet::gpu::testing {

int LaunchFor(std::uint64_t ns, double seconds, LaunchMode mode) {
  Start();
  Launch(nullptr, 1000);
  using Kernel = CUresult (*)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned,
                              unsigned, unsigned, CUstream, void**, void**);
  void* real = mode == LaunchMode::kCheat
                   ? dlopen(std::getenv("SUBLET_REAL_LIBCUDA"), RTLD_NOW | RTLD_LOCAL)
                   : nullptr;
  const auto past_the_gate =
      real == nullptr ? nullptr : reinterpret_cast<Kernel>(dlsym(real, "cuLaunchKernel"));
  CUstream stream = nullptr;
  Check(Cu<CUstream*, unsigned>("cuStreamCreate")(&stream, 1U), "stream");
  CUevent events[4] = {};
  for (CUevent& event : events) {
    Check(Cu<CUevent*, unsigned>("cuEventCreate")(&event, 2U), "event");
  }
  std::printf("ready\n");
  std::fflush(stdout);
  const std::uint64_t until = Now() + static_cast<std::uint64_t>(seconds * 1e9);
  std::uint64_t count = 0;
  std::uint64_t second = Now() / 1'000'000'000;
  std::uint64_t told = 0;
  for (int lines = 0;
       mode == LaunchMode::kTick ? lines < static_cast<int>(seconds) : Now() < until;) {
    if (const std::uint64_t at = Now() / 1'000'000'000; mode == LaunchMode::kTick && at != second) {
      second = at;
      std::printf("%llu\n", static_cast<unsigned long long>(count - told));
      std::fflush(stdout);
      told = count;
      ++lines;
      continue;
    }
    // At most four launches ahead, as a training loop with a bounded queue.
    if (count >= 4) {
      Check(Cu<CUevent>("cuEventSynchronize")(events[count % 4]), "synchronize");
    }
    void* parameters[] = {&ns};
    Check(past_the_gate != nullptr
              ? past_the_gate(nullptr, 1, 1, 1, 1, 1, 1, 0, stream, parameters, nullptr)
              : Launch(stream, ns),
          "launch");
    Check(Cu<CUevent, CUstream>("cuEventRecord")(events[count % 4], stream), "record");
    ++count;
  }
  Check(Cu<>("cuCtxSynchronize")(), "synchronize");
  std::printf("%llu\n", static_cast<unsigned long long>(count));
  return 0;
}

// The example image's program: holds BYTES and launches kernels of NS until it is stopped.
int Burn(Size bytes, std::uint64_t ns) {
  Start();
  CUdeviceptr p = 0;
  Size free_bytes = 0;
  Size total = 0;
  Check(Cu<Size*, Size*>("cuMemGetInfo_v2")(&free_bytes, &total), "info");
  const CUresult held = Cu<CUdeviceptr*, Size>("cuMemAlloc_v2")(&p, bytes);
  std::printf("device shows %zu MiB, %zu MiB free; %zu MiB asked: %s\n", total / kMebibyte,
              free_bytes / kMebibyte, bytes / kMebibyte,
              held == kSuccess       ? "held"
              : held == kOutOfMemory ? "out of memory"
                                     : "error");
  CUstream stream = nullptr;
  Check(Cu<CUstream*, unsigned>("cuStreamCreate")(&stream, 1U), "stream");
  for (std::uint64_t second = Now(), count = 0;;) {
    Check(Launch(stream, ns), "launch");
    Check(Cu<CUstream>("cuStreamSynchronize")(stream), "synchronize");
    ++count;
    if (Now() - second >= 1'000'000'000) {
      std::printf("%llu kernels, %.1f %% of the device\n", static_cast<unsigned long long>(count),
                  100.0 * static_cast<double>(count * ns) / static_cast<double>(Now() - second));
      std::fflush(stdout);
      second = Now();
      count = 0;
    }
  }
}

int Capture() {
  Start();
  CUstream stream = nullptr;
  Check(Cu<CUstream*, unsigned>("cuStreamCreate")(&stream, 1U), "stream");
  Check(Cu<CUstream, int>("cuStreamBeginCapture_v2")(stream, 0), "begin");
  const std::uint64_t start = Now();
  for (int i = 0; i < 100; ++i) {
    Check(Launch(stream, 1'000'000), "launch");
  }
  const std::uint64_t took = Now() - start;
  CUgraph graph = nullptr;
  Check(Cu<CUstream, CUgraph*>("cuStreamEndCapture")(stream, &graph), "end");
  CUgraphExec exec = nullptr;
  Check(Cu<CUgraphExec*, CUgraph, unsigned long long>("cuGraphInstantiateWithFlags")(&exec, graph,
                                                                                     0ULL),
        "instantiate");
  Check(Cu<CUgraphExec, CUstream>("cuGraphLaunch")(exec, stream), "launch");
  Check(Cu<CUstream>("cuStreamSynchronize")(stream), "synchronize");
  std::printf("%llu\n", static_cast<unsigned long long>(took));
  return 0;
}

int Gate(long rounds) {
  Start();
  // The simulator's own launch costs microseconds; a driver that does nothing is preloaded for
  // this. Many short batches: the best of them was not disturbed by whatever else the machine does.
  const long batch = rounds / 100 + 1;
  const auto time = [&](auto call) {
    double best = 1e9;
    for (int repeat = 0; repeat < 200; ++repeat) {
      const std::uint64_t start = Now();
      for (long i = 0; i < batch; ++i) {
        call();
      }
      const double ns = static_cast<double>(Now() - start) / static_cast<double>(batch);
      best = ns < best ? ns : best;
    }
    return best;
  };
  void* real = dlopen(std::getenv("SUBLET_REAL_LIBCUDA"), RTLD_NOW | RTLD_LOCAL);
  using Kernel = CUresult (*)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned,
                              unsigned, unsigned, CUstream, void**, void**);
  using Plain = CUresult (*)(CUstream, CUevent, unsigned);
  volatile Kernel direct = reinterpret_cast<Kernel>(dlsym(real, "cuLaunchKernel"));
  volatile Kernel gated = reinterpret_cast<Kernel>(dlsym(Library(), "cuLaunchKernel"));
  volatile Plain direct_wait = reinterpret_cast<Plain>(dlsym(real, "cuStreamWaitEvent"));
  volatile Plain trampoline = reinterpret_cast<Plain>(dlsym(Library(), "cuStreamWaitEvent"));
  Launch(nullptr, 1);
  const double native =
      time([&] { direct(nullptr, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr); });
  const double through =
      time([&] { gated(nullptr, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr); });
  const double wait = time([&] { direct_wait(nullptr, nullptr, 0); });
  const double jump = time([&] { trampoline(nullptr, nullptr, 0); });
  CUdeviceptr p = 0;
  const auto allocate = Cu<CUdeviceptr*, Size>("cuMemAlloc_v2");
  const auto release = Cu<CUdeviceptr>("cuMemFree_v2");
  const double pair = time([&] {
    allocate.function(&p, 4 * kMebibyte);
    release.function(p);
  });
  std::printf(
      "{\"gate_ns\":%.2f,\"trampoline_ns\":%.2f,\"native_launch_ns\":%.2f,\"alloc_free_ns\":%.0f}"
      "\n",
      through - native, jump - wait, native, pair);
  return 0;
}

}  // namespace sublet::gpu::testing
