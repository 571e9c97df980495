// What the GPU layer costs and how exactly it shares, in real time. Prints one JSON line each:
//   the interceptor's own nanoseconds per launch through the gate, per call through a trampoline and
//   per allocation with its free, for a program that has its device to itself, over a driver that
//   does nothing;
//   busy processes with weights 1:3 and 20:30:50 on the simulated device: how far the largest error
//   of any slice is in windows of 1 s and over all, and what they have done together, of what one
//   alone does. Arguments: seconds per run of shares (default 10).
// No GPU is involved; a busy machine moves these numbers (the virtual clock of arbiter_test.cc
// does not).
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "gpu/testing/bench.h"

namespace sublet::gpu::testing {
namespace {

int Gate() {
  Bench bench({.unmanaged = UnmanagedPolicy::kReport});
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

// Kernels of 1 ms that each program had finished, as it tells them once a second.
std::vector<double> Together(Bench& bench, const std::vector<std::string>& slices, int seconds,
                             std::vector<std::vector<double>>* windows) {
  std::vector<Program> programs;
  for (const std::string& slice : slices) {
    programs.push_back(bench.Run(slice, {"tick", "1000000", std::to_string(seconds + 1)}));
  }
  for (Program& program : programs) {
    program.ReadLine();  // ready
  }
  std::vector<double> total(slices.size(), 0);
  for (int second = 0; second <= seconds; ++second) {
    std::vector<double> window;
    for (std::size_t i = 0; i < programs.size(); ++i) {
      const double kernels = std::strtod(programs[i].ReadLine().c_str(), nullptr);
      window.push_back(kernels);
      total[i] += second == 0 ? 0 : kernels;  // the first one is the start
    }
    if (second > 0 && windows != nullptr) {
      windows->push_back(window);
    }
  }
  for (Program& program : programs) {
    program.Wait();
  }
  return total;
}

double Error(const std::vector<double>& got, const std::vector<int>& weights) {
  double sum = 0;
  int whole = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    sum += got[i];
    whole += weights[i];
  }
  double worst = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    worst =
        std::max(worst, std::abs(100 * got[i] / std::max(sum, 1.0) - 100.0 * weights[i] / whole));
  }
  return worst;
}

int Shares(const std::vector<int>& weights, int seconds) {
  Bench bench({.unmanaged = UnmanagedPolicy::kReport});
  int whole = 0;
  for (const int weight : weights) {
    whole += weight;
  }
  std::vector<std::string> names;
  std::string title;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    names.push_back("s" + std::to_string(i));
    title += (i == 0 ? "" : ":") + std::to_string(weights[i]);
    const int share = 1000 * weights[i] / whole;
    if (!bench.engine().AddSlice(bench.MakeSlice(names[i], 2048 * kMebibyte, share)).ok()) {
      return 1;
    }
  }
  const double alone = Together(bench, {names[0]}, 2, nullptr)[0] / 2;
  std::vector<std::vector<double>> windows;
  const std::vector<double> got = Together(bench, names, seconds, &windows);
  double worst = 0;
  for (const std::vector<double>& window : windows) {
    worst = std::max(worst, Error(window, weights));
  }
  double sum = 0;
  std::string shares;
  for (const double part : got) {
    sum += part;
  }
  for (const double part : got) {
    char text[16];
    std::snprintf(text, sizeof text, "%s%.1f", shares.empty() ? "" : ",",
                  100 * part / std::max(sum, 1.0));
    shares += text;
  }
  std::printf(
      "{\"weights\":\"%s\",\"seconds\":%d,\"shares_percent\":[%s],\"error_points_1s\":%.1f,"
      "\"error_points_all\":%.1f,\"together_percent_of_alone\":%.0f}\n",
      title.c_str(), seconds, shares.c_str(), worst, Error(got, weights),
      100 * sum / std::max(seconds * alone, 1.0));
  return sum > 0 ? 0 : 1;
}

}  // namespace
}  // namespace sublet::gpu::testing

int main(int count, char** arguments) {
  using namespace sublet::gpu::testing;  // NOLINT: one short program
  const int seconds = count > 1 ? std::max(1, std::atoi(arguments[1])) : 10;
  return Gate() | Shares({1, 3}, seconds) | Shares({20, 30, 50}, seconds);
}
