#include "syncer/kinds/pod_rests.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace sublet::syncer {
namespace {

using kube::Json;

const kube::ObjectKey kPod{"a", "web"};

client::CachedObject At(const char* version) {
  client::CachedObject object;
  object.key = kPod;
  object.resource_version = version;
  return object;
}

Json VirtualPod(const char* version) {
  return {{"metadata", {{"namespace", "a"}, {"name", "web"}, {"resourceVersion", version}}}};
}

TEST(PodRests, APodRestsUntilOneSideChanges) {
  const FakeClock clock;
  PodRests rests(clock);
  rests.Keep(kPod, {"1", "10", MonotonicTime::max(), 7}, rests.changes());
  ASSERT_TRUE(rests.Find(At("1"), At("10")));
  EXPECT_EQ(rests.Find(At("1"), At("10"))->again_after.count(), 0);
  EXPECT_FALSE(rests.Find(At("2"), At("10")));
  EXPECT_FALSE(rests.Find(At("1"), At("11")));
  EXPECT_TRUE(rests.FindBut(VirtualPod("1"), 7)) << "another version of the same shape";
  EXPECT_FALSE(rests.FindBut(VirtualPod("1"), 8));
  EXPECT_FALSE(rests.FindBut(VirtualPod("2"), 7));
  rests.Forget(kPod);
  EXPECT_FALSE(rests.Find(At("1"), At("10")));
}

TEST(PodRests, WhatWasForgottenMeanwhileIsNotKept) {
  const FakeClock clock;
  PodRests rests(clock);
  const std::uint64_t before = rests.changes();
  rests.Forget({"a", "other"});
  rests.Keep(kPod, {"1", "10", MonotonicTime::max(), 7}, before);
  EXPECT_FALSE(rests.Find(At("1"), At("10")));
}

TEST(PodRests, ATokensTimeEndsTheRest) {
  FakeClock clock;
  PodRests rests(clock);
  const MonotonicTime renew = rests.RenewAt(client::Outcome::After(std::chrono::seconds(60)));
  EXPECT_EQ(rests.RenewAt(client::Outcome::Done()), MonotonicTime::max());
  rests.Keep(kPod, {"1", "10", renew, 7}, rests.changes());
  clock.Advance(std::chrono::seconds(20));
  EXPECT_EQ(rests.Find(At("1"), At("10"))->again_after, std::chrono::seconds(40));
  clock.Advance(std::chrono::seconds(40));
  EXPECT_FALSE(rests.Find(At("1"), At("10")));
  EXPECT_FALSE(rests.FindBut(VirtualPod("1"), 7));
  EXPECT_GT(rests.Until(renew).again_after.count(), 0) << "nought would mean never";
}

TEST(PodRests, TheShapeIsAllButStatusAndVersion) {
  const Json pod = {{"metadata", {{"name", "web"}, {"resourceVersion", "1"}}},
                    {"spec", {{"nodeName", "n"}}},
                    {"status", {{"phase", "Pending"}}}};
  Json running = pod;
  running["metadata"]["resourceVersion"] = "2";
  running["metadata"]["managedFields"] = Json::array();
  running["status"]["phase"] = "Running";
  EXPECT_EQ(HostPodShape(pod), HostPodShape(running));
  running["metadata"]["labels"]["a"] = "b";
  EXPECT_NE(HostPodShape(pod), HostPodShape(running));
}

}  // namespace
}  // namespace sublet::syncer
