#include "client/events.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "client/testing/memory_server.h"

namespace sublet::client {
namespace {

using kube::Json;

const EventTarget kPod{.api_version = "v1",
                       .kind = "Pod",
                       .namespace_name = "a",
                       .name = "p",
                       .uid = "u",
                       .resource_version = "5",
                       .field_path = ""};

struct Fixture {
  FakeClock clock;
  std::shared_ptr<testing::MemoryServer> server = std::make_shared<testing::MemoryServer>();
  Client client{server, "test/1"};
  EventRecorder recorder{client, "test", "node-1", clock};
  Json Events() {
    recorder.Stop();
    return (*client.List({{"", "v1", "events"}, "a", "", ""}))["items"];
  }
};

TEST(Events, WritesWhatDescribeShows) {
  Fixture f;
  f.recorder.Event(kPod, "Normal", "Started", "hello");
  const Json events = f.Events();
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events[0]["involvedObject"]["uid"], "u");
  EXPECT_EQ(events[0]["source"], Json({{"component", "test"}, {"host", "node-1"}}));
  EXPECT_EQ(events[0]["count"], 1);
}

TEST(Events, CountsARepetitionOnTheSameObject) {
  Fixture f;
  for (int i = 0; i < 3; ++i) {
    f.recorder.Event(kPod, "Normal", "Started", "hello");
  }
  const Json events = f.Events();
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events[0]["count"], 3);
}

TEST(Events, CombinesManySimilarOnes) {
  Fixture f;
  for (int i = 0; i < 15; ++i) {
    f.recorder.Event(kPod, "Warning", "Failed", "try " + std::to_string(i));
  }
  const Json events = f.Events();
  ASSERT_EQ(events.size(), 11U);
  int combined = 0;
  for (const Json& event : events) {
    combined += event["message"].get<std::string>().starts_with("(combined from") ? 1 : 0;
  }
  EXPECT_EQ(combined, 1);
}

TEST(Events, CutsOffATalkativeSourceButNotAnother) {
  Fixture f;
  for (int i = 0; i < 40; ++i) {
    f.recorder.Event(kPod, "Normal", "Tick", "x");
  }
  EventTarget other = kPod;
  other.name = "q";
  other.uid = "v";
  f.recorder.As("second").Event(other, "Normal", "Tick", "x");
  const Json events = f.Events();
  ASSERT_EQ(events.size(), 2U);
  EXPECT_EQ(events[0]["count"], 25);
  EXPECT_EQ(events[1]["source"]["component"], "second");
  EXPECT_EQ(f.recorder.dropped(), 15);
}

}  // namespace
}  // namespace sublet::client
