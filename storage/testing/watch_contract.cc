// The part of the contract about watches that needs several threads or a slow reader.
#include <array>
#include <atomic>
#include <thread>

#include "base/mutex.h"
#include "storage/testing/store_contract.h"
#include "storage/testing/test_store.h"

namespace sublet::storage::testing {
namespace {

std::unique_ptr<Store> OpenIn(const TempFolder& folder, OpenEngine open) {
  return open(StoreOptions{.directory = folder.path()});
}

// Wakes one waiting reader.
class Bell {
 public:
  void Ring() {
    MutexLock lock(mutex_);
    ++rings_;
    rung_.NotifyAll();
  }
  void WaitForMoreThan(int rings) {
    MutexLock lock(mutex_);
    while (rings_ <= rings) {
      rung_.Wait(mutex_);
    }
  }
  int rings() {
    MutexLock lock(mutex_);
    return rings_;
  }

 private:
  Mutex mutex_;
  CondVar rung_;
  int rings_ SUBLET_GUARDED_BY(mutex_) = 0;
};

TEST_P(StoreContract, AWatchOfAFutureRevisionShowsOnlyWhatComesAfterIt) {
  TempFolder folder;
  auto store = OpenIn(folder, GetParam());
  auto watch = store->Watch({.prefix = "/", .after = 3});
  ASSERT_TRUE(watch.ok());
  std::vector<EventPtr> events;
  EXPECT_EQ(*(*watch)->Pull(events, 10), 0u);
  for (int i = 0; i < 4; ++i) {
    Must(*store, Put("/a", "x"));  // revisions 2 to 5
  }
  EXPECT_EQ(*(*watch)->Pull(events, 10), 2u);
  EXPECT_EQ(events.front()->revision, 4);
}

TEST_P(StoreContract, ASlowReaderIsDroppedAndTheOthersAreNot) {
  TempFolder folder;
  auto store = OpenIn(folder, GetParam());
  auto slow = store->Watch({.prefix = "/", .items_max = 3});
  auto quick = store->Watch({.prefix = "/", .items_max = 100});
  std::vector<EventPtr> events;
  ASSERT_EQ(*(*slow)->Pull(events, 10), 0u);
  ASSERT_EQ(*(*quick)->Pull(events, 10), 0u);
  for (int i = 0; i < 4; ++i) {
    Must(*store, Put("/a", "x"));
  }
  const auto dropped = (*slow)->Pull(events, 10);
  ASSERT_FALSE(dropped.ok());
  EXPECT_EQ(dropped.error().reason(), Reason::kExpired);
  EXPECT_FALSE((*slow)->Pull(events, 10).ok()) << "it stays dead";
  EXPECT_EQ(*(*quick)->Pull(events, 10), 4u);
}

TEST_P(StoreContract, ThePastDoesNotCountAgainstTheBoundOfAWatch) {
  TempFolder folder;
  auto store = OpenIn(folder, GetParam());
  for (int i = 0; i < 20; ++i) {
    Must(*store, Put("/a", "x"));
  }
  auto watch = store->Watch({.prefix = "/", .after = 1, .items_max = 3});
  std::vector<EventPtr> events;
  for (;;) {
    const auto pulled = (*watch)->Pull(events, 7);
    ASSERT_TRUE(pulled.ok());
    if (*pulled == 0) {
      break;
    }
  }
  EXPECT_EQ(events.size(), 20u);
}

TEST_P(StoreContract, ReadersAreWokenWhenThereIsSomethingForThem) {
  TempFolder folder;
  auto store = OpenIn(folder, GetParam());
  Bell bell;
  auto watch = store->Watch({.prefix = "/a/", .on_ready = [&bell] { bell.Ring(); }});
  std::vector<EventPtr> events;
  ASSERT_EQ(*(*watch)->Pull(events, 10), 0u);
  Must(*store, Put("/b/1", "not for it"));
  const int before = bell.rings();
  Must(*store, Put("/a/1", "for it"));
  bell.WaitForMoreThan(before);
  EXPECT_EQ(*(*watch)->Pull(events, 10), 1u);
  EXPECT_EQ(before, 0);
  // Progress counts what others changed, so that a bookmark can say so.
  ASSERT_EQ(*(*watch)->Pull(events, 10), 0u);
  const Revision other = Must(*store, Put("/b/2", "not for it"));
  EXPECT_EQ((*watch)->Progress(), other);
}

TEST_P(StoreContract, AnEndedSubscriptionIsNeverWokenAgain) {
  TempFolder folder;
  auto store = OpenIn(folder, GetParam());
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    while (!stop) {
      Must(*store, Put("/a", "x"));
    }
  });
  for (int i = 0; i < 50; ++i) {
    auto alive = std::make_unique<std::atomic<int>>(0);
    auto* raw = alive.get();
    auto watch = store->Watch({.prefix = "/", .on_ready = [raw] { raw->fetch_add(1); }});
    std::vector<EventPtr> events;
    ASSERT_TRUE((*watch)->Pull(events, 5).ok());
    watch->reset();
    alive.reset();  // a late call would be a use after free: the sanitizers see it
  }
  stop = true;
  writer.join();
}

TEST_P(StoreContract, StoppingEndsWatchesAndRefusesWrites) {
  TempFolder folder;
  auto store = OpenIn(folder, GetParam());
  Bell bell;
  auto watch = store->Watch({.prefix = "/", .on_ready = [&bell] { bell.Ring(); }});
  std::vector<EventPtr> events;
  ASSERT_EQ(*(*watch)->Pull(events, 10), 0u);
  store->Stop();
  bell.WaitForMoreThan(0);
  const auto pulled = (*watch)->Pull(events, 10);
  ASSERT_FALSE(pulled.ok());
  EXPECT_EQ(pulled.error().reason(), Reason::kServiceUnavailable);
  const auto refused = Try(*store, Put("/a", "x"));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().reason(), Reason::kServiceUnavailable);
  EXPECT_FALSE(store->PutLocal({{"a", "b"}}).ok());
  EXPECT_FALSE(store->Watch({.prefix = "/"}).ok());
  store.reset();
  EXPECT_FALSE((*watch)->Pull(events, 10).ok()) << "a subscription may outlive its store";
}

// Several writers, and watches that start at any time anywhere in the past.
TEST_P(StoreContract, UnderLoadEveryWatchSeesEveryEventOnceInOrder) {
  constexpr int kWriters = 4;
  constexpr int kWritesEach = 300;
  TempFolder folder;
  auto store = OpenIn(folder, GetParam());
  std::array<std::string, 3> prefixes = {"/", "/0/", "/1"};
  std::vector<std::thread> threads;
  for (int w = 0; w < kWriters; ++w) {
    threads.emplace_back([&store, w] {
      for (int i = 0; i < kWritesEach; ++i) {
        const std::string key = "/" + std::to_string(w) + "/" + std::to_string(i % 17);
        if (i % 5 == 4) {
          ASSERT_TRUE(Try(*store, Delete(key)).ok());
        } else {
          Must(*store, Put(key, "v" + std::to_string(i)));
        }
      }
    });
  }
  struct Seen {
    std::string prefix;
    Revision after = 0;
    std::vector<EventPtr> events;
  };
  std::vector<Seen> seen(8);
  std::atomic<bool> written{false};
  for (std::size_t r = 0; r < seen.size(); ++r) {
    threads.emplace_back([&, r] {
      Seen& mine = seen[r];
      mine.prefix = prefixes[r % prefixes.size()];
      store->WaitForRevision(static_cast<Revision>(100 * r), Deadline::max());
      const Revision now = store->CurrentRevision();
      mine.after = r % 2 == 0 ? std::max(store->CompactedRevision() + 1, now / 2) : now;
      Bell bell;
      auto watch = store->Watch(
          {.prefix = mine.prefix, .after = mine.after, .items_max = 100'000, .on_ready = [&bell] {
             bell.Ring();
           }});
      ASSERT_TRUE(watch.ok());
      for (;;) {
        const bool last = written;
        const int rings = bell.rings();
        const auto pulled = (*watch)->Pull(mine.events, 1 + r * 7);
        ASSERT_TRUE(pulled.ok()) << pulled.error().message();
        if (*pulled == 0 && last) {
          return;
        }
        if (*pulled == 0) {
          bell.WaitForMoreThan(rings);
        }
      }
    });
  }
  for (int w = 0; w < kWriters; ++w) {
    threads[static_cast<std::size_t>(w)].join();
  }
  written = true;
  Must(*store, Put("/0/last", "wakes those of /0/ and /"));
  Must(*store, Put("/1last", "wakes those of /1"));
  for (std::size_t i = kWriters; i < threads.size(); ++i) {
    threads[i].join();
  }
  auto all = store->Watch({.prefix = "", .after = store->CompactedRevision() + 1});
  ASSERT_TRUE(all.ok());
  std::vector<EventPtr> everything;
  while (*(*all)->Pull(everything, 1000) > 0) {
  }
  ASSERT_FALSE(everything.empty());
  for (const Seen& mine : seen) {
    std::size_t i = 0;
    for (const EventPtr& event : everything) {
      if (event->revision <= mine.after || !event->key.starts_with(mine.prefix) ||
          event->key.ends_with("last")) {
        continue;
      }
      ASSERT_LT(i, mine.events.size());
      EXPECT_EQ(mine.events[i]->revision, event->revision);
      EXPECT_EQ(mine.events[i]->key, event->key);
      ++i;
    }
  }
}

TEST_P(StoreContract, ListsUnderLoadAreConsistentSnapshots) {
  TempFolder folder;
  auto store = OpenIn(folder, GetParam());
  std::atomic<bool> stop{false};
  // Two keys always change together: no list may show one without the other.
  std::thread writer([&] {
    for (int i = 0; !stop; ++i) {
      std::vector<Op> ops;
      ops.push_back(Put("/pair/a", std::to_string(i)));
      ops.push_back(Put("/pair/b", std::to_string(i)));
      ASSERT_TRUE(store->TransactSync(std::move(ops)).ok());
    }
  });
  store->WaitForRevision(2, Deadline::max());
  for (int i = 0; i < 2000; ++i) {
    const auto list = store->List("/pair/", "", 0, 0);
    ASSERT_TRUE(list.ok());
    ASSERT_EQ(list->records.size(), 2u);
    ASSERT_EQ(list->records[0].mod_revision, list->records[1].mod_revision);
    ASSERT_EQ(list->records[0].value->bytes, list->records[1].value->bytes);
    ASSERT_GE(list->revision, list->records[0].mod_revision);
  }
  stop = true;
  writer.join();
}

TEST_P(StoreContract, AWriterReadsAndListsItsOwnWriteAtOnce) {
  TempFolder folder;
  auto store = OpenIn(folder, GetParam());
  std::vector<std::thread> threads;
  for (int w = 0; w < 3; ++w) {
    threads.emplace_back([&store, w] {
      const std::string key = "/k/" + std::to_string(w);
      for (int i = 0; i < 100; ++i) {
        const Revision revision = Must(*store, Put(key, std::to_string(i)));
        ASSERT_EQ(store->Get(key)->mod_revision, revision);
        ASSERT_GE(store->List("/k/", "", 0, 0)->revision, revision);
        ASSERT_GE(store->CurrentRevision(), revision);
        ASSERT_EQ((*store->GetAt(key, revision))->mod_revision, revision);
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

TEST_P(StoreContract, BadTransactionsAreRefusedByName) {
  TempFolder folder;
  auto store = OpenIn(folder, GetParam());
  const auto reason = [&store](std::vector<Op> ops) {
    const auto result = store->TransactSync(std::move(ops));
    return result.ok() ? Reason::kUnknown : result.error().reason();
  };
  const auto one = [&reason](Op op) {
    std::vector<Op> ops;
    ops.push_back(std::move(op));
    return reason(std::move(ops));
  };
  EXPECT_EQ(reason({}), Reason::kBadRequest);
  EXPECT_EQ(one(Put("", "x")), Reason::kBadRequest);
  EXPECT_EQ(one(Put(std::string(5000, 'k'), "x")), Reason::kBadRequest);
  std::vector<Op> twice;
  twice.push_back(Put("/a", "x"));
  twice.push_back(Delete("/a"));
  EXPECT_EQ(reason(std::move(twice)), Reason::kBadRequest);
  Op outside = Put("/a", "x");
  outside.revision_offset = 1000;
  EXPECT_EQ(one(std::move(outside)), Reason::kBadRequest);
  EXPECT_EQ(one(Put("/a", std::string(17u << 20, 'x'))), Reason::kRequestEntityTooLarge);
  EXPECT_EQ(reason(std::vector<Op>(5000, Put("/a", "x"))), Reason::kBadRequest);
  EXPECT_EQ(store->CurrentRevision(), 1);
  const auto future = store->List("/", "", 0, 99);
  ASSERT_FALSE(future.ok());
  EXPECT_EQ(future.error().reason(), Reason::kTimeout);
  EXPECT_EQ(future.error().message(), "Timeout: Too large resource version: 99, current: 1");
}

}  // namespace
}  // namespace sublet::storage::testing
