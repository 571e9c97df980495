// GpuSlice and GpuNode survive the way through JSON, and bad JSON becomes values that are refused.
#include "gpu/api/codec.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "gpu/api/request.h"

namespace sublet::gpu {
namespace {

GpuSlice Full() {
  GpuSlice slice = MakeSlice("tenant-a", {.node = "n1",
                                          .pod = {"web-0-x-a-x-team", "8f1c"},
                                          .container = "worker",
                                          .devices = {{"GPU-1", 1 << 30, 250}, {"GPU-2", 5, 1}},
                                          .compute = {7, 500, ComputeMode::kStrict},
                                          .enforce = Enforce::kOff,
                                          .tenant = "team"});
  slice.uid = "u-1";
  slice.resource_version = "12";
  slice.status = {.phase = SlicePhase::kGranted,
                  .message = "granted",
                  .devices = {{{"GPU-1", 1 << 30, 250}, 41}},
                  .cdi_device = CdiDeviceName("8f1c"),
                  .ready = true,
                  .epoch = 3,
                  .granted_at = "2026-01-01T00:00:00Z"};
  return slice;
}

TEST(GpuCodec, ASliceSurvivesTheWayThroughText) {
  const GpuSlice before = Full();
  const auto parsed = kube::ParseJson(kube::Dump(SliceToJson(before)));
  ASSERT_TRUE(parsed.ok());
  const auto after = SliceFromJson(*parsed);
  ASSERT_TRUE(after.ok());
  EXPECT_EQ(after->name, "8f1c");
  EXPECT_EQ(after->name_space, "tenant-a");
  EXPECT_EQ(after->resource_version, "12");
  EXPECT_TRUE(after->has_finalizer);
  EXPECT_FALSE(after->is_deleting);
  EXPECT_EQ(after->spec, before.spec);
  EXPECT_EQ(after->status, before.status);
}

TEST(GpuCodec, ANodeSurvivesTheWayThroughText) {
  GpuNode node{.name = "n1",
               .driver_version = "580",
               .cuda_version = "13.0",
               .is_simulated = true,
               .epoch = 2,
               .heartbeat_at = "2026-01-01T00:00:00Z"};
  node.devices.push_back({.uuid = "GPU-1",
                          .index = 1,
                          .model = "H200",
                          .memory_bytes = 10,
                          .free_memory_bytes = 4,
                          .free_share_milli = 400,
                          .ledger_generation = 9,
                          .is_healthy = false,
                          .health_message = "Xid 79",
                          .mig_profile = "1g.18gb",
                          .numa_node = 1});
  const auto after = NodeFromJson(NodeToJson(node));
  ASSERT_TRUE(after.ok());
  EXPECT_EQ(after->devices, node.devices);
  EXPECT_EQ(after->epoch, 2);
  EXPECT_TRUE(after->is_simulated);
}

TEST(GpuCodec, MistypedMembersBecomeValuesThatValidationRefuses) {
  const auto parsed = kube::ParseJson(R"({"metadata":{"name":"a"},"spec":{"node":5,"devices":[
      {"uuid":["x"],"memoryBytes":"much","shareMilli":99999999999}, 7], "enforce":"OFF"}})");
  ASSERT_TRUE(parsed.ok());
  const auto slice = SliceFromJson(*parsed);
  ASSERT_TRUE(slice.ok());
  EXPECT_EQ(slice->spec.enforce, Enforce::kOn);
  EXPECT_FALSE(ValidateSliceSpec("a", slice->spec).ok());
  EXPECT_FALSE(SliceFromJson(kube::Json::object()).ok());
  EXPECT_FALSE(SliceFromJson(kube::Json::array()).ok());
}

}  // namespace
}  // namespace sublet::gpu
