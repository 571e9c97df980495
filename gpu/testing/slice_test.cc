// The slice protocol: grants, denials, releases, orphans, restarts.
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "gpu/api/codec.h"
#include "gpu/testing/slice_node.h"

namespace sublet::gpu::testing {
namespace {

TEST(Slices, AreGrantedOnceAndTheNodeSaysSo) {
  SliceNode node;
  node.Ask("a", "u1", 6000, 400);
  ASSERT_TRUE(node.UntilPhase("a", "u1", SlicePhase::kGranted));
  const GpuSlice granted = *node.Read("a", "u1");
  EXPECT_TRUE(granted.status.ready);
  EXPECT_EQ(granted.status.cdi_device, "sublet.dev/gpu=u1");
  EXPECT_EQ(granted.status.epoch, 1);
  ASSERT_EQ(granted.status.devices.size(), 1U);
  ASSERT_TRUE(node.Until([&] { return node.ReadNode().devices[0].free_share_milli == 600; }));
  const NodeDevice device = node.ReadNode().devices[0];
  EXPECT_EQ(device.memory_bytes, (16384 - 256) * static_cast<std::int64_t>(kMebibyte));
  EXPECT_EQ(device.free_memory_bytes,
            device.memory_bytes - 6000 * static_cast<std::int64_t>(kMebibyte));
  EXPECT_GE(device.ledger_generation, granted.status.devices[0].ledger_generation);

  node.Ask("b", "u2", 12000, 100);
  ASSERT_TRUE(node.UntilPhase("b", "u2", SlicePhase::kDenied));
  const GpuSlice denied = *node.Read("b", "u2");
  EXPECT_EQ(denied.status.reason, kDeniedInsufficientMemory);
  EXPECT_TRUE(denied.status.devices.empty());
  // A denied slice goes without further ado.
  node.Release("b", "u2");
  EXPECT_TRUE(node.Until([&] { return !node.Read("b", "u2"); }));
}

TEST(Slices, BadSpecsAreDeniedByName) {
  SliceNode node;
  GpuSlice slice = MakeSlice(
      "a", {.node = "n1", .pod = {"p", "u1"}, .devices = {{node.bench().uuid(0), -5, 2000}}});
  ASSERT_TRUE(node.client().Create({SliceResource(), "a", "", ""}, SliceToJson(slice)).ok());
  slice =
      MakeSlice("a", {.node = "n1", .pod = {"p", "u2"}, .devices = {{node.bench().uuid(0), 5, 5}}});
  slice.name = "stolen-name";
  ASSERT_TRUE(node.client().Create({SliceResource(), "a", "", ""}, SliceToJson(slice)).ok());
  ASSERT_TRUE(node.UntilPhase("a", "u1", SlicePhase::kDenied));
  ASSERT_TRUE(node.UntilPhase("a", "stolen-name", SlicePhase::kDenied));
  EXPECT_EQ(node.Read("a", "u1")->status.reason, kDeniedInvalidSpec);
  EXPECT_NE(node.Read("a", "u1")->status.message.find("spec.devices[0].memoryBytes"),
            std::string::npos);
}

// A tenant that learned another's pod UID asks for a slice of that name in its own namespace.
TEST(Slices, ANameHeldInAnotherNamespaceIsDeniedAndTheHolderUntouched) {
  SliceNode node;
  node.Ask("a", "u1", 1000, 100);
  ASSERT_TRUE(node.UntilPhase("a", "u1", SlicePhase::kGranted));
  node.Ask("b", "u1", 2000, 100);
  ASSERT_TRUE(node.UntilPhase("b", "u1", SlicePhase::kDenied));
  EXPECT_EQ(node.Read("b", "u1")->status.reason, kDeniedInvalidSpec);
  node.Release("b", "u1");
  EXPECT_TRUE(node.Until([&] { return !node.Read("b", "u1"); }));
  EXPECT_TRUE(std::filesystem::exists(node.bench().folder() + "/cdi/sublet-u1.json"));
  ASSERT_EQ(node.bench().engine().ReadStatus().slices.size(), 1U);
  EXPECT_EQ(node.bench().engine().ReadStatus().slices[0].slice.name_space, "a");
}

TEST(Slices, ADeletedSliceIsFreedWhenItsLastProcessHasEnded) {
  SliceNode node;
  node.Ask("a", "u1", 6000, 400);
  node.MakePod("a", "u1");
  ASSERT_TRUE(node.UntilPhase("a", "u1", SlicePhase::kGranted));
  Program holder = node.bench().Run("u1", {"hold", std::to_string(1000 * kMebibyte)});
  ASSERT_EQ(holder.ReadLine(), "ready");
  node.Release("a", "u1");
  ASSERT_TRUE(node.Until([&] { return node.Read("a", "u1")->is_deleting; }));
  for (int i = 0; i < 20; ++i) {
    node.clock().Advance(std::chrono::milliseconds(200));
    node.manager().RunUntilIdle();
  }
  EXPECT_TRUE(node.Read("a", "u1")) << "freed under a running process";
  holder.Kill(SIGKILL);
  EXPECT_TRUE(node.Until([&] { return !node.Read("a", "u1"); }));
  EXPECT_TRUE(node.Until([&] { return node.ReadNode().devices[0].free_share_milli == 1000; }));
  EXPECT_FALSE(std::filesystem::exists(node.bench().folder() + "/cdi/sublet-u1.json"));
}

TEST(Slices, WithoutAPodForAMinuteOrAfterItsPodASliceIsFreed) {
  SliceNode node;
  node.Ask("a", "never", 100, 10);
  node.Ask("a", "gone", 100, 10);
  node.Ask("a", "stays", 100, 10);
  node.MakePod("a", "gone");
  node.MakePod("a", "stays");
  ASSERT_TRUE(node.UntilPhase("a", "never", SlicePhase::kGranted));
  ASSERT_TRUE(node.UntilPhase("a", "gone", SlicePhase::kGranted));
  ASSERT_TRUE(node.UntilPhase("a", "stays", SlicePhase::kGranted));
  node.clock().Advance(std::chrono::seconds(30));
  node.manager().RunUntilIdle();
  EXPECT_FALSE(node.Read("a", "never")->is_deleting);
  node.DeletePod("a", "gone");
  EXPECT_TRUE(node.Until([&] { return !node.Read("a", "gone"); }));
  node.clock().Advance(std::chrono::seconds(61));
  EXPECT_TRUE(node.Until([&] { return !node.Read("a", "never"); }));
  EXPECT_TRUE(node.Read("a", "stays"));
}

TEST(Slices, ARestartedGpudKeepsEveryGrantAndGrantsNothingTwice) {
  SliceNode node;
  node.Ask("a", "u1", 10000, 600);
  node.MakePod("a", "u1");
  ASSERT_TRUE(node.UntilPhase("a", "u1", SlicePhase::kGranted));
  const std::int64_t generation = node.Read("a", "u1")->status.devices[0].ledger_generation;
  Program holder = node.bench().Run("u1", {"hold", std::to_string(1000 * kMebibyte)});
  ASSERT_EQ(holder.ReadLine(), "ready");
  node.StopController();
  node.bench().StopEngine();
  node.Ask("b", "u2", 10000, 600);  // arrives while no gpud is there
  node.bench().StartEngine();
  node.clock().Advance(std::chrono::seconds(20));  // the old lease runs out
  node.StartController("gpud-2");
  ASSERT_TRUE(node.UntilPhase("b", "u2", SlicePhase::kDenied));
  EXPECT_EQ(node.Read("a", "u1")->status.devices[0].ledger_generation, generation);
  EXPECT_TRUE(node.Until([&] { return node.ReadNode().epoch == 2; }));
  EXPECT_TRUE(node.bench().Eventually([](const EngineStatus& s) {
    return s.slices.size() == 1 && s.slices[0].processes == 1 &&
           s.slices[0].devices[0].used_bytes == 1300 * kMebibyte;
  }));
  EXPECT_EQ(holder.Wait(), 0);
}

TEST(Slices, ASecondGpudOfTheNodeGrantsNothingWhileTheFirstRenews) {
  SliceNode node;
  node.manager().RunUntilIdle();
  EXPECT_TRUE(node.controller().is_leader());
  node.StopController();
  node.StartController("gpud-imposter");  // the lease of gpud-1 is fresh
  EXPECT_FALSE(node.controller().is_leader());
  node.Ask("a", "u1", 100, 10);
  for (int i = 0; i < 20; ++i) {
    node.manager().RunUntilIdle();
    usleep(1000);
  }
  EXPECT_EQ(node.Read("a", "u1")->status.phase, SlicePhase::kPending);
  node.clock().Advance(std::chrono::seconds(20));
  EXPECT_TRUE(node.UntilPhase("a", "u1", SlicePhase::kGranted));
}

}  // namespace
}  // namespace sublet::gpu::testing
