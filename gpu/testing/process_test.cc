// The interceptor and gpud against real processes on a simulated device: caps, races, deaths,
// forks, restarts, leases, escapes. SUBLET_FULL=1 runs the long forms.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <sstream>

#include "gpu/testing/bench.h"

namespace sublet::gpu::testing {
namespace {

bool Full() { return std::getenv("SUBLET_FULL") != nullptr; }

// What the device itself ever had in use, the driver's own memory excluded.
std::uint64_t PeakUse(Bench& bench) {
  const simulator::Device& device = bench.state().devices[0];
  return std::max(device.peak_bytes, device.reserved_bytes) - device.reserved_bytes;
}

TEST(Interceptor, EveryAllocationCallAnswersOutOfMemoryAtTheCapAndGivesAllBack) {
  Bench bench;
  ASSERT_TRUE(bench.engine().AddSlice(bench.MakeSlice("a", 2048 * kMebibyte, 250)).ok());
  Program probe = bench.Run("a", {"matrix"});
  std::string output;
  EXPECT_EQ(probe.Wait(&output), 0) << output;
  EXPECT_LE(PeakUse(bench), 2048 * kMebibyte);
  EXPECT_TRUE(bench.Eventually([](const EngineStatus& s) {
    return s.slices[0].devices[0].used_bytes == 0;
  })) << bench.DeviceOf("a").used_bytes;
}

TEST(Interceptor, RacingProcessesNeverPassTheCap) {
  Bench bench;
  // Every racer's context (300 MiB) fits at once; what they allocate beside it does not.
  const int count = Full() ? 32 : 12;
  const std::uint64_t cap = (Full() ? 14000 : 8000) * kMebibyte;
  ASSERT_TRUE(bench.engine().AddSlice(bench.MakeSlice("a", cap, 250)).ok());
  std::vector<Program> racers;
  for (int i = 0; i < count; ++i) {
    racers.push_back(bench.Run("a", {"race", Full() ? "20" : "3", std::to_string(i + 1)}));
  }
  std::uint64_t refused = 0;
  for (Program& racer : racers) {
    std::string output;
    EXPECT_EQ(racer.Wait(&output), 0) << output;
    refused += std::strtoull(output.c_str(), nullptr, 10);
  }
  EXPECT_GT(refused, 0U) << "the race never came near the cap";
  EXPECT_LE(PeakUse(bench), cap);
  EXPECT_GT(PeakUse(bench), cap - 500 * kMebibyte);
  EXPECT_LE(bench.DeviceOf("a").peak_bytes, cap);
  EXPECT_TRUE(bench.Eventually(
      [](const EngineStatus& s) { return s.slices[0].devices[0].used_bytes == 0; }));
}

// The test above must be able to fail: a library that looks first and adds later is caught by it.
TEST(Interceptor, AnOvershootingLibraryIsCaughtByTheSameRace) {
  Bench bench;
  ASSERT_TRUE(bench.engine().AddSlice(bench.MakeSlice("a", 8000 * kMebibyte, 250)).ok());
  std::vector<Program> racers;
  for (int i = 0; i < 12; ++i) {
    racers.push_back(bench.Run("a", {"race", "3", std::to_string(i + 1)}, true));
  }
  for (Program& racer : racers) {
    racer.Wait();
  }
  EXPECT_GT(PeakUse(bench), 8000 * kMebibyte);
}

TEST(Interceptor, QueriesShowTheSliceAndForeignDevicesAreRefused) {
  Bench bench({.devices = 3});
  ASSERT_TRUE(bench.engine().AddSlice(bench.MakeSlice("a", 1000 * kMebibyte, 250, {0, 2})).ok());
  Program probe = bench.Run("a", {"info"});
  std::string output;
  ASSERT_EQ(probe.Wait(&output), 0);
  std::istringstream words(output);
  std::uint64_t devices = 0, total = 0, free_bytes = 0, device_total = 0;
  int beyond = 0, stolen = 0;
  words >> devices >> total >> free_bytes >> device_total >> beyond >> stolen;
  EXPECT_EQ(devices, 2U);
  EXPECT_EQ(total, 1000 * kMebibyte);
  EXPECT_EQ(device_total, 1000 * kMebibyte);
  EXPECT_EQ(free_bytes, 700 * kMebibyte);  // the context is charged
  EXPECT_EQ(beyond, 101);
  EXPECT_EQ(stolen, 101) << "a handle that was guessed";
}

TEST(Interceptor, EveryEntryPointIsThereInTheVersionAndFormAskedFor) {
  Bench bench;
  ASSERT_TRUE(bench.engine().AddSlice(bench.MakeSlice("a", 2048 * kMebibyte, 250)).ok());
  Program probe = bench.Run("a", {"procs"});
  std::string output;
  EXPECT_EQ(probe.Wait(&output), 0) << output;
}

// The libraries go into any image: an old C library is enough, nothing runs when they are loaded,
// and they need nothing but libc (and its libdl, where dlopen once lived).
TEST(Interceptor, TheLibrariesNeedGlibc217AndRunNothingAtLoad) {
  for (const char* library : {SUBLET_CUDA_HOOKS, SUBLET_NVML_HOOKS}) {
    FILE* pipe = popen(("readelf -W -d -V " + std::string(library)).c_str(), "r");
    ASSERT_NE(pipe, nullptr);
    std::string text;
    char block[4096];
    for (std::size_t got = 0; (got = fread(block, 1, sizeof block, pipe)) > 0;) {
      text.append(block, got);
    }
    ASSERT_EQ(pclose(pipe), 0);
    EXPECT_NE(text.find("(SONAME)"), std::string::npos) << text;
    for (const char* runs :
         {"(INIT)", "(INIT_ARRAY)", "(FINI)", "(FINI_ARRAY)", "(PREINIT_ARRAY)"}) {
      EXPECT_EQ(text.find(runs), std::string::npos) << library << " has " << runs;
    }
    int versions = 0;
    for (std::size_t at = text.find("Name: GLIBC_2."); at != std::string::npos;
         at = text.find("Name: GLIBC_2.", at + 1)) {
      EXPECT_LE(std::atoi(text.c_str() + at + std::strlen("Name: GLIBC_2.")), 17) << library;
      ++versions;
    }
    EXPECT_GT(versions, 0);
    for (std::size_t at = text.find("(NEEDED)"); at != std::string::npos;
         at = text.find("(NEEDED)", at + 1)) {
      const std::string line = text.substr(at, text.find('\n', at) - at);
      EXPECT_TRUE(line.find("[libc.so.6]") != std::string::npos ||
                  line.find("[libdl.so.2]") != std::string::npos ||
                  line.find("[ld-linux-x86-64.so.2]") != std::string::npos)
          << line;
    }
  }
}

TEST(Interceptor, WithoutGpudNothingStarts) {
  Bench bench;
  ASSERT_TRUE(bench.engine().AddSlice(bench.MakeSlice("a", 2048 * kMebibyte, 250)).ok());
  bench.engine().RemoveSlice("a");
  Program probe = bench.Run("a", {"info"});
  EXPECT_EQ(probe.Wait(), 82);  // CUDA_ERROR_SYSTEM_NOT_READY, after five seconds
  EXPECT_EQ(PeakUse(bench), 0U);
}

TEST(Interceptor, EnforceOffShowsTheWholeDevice) {
  Bench bench;
  EngineSlice slice = bench.MakeSlice("a", 1000 * kMebibyte, 250);
  slice.enforce = Enforce::kOff;
  ASSERT_TRUE(bench.engine().AddSlice(slice).ok());
  Program probe = bench.Run("a", {"hold", std::to_string(5000 * kMebibyte)});
  EXPECT_EQ(probe.ReadLine(), "ready");
  EXPECT_EQ(probe.Wait(), 0);
}

TEST(Death, AKilledProcessIsClearedAndItsBytesReturn) {
  Bench bench;
  ASSERT_TRUE(bench.engine().AddSlice(bench.MakeSlice("a", 8000 * kMebibyte, 250)).ok());
  Program probe = bench.Run("a", {"hold", std::to_string(6000 * kMebibyte)});
  ASSERT_EQ(probe.ReadLine(), "ready");
  EXPECT_EQ(bench.DeviceOf("a").used_bytes, 6300 * kMebibyte);
  probe.Kill(SIGKILL);
  const auto start = std::chrono::steady_clock::now();
  EXPECT_TRUE(bench.Eventually([](const EngineStatus& s) { return s.slices[0].processes == 0; }));
  EXPECT_TRUE(bench.Eventually(
      [](const EngineStatus& s) { return s.slices[0].devices[0].used_bytes == 0; }));
  const double ms =
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  RecordProperty("release_ms", std::to_string(ms));
  std::printf("SIGKILL to bytes free: %.2f ms\n", ms);
}

TEST(Death, KilledAtRandomPointsTheTotalReturnsToZero) {
  Bench bench;
  ASSERT_TRUE(bench.engine().AddSlice(bench.MakeSlice("a", 9000 * kMebibyte, 250)).ok());
  const int rounds = Full() ? 1000 : 60;
  unsigned seed = 5;
  for (int round = 0; round < rounds; ++round) {
    Program churners[3] = {bench.Run("a", {"churn", std::to_string(3 * round + 1)}),
                           bench.Run("a", {"churn", std::to_string(3 * round + 2)}),
                           bench.Run("a", {"churn", std::to_string(3 * round + 3)})};
    usleep(static_cast<useconds_t>(3000 + rand_r(&seed) % 25000));
    for (Program& churner : churners) {
      churner.Kill(SIGKILL);
      churner.Wait();
    }
    if (round % 20 == 19 || round + 1 == rounds) {
      ASSERT_TRUE(bench.Eventually([](const EngineStatus& s) {
        return s.slices[0].processes == 0 && s.slices[0].devices[0].used_bytes == 0;
      })) << "round "
          << round << ": " << bench.DeviceOf("a").used_bytes << " bytes, held "
          << bench.DeviceOf("a").held_bytes;
    }
  }
  EXPECT_LE(bench.DeviceOf("a").peak_bytes, 9000 * kMebibyte);
}

TEST(Death, ForkStorm) {
  Bench bench;
  std::vector<Program> storms;
  for (int i = 0; i < 4; ++i) {
    const std::string name = "s" + std::to_string(i);
    ASSERT_TRUE(bench.engine().AddSlice(bench.MakeSlice(name, 3000 * kMebibyte, 250)).ok());
    storms.push_back(bench.Run(name, {"fork", Full() ? "60" : "12"}));
  }
  for (Program& storm : storms) {
    std::string output;
    EXPECT_EQ(storm.Wait(&output), 0) << output;
  }
  EXPECT_TRUE(bench.Eventually([](const EngineStatus& s) {
    return std::all_of(s.slices.begin(), s.slices.end(), [](const SliceStatus& slice) {
      return slice.processes == 0 && slice.devices[0].used_bytes == 0;
    });
  }));
}

TEST(Restart, GpudGoesAndComesBackUnderLoad) {
  Bench bench;
  const EngineSlice slice = bench.MakeSlice("a", 9000 * kMebibyte, 250);
  ASSERT_TRUE(bench.engine().AddSlice(slice).ok());
  Program holder = bench.Run("a", {"hold", std::to_string(2000 * kMebibyte)});
  ASSERT_EQ(holder.ReadLine(), "ready");
  std::vector<Program> racers;
  for (int i = 0; i < 4; ++i) {
    racers.push_back(bench.Run("a", {"race", "4", std::to_string(i + 1)}));
  }
  for (int round = 0; round < 3; ++round) {
    usleep(500000);
    bench.StopEngine();
    usleep(200000);
    bench.StartEngine();
    ASSERT_TRUE(bench.engine().AddSlice(slice).ok());
  }
  EXPECT_TRUE(bench.Eventually([](const EngineStatus& s) { return s.slices[0].processes == 5; }));
  for (Program& racer : racers) {
    std::string output;
    EXPECT_EQ(racer.Wait(&output), 0) << output;
  }
  // The holder never noticed; what it holds is still charged, and the cap still holds.
  EXPECT_TRUE(bench.Eventually([](const EngineStatus& s) {
    return s.slices[0].devices[0].used_bytes == 2300 * kMebibyte;
  })) << bench.DeviceOf("a").used_bytes;
  EXPECT_LE(PeakUse(bench), 9000 * kMebibyte);
  EXPECT_EQ(holder.Wait(), 0);
  EXPECT_TRUE(bench.Eventually(
      [](const EngineStatus& s) { return s.slices[0].devices[0].used_bytes == 0; }));
}

// Rows 37 and 38 of the hostile cases, as far as user space can answer them.
TEST(Escape, AProcessPastTheInterceptorIsFoundAndReported) {
  Bench bench({.unmanaged = UnmanagedPolicy::kReport});
  ASSERT_TRUE(bench.engine().AddSlice(bench.MakeSlice("a", 2048 * kMebibyte, 250)).ok());
  Program rogue = bench.RunBare({"hold", std::to_string(4000 * kMebibyte)});
  ASSERT_EQ(rogue.ReadLine(), "ready");
  EXPECT_TRUE(bench.Eventually([&](const EngineStatus& s) { return s.unmanaged_total == 1; }));
  const auto events = bench.Events();
  ASSERT_FALSE(events.empty());
  EXPECT_EQ(events.back().reason, "UnmanagedGpuProcess");
  EXPECT_NE(events.back().message.find(std::to_string(rogue.pid())), std::string::npos);
}

TEST(Escape, AProcessPastTheInterceptorIsEnded) {
  Bench bench;
  const EngineSlice slice = bench.MakeSlice("a", 2048 * kMebibyte, 250);
  ASSERT_TRUE(bench.engine().AddSlice(slice).ok());
  // A neighbour that is known is left alone.
  Program neighbour = bench.Run("a", {"hold", std::to_string(100 * kMebibyte)});
  ASSERT_EQ(neighbour.ReadLine(), "ready");
  if (geteuid() != 0) {
    return;  // whose container a process is in is read from its mounts, which need root to make
  }
  const std::string folder = bench.engine().FolderOf("a");
  Program rogue = bench.Spawn(
      {"/usr/bin/unshare", "--mount", "/bin/bash", "-c",
       "mount -t tmpfs tmpfs /run && mkdir -p /run/sublet/gpu && mount --bind " + folder +
           " /run/sublet/gpu && LD_PRELOAD=" SUBLET_SIMULATOR_CUDA " exec " SUBLET_GPU_PROBE
           " hold " +
           std::to_string(4000 * kMebibyte)},
      {{"PATH", "/usr/sbin:/usr/bin:/sbin:/bin"}});
  ASSERT_EQ(rogue.ReadLine(), "ready");
  EXPECT_TRUE(bench.Eventually([&](const EngineStatus& s) { return s.slices[0].unmanaged == 1; }));
  EXPECT_EQ(rogue.Wait(), 128 + SIGKILL);
  EXPECT_EQ(bench.Events().back().slice, "a");
  EXPECT_EQ(neighbour.Wait(), 0);
}

// A known process that launches by the driver's own entry: the gate does not see it, the driver
// does.
TEST(Escape, WorkPastTheGateShowsInTheDriversSamples) {
  Bench bench;
  ASSERT_TRUE(bench.engine().AddSlice(bench.MakeSlice("a", 2048 * kMebibyte, 100)).ok());
  ASSERT_TRUE(bench.engine().AddSlice(bench.MakeSlice("b", 2048 * kMebibyte, 900)).ok());
  Program cheat = bench.Run("a", {"cheat", "5000000", "30"});
  ASSERT_EQ(cheat.ReadLine(), "ready");
  Program honest = bench.Run("b", {"launch", "1000000", "30"});
  ASSERT_EQ(honest.ReadLine(), "ready");
  const auto told = [&] {
    for (const EngineEvent& event : bench.Events()) {
      if (event.reason == "GpuShareExceeded" && event.slice == "a") {
        return true;
      }
    }
    return false;
  };
  EXPECT_TRUE(bench.Eventually([&](const EngineStatus&) { return told(); }));
  EXPECT_TRUE(bench.Eventually([&](const EngineStatus& s) { return s.slices[0].processes == 0; }))
      << "reported, then ended";
  for (const EngineEvent& event : bench.Events()) {
    EXPECT_NE(event.slice, "b") << event.reason << " " << event.message;
  }
}

TEST(Leases, ASliceAloneIsBusyByTheDriversSamples) {
  Bench bench;
  ASSERT_TRUE(bench.engine().AddSlice(bench.MakeSlice("a", 2048 * kMebibyte, 250)).ok());
  Program program = bench.Run("a", {"launch", "1000000", "20"});
  ASSERT_EQ(program.ReadLine(), "ready");
  EXPECT_TRUE(bench.Eventually(
      [](const EngineStatus& s) { return s.slices[0].devices[0].busy > 200'000'000; }));
  EXPECT_EQ(bench.DeviceOf("a").turns, 0U);
}

TEST(Leases, TwoBusyProcessesShareByWeightInRealTime) {
  Bench bench;
  ASSERT_TRUE(bench.engine().AddSlice(bench.MakeSlice("a", 2048 * kMebibyte, 250)).ok());
  ASSERT_TRUE(bench.engine().AddSlice(bench.MakeSlice("b", 2048 * kMebibyte, 750)).ok());
  const auto kernels = [](const std::string& output) {
    return std::strtod(output.c_str() + output.find('\n'), nullptr);
  };
  Program alone = bench.Run("a", {"launch", "1000000", "1"});
  std::string solo;
  EXPECT_EQ(alone.Wait(&solo), 0);
  Program one = bench.Run("a", {"launch", "1000000", "3"});
  Program three = bench.Run("b", {"launch", "1000000", "3"});
  std::string first;
  std::string second;
  EXPECT_EQ(one.Wait(&first), 0);
  EXPECT_EQ(three.Wait(&second), 0);
  const double a = kernels(first);
  const double b = kernels(second);
  std::printf(
      "real time 1:3: %.0f and %.0f kernels of 1 ms in 3 s, share %.1f %%, together %.0f %% of "
      "what one alone gets\n",
      a, b, 100 * a / (a + b), 100 * (a + b) / (3 * kernels(solo)));
  // Real time on a busy machine is a benchmark; here only the direction must be right.
  EXPECT_GT(b, 1.5 * a);
  EXPECT_GT(bench.DeviceOf("a").turns, 10U);
}

TEST(Leases, CapturedLaunchesAreNotGated) {
  Bench bench;
  ASSERT_TRUE(bench.engine().AddSlice(bench.MakeSlice("a", 2048 * kMebibyte, 500)).ok());
  ASSERT_TRUE(bench.engine().AddSlice(bench.MakeSlice("b", 2048 * kMebibyte, 500)).ok());
  Program busy = bench.Run("b", {"launch", "1000000", "2"});
  ASSERT_EQ(busy.ReadLine(), "ready");
  Program capture = bench.Run("a", {"capture"});
  std::string output;
  EXPECT_EQ(capture.Wait(&output), 0);
  EXPECT_EQ(bench.DeviceOf("a").turns > 0, true) << "the graph launch itself is gated";
  EXPECT_EQ(busy.Wait(), 0);
}

}  // namespace
}  // namespace sublet::gpu::testing
