// The client's requests and answers, the work queue, the manager.
#include "client/client.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "client/manager.h"
#include "client/testing/memory_server.h"
#include "client/work_queue.h"

namespace sublet::client {
namespace {

using kube::Json;
using testing::MemoryServer;

// Keeps the last request and answers with a fixed response.
class Recorder final : public Transport {
 public:
  Result<HttpResponse> RoundTrip(const HttpRequest& r) override {
    ++count;
    request = r;
    return count <= static_cast<int>(first.size()) ? first[count - 1] : answer;
  }
  Result<std::unique_ptr<Stream>> OpenStream(const HttpRequest& r) override {
    request = r;
    return ServiceUnavailable("no stream");
  }
  Result<std::unique_ptr<Tunnel>> OpenTunnel(const HttpRequest&) override {
    return ServiceUnavailable("no tunnel");
  }
  std::string Header(std::string_view name) const {
    for (const auto& [key, value] : request.headers) {
      if (key == name) {
        return value;
      }
    }
    return "";
  }
  int count = 0;
  HttpRequest request;
  HttpResponse answer{.code = 200, .headers = {}, .body = "{}"};
  std::vector<HttpResponse> first;
};

TEST(Client, BuildsPathsForEveryScope) {
  EXPECT_EQ(Client::PathOf({{"", "v1", "pods"}, "a", "p", "log"}),
            "/api/v1/namespaces/a/pods/p/log");
  EXPECT_EQ(Client::PathOf({{"apps", "v1", "deployments"}, "", "", ""}),
            "/apis/apps/v1/deployments");
  EXPECT_EQ(Client::PathOf({{"", "v1", "nodes"}, "", "n/1", ""}), "/api/v1/nodes/n%2F1");
}

TEST(Client, EscapesSelectorsAndSendsWhatAWatchListNeeds) {
  auto recorder = std::make_shared<Recorder>();
  const Client client(recorder, "test/1");
  ASSERT_TRUE(
      client.List({{"", "v1", "pods"}, "a", "", ""}, {.label_selector = "a in (b,c)", .limit = 5})
          .ok());
  EXPECT_EQ(recorder->request.target,
            "/api/v1/namespaces/a/pods?labelSelector=a%20in%20%28b%2Cc%29&limit=5");
  EXPECT_FALSE(
      client.OpenWatchStream({{"", "v1", "pods"}, "", "", ""}, {.send_initial_events = true}).ok());
  EXPECT_EQ(recorder->request.target,
            "/api/v1/pods?watch=true&allowWatchBookmarks=true&sendInitialEvents=true"
            "&resourceVersionMatch=NotOlderThan");
}

TEST(Client, SendsDeletePreconditionsInTheBodyAndActsAsAnotherUser) {
  auto recorder = std::make_shared<Recorder>();
  const Client client = Client(recorder, "test/1").As("jane", {"dev", "ops"});
  ASSERT_TRUE(
      client.Delete({{"", "v1", "pods"}, "a", "p", ""}, {.grace_period_seconds = 0, .uid = "u1"})
          .ok());
  EXPECT_EQ(*kube::ParseJson(recorder->request.body), Json({{"kind", "DeleteOptions"},
                                                            {"apiVersion", "v1"},
                                                            {"gracePeriodSeconds", 0},
                                                            {"preconditions", {{"uid", "u1"}}}}));
  EXPECT_EQ(recorder->Header("Impersonate-User"), "jane");
  EXPECT_EQ(recorder->Header("User-Agent"), "test/1");
}

TEST(Client, ReturnsTheServersStatus) {
  auto recorder = std::make_shared<Recorder>();
  recorder->answer.code = 422;
  recorder->answer.body =
      R"({"kind":"Status","code":422,"reason":"Invalid","message":"bad","details":{"name":"p",)"
      R"("causes":[{"reason":"FieldValueRequired","message":"Required value","field":"spec"}]}})";
  const auto got = Client(recorder, "t").Get({{"", "v1", "pods"}, "a", "p", ""});
  ASSERT_FALSE(got.ok());
  EXPECT_TRUE(got.error().Is(Reason::kInvalid));
  ASSERT_EQ(got.error().details().causes.size(), 1U);
  EXPECT_EQ(got.error().details().causes[0].field, "spec");
  recorder->answer.body = "<html>a proxy</html>";
  recorder->answer.code = 503;
  EXPECT_TRUE(Client(recorder, "t")
                  .Get({{"", "v1", "pods"}, "a", "p", ""})
                  .error()
                  .Is(Reason::kServiceUnavailable));
}

TEST(Client, RetriesATooManyRequestsAnswerThatSaysWhen) {
  auto recorder = std::make_shared<Recorder>();
  recorder->first = {{.code = 429, .headers = {{"Retry-After", "0"}}, .body = ""},
                     {.code = 429, .headers = {{"retry-after", "0"}}, .body = ""}};
  EXPECT_TRUE(Client(recorder, "t").Get({{"", "v1", "pods"}, "a", "p", ""}).ok());
  EXPECT_EQ(recorder->count, 3);
}

TEST(Client, DoesNotRetryARefusalWithoutRetryAfterNorPastItsDeadline) {
  auto recorder = std::make_shared<Recorder>();
  recorder->answer = {.code = 429, .headers = {}, .body = ""};
  const Client client(recorder, "t");
  EXPECT_TRUE(client.Get({{"", "v1", "pods"}, "a", "p", ""}).error().Is(Reason::kTooManyRequests));
  EXPECT_EQ(recorder->count, 1);
  recorder->answer.headers = {{"Retry-After", "9"}};
  EXPECT_FALSE(client.WithTimeout(std::chrono::milliseconds(100))
                   .Get({{"", "v1", "pods"}, "a", "p", ""})
                   .ok());
  EXPECT_EQ(recorder->count, 2);
}

TEST(Client, GivesUpRetryingAfterFiveTimes) {
  auto recorder = std::make_shared<Recorder>();
  recorder->answer = {.code = 429, .headers = {{"Retry-After", "0"}}, .body = ""};
  EXPECT_FALSE(Client(recorder, "t").Get({{"", "v1", "pods"}, "a", "p", ""}).ok());
  EXPECT_EQ(recorder->count, 6);
}

TEST(Client, SplitsOnlyFramesItKnowsTheShapeOf) {
  const auto parts = SplitWatchFrame(R"({"type":"ADDED","object":{"a":{}}})");
  ASSERT_TRUE(parts);
  EXPECT_EQ(parts->type, "ADDED");
  EXPECT_EQ(parts->object, R"({"a":{}})");
  EXPECT_FALSE(SplitWatchFrame(R"({"object":{},"type":"ADDED"})"));
  EXPECT_FALSE(SplitWatchFrame(R"({"type":"ADDED","object":{}})"
                               "\n"));
  EXPECT_FALSE(SplitWatchFrame(R"({"type":"ADDED","object":}})"));
}

TEST(Client, DecodesAWatchAndItsErrors) {
  auto server = std::make_shared<MemoryServer>();
  const Client client(server, "t");
  auto watch =
      client.OpenWatch({{"", "v1", "configmaps"}, "a", "", ""}, {.send_initial_events = true});
  ASSERT_TRUE(watch.ok());
  const auto bookmark = (*watch)->Next(After(std::chrono::seconds(10)));
  ASSERT_TRUE(bookmark.ok() && *bookmark);
  EXPECT_EQ((**bookmark).type, WatchEvent::Type::kBookmark);
  ASSERT_TRUE(
      client.Create({{"", "v1", "configmaps"}, "a", "", ""}, {{"metadata", {{"name", "x"}}}}).ok());
  const auto added = (*watch)->Next(After(std::chrono::seconds(10)));
  ASSERT_TRUE(added.ok() && *added);
  EXPECT_EQ((**added).type, WatchEvent::Type::kAdded);
  EXPECT_TRUE((*watch)->Next(After(std::chrono::milliseconds(1))).error().Is(Reason::kTimeout));
  (*watch)->Close();
  EXPECT_FALSE(*(*watch)->Next(Deadline::max()));
}

TEST(WorkQueue, HandsAKeyOutOnceHoweverOftenItWasAdded) {
  FakeClock clock;
  WorkQueue queue(clock);
  queue.Add({"a", "x"});
  queue.Add({"a", "x"});
  EXPECT_TRUE(queue.TryGet());
  EXPECT_FALSE(queue.TryGet());
}

TEST(WorkQueue, ReAddWhileProcessingRunsOnceMoreAfterDone) {
  FakeClock clock;
  WorkQueue queue(clock);
  queue.Add({"a", "x"});
  ASSERT_TRUE(queue.TryGet());
  queue.Add({"a", "x"});
  EXPECT_FALSE(queue.TryGet());  // never two workers on one key
  queue.Done({"a", "x"});
  EXPECT_TRUE(queue.TryGet());
  queue.Done({"a", "x"});
  EXPECT_FALSE(queue.TryGet());
}

TEST(WorkQueue, KeepsTheEarliestOfTwoDelays) {
  FakeClock clock;
  WorkQueue queue(clock);
  queue.AddAfter({"a", "x"}, std::chrono::seconds(10));
  queue.AddAfter({"a", "x"}, std::chrono::seconds(20));
  queue.AddAfter({"a", "x"}, std::chrono::seconds(5));
  clock.Advance(std::chrono::seconds(5));
  EXPECT_TRUE(queue.TryGet());
  queue.Done({"a", "x"});
  clock.Advance(std::chrono::seconds(60));
  EXPECT_FALSE(queue.TryGet());
}

TEST(WorkQueue, TellsWhenAKeyBecameReadyOrIsDueSooner) {
  FakeClock clock;
  WorkQueue queue(clock);
  int told = 0;
  queue.OnReady([&told] { ++told; });
  EXPECT_TRUE(queue.idle());
  queue.AddAfter({"", "b"}, std::chrono::seconds(9));
  EXPECT_EQ(told, 1);
  EXPECT_FALSE(queue.idle());
  queue.AddAfter({"", "c"}, std::chrono::seconds(10));
  EXPECT_EQ(told, 1) << "later than what is waited for";
  queue.AddAfter({"", "c"}, std::chrono::seconds(8));
  EXPECT_EQ(told, 2);
  queue.AddAfter({"", "c"}, std::chrono::seconds(20));
  EXPECT_EQ(told, 2) << "the earlier one counts";
  queue.Add({"", "a"});
  EXPECT_EQ(told, 3);
  queue.Add({"", "a"});
  EXPECT_EQ(told, 3) << "it is ready already";
  ASSERT_EQ(queue.TryGet()->name, "a");
  queue.Add({"", "a"});
  EXPECT_EQ(told, 3) << "not before it is done";
  queue.Done({"", "a"});
  EXPECT_EQ(told, 4);
  ASSERT_EQ(queue.TryGet()->name, "a");
  queue.Done({"", "a"});
  clock.Advance(std::chrono::seconds(9));
  EXPECT_EQ(queue.TryGet()->name, "c");
  EXPECT_EQ(queue.TryGet()->name, "b");
  EXPECT_FALSE(queue.TryGet());
  EXPECT_TRUE(queue.idle());
}

TEST(WorkQueue, RetryDoublesUntilForgotten) {
  FakeClock clock;
  WorkQueue queue(clock);
  for (const int expected_ms : {5, 10, 20}) {
    queue.Retry({"a", "x"});
    EXPECT_EQ(*queue.NextDue() - clock.Monotonic(), std::chrono::milliseconds(expected_ms));
    clock.Advance(std::chrono::milliseconds(expected_ms));
    ASSERT_TRUE(queue.TryGet());
    queue.Done({"a", "x"});
  }
  queue.Forget({"a", "x"});
  queue.Retry({"a", "x"});
  EXPECT_EQ(*queue.NextDue() - clock.Monotonic(), std::chrono::milliseconds(5));
}

TEST(WorkQueue, CloseWakesAWaitingGet) {
  WorkQueue queue(SystemClock());
  std::thread closer([&] { queue.Close(); });
  EXPECT_FALSE(queue.Get());
  closer.join();
}

TEST(Manager, RetriesAFailedKeyAndComesBackWhenTheReconcilerAskedTo) {
  FakeClock clock;
  InformerFactory informers(Client(std::make_shared<MemoryServer>(), "t"));
  Manager manager(informers, clock);
  int runs = 0;
  WorkQueue& queue =
      manager.Add({.name = "test", .reconcile = [&](const kube::ObjectKey&) {
                     ++runs;
                     if (runs == 1) {
                       return Result<Outcome>(Conflict({"", "pods"}, "x", "stale"));
                     }
                     return Result<Outcome>(runs == 2 ? Outcome::After(std::chrono::seconds(3))
                                                      : Outcome::Done());
                   }});
  queue.Add({"a", "x"});
  EXPECT_EQ(manager.RunUntilIdle(), 1);
  clock.Advance(std::chrono::milliseconds(5));
  EXPECT_EQ(manager.RunUntilIdle(), 1);
  EXPECT_EQ(manager.RunUntilIdle(), 0);
  clock.Advance(std::chrono::seconds(3));
  EXPECT_EQ(manager.RunUntilIdle(), 1);
  EXPECT_EQ(runs, 3);
}

TEST(Manager, RunsKeysOnItsThreadsAndStopsWithWorkLeft) {
  InformerFactory informers(Client(std::make_shared<MemoryServer>(), "t"));
  Manager manager(informers, SystemClock(), 2);
  Mutex mutex;
  CondVar done;
  int runs = 0;
  WorkQueue& queue =
      manager.Add({.name = "test",
                   .reconcile =
                       [&](const kube::ObjectKey&) {
                         MutexLock lock(mutex);
                         ++runs;
                         done.NotifyAll();
                         return Result<Outcome>(Outcome::After(std::chrono::hours(1)));
                       },
                   .workers_max = 2});
  manager.Start();
  for (int i = 0; i < 20; ++i) {
    queue.Add({"a", std::to_string(i)});
  }
  {
    MutexLock lock(mutex);
    while (runs < 20) {
      done.Wait(mutex);
    }
  }
  manager.Stop();
  EXPECT_EQ(runs, 20);
}

}  // namespace
}  // namespace sublet::client
