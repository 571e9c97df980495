// SliceNode: a node with gpud's controller, worked by hand, against an API server that keeps
// objects and nothing else. Threads: the test's; Ask and Read from any.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/clock.h"
#include "client/client.h"
#include "client/manager.h"
#include "client/testing/memory_server.h"
#include "gpu/api/types.h"
#include "gpu/gpud/slice_controller.h"
#include "gpu/testing/bench.h"

namespace sublet::gpu::testing {

class SliceNode {
 public:
  // Simulated GPUs of 16 GiB, and a controller that leads.
  explicit SliceNode(int devices = 1);
  ~SliceNode();

  void StartController(const std::string& identity);
  void StopController();

  // A tenant's request, as the syncer makes it.
  GpuSlice Ask(const std::string& name_space, const std::string& uid, std::int64_t mebibytes,
               std::int32_t share, int device = 0);
  void Release(const std::string& name_space, const std::string& uid);
  // The host pod as a syncer makes it: its name is a translation, its annotation names the slice.
  void MakePod(const std::string& name_space, const std::string& uid);
  void DeletePod(const std::string& name_space, const std::string& uid);

  std::optional<GpuSlice> Read(const std::string& name_space, const std::string& uid);
  GpuNode ReadNode();
  // Works until `good`, at most ten seconds; the clock goes on 5 ms a step. False: it never was.
  bool Until(const std::function<bool()>& good);
  bool UntilPhase(const std::string& name_space, const std::string& uid, SlicePhase phase);

  Bench& bench() { return bench_; }
  FakeClock& clock() { return clock_; }
  client::Client& client() { return *client_; }
  SliceController& controller() { return *controller_; }
  client::Manager& manager() { return *manager_; }

 private:
  Bench bench_;
  FakeClock clock_;
  std::shared_ptr<client::testing::MemoryServer> server_;
  std::unique_ptr<client::Client> client_;
  std::unique_ptr<client::InformerFactory> informers_;
  std::unique_ptr<client::Manager> manager_;
  std::unique_ptr<SliceController> controller_;
};

}  // namespace sublet::gpu::testing
