// What the store has told anybody survives a power failure at any moment. Images of the disk are
// taken at the writer's named points while a mixed load runs; each is opened and compared with what
// had been told by then. The same run with a planted bug must find it.
#include "storage/testing/power_loss.h"

#include <gtest/gtest.h>
#include <sqlite3.h>

#include <random>
#include <thread>

#include "base/mutex.h"
#include "storage/sqlite/connection.h"
#include "storage/testing/ledger.h"
#include "storage/testing/store_contract.h"
#include "storage/testing/test_store.h"

namespace sublet::storage::testing {
namespace {

constexpr int kWriters = 3;
constexpr int kImages = 60;
constexpr int kTransactionsMax = 20'000;  // ends a run whose points are reached too rarely

struct Image {
  std::string point;
  std::unique_ptr<TempFolder> folder;
  Ledger told;
};

class PowerLossRun {
 public:
  explicit PowerLossRun(std::uint64_t seed) : random_(seed) {}

  TestHooks hooks;

  void Drive() {
    hooks.files = &disk_;
    disk_.before_change = [this](const char* point) { Observe(point); };
    hooks.checkpoint_pages = 12;
    hooks.vacuum_always = true;
    hooks.log_limits = {.events_max = 200, .bytes_max = 1 << 20};
    hooks.at = [this](const char* point) { Observe(point); };
    StoreOptions options;
    options.directory = folder_.path();
    options.api_horizon = std::chrono::milliseconds(60);
    options.history_horizon = std::chrono::milliseconds(120);
    options.history_bytes_max = 64 << 10;
    store_ = Open(std::move(options), &hooks);
    {
      MutexLock lock(mutex_);
      watch_ = *store_->Watch({.prefix = "", .items_max = 1 << 20});
    }
    std::vector<std::thread> writers;
    for (int w = 0; w < kWriters; ++w) {
      writers.emplace_back([this, w] { Write(w); });
    }
    for (std::thread& writer : writers) {
      writer.join();
    }
    {
      MutexLock lock(mutex_);
      watch_.reset();
    }
    store_.reset();
  }

  // Opens every image; returns what is wrong with any.
  std::vector<std::string> Verify() {
    std::vector<std::string> wrong;
    MutexLock lock(mutex_);
    for (Image& image : images_) {
      for (const std::string& line : VerifyOne(image)) {
        wrong.push_back("at " + image.point + ": " + line);
      }
    }
    return wrong;
  }

  std::size_t images() {
    MutexLock lock(mutex_);
    return images_.size();
  }

 private:
  // On the writer's thread, at a named point: what can be seen now must be durable now.
  void Observe(const char* point) {
    MutexLock lock(mutex_);
    if (!watch_ || images_.size() >= kImages || ++seen_[point] % 8 != 1 || random_() % 4 != 0) {
      return;
    }
    std::vector<EventPtr> events;
    while (*watch_->Pull(events, 1000) > 0) {
    }
    for (const EventPtr& event : events) {
      told_.Saw(*event);
    }
    Image image{point, std::make_unique<TempFolder>(), told_};
    const auto unsynced = static_cast<PowerLoss::Unsynced>(random_() % 3);
    disk_.WriteImage(image.folder->path(), unsynced, random_);
    images_.push_back(std::move(image));
  }

  void Write(int w) {
    std::mt19937_64 random(static_cast<std::uint64_t>(w) + 100);
    for (int i = 0; i < kTransactionsMax && images() < kImages; ++i) {
      const std::string tag = std::to_string(w) + "-" + std::to_string(i);
      const std::string key = "/k/" + std::to_string(w) + "/" + std::to_string(random() % 9);
      std::vector<Op> ops;
      if (random() % 4 == 0) {
        ops.push_back(Delete(key));
      } else {
        ops.push_back(Put(key, tag + std::string(random() % 3000, 'x')));
      }
      if (random() % 5 == 0) {
        ops.push_back(Put(key + "/pair", tag));
      }
      std::vector<std::pair<std::string, std::optional<std::string>>> said;
      for (const Op& op : ops) {
        said.emplace_back(
            op.key, op.kind == Op::Kind::kPut ? std::optional(TextOf(op.bytes)) : std::nullopt);
      }
      Transact(std::move(ops), std::move(said), tag);
    }
  }

  // Notes the answer where it is given, on the writer's thread, and waits for it.
  void Transact(std::vector<Op> ops,
                std::vector<std::pair<std::string, std::optional<std::string>>> said,
                const std::string& tag) {
    Mutex mutex;
    CondVar ready;
    bool answered = false;
    store_->Transact(std::move(ops), [&](Result<TxnResult> result) {
      EXPECT_TRUE(result.ok());
      if (result.ok()) {
        MutexLock lock(mutex_);
        for (std::size_t i = 0; i < said.size(); ++i) {
          if (result->values[i] != nullptr) {
            told_.Saw(result->revision, said[i].first, said[i].second);
            told_.Answered(result->revision, tag);
          }
        }
      }
      MutexLock lock(mutex);
      answered = true;
      ready.NotifyOne();
    });
    MutexLock lock(mutex);
    while (!answered) {
      ready.Wait(mutex);
    }
  }

  static std::vector<std::string> VerifyOne(const Image& image) {
    {
      Connection connection;
      if (!connection.Open({.path = image.folder->path() + "/state.db"}).ok()) {
        return {"cannot open"};
      }
      const auto check = connection.QueryText("PRAGMA integrity_check");
      if (!check.ok() || *check != "ok") {
        return {"integrity: " + (check.ok() ? *check : check.error().message())};
      }
    }
    auto store = OpenSqliteStore({.directory = image.folder->path()});
    if (!store.ok()) {
      return {store.error().message()};
    }
    std::vector<std::string> wrong = image.told.Check(**store);
    const auto more = Try(**store, Put("/after", "the crash"));
    if (!more.ok() || more->revision <= image.told.newest()) {
      wrong.push_back("a write after the crash failed or repeated a revision");
    }
    return wrong;
  }

  Mutex mutex_;
  std::mt19937_64 random_ SUBLET_GUARDED_BY(mutex_);
  Ledger told_ SUBLET_GUARDED_BY(mutex_);
  std::vector<Image> images_ SUBLET_GUARDED_BY(mutex_);
  std::map<std::string, int> seen_ SUBLET_GUARDED_BY(mutex_);
  std::unique_ptr<Subscription> watch_ SUBLET_GUARDED_BY(mutex_);
  PowerLoss disk_;
  TempFolder folder_;
  std::unique_ptr<Store> store_;
};

std::string FirstOf(const std::vector<std::string>& lines) {
  return lines.empty() ? "" : std::to_string(lines.size()) + " lines, first: " + lines[0];
}

TEST(PowerLossSuite, WhatWasToldSurvivesAPowerFailureAtAnyPoint) {
  for (int seed = 1; seed <= 3 * Rounds(); ++seed) {
    PowerLossRun run(static_cast<std::uint64_t>(seed));
    run.Drive();
    EXPECT_EQ(run.images(), static_cast<std::size_t>(kImages));
    EXPECT_EQ(FirstOf(run.Verify()), "") << "seed " << seed;
  }
}

TEST(PowerLossSuite, CatchesAnAnswerBeforeTheCommit) {
  PowerLossRun run(11);
  run.hooks.answer_before_commit = true;
  run.Drive();
  EXPECT_FALSE(run.Verify().empty());
}

TEST(PowerLossSuite, CatchesASkippedSync) {
  PowerLossRun run(12);
  run.hooks.skip_sync = true;
  run.Drive();
  EXPECT_FALSE(run.Verify().empty());
}

TEST(PowerLossSuite, CatchesAnEventPublishedBeforeTheCommit) {
  PowerLossRun run(13);
  run.hooks.publish_before_commit = true;
  run.Drive();
  EXPECT_FALSE(run.Verify().empty());
}

}  // namespace
}  // namespace sublet::storage::testing
