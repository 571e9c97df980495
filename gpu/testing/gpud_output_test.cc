// What gpud shows: its Node, the files for containers, nvidia-smi and NVML inside one, metrics and
// tables; and the whole daemon.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "gpu/api/codec.h"
#include "gpu/cli_view.h"
#include "gpu/gpud/admin_server.h"
#include "gpu/gpud/gpud.h"
#include "gpu/gpud/status.h"
#include "gpu/testing/slice_node.h"

namespace sublet::gpu::testing {
namespace {

using kube::FindString;
using kube::Json;

TEST(Node, CarriesCapacityAndFeatureLabels) {
  SliceNode node(2);
  ASSERT_TRUE(node.Until([&] {
    auto object = node.client().Get({{"", "v1", "nodes"}, "", "n1", ""});
    return object.ok() &&
           kube::FindString(*object, {"status", "allocatable", "nvidia.com/gpu"}) == "2";
  }));
  const auto object = node.client().Get({{"", "v1", "nodes"}, "", "n1", ""});
  EXPECT_EQ(kube::FindString(*object, {"status", "capacity", "nvidia.com/gpu"}), "2");
  EXPECT_EQ(kube::FindString(*object, {"metadata", "labels", "nvidia.com/gpu.product"}),
            "Simulated-GPU");
  EXPECT_EQ(kube::FindString(*object, {"metadata", "labels", "nvidia.com/gpu.count"}), "2");
  EXPECT_EQ(kube::FindString(*object, {"metadata", "labels", "nvidia.com/gpu.memory"}), "16384");
}

TEST(Node, ALostDeviceIsUnhealthyAndGetsNoSlices) {
  SliceNode node(2);
  node.bench().state().devices[0].is_lost = 1;
  ASSERT_TRUE(
      node.bench().Eventually([](const EngineStatus& s) { return s.unhealthy.size() == 1; }));
  node.clock().Advance(std::chrono::seconds(11));
  ASSERT_TRUE(node.Until([&] { return !node.ReadNode().devices[0].is_healthy; }));
  EXPECT_TRUE(node.ReadNode().devices[1].is_healthy);
  node.Ask("a", "u1", 100, 10);
  ASSERT_TRUE(node.UntilPhase("a", "u1", SlicePhase::kDenied));
  EXPECT_EQ(node.Read("a", "u1")->status.reason, kDeniedUnhealthyDevice);
  node.bench().state().devices[0].is_lost = 0;
  ASSERT_TRUE(node.bench().Eventually([](const EngineStatus& s) { return s.unhealthy.empty(); }));
  node.clock().Advance(std::chrono::seconds(11));
  EXPECT_TRUE(node.Until([&] { return node.ReadNode().devices[0].is_healthy; }));
}

TEST(Cdi, TheSpecPutsTheInterceptorWhereTheDriverIsLookedFor) {
  SliceNode node;
  node.Ask("a", "u1", 1000, 100);
  ASSERT_TRUE(node.UntilPhase("a", "u1", SlicePhase::kGranted));
  std::ifstream file(node.bench().folder() + "/cdi/sublet-u1.json");
  std::stringstream text;
  text << file.rdbuf();
  const auto spec = kube::ParseJson(text.str());
  ASSERT_TRUE(spec.ok());
  EXPECT_EQ(kube::FindString(*spec, {"kind"}), "sublet.dev/gpu");
  const Json& device = (*spec)["devices"][0];
  EXPECT_EQ(device["name"], "u1");
  std::map<std::string, std::string> mounts;
  for (const Json& mount : device["containerEdits"]["mounts"]) {
    const std::string from(FindString(mount, {"hostPath"}));
    const std::string to(FindString(mount, {"containerPath"}));
    mounts[to] = from;
    EXPECT_TRUE(std::filesystem::exists(from)) << from;
    EXPECT_EQ(mount["options"][0] == "rw", to == "/run/sublet/simulator/state");
  }
  EXPECT_TRUE(mounts["/usr/lib/x86_64-linux-gnu/libcuda.so.1"].ends_with("/libsublet-cuda.so"));
  EXPECT_TRUE(mounts["/run/sublet/real/libcuda.so.1"].ends_with("/libcuda-simulator.so"));
  EXPECT_EQ(mounts["/run/sublet/gpu"], node.bench().engine().FolderOf("u1"));
  EXPECT_TRUE(mounts.contains("/usr/bin/nvidia-smi"));
}

TEST(Cdi, ARealDeviceGetsItsNodesAndTheDriversLibraries) {
  const EngineSlice slice{.name = "s", .devices = {{{"GPU-x", 5, 5}, 1}}};
  DriverInventory inventory{
      .devices = {{.uuid = "GPU-y", .minor = 0}, {.uuid = "GPU-x", .minor = 3, .total_bytes = 20}}};
  const InstalledFiles files{.cuda = "/i/c.so", .nvml = "/i/n.so", .smi = "/i/smi"};
  const Json spec = MakeCdiSpec(slice, "/run/x/s", files, {.driver_folder = "/drv"}, inventory,
                                {"libnvidia-ptxjitcompiler.so.580"});
  const std::string text = kube::Dump(spec);
  EXPECT_NE(text.find("/dev/nvidia3"), std::string::npos);
  EXPECT_EQ(text.find("/dev/nvidia0"), std::string::npos);
  EXPECT_NE(text.find("/dev/nvidia-uvm"), std::string::npos);
  EXPECT_NE(text.find("\"/drv/libcuda.so.1\""), std::string::npos);
  EXPECT_NE(text.find("NVIDIA_VISIBLE_DEVICES=void"), std::string::npos);
  EXPECT_NE(text.find("GPU_PORTION=0.25\""), std::string::npos) << text;
  EXPECT_NE(text.find("RUNAI_NUM_OF_GPUS=1\""), std::string::npos);
  EXPECT_NE(text.find("libnvidia-ptxjitcompiler.so.580"), std::string::npos);
}

TEST(Smi, ShowsTheSliceAndNothingElse) {
  Bench bench({.devices = 3});
  ASSERT_TRUE(bench.engine().AddSlice(bench.MakeSlice("a", 1000 * kMebibyte, 250, {2})).ok());
  Program holder = bench.Run("a", {"hold", std::to_string(100 * kMebibyte)});
  ASSERT_EQ(holder.ReadLine(), "ready");
  const auto smi = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), SUBLET_NVIDIA_SMI);
    Program program = bench.Spawn(arguments, {{"SUBLET_GPU_FOLDER", bench.engine().FolderOf("a")}});
    std::string output;
    EXPECT_EQ(program.Wait(&output), 0) << output;
    return output;
  };
  EXPECT_EQ(smi({"-L"}), "GPU 0: Simulated GPU (UUID: " + bench.uuid(2) + ")\n");
  EXPECT_EQ(smi({"--query-gpu=name,memory.total,memory.used", "--format=csv,noheader"}),
            "Simulated GPU, 1000 MiB, 400 MiB\n");
  const std::string table = smi({});
  EXPECT_NE(table.find("400MiB / 1000MiB"), std::string::npos) << table;
  EXPECT_EQ(holder.Wait(), 0);
}

TEST(Nvml, APodSeesItsCapAndItsOwnProcesses) {
  Bench bench({.devices = 2});
  ASSERT_TRUE(bench.engine().AddSlice(bench.MakeSlice("a", 1000 * kMebibyte, 250, {1})).ok());
  ASSERT_TRUE(bench.engine().AddSlice(bench.MakeSlice("b", 1000 * kMebibyte, 250, {1})).ok());
  Program mine = bench.Run("a", {"hold", std::to_string(100 * kMebibyte)});
  Program theirs = bench.Run("b", {"hold", std::to_string(200 * kMebibyte)});
  ASSERT_EQ(mine.ReadLine(), "ready");
  ASSERT_EQ(theirs.ReadLine(), "ready");
  Program probe =
      bench.Spawn({SUBLET_GPU_PROBE, "nvml"}, {{"LD_PRELOAD", SUBLET_NVML_HOOKS},
                                               {"SUBLET_GPU_FOLDER", bench.engine().FolderOf("a")},
                                               {"SUBLET_REAL_NVML", SUBLET_SIMULATOR_NVML}});
  std::string output;
  EXPECT_EQ(probe.Wait(&output), 0) << output;
  // devices, total, used, processes, first pid, answer to a setter
  EXPECT_EQ(output, "1 1048576000 419430400 1 " + std::to_string(mine.pid()) + " 4\n");
}

TEST(Status, MetricsAndTopShowWhatASliceHasAndGot) {
  Bench bench;
  ASSERT_TRUE(bench.engine().AddSlice(bench.MakeSlice("a", 1000 * kMebibyte, 250)).ok());
  Program holder = bench.Run("a", {"hold", std::to_string(100 * kMebibyte)});
  ASSERT_EQ(holder.ReadLine(), "ready");
  const EngineStatus status = bench.engine().ReadStatus();
  const auto inventory = bench.engine().Inventory();
  ASSERT_TRUE(inventory.ok());
  const std::string metrics = FormatMetrics(status, *inventory);
  EXPECT_NE(metrics.find("sublet_gpu_memory_used_bytes{slice=\"a\",namespace=\"tenant\",pod=\"pod-"
                         "a\",tenant=\"team\",gpu=\"" +
                         bench.uuid(0) + "\"} 419430400\n"),
            std::string::npos)
      << metrics;
  const Json before = StatusToJson(status, *inventory, "n1", 1'000'000'000);
  Json after = StatusToJson(status, *inventory, "n1", 2'000'000'000);
  after["slices"][0]["devices"][0]["busyNs"] = 250'000'000;
  const std::string top = FormatGpuTop(after, &before);
  EXPECT_NE(top.find("team"), std::string::npos) << top;
  EXPECT_NE(top.find("1000Mi"), std::string::npos) << top;
  EXPECT_NE(top.find("400Mi of 15.8Gi used, 25% busy"), std::string::npos) << top;
  EXPECT_EQ(GpuTopToJson(after, &before)["gpus"][0]["slices"][0]["shareGotMilli"], 250);
  EXPECT_TRUE(GpuTopToJson(after, nullptr)["gpus"][0]["slices"][0]["shareGotMilli"].is_null());
  EXPECT_EQ(FormatGpuTop(Json::object(), nullptr), "No GPUs found\n");
  EXPECT_EQ(holder.Wait(), 0);
}

TEST(List, OneLinePerDevice) {
  GpuNode node{.name = "n1"};
  node.devices.push_back({.uuid = "GPU-1",
                          .index = 0,
                          .model = "H200",
                          .memory_bytes = std::int64_t{140} << 30,
                          .free_memory_bytes = std::int64_t{70} << 30,
                          .free_share_milli = 505});
  const std::string table = FormatGpuList({node}, {});
  EXPECT_EQ(table,
            "NODE   GPU   MODEL   MEMORY    FREE     FREE SHARE   SLICES   HEALTH\n"
            "n1     0     H200    140.0Gi   70.0Gi   50.5%        0        ok\n");
  EXPECT_EQ(FormatGpuList({}, {}), "No GPUs found\n");
  GpuSlice slice{.name = "u1", .name_space = "sublet-a"};
  slice.spec = {.node = "n1", .pod = {"train", "u1"}, .tenant = "a"};
  slice.status = {.phase = SlicePhase::kGranted,
                  .devices = {{{"GPU-1", std::int64_t{70} << 30, 495}, 1}}};
  EXPECT_TRUE(FormatGpuList({node}, {slice})
                  .ends_with("\n"
                             "TENANT   POD     NODE   GPU   MEMORY   SHARE   PHASE\n"
                             "a        train   n1     0     70.0Gi   49.5%   Granted\n"))
      << FormatGpuList({node}, {slice});
}

// The whole daemon, with simulated GPUs, over its own socket.
TEST(Gpud, StartsGrantsAnswersAndRefusesASecondOne) {
  char name[] = "/tmp/sublet-gpud-XXXXXX";
  ASSERT_NE(mkdtemp(name), nullptr);
  const std::string folder = name;
  auto server = std::make_shared<client::testing::MemoryServer>();
  GpudOptions options;
  options.node_name = "n1";
  options.client = std::make_shared<client::Client>(server, "gpud");
  options.run_folder = folder + "/run";
  options.install_folder = folder + "/install";
  options.cdi.cdi_folder = folder + "/cdi";
  options.simulated = {.count = 2, .model = "NVIDIA H200", .memory_bytes = 8192 * kMebibyte};
  options.check_cgroups = false;
  {
    Gpud gpud(options);
    const auto started = gpud.Start();
    ASSERT_TRUE(started.ok()) << started.error().message();
    Gpud second(options);
    const auto refused = second.Start();
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().reason(), Reason::kConflict);
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    auto published = options.client->Get({NodeResource(), "", "n1", ""});
    while ((!published.ok() || NodeFromJson(*published)->devices.size() != 2) &&
           std::chrono::steady_clock::now() < until) {
      usleep(5000);
      published = options.client->Get({NodeResource(), "", "n1", ""});
    }
    ASSERT_TRUE(published.ok());
    EXPECT_EQ(NodeFromJson(*published)->devices[1].model, "NVIDIA H200");
    EXPECT_EQ(*AdminGet(gpud.AdminSocket(), "/healthz"), "ok\n");
    const auto metrics = AdminGet(gpud.AdminSocket(), "/metrics");
    ASSERT_TRUE(metrics.ok());
    EXPECT_NE(metrics->find("sublet_gpu_device_memory_bytes"), std::string::npos);
    EXPECT_FALSE(AdminGet(gpud.AdminSocket(), "/nothing").ok());
  }
  EXPECT_FALSE(AdminGet(folder + "/run/admin.sock", "/healthz").ok());
  // A restart with other amounts keeps the simulated machine: programs run on it.
  {
    options.simulated.memory_bytes = 4096 * kMebibyte;
    Gpud again(options);
    ASSERT_TRUE(again.Start().ok());
    const auto inventory = again.engine().Inventory();
    ASSERT_TRUE(inventory.ok());
    EXPECT_EQ(inventory->devices.at(0).total_bytes, 8192 * kMebibyte);
  }
  std::error_code ignored;
  std::filesystem::remove_all(folder, ignored);
}

}  // namespace
}  // namespace sublet::gpu::testing
