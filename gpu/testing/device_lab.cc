// gpu_lab: gpud's engine by itself, over a real driver or a simulated one, for the experiments of
// e2e/gpu/device.py: no API server, no containers; "pods" are programs that preload the
// interceptor.
//   gpu_lab NVML FOLDER GPU SLICE...    SLICE = NAME:BYTES:SHARE_MILLI[:strict]
// Prints "ready" when the slices are open, then answers each line on its input: "status" with
// gpud's /status document on one line; end of input ends it. Events go to standard error.
// FOLDER/slices/NAME is the folder a program finds by SUBLET_GPU_FOLDER. Threads: main, and the
// engine's.
#include <sys/stat.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "gpu/gpud/engine.h"
#include "gpu/gpud/status.h"
#include "gpu/simulator/state.h"
#include "kube/json.h"

namespace {

using namespace sublet::gpu;  // NOLINT: a program of one file

// "a:1073741824:250[:strict]". False: it is none.
bool ReadSlice(const std::string& text, const std::string& uuid, EngineSlice* slice) {
  char name[64];
  char mode[16] = "fair";
  long long bytes = 0;
  int share = 0;
  if (std::sscanf(text.c_str(), "%63[^:]:%lld:%d:%15s", name, &bytes, &share, mode) < 3) {
    return false;
  }
  slice->name = name;
  slice->pod = name;
  slice->compute.mode =
      std::strcmp(mode, "strict") == 0 ? ComputeMode::kStrict : ComputeMode::kFair;
  slice->devices = {{{uuid, bytes, share}, 1}};
  return true;
}

int Run(int count, char** arguments) {
  // Over the simulated driver the simulated machine is made as well.
  if (const char* state = std::getenv("SUBLET_SIMULATOR"); state != nullptr) {
    simulator::CreateOptions create;
    create.path = state;
    simulator::CreateState(create);
  }
  auto driver = OpenNvml(arguments[1]);
  if (!driver.ok()) {
    std::fprintf(stderr, "%s\n", driver.error().message().c_str());
    return 1;
  }
  const auto inventory = (*driver)->Inventory();
  const auto gpu = static_cast<std::size_t>(std::atoi(arguments[3]));
  if (!inventory.ok() || inventory->devices.size() <= gpu) {
    std::fprintf(stderr, "no such GPU\n");
    return 1;
  }
  const std::string folder = arguments[2];
  mkdir(folder.c_str(), 0755);
  EngineOptions options;
  options.socket_root = folder + "/slices";
  options.check_cgroups = false;  // every "pod" here is in one cgroup
  Engine engine(options, std::move(driver).value(), [](const EngineEvent& event) {
    std::fprintf(stderr, "event %s %s: %s\n", event.slice.c_str(), event.reason.c_str(),
                 event.message.c_str());
  });
  if (const auto started = engine.Start(); !started.ok()) {
    std::fprintf(stderr, "%s\n", started.error().message().c_str());
    return 1;
  }
  for (int i = 4; i < count; ++i) {
    EngineSlice slice;
    if (!ReadSlice(arguments[i], inventory->devices[gpu].uuid, &slice) ||
        !engine.AddSlice(slice).ok()) {
      std::fprintf(stderr, "bad slice %s\n", arguments[i]);
      return 64;
    }
  }
  std::printf("ready\n");
  std::fflush(stdout);
  char line[64];
  while (std::fgets(line, sizeof line, stdin) != nullptr) {
    const Nanoseconds now = std::chrono::steady_clock::now().time_since_epoch().count();
    std::printf(
        "%s\n",
        sublet::kube::Dump(StatusToJson(engine.ReadStatus(), *inventory, "lab", now)).c_str());
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 5) {
    std::fprintf(stderr, "usage: gpu_lab NVML FOLDER GPU NAME:BYTES:SHARE_MILLI[:strict]...\n");
    return 64;
  }
  return Run(count, arguments);
}
