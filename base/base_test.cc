#include <gtest/gtest.h>

#include <set>
#include <thread>

#include "base/base64.h"
#include "base/bounded_queue.h"
#include "base/nearest.h"
#include "base/once_slot.h"
#include "base/random.h"
#include "base/result.h"

namespace sublet {
namespace {

TEST(Status, SaysNotFoundInKubernetesWords) {
  const Status status = NotFound({"apps", "deployments"}, "web");
  EXPECT_EQ(status.message(), "deployments.apps \"web\" not found");
  EXPECT_EQ(status.code(), 404);
  EXPECT_EQ(status.details().kind, "deployments");
}

TEST(Status, ListsSeveralFieldErrorsInBrackets) {
  const Status status = Invalid("", "ConfigMap", "a",
                                {{"FieldValueRequired", "Required value", "x"},
                                 {"FieldValueInvalid", "Invalid value: 1", "y"}});
  EXPECT_EQ(status.message(),
            "ConfigMap \"a\" is invalid: [x: Required value, y: Invalid value: 1]");
  EXPECT_EQ(status.code(), 422);
}

TEST(Status, EveryReasonNameRoundTrips) {
  for (int i = 1; i <= static_cast<int>(Reason::kServiceUnavailable); ++i) {
    const auto reason = static_cast<Reason>(i);
    EXPECT_EQ(ReasonFromName(ReasonName(reason)), reason);
  }
}

Result<int> Half(int value) {
  if (value % 2 != 0) {
    return BadRequest("odd");
  }
  return value / 2;
}

Result<int> Quarter(int value) {
  SUBLET_TRY(const int half, Half(value));
  return Half(half);
}

TEST(Result, TryReturnsTheFirstError) {
  EXPECT_EQ(*Quarter(8), 2);
  EXPECT_EQ(Quarter(6).error().message(), "odd");
}

TEST(BoundedQueue, RefusesWhenFullAndDrainsAfterClose) {
  BoundedQueue<int> queue(2);
  EXPECT_TRUE(queue.Push(1));
  EXPECT_TRUE(queue.Push(2));
  EXPECT_FALSE(queue.Push(3));
  queue.Close();
  EXPECT_EQ(queue.Pop(), 1);
  EXPECT_EQ(queue.Pop(), 2);
  EXPECT_EQ(queue.Pop(), std::nullopt);
}

TEST(BoundedQueue, WakesAWaitingThread) {
  BoundedQueue<int> queue(1);
  std::jthread producer([&queue] { queue.Push(7); });
  EXPECT_EQ(queue.Pop(), 7);
}

TEST(Base64, RoundTripsAndRefusesWhatItIsNot) {
  for (const char* text : {"", "f", "fo", "foo", "foob"}) {
    EXPECT_EQ(DecodeBase64(EncodeBase64(text)), text);
  }
  EXPECT_EQ(EncodeBase64("foob"), "Zm9vYg==");
  EXPECT_EQ(DecodeBase64("Zm9v\nYg=="), "foob");
  for (const char* bad : {"Z", "Zm9vYg", "Zm9v=", "Zm=v", "%%%%"}) {
    EXPECT_FALSE(DecodeBase64(bad)) << bad;
  }
}

TEST(Random, UuidsAreVersionFourAndDiffer) {
  std::set<std::string> seen;
  for (int i = 0; i < 1000; ++i) {
    const std::string uuid = RandomUuid();
    ASSERT_EQ(uuid.size(), 36u);
    EXPECT_EQ(uuid[14], '4');
    seen.insert(uuid);
  }
  EXPECT_EQ(seen.size(), 1000u);
}

TEST(NearestWord, IsTheFirstOfTheFewestEdits) {
  const std::vector<std::string> words{"create", "connect", "delete", "gpu", "gpud"};
  EXPECT_EQ(NearestWord("crate", words), "create");
  EXPECT_EQ(NearestWord("gpus", words), "gpu");
  EXPECT_EQ(NearestWord("conect", words), "connect");
  EXPECT_EQ(NearestWord("install", words), "");
  EXPECT_EQ(NearestWord("x", {}), "");
}

TEST(OnceSlot, TheFirstStaysAndAllReadIt) {
  OnceSlot<const int> slot;
  EXPECT_EQ(slot.Load(), nullptr);
  const auto first = std::make_shared<const int>(1);
  EXPECT_EQ(slot.Put(first), first);
  EXPECT_EQ(slot.Put(std::make_shared<const int>(2)), first);
  EXPECT_EQ(slot.Load(), first);

  OnceSlot<const int> raced;
  std::vector<std::shared_ptr<const int>> got(4);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&raced, &got, i] {
      const auto seen = raced.Load();
      got[static_cast<std::size_t>(i)] =
          seen != nullptr ? seen : raced.Put(std::make_shared<const int>(i));
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  for (const auto& one : got) {
    EXPECT_EQ(one, raced.Load());
  }
  EXPECT_EQ(raced.Load().use_count(), 6)
      << "four here, the slot, this call: none is lost or leaked";
}

}  // namespace
}  // namespace sublet
