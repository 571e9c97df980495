// A disk that fails: what is answered, what is visible, and how the store goes on.
#include <gtest/gtest.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <random>

#include "base/log.h"
#include "storage/sqlite/connection.h"
#include "storage/testing/test_store.h"

namespace sublet::storage {
namespace {

using namespace testing;

// Fails the calls it is told to.
class BadDisk final : public FileObserver {
 public:
  std::atomic<int> write_code{SQLITE_OK};  // of every write
  std::atomic<int> sync_code{SQLITE_OK};
  std::atomic<int> fail_change{0};  // the n-th change from now on fails once; 0 = none
  std::atomic<int> changes{0};
  // Runs when a sync is about to fail.
  std::function<void()> on_failing_sync;

  int OnWrite(FileKind, const char*, const void*, int, std::int64_t) override {
    return IsTheOne() ? SQLITE_IOERR_WRITE : write_code.load();
  }
  int OnTruncate(FileKind, const char*, std::int64_t) override {
    return IsTheOne() ? SQLITE_IOERR_TRUNCATE : SQLITE_OK;
  }
  int OnSync(FileKind, const char*) override {
    const int code = IsTheOne() ? SQLITE_IOERR_FSYNC : sync_code.load();
    if (code != SQLITE_OK && on_failing_sync) {
      on_failing_sync();
    }
    return code;
  }

 private:
  bool IsTheOne() {
    ++changes;
    return fail_change > 0 && --fail_change == 0;
  }
};

TEST(Faults, AFullDiskFailsTheWriteShowsNothingAndHeals) {
  TempFolder folder;
  BadDisk disk;
  TestHooks hooks;
  hooks.files = &disk;
  auto store = Open(folder.path(), &hooks);
  const Revision before = Must(*store, Put("/a", "one"));
  auto watch = store->Watch({.prefix = "/"});
  std::vector<EventPtr> events;

  disk.write_code = SQLITE_FULL;
  const auto failed = Try(*store, Put("/a", "two"));
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.error().reason(), Reason::kServiceUnavailable);
  EXPECT_NE(failed.error().message().find("disk is full"), std::string::npos);
  EXPECT_FALSE(store->PutLocal({{"fact", "x"}}).ok());
  EXPECT_EQ(store->Get("/a")->mod_revision, before);
  EXPECT_EQ(store->CurrentRevision(), before);
  EXPECT_EQ(*(*watch)->Pull(events, 10), 0u);

  disk.write_code = SQLITE_OK;
  EXPECT_EQ(Must(*store, Put("/a", "three")), before + 1);
  EXPECT_EQ(*(*watch)->Pull(events, 10), 1u);
  store = nullptr;
  store = Open(folder.path());
  EXPECT_EQ(store->Get("/a")->value->bytes, Shown("three", before + 1));
}

TEST(Faults, AFailedSyncFailsTheWriteAndNoRestartFindsIt) {
  TempFolder folder;
  TempFolder copy;
  BadDisk disk;
  TestHooks hooks;
  hooks.files = &disk;
  auto store = Open(folder.path(), &hooks);
  const Revision before = Must(*store, Put("/a", "one"));
  disk.on_failing_sync = [&disk] { disk.sync_code = SQLITE_OK; };
  disk.sync_code = SQLITE_IOERR_FSYNC;
  const auto failed = Try(*store, Put("/a", "two"));
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.error().reason(), Reason::kInternalError);
  EXPECT_NE(failed.error().message().find("I/O error"), std::string::npos);
  EXPECT_EQ(store->Get("/a")->mod_revision, before);
  // The files as a crash right after the answer leaves them.
  for (const char* name : {"/state.db", "/state.db-wal"}) {
    std::filesystem::copy(folder.path() + name, copy.path() + name);
  }
  EXPECT_EQ(Open(copy.path())->Get("/a")->mod_revision, before);
  EXPECT_EQ(Must(*store, Put("/a", "three")), before + 1);
}

TEST(Faults, ADiskThatFailsForLongServesReadsAndHeals) {
  TempFolder folder;
  BadDisk disk;
  TestHooks hooks;
  hooks.files = &disk;
  auto store = Open(folder.path(), &hooks);
  const Revision before = Must(*store, Put("/a", "one"));
  disk.sync_code = SQLITE_IOERR_FSYNC;
  for (int i = 0; i < 5; ++i) {
    EXPECT_FALSE(Try(*store, Put("/a", "lost")).ok());
    EXPECT_FALSE(Try(*store, Delete("/a")).ok());
    EXPECT_EQ(store->Get("/a")->value->bytes, Shown("one", before));
    EXPECT_FALSE(store->Rollback("/", 1).ok());
  }
  const auto conflict = Try(*store, Put("/a", "x", 0));
  EXPECT_TRUE(conflict.ok()) << "a compare that fails needs no disk";
  disk.sync_code = SQLITE_OK;
  EXPECT_EQ(Must(*store, Put("/b", "two")), before + 1);
  store.reset();
  store = Open(folder.path());
  EXPECT_EQ(store->Get("/a")->value->bytes, Shown("one", before));
  EXPECT_EQ(store->CurrentRevision(), before + 1);
}

TEST(Faults, AReadOnlyFileRefusesWritesAndGoesOnReading) {
  TempFolder folder;
  BadDisk disk;
  TestHooks hooks;
  hooks.files = &disk;
  auto store = Open(folder.path(), &hooks);
  Must(*store, Put("/a", "one"));
  disk.write_code = SQLITE_READONLY;
  const auto failed = Try(*store, Put("/a", "two"));
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.error().reason(), Reason::kForbidden);
  EXPECT_TRUE(store->Get("/a").has_value());
}

// The n-th change of a file fails once, for every n that the load reaches: what was answered holds,
// what failed is invisible, and the store works again.
TEST(Faults, EveryFailingWriteAndSyncLeavesTheStoreConsistent) {
  log::SetLevel(log::Level::kOff);  // hundreds of expected failures
  int reached = 0;
  for (int n = 1; n < 400; n += n < 60 ? 1 : 7) {
    TempFolder folder;
    BadDisk disk;
    TestHooks hooks;
    hooks.files = &disk;
    hooks.checkpoint_pages = 10;
    AtomicClock clock;
    StoreOptions options;
    options.directory = folder.path();
    options.api_horizon = std::chrono::seconds(1);
    options.history_horizon = std::chrono::seconds(2);
    options.clock = &clock;
    auto store = Open(options, &hooks);
    std::map<std::string, Revision> wanted;
    disk.fail_change = n;
    for (int i = 0; i < 40; ++i) {
      const std::string key = "/" + std::to_string(i % 7);
      const auto result =
          i % 5 == 4 ? Try(*store, Delete(key)) : Try(*store, Put(key, std::string(1500, 'x')));
      if (!result.ok()) {
        EXPECT_EQ(result.error().reason(), Reason::kInternalError);
      } else if (i % 5 == 4) {
        wanted.erase(key);
      } else {
        wanted[key] = result->revision;
      }
      clock.Advance(std::chrono::milliseconds(200));
    }
    const auto expect_same = [&wanted, n](const Store& now) {
      const auto all = now.List("/", "", 0, 0);
      ASSERT_EQ(all->records.size(), wanted.size()) << "change " << n;
      for (const Record& record : all->records) {
        EXPECT_EQ(wanted[record.key], record.mod_revision) << "change " << n;
      }
    };
    reached += disk.fail_change == 0 ? 1 : 0;
    expect_same(*store);
    const Revision last = Must(*store, Put("/last", "works"));
    wanted["/last"] = last;
    store.reset();
    store = Open(folder.path());
    expect_same(*store);
    EXPECT_EQ(store->CurrentRevision(), last);
  }
  EXPECT_GT(reached, 60);
  log::SetLevel(log::Level::kInfo);
}

Reason OpenReason(const std::string& directory, std::string* message = nullptr) {
  const auto store = OpenSqliteStore({.directory = directory});
  if (store.ok()) {
    return Reason::kUnknown;
  }
  if (message != nullptr) {
    *message = store.error().message();
  }
  return store.error().reason();
}

TEST(OpenErrors, AFolderInUseNamesTheProcess) {
  TempFolder folder;
  auto store = Open(folder.path());
  std::string message;
  EXPECT_EQ(OpenReason(folder.path(), &message), Reason::kConflict);
  EXPECT_NE(message.find("process " + std::to_string(::getpid())), std::string::npos) << message;
  store->Stop();
  EXPECT_EQ(OpenReason(folder.path()), Reason::kUnknown) << "stopping lets go of it";
}

TEST(OpenErrors, AFileOfANewerVersionIsLeftAlone) {
  TempFolder folder;
  Open(folder.path());
  {
    Connection connection;
    ASSERT_TRUE(connection.Open({.path = folder.path() + "/state.db"}).ok());
    ASSERT_TRUE(connection.Exec("PRAGMA user_version = 99").ok());
  }
  std::string message;
  EXPECT_EQ(OpenReason(folder.path(), &message), Reason::kBadRequest);
  EXPECT_NE(message.find("newer version"), std::string::npos);
}

TEST(OpenErrors, AnotherProgramsDatabaseIsNotTaken) {
  TempFolder folder;
  {
    Connection connection;
    ASSERT_TRUE(connection.Open({.path = folder.path() + "/state.db"}).ok());
    ASSERT_TRUE(connection.Exec("CREATE TABLE theirs(x)").ok());
  }
  std::string message;
  EXPECT_EQ(OpenReason(folder.path(), &message), Reason::kInternalError);
  EXPECT_NE(message.find("not a Sublet database"), std::string::npos);
}

TEST(OpenErrors, AFileThatIsNoDatabaseIsReportedAsDamaged) {
  TempFolder folder;
  std::ofstream(folder.path() + "/state.db") << std::string(10'000, 'x');
  std::string message;
  EXPECT_EQ(OpenReason(folder.path(), &message), Reason::kInternalError);
  EXPECT_NE(message.find("damaged"), std::string::npos) << message;
}

// Bytes overwritten anywhere: opening or reading may fail with a clear error, and never does worse.
TEST(OpenErrors, OverwrittenBytesNeverCrash) {
  TempFolder folder;
  {
    auto store = Open(folder.path());
    for (int i = 0; i < 200; ++i) {
      Must(*store, Put("/" + std::to_string(i % 40), std::string(300, 'x')));
    }
  }
  std::string good;
  {
    std::ifstream file(folder.path() + "/state.db", std::ios::binary);
    good.assign(std::istreambuf_iterator<char>(file), {});
  }
  std::mt19937_64 random(3);
  int refused = 0;
  for (int i = 0; i < 150; ++i) {
    std::string bad = good;
    for (std::uint64_t n = 1 + random() % 40; n > 0; --n) {
      bad[100 + random() % (bad.size() - 100)] = static_cast<char>(random());
    }
    TempFolder other;
    std::ofstream(other.path() + "/state.db", std::ios::binary) << bad;
    auto store = OpenSqliteStore({.directory = other.path()});
    if (!store.ok()) {
      ++refused;
      EXPECT_FALSE(store.error().message().empty());
      continue;
    }
    (void)(*store)->List("/", "", 0, 3);
    (void)(*store)->Watch({.prefix = "/", .after = 2});
    (void)Try(**store, Put("/1", "x"));
  }
  EXPECT_GT(refused, 10);
}

// Root may write everywhere, so it steps down for the test.
class AsNobody {
 public:
  AsNobody() : was_(::geteuid()) {
    if (was_ == 0) {
      EXPECT_EQ(::seteuid(65534), 0);
    }
  }
  ~AsNobody() { EXPECT_EQ(::seteuid(was_), 0); }
  AsNobody(const AsNobody&) = delete;
  AsNobody& operator=(const AsNobody&) = delete;

 private:
  const uid_t was_;
};

TEST(OpenErrors, NoPermissionIsForbidden) {
  TempFolder folder;
  Open(folder.path());
  ASSERT_EQ(::chmod(folder.path().c_str(), 0555), 0);
  ASSERT_EQ(::chmod((folder.path() + "/state.db").c_str(), 0444), 0);
  ASSERT_EQ(::chmod((folder.path() + "/state.lock").c_str(), 0444), 0);
  std::string message;
  {
    const AsNobody nobody;
    EXPECT_EQ(OpenReason(folder.path(), &message), Reason::kForbidden);
    EXPECT_EQ(OpenReason(folder.path() + "/below"), Reason::kForbidden);
  }
  EXPECT_NE(message.find("check the owner"), std::string::npos) << message;
  ASSERT_EQ(::chmod((folder.path() + "/state.lock").c_str(), 0666), 0);
  {
    const AsNobody nobody;
    EXPECT_EQ(OpenReason(folder.path(), &message), Reason::kForbidden) << message;
  }
}

TEST(OpenErrors, AFullDiskAtTheStartIsSaid) {
  TempFolder folder;
  BadDisk disk;
  disk.write_code = SQLITE_FULL;
  TestHooks hooks;
  hooks.files = &disk;
  const auto store = OpenSqliteStoreForTest({.directory = folder.path()}, &hooks);
  ASSERT_FALSE(store.ok());
  EXPECT_EQ(store.error().reason(), Reason::kServiceUnavailable);
}

}  // namespace
}  // namespace sublet::storage
