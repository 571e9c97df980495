#include "gpu/testing/slice_node.h"

#include <unistd.h>

#include <nlohmann/json.hpp>

#include "base/check.h"
#include "gpu/api/codec.h"

namespace sublet::gpu::testing {

SliceNode::SliceNode(int devices)
    : bench_({.devices = devices, .memory_bytes = 16384 * kMebibyte}) {
  server_ = std::make_shared<client::testing::MemoryServer>();
  client_ = std::make_unique<client::Client>(server_, "test");
  SUBLET_CHECK(
      client_
          ->Create({{"", "v1", "nodes"}, "", "", ""},
                   {{"apiVersion", "v1"}, {"kind", "Node"}, {"metadata", {{"name", "n1"}}}})
          .ok());
  StartController("gpud-1");
}

SliceNode::~SliceNode() { StopController(); }

void SliceNode::StartController(const std::string& identity) {
  auto driver = OpenNvml(SUBLET_SIMULATOR_NVML);
  SUBLET_CHECK(driver.ok());
  auto inventory = (*driver)->Inventory();
  SUBLET_CHECK(inventory.ok());
  auto files = InstallFiles(bench_.folder() + "/install");
  SUBLET_CHECK(files.ok());
  informers_ = std::make_unique<client::InformerFactory>(*client_);
  manager_ = std::make_unique<client::Manager>(*informers_, clock_, 1);
  SliceControllerOptions options{.node_name = "n1", .identity = identity};
  options.cdi.cdi_folder = bench_.folder() + "/cdi";
  options.cdi.is_simulated = true;
  options.cdi.simulator_state = bench_.folder() + "/simulator";
  controller_ = std::make_unique<SliceController>(options, *client_, *informers_, *manager_,
                                                  bench_.engine(), *files, *inventory, clock_);
  informers_->Start();
  SUBLET_CHECK(informers_->WaitSynced(After(std::chrono::seconds(10))));
  manager_->RunUntilIdle();
}

void SliceNode::StopController() {
  manager_->Stop();
  informers_->Stop();
  controller_.reset();
  manager_.reset();
  informers_.reset();
}

GpuSlice SliceNode::Ask(const std::string& name_space, const std::string& uid,
                        std::int64_t mebibytes, std::int32_t share, int device) {
  GpuSlice slice = MakeSlice(
      name_space, {.node = "n1",
                   .pod = {"pod-" + uid, uid},
                   .devices = {{bench_.uuid(device), mebibytes * kBytesPerMebibyte, share}},
                   .tenant = "team"});
  SUBLET_CHECK(client_->Create({SliceResource(), name_space, "", ""}, SliceToJson(slice)).ok());
  return slice;
}

void SliceNode::MakePod(const std::string& name_space, const std::string& uid) {
  SUBLET_CHECK(client_
                   ->Create({{"", "v1", "pods"}, name_space, "", ""},
                            {{"apiVersion", "v1"},
                             {"kind", "Pod"},
                             {"metadata",
                              {{"name", "pod-" + uid + "-x-default-x-team"},
                               {"namespace", name_space},
                               {"annotations", {{kCdiAnnotation, CdiDeviceName(uid)}}}}},
                             {"spec", {{"nodeName", "n1"}}}})
                   .ok());
}

void SliceNode::DeletePod(const std::string& name_space, const std::string& uid) {
  SUBLET_CHECK(
      client_->Delete({{"", "v1", "pods"}, name_space, "pod-" + uid + "-x-default-x-team", ""})
          .ok());
}

void SliceNode::Release(const std::string& name_space, const std::string& uid) {
  (void)client_->Delete({SliceResource(), name_space, uid, ""});
}

std::optional<GpuSlice> SliceNode::Read(const std::string& name_space, const std::string& uid) {
  auto object = client_->Get({SliceResource(), name_space, uid, ""});
  if (!object.ok()) {
    return std::nullopt;
  }
  return *SliceFromJson(*object);
}

GpuNode SliceNode::ReadNode() {
  auto object = client_->Get({NodeResource(), "", "n1", ""});
  SUBLET_CHECK(object.ok());
  return *NodeFromJson(*object);
}

bool SliceNode::Until(const std::function<bool()>& good) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (!good()) {
    if (std::chrono::steady_clock::now() > until) {
      return false;
    }
    // Delays inside the controller are a hundredth of what a test may wait.
    clock_.Advance(std::chrono::milliseconds(5));
    manager_->RunUntilIdle();
    usleep(200);
  }
  return true;
}

bool SliceNode::UntilPhase(const std::string& name_space, const std::string& uid,
                           SlicePhase phase) {
  return Until([&] {
    const auto slice = Read(name_space, uid);
    return slice && slice->status.phase == phase;
  });
}

}  // namespace sublet::gpu::testing
