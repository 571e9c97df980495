// gpud: the GPU daemon of a node (`sublet gpud`). Holds the node's slices (SliceController), serves
// their containers (Engine), tells about itself (AdminServer). In the embedded host it may run in
// the process of `sublet host up` or as its own.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/clock.h"
#include "client/client.h"
#include "gpu/gpud/cdi.h"
#include "gpu/gpud/engine.h"
#include "gpu/simulator/state.h"

namespace sublet::gpu {

// Simulated GPUs instead of a driver (`host up --gpus N --gpu-model NAME --gpu-memory SIZE`).
struct SimulatedGpus {
  int count = 0;  // 0 = the node's real ones
  std::string model = "Simulated GPU";
  std::uint64_t memory_bytes = std::uint64_t{16} << 30;
};

struct GpudOptions {
  std::string node_name;
  // How to reach the API server; needed.
  std::shared_ptr<client::Client> client;
  std::string run_folder = "/run/sublet/gpud";  // sockets, lock, state; not kept over a reboot
  std::string install_folder = "/var/lib/sublet/gpu";  // the containers' files
  std::string nvml_path = "libnvidia-ml.so.1";
  CdiOptions cdi;
  SimulatedGpus simulated;
  UnmanagedPolicy unmanaged = UnmanagedPolicy::kKill;
  bool check_cgroups = true;
  bool publishes_node = true;
  std::string lease_namespace = "kube-system";
};

// A running gpud. Start and Stop from one thread; nothing of it outlives Stop.
class Gpud {
 public:
  explicit Gpud(GpudOptions options);
  ~Gpud();  // Stop
  // Errors: ServiceUnavailable (no driver), Conflict (another gpud runs in run_folder),
  // InternalError.
  Result<void> Start();
  void Stop();  // idempotent; joins. Containers go on; their clients wait for the next gpud.
  // RUN_FOLDER/admin.sock
  std::string AdminSocket() const;
  Engine& engine();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Runs until SIGTERM or SIGINT. Returns the exit code; what failed is logged.
int RunGpud(const GpudOptions& options);

}  // namespace sublet::gpu
