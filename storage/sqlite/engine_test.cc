// What is particular to this engine: groups, bounds, horizons and the file.
#include <gtest/gtest.h>

#include <condition_variable>
#include <future>
#include <mutex>

#include "storage/revision_times.h"
#include "storage/sqlite/connection.h"
#include "storage/sqlite/row.h"
#include "storage/testing/test_store.h"

namespace sublet::storage {
namespace {

using namespace testing;

// Holds the writer at a point until let go.
class Gate {
 public:
  std::function<void(const char*)> At(std::string wanted) {
    return [this, wanted = std::move(wanted)](const char* point) {
      std::unique_lock lock(mutex_);
      if (point == wanted && closed_) {
        held_ = true;
        changed_.notify_all();
        changed_.wait(lock, [this] { return !closed_; });
      }
    };
  }
  void Close() {
    std::lock_guard lock(mutex_);
    closed_ = true;
    held_ = false;
  }
  void WaitUntilHeld() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return held_; });
  }
  void Open() {
    std::lock_guard lock(mutex_);
    closed_ = false;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool closed_ = false;
  bool held_ = false;
};

std::future<Result<TxnResult>> Later(Store& store, Op op) {
  auto promise = std::make_shared<std::promise<Result<TxnResult>>>();
  auto future = promise->get_future();
  std::vector<Op> ops;
  ops.push_back(std::move(op));
  store.Transact(std::move(ops),
                 [promise](Result<TxnResult> result) { promise->set_value(std::move(result)); });
  return future;
}

void Settle(Store& store) {
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(store.PutLocal({{"settle", "1"}}).ok());
  }
}

TEST(Groups, LaterTransactionsSeeTheEarlierOnesAndShareASync) {
  TempFolder folder;
  Gate gate;
  TestHooks hooks;
  hooks.at = gate.At("commit.begin");
  auto store = Open(folder.path(), &hooks);
  Settle(*store);  // a new log's first frames take a sync of their own
  gate.Close();
  auto first = Later(*store, Put("/first", "holds the writer"));
  gate.WaitUntilHeld();
  auto create = Later(*store, Put("/a", "one", 0));
  auto again = Later(*store, Put("/a", "two", 0));
  auto update = Later(*store, Put("/a", "three", 3));
  auto remove = Later(*store, Delete("/a", 4));
  auto check = Later(*store, Check("/a", 0));
  const std::int64_t syncs = store->Stats().syncs;
  gate.Open();
  EXPECT_EQ(first.get()->revision, 2);
  EXPECT_EQ(create.get()->revision, 3);
  const auto conflict = again.get();
  EXPECT_FALSE(conflict->committed);
  EXPECT_EQ(conflict->current->mod_revision, 3);
  EXPECT_EQ(update.get()->revision, 4);
  EXPECT_EQ(remove.get()->revision, 5);
  EXPECT_TRUE(check.get()->committed);
  EXPECT_EQ(store->Stats().syncs - syncs, 2) << "one for the first, one for the group";
}

TEST(Groups, TheQueueIsBoundedAndSaysSo) {
  TempFolder folder;
  Gate gate;
  TestHooks hooks;
  hooks.at = gate.At("commit.begin");
  StoreOptions options;
  options.directory = folder.path();
  options.queue_ops_max = 3;
  auto store = Open(options, &hooks);
  gate.Close();
  std::vector<std::future<Result<TxnResult>>> waiting;
  waiting.push_back(Later(*store, Put("/a", "x")));
  gate.WaitUntilHeld();
  for (int i = 0; i < 3; ++i) {
    waiting.push_back(Later(*store, Put("/a", "x")));
  }
  const auto refused = Later(*store, Put("/a", "x")).get();
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().reason(), Reason::kTooManyRequests);
  gate.Open();
  for (auto& answer : waiting) {
    EXPECT_TRUE(answer.get().ok());
  }
}

TEST(Groups, StoppingAnswersWhatWaits) {
  TempFolder folder;
  Gate gate;
  TestHooks hooks;
  hooks.at = gate.At("commit.begin");
  auto store = Open(folder.path(), &hooks);
  gate.Close();
  auto first = Later(*store, Put("/a", "x"));
  gate.WaitUntilHeld();
  auto second = Later(*store, Put("/b", "x"));
  std::thread stopper([&store] { store->Stop(); });
  gate.Open();
  EXPECT_TRUE(first.get().ok());
  EXPECT_TRUE(second.get().ok());
  stopper.join();
  store.reset();
  EXPECT_TRUE(Open(folder.path())->Get("/b").has_value());
}

TEST(Horizons, AnIdleStoreCompactsAndThenSleepsWithoutATimer) {
  TempFolder folder;
  AtomicClock clock;
  std::atomic<int> idle{0};
  TestHooks hooks;
  hooks.at = [&idle](const char* point) { idle += std::string_view(point) == "idle" ? 1 : 0; };
  StoreOptions options;
  options.directory = folder.path();
  options.clock = &clock;
  auto store = Open(options, &hooks);
  for (int i = 0; i < 10; ++i) {
    Must(*store, Put("/a", "x"));
  }
  idle = 0;  // an empty store may have slept before the first write came
  clock.Advance(std::chrono::minutes(6));
  Settle(*store);
  EXPECT_EQ(store->CompactedRevision(), store->CurrentRevision() - 1);
  EXPECT_EQ(store->HistoryRevision(), 1);
  EXPECT_TRUE(store->List("/", "", 0, store->CurrentRevision()).ok());
  EXPECT_TRUE(store->ListHistory("/", "", 0, 3).ok());
  EXPECT_EQ(idle, 0) << "the history horizon is still a timer";
  clock.Advance(std::chrono::hours(24 * 8));
  while (idle == 0) {
    clock.Advance(std::chrono::seconds(1));
    Settle(*store);
  }
  EXPECT_EQ(store->HistoryRevision(), store->CurrentRevision());
  Connection connection;
  ASSERT_TRUE(connection.Open({.path = folder.path() + "/state.db", .read_only = true}).ok());
  EXPECT_EQ(*connection.QueryInt("SELECT count(*) FROM kv"), 1);
}

TEST(Horizons, AJumpOfTheWallClockNeitherKeepsNorDropsHistoryWrongly) {
  TempFolder folder;
  AtomicClock clock;
  StoreOptions options;
  options.directory = folder.path();
  options.clock = &clock;
  {
    auto store = Open(options);
    Must(*store, Put("/a", "one"));
    clock.Jump(std::chrono::hours(24 * 365));
    Must(*store, Put("/a", "two"));
    Settle(*store);
    EXPECT_TRUE(store->GetAt("/a", 2).ok()) << "a jump ahead is no age";
    clock.Jump(-std::chrono::hours(24 * 365 * 2));
  }
  auto store = Open(options);
  Must(*store, Put("/a", "three"));
  EXPECT_TRUE(store->GetAt("/a", 2).ok());
  clock.Advance(std::chrono::minutes(6));
  Settle(*store);
  EXPECT_FALSE(store->GetAt("/a", 2).ok()) << "rows from the future age from the restart on";
}

TEST(Horizons, TheFileStaysBoundedUnderOverwrites) {
  TempFolder folder;
  AtomicClock clock;
  StoreOptions options;
  options.directory = folder.path();
  options.clock = &clock;
  options.history_bytes_max = 256 << 10;
  auto store = Open(options);
  const std::string text(2000, 'x');
  std::int64_t largest = 0;
  for (int round = 0; round < 40; ++round) {
    std::vector<std::future<Result<TxnResult>>> answers;
    for (int i = 0; i < 100; ++i) {
      answers.push_back(Later(*store, Put("/" + std::to_string(i % 20), text)));
    }
    for (auto& answer : answers) {
      ASSERT_TRUE(answer.get().ok());
    }
    clock.Advance(std::chrono::milliseconds(50));
    Settle(*store);  // on a busy machine the writer would be a few rounds behind with forgetting
    largest = std::max(largest, store->Stats().file_bytes);
  }
  // 8 MB were written; twice the limit, the current rows, the log and free pages remain.
  EXPECT_LT(largest, 5 << 20);
  EXPECT_EQ(store->List("/", "", 0, 0)->records.size(), 20u);
  EXPECT_GT(store->CompactedRevision(), 1000);
}

TEST(Horizons, FreedPagesGoBackToTheFileSystem) {
  TempFolder folder;
  AtomicClock clock;
  StoreOptions options;
  options.directory = folder.path();
  options.clock = &clock;
  options.api_horizon = std::chrono::seconds(1);
  options.history_horizon = std::chrono::seconds(2);
  TestHooks hooks;
  hooks.checkpoint_pages = 50;
  auto store = Open(options, &hooks);
  for (int i = 0; i < 2000; ++i) {
    Must(*store, Put("/a", std::string(3000, 'x')));
  }
  const std::int64_t full = store->Stats().file_bytes;
  ASSERT_GT(full, 5 << 20);
  for (int i = 0; i < 400; ++i) {
    clock.Advance(std::chrono::seconds(1));
    Settle(*store);
  }
  store.reset();
  EXPECT_LT(std::filesystem::file_size(folder.path() + "/state.db"), 2u << 20);
}

TEST(Horizons, ExpiredKeysAreDeletedAlsoWhenTheyExpiredWhileStopped) {
  TempFolder folder;
  AtomicClock clock;
  StoreOptions options;
  options.directory = folder.path();
  options.clock = &clock;
  Op first = Put("/e/1", "x");
  first.ttl_seconds = 100;
  Op second = Put("/e/2", "x");
  second.ttl_seconds = 3600;
  {
    auto store = Open(options);
    Must(*store, first);
    Must(*store, second);
  }
  clock.Advance(std::chrono::seconds(200));
  auto store = Open(options);
  auto watch = store->Watch({.prefix = "/e/", .after = 3});
  Settle(*store);
  EXPECT_FALSE(store->Get("/e/1").has_value());
  EXPECT_TRUE(store->Get("/e/2").has_value());
  std::vector<EventPtr> events;
  ASSERT_EQ(*(*watch)->Pull(events, 10), 1u);
  EXPECT_EQ(events[0]->type, EventType::kDelete);
  EXPECT_EQ(events[0]->value->bytes, Shown("x", events[0]->revision));
}

TEST(Horizons, RevisionAtNamesAPointOfTheHistory) {
  TempFolder folder;
  AtomicClock clock;
  StoreOptions options;
  options.directory = folder.path();
  options.clock = &clock;
  auto store = Open(options);
  const WallTime start = clock.Now();
  clock.Advance(std::chrono::seconds(10));
  const Revision first = Must(*store, Put("/a", "one"));
  clock.Advance(std::chrono::seconds(10));
  Must(*store, Put("/a", "two"));
  EXPECT_EQ(*store->RevisionAt(start + std::chrono::seconds(15)), first);
  EXPECT_EQ(store->RevisionAt(start).error().reason(), Reason::kExpired);
}

TEST(File, OthersCanReadItWhileItIsServed) {
  TempFolder folder;
  auto store = Open(folder.path());
  Must(*store, Put("/a", "one"));
  Connection other;
  ASSERT_TRUE(other.Open({.path = folder.path() + "/state.db", .read_only = true}).ok());
  EXPECT_EQ(*other.QueryText("SELECT value FROM kv WHERE key = '/a'"), Shown("one", 2));
  EXPECT_EQ(*other.QueryText("PRAGMA integrity_check"), "ok");
  EXPECT_EQ(*other.QueryInt("PRAGMA application_id"), 0x5375624c);
  EXPECT_EQ(*other.QueryInt("PRAGMA auto_vacuum"), 2);
}

TEST(File, AStartThatEndedBeforeTheTablesWereThereIsRepeated) {
  TempFolder folder;
  {
    Connection unfinished;
    ASSERT_TRUE(unfinished.Open({.path = folder.path() + "/state.db"}).ok());
    ASSERT_TRUE(unfinished.Exec("PRAGMA journal_mode=WAL").ok());
  }
  auto store = Open(folder.path());
  Must(*store, Put("/a", "one"));
  Connection other;
  ASSERT_TRUE(other.Open({.path = folder.path() + "/state.db", .read_only = true}).ok());
  EXPECT_EQ(*other.QueryInt("PRAGMA auto_vacuum"), 2) << "chosen before the first page";
}

TEST(Row, EachColumnIsChecked) {
  RawRow good;
  good.id = FirstRow(12) | 3;
  good.key = "/a";
  good.created = 12;
  good.value = R"({"rv":"12"})";
  good.hole = 7;
  ASSERT_TRUE(CheckRow(good).ok());
  const auto refuses = [&good](const char* column, auto change) {
    RawRow bad = good;
    change(bad);
    const auto checked = CheckRow(bad);
    ASSERT_FALSE(checked.ok()) << column;
    EXPECT_NE(checked.error().message().find(std::string("column ") + column), std::string::npos)
        << checked.error().message();
  };
  const std::string long_key(5000, 'k');
  refuses("id", [](RawRow& row) { row.id = 5; });
  refuses("id", [](RawRow& row) { row.id = -1; });
  refuses("id", [](RawRow& row) { row.id = std::numeric_limits<RowId>::max(); });
  refuses("key", [](RawRow& row) { row.key = ""; });
  refuses("key", [&long_key](RawRow& row) { row.key = long_key; });
  refuses("created", [](RawRow& row) { row.created = 13; });
  refuses("created", [](RawRow& row) { row.created = 0; });
  refuses("flags", [](RawRow& row) { row.flags = 8; });
  refuses("prev", [](RawRow& row) { row.prev = FirstRow(11); });
  refuses("prev", [](RawRow& row) { row.created = 11; });
  refuses("prev", [](RawRow& row) {
    row.created = 11;
    row.prev = FirstRow(12);
  });
  refuses("expires", [](RawRow& row) { row.expires_unix = -1; });
  refuses("value", [](RawRow& row) { row.value_is_null = true; });
  refuses("hole", [](RawRow& row) { row.hole = -2; });
  refuses("hole", [](RawRow& row) { row.hole = 6; });
  refuses("hole", [](RawRow& row) { row.hole = 100; });
  RawRow moved = good;
  moved.hole = -1;
  EXPECT_TRUE(CheckRow(moved).ok()) << "a value may have no revision inside";
}

TEST(RevisionTimes, KeepsARevisionAtLeastTheHorizonInBoundedMemory) {
  RevisionTimes times(std::chrono::seconds(100), 10);
  for (int second = 0; second < 1000; ++second) {
    times.Note(second * 1000, second + 1);
    const auto expired = times.TakeExpired(second * 1000);
    if (expired) {
      EXPECT_LE(*expired, second + 1 - 100);
      EXPECT_GE(*expired, second + 1 - 111);
    }
    EXPECT_LE(times.size(), 12u);
  }
  EXPECT_EQ(times.TakeExpired(10'000'000), 1000);
  EXPECT_FALSE(times.Next().has_value());
}

}  // namespace
}  // namespace sublet::storage
