// device_probe: what runs inside the "pods" of e2e/gpu/device.py, on a real GPU (a kernel in PTX
// that computes for a counted number of steps) and on the simulated one (which takes the first
// parameter for nanoseconds). Needs no CUDA to build; every function is looked up by name.
//   device_probe exports           how many cuGetProcAddress answers are the driver's own exports
//   device_probe launch N          nanoseconds per launch of an empty kernel, five times
//   device_probe busy SECONDS MS   kernels of MS; prints how many finished in each second
//   device_probe latency SECONDS   5 ms of work every 20 ms; milliseconds each took
//   device_probe exhaust           what fits, what is answered beyond
// Every mode prints one line of JSON. Exit 0, or what failed on standard error.
#include <time.h>

#include <algorithm>
#include <cstring>

#include "gpu/testing/driver_api.h"

namespace sublet::gpu::testing {
namespace {

constexpr char kPtx[] =
    ".version 6.0\n.target sm_60\n.address_size 64\n"
    ".visible .entry work(.param .u64 steps, .param .u64 out) {\n"
    "  .reg .u64 %r<6>;\n  .reg .pred %p<3>;\n"
    "  ld.param.u64 %r1, [steps];\n  ld.param.u64 %r2, [out];\n  mov.u64 %r3, 1;\n"
    "  setp.eq.u64 %p1, %r1, 0;\n  @%p1 bra DONE;\n"
    "LOOP:\n"
    "  mad.lo.u64 %r3, %r3, 6364136223846793005, 1442695040888963407;\n"
    "  sub.u64 %r1, %r1, 1;\n  setp.ne.u64 %p1, %r1, 0;\n  @%p1 bra LOOP;\n"
    // The result is used, or the loop would be optimised away.
    "  setp.eq.u64 %p2, %r3, 42;\n  @%p2 st.global.u64 [%r2], %r3;\n"
    "DONE:\n  ret;\n}\n";

std::uint64_t Now() {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 +
         static_cast<std::uint64_t>(now.tv_nsec);
}

struct Work {
  CUfunction kernel = nullptr;
  CUdeviceptr out = 0;
  CUstream stream = nullptr;
  std::uint64_t steps_per_ms = 1'000'000;

  void Open() {
    Start();
    CUmodule module = nullptr;
    Check(Cu<CUmodule*, const void*>("cuModuleLoadData")(&module, kPtx), "module");
    Check(Cu<CUfunction*, CUmodule, const char*>("cuModuleGetFunction")(&kernel, module, "work"),
          "kernel");
    Check(Cu<CUdeviceptr*, std::size_t>("cuMemAlloc_v2")(&out, 4096UL), "memory");
    Check(Cu<CUstream*, unsigned>("cuStreamCreate")(&stream, 1U), "stream");
  }
  void Launch(std::uint64_t steps) {
    static const auto launch = Cu<CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned,
                                  unsigned, unsigned, CUstream, void**, void**>("cuLaunchKernel");
    void* parameters[] = {&steps, &out};
    Check(launch(kernel, 1U, 1U, 1U, 1U, 1U, 1U, 0U, stream, parameters,
                 static_cast<void**>(nullptr)),
          "launch");
  }
  void Synchronize() { Check(Cu<CUstream>("cuStreamSynchronize")(stream), "synchronize"); }
  // How many steps are a millisecond, alone on the device: the fastest of several, so that a busy
  // neighbour disturbs little. SUBLET_STEPS_PER_MS hands in what an earlier run found.
  void Calibrate() {
    if (const char* told = std::getenv("SUBLET_STEPS_PER_MS"); told != nullptr) {
      steps_per_ms = std::strtoull(told, nullptr, 10);
      return;
    }
    std::uint64_t best = ~std::uint64_t{0};
    for (int i = 0; i < 8; ++i) {
      const std::uint64_t start = Now();
      Launch(2'000'000);
      Synchronize();
      best = std::min(best, Now() - start);
    }
    steps_per_ms = 2'000'000ULL * 1'000'000 / best;
  }
};

int Exports() {
  struct Row {
    const char* name;
    int version;
    int per_thread;
    const char* symbol;
  };
  static const Row rows[] = {
#define SUBLET_PROC(name, version, ptsz, function) {#name, version, ptsz, #function},
#include "gpu/hooks/cuda_procs.inc"
#undef SUBLET_PROC
  };
  Check(Cu<unsigned>("cuInit")(0U), "cuInit");
  int equal = 0, unknown = 0, other = 0;
  for (const Row& row : rows) {
    void* got = nullptr;
    int status = 0;
    const CUresult result =
        Cu<const char*, void**, int, unsigned long long, int*>("cuGetProcAddress_v2")(
            row.name, &got, row.version, row.per_thread != 0 ? 2ULL : 1ULL, &status);
    void* exported = dlsym(Library(), row.symbol);
    unknown += result != kSuccess || got == nullptr ? 1 : 0;
    equal += got != nullptr && got == exported ? 1 : 0;
    other += got != nullptr && got != exported ? 1 : 0;
  }
  std::printf("{\"asked\": %zu, \"equal\": %d, \"other\": %d, \"unknown\": %d}\n",
              sizeof rows / sizeof rows[0], equal, other, unknown);
  return 0;
}

int LaunchCost(long count) {
  Work work;
  work.Open();
  std::printf("{\"ns\": [");
  for (int round = 0; round < 5; ++round) {
    const std::uint64_t start = Now();
    for (long i = 0; i < count; ++i) {
      work.Launch(0);
    }
    const std::uint64_t submitted = Now() - start;
    work.Synchronize();
    std::printf("%s%.1f", round == 0 ? "" : ", ",
                static_cast<double>(submitted) / static_cast<double>(count));
  }
  std::printf("]}\n");
  return 0;
}

int Busy(double seconds, double ms) {
  Work work;
  work.Open();
  work.Calibrate();
  CUevent events[8] = {};
  for (CUevent& event : events) {
    Check(Cu<CUevent*, unsigned>("cuEventCreate")(&event, 2U), "event");
  }
  const auto steps = static_cast<std::uint64_t>(ms * static_cast<double>(work.steps_per_ms));
  const std::uint64_t start = Now();
  const std::uint64_t until = start + static_cast<std::uint64_t>(seconds * 1e9);
  std::uint64_t launched = 0, second_ends = start + 1'000'000'000, counted = 0;
  std::printf("{\"steps_per_ms\": %llu, \"start_ns\": %llu, \"per_second\": [",
              static_cast<unsigned long long>(work.steps_per_ms),
              static_cast<unsigned long long>(start));
  bool first = true;
  while (Now() < until) {
    if (launched >= 8) {
      Check(Cu<CUevent>("cuEventSynchronize")(events[launched % 8]), "wait");
    }
    // What is waited for has finished; the rest of the window is at most eight kernels.
    if (Now() >= second_ends) {
      const std::uint64_t finished = launched >= 8 ? launched - 7 : 0;
      std::printf("%s%llu", first ? "" : ", ", static_cast<unsigned long long>(finished - counted));
      counted = finished;
      second_ends += 1'000'000'000;
      first = false;
    }
    work.Launch(steps);
    Check(Cu<CUevent, CUstream>("cuEventRecord")(events[launched % 8], work.stream), "record");
    ++launched;
  }
  work.Synchronize();
  std::printf("], \"launched\": %llu}\n", static_cast<unsigned long long>(launched));
  return 0;
}

int Latency(double seconds) {
  Work work;
  work.Open();
  work.Calibrate();
  static double took[100000];
  int count = 0;
  const std::uint64_t until = Now() + static_cast<std::uint64_t>(seconds * 1e9);
  for (std::uint64_t next = Now(); next < until && count < 100000; next += 20'000'000) {
    while (Now() < next) {
      usleep(200);
    }
    const std::uint64_t start = Now();
    work.Launch(5 * work.steps_per_ms);
    work.Synchronize();
    took[count++] = static_cast<double>(Now() - start) / 1e6;
  }
  std::sort(took, took + count);
  std::printf(
      "{\"steps_per_ms\": %llu, \"count\": %d, \"p50_ms\": %.2f, \"p99_ms\": %.2f, \"max_ms\": "
      "%.2f}\n",
      static_cast<unsigned long long>(work.steps_per_ms), count, took[count / 2],
      took[count * 99 / 100], took[count - 1]);
  return 0;
}

int Exhaust() {
  Start();
  std::size_t free_bytes = 0, total = 0;
  Check(Cu<std::size_t*, std::size_t*>("cuMemGetInfo_v2")(&free_bytes, &total), "info");
  CUdeviceptr all[8192];
  int count = 0;
  CUresult answer = kSuccess;
  while (count < 8192 && (answer = Cu<CUdeviceptr*, std::size_t>("cuMemAlloc_v2")(
                              &all[count], std::size_t{64} << 20)) == kSuccess) {
    ++count;
  }
  for (int i = 0; i < count; ++i) {
    Check(Cu<CUdeviceptr>("cuMemFree_v2")(all[i]), "free");
  }
  std::size_t after = 0;
  Check(Cu<std::size_t*, std::size_t*>("cuMemGetInfo_v2")(&after, &total), "info");
  std::printf(
      "{\"total\": %zu, \"free\": %zu, \"allocated\": %zu, \"answer\": %d, \"free_after\": %zu}\n",
      total, free_bytes, static_cast<std::size_t>(count) << 26, answer, after);
  return 0;
}

}  // namespace

int Main(int count, char** arguments) {
  const auto is = [&](const char* mode, int more) {
    return count == 2 + more && std::strcmp(arguments[1], mode) == 0;
  };
  if (is("exports", 0)) return Exports();
  if (is("launch", 1)) return LaunchCost(std::atol(arguments[2]));
  if (is("busy", 2)) return Busy(std::atof(arguments[2]), std::atof(arguments[3]));
  if (is("latency", 1)) return Latency(std::atof(arguments[2]));
  if (is("exhaust", 0)) return Exhaust();
  std::fprintf(stderr, "unknown mode\n");
  return 64;
}

}  // namespace sublet::gpu::testing

int main(int count, char** arguments) { return sublet::gpu::testing::Main(count, arguments); }
