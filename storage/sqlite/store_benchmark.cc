// What the store does per second on this machine's disk, beside raw SQLite in the same run.
//   storage_benchmark [FOLDER] [SECONDS]     FOLDER: where the files go (default: the current one)
// Prints one line per measurement. Not run by ctest.
#include <sqlite3.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <random>
#include <thread>

#include "base/check.h"
#include "storage/sqlite/connection.h"
#include "storage/store.h"

namespace sublet::storage {
namespace {

using SteadyClock = std::chrono::steady_clock;

double SecondsSince(SteadyClock::time_point start) {
  return std::chrono::duration<double>(SteadyClock::now() - start).count();
}

std::string PodKey(std::uint64_t n) { return "/pods/default/pod-" + std::to_string(n); }

std::vector<Op> OnePut(std::string key) {
  static const std::string bytes =
      R"({"metadata":{"resourceVersion":"","uid":"u"},"x":")" + std::string(1600, 'x') + R"("})";
  std::vector<Op> ops(1);
  ops[0].key = std::move(key);
  ops[0].bytes = bytes;
  ops[0].revision_offset = 32;
  return ops;
}

void RunRawSqlite(const std::string& folder, double seconds, int batch) {
  const std::string path = folder + "/raw.db";
  Connection connection;
  SUBLET_CHECK(connection.Open({.path = path}).ok());
  SUBLET_CHECK(
      connection
          .Exec("PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;"
                "CREATE TABLE kv(rev INTEGER PRIMARY KEY, key TEXT, prev INTEGER, value BLOB)")
          .ok());
  std::int64_t rows = 0;
  {
    auto insert = connection.Prepare("INSERT INTO kv(key, prev, value) VALUES(?, 0, ?)");
    const std::vector<Op> op = OnePut("x");
    std::mt19937_64 random(1);
    const auto start = SteadyClock::now();
    while (SecondsSince(start) < seconds) {
      SUBLET_CHECK(connection.Exec("BEGIN IMMEDIATE").ok());
      for (int i = 0; i < batch; ++i) {
        const std::string key = PodKey(random() % 100'000);
        insert->BindText(1, key);
        insert->BindBlob(2, op[0].bytes);
        SUBLET_CHECK(insert->Run().ok());
      }
      SUBLET_CHECK(connection.Exec("COMMIT").ok());
      rows += batch;
    }
    std::printf("raw SQLite, batches of %-3d          %9.0f rows/s\n", batch,
                static_cast<double>(rows) / SecondsSince(start));
  }
  connection.Close();
  for (const char* suffix : {"", "-wal", "-shm"}) {
    ::unlink((path + suffix).c_str());
  }
}

// `writers` requests in flight, as the API server has them: by callback, no thread each.
void RunWriters(const std::string& folder, double seconds, int writers) {
  auto store = *OpenSqliteStore({.directory = folder});
  std::atomic<bool> stop{false};
  std::atomic<std::int64_t> done{0};
  std::atomic<int> running{writers};
  std::vector<float> latencies_ms;  // the writer's thread only
  latencies_ms.reserve(1 << 20);
  std::mt19937_64 random(1);
  std::function<void()> next = [&] {
    const auto start = SteadyClock::now();
    store->Transact(OnePut(PodKey(random() % 100'000)), [&, start](const Result<TxnResult>& r) {
      SUBLET_CHECK(r.ok());
      latencies_ms.push_back(static_cast<float>(SecondsSince(start) * 1e3));
      ++done;
      if (stop) {
        --running;
        running.notify_one();
      } else {
        next();
      }
    });
  };
  const StoreStats before = store->Stats();
  const auto start = SteadyClock::now();
  std::vector<std::thread> starters;
  starters.emplace_back([&] {
    for (int w = 0; w < writers; ++w) {
      store->Transact(OnePut(PodKey(static_cast<std::uint64_t>(w))),
                      [&](const Result<TxnResult>&) { next(); });
    }
  });
  ::usleep(static_cast<unsigned>(seconds * 1e6));
  stop = true;
  starters[0].join();
  for (int left = running; left != 0; left = running) {
    running.wait(left);
  }
  const double elapsed = SecondsSince(start);
  const StoreStats after = store->Stats();
  std::sort(latencies_ms.begin(), latencies_ms.end());
  const auto at = [&](double q) {
    return latencies_ms[static_cast<std::size_t>(q * static_cast<double>(latencies_ms.size() - 1))];
  };
  std::printf(
      "store, %-3d writers                  %9.0f rows/s  p50 %.2f ms  p99 %.2f ms"
      "  %.3f syncs per row\n",
      writers, static_cast<double>(done) / elapsed, at(0.5), at(0.99),
      static_cast<double>(after.syncs - before.syncs) / static_cast<double>(done));
}

double ThreadCpuSeconds() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

// Wall and CPU time a call: on a busy machine only the latter means something.
template <typename Body>
void Time(const char* name, double seconds, Body body) {
  std::int64_t calls = 0;
  const double cpu = ThreadCpuSeconds();
  const auto start = SteadyClock::now();
  while (SecondsSince(start) < seconds) {
    for (int i = 0; i < 16; ++i) {
      body();
    }
    calls += 16;
  }
  std::printf("%-36s %9.3f us  (CPU %.3f us)\n", name,
              SecondsSince(start) * 1e6 / static_cast<double>(calls),
              (ThreadCpuSeconds() - cpu) * 1e6 / static_cast<double>(calls));
}

void Fill(Store& store, int keys) {
  std::atomic<int> left{keys};
  for (int i = 0; i < keys; ++i) {
    while (left > keys - i + 4000) {  // the queue is bounded
      ::usleep(500);
    }
    store.Transact(OnePut(PodKey(static_cast<std::uint64_t>(i))),
                   [&left](const Result<TxnResult>& result) {
                     SUBLET_CHECK(result.ok());
                     --left;
                     left.notify_one();
                   });
  }
  for (int now = left; now != 0; now = left) {
    left.wait(now);
  }
}

void RunReads(const std::string& folder, double seconds) {
  auto store = *OpenSqliteStore({.directory = folder});
  Fill(*store, 100'000);
  std::mt19937_64 random(1);
  const auto get = [&] { SUBLET_CHECK(store->Get(PodKey(random() % 100'000)).has_value()); };
  const auto list = [&] {
    SUBLET_CHECK(
        store->List("/pods/", PodKey(10'000 + random() % 70'000), 500, 0)->records.size() == 500);
  };
  Time("Get among 100,000 keys", seconds, get);
  Time("List of 500 among 100,000", seconds, list);
  std::atomic<bool> stop{false};
  std::thread load([&] {
    while (!stop) {
      (void)store->TransactSync(OnePut(PodKey(7)));
    }
  });
  Time("Get under one writer", seconds, get);
  Time("List of 500 under one writer", seconds, list);
  const Revision then = store->CurrentRevision() - 2000;
  Time("List of 500, 2,000+ changes ago", seconds, [&] {
    SUBLET_CHECK(store->List("/pods/", PodKey(10'000 + random() % 70'000), 500, then).ok());
  });
  stop = true;
  load.join();
}

void RunOpenAndRollback(const std::string& folder) {
  auto store = *OpenSqliteStore({.directory = folder});
  Fill(*store, 100'000);
  store.reset();
  auto start = SteadyClock::now();
  double cpu = ThreadCpuSeconds();
  store = *OpenSqliteStore({.directory = folder});
  std::printf("%-36s %9.0f ms  (CPU %.0f ms)\n", "open with 100,000 keys",
              SecondsSince(start) * 1e3, (ThreadCpuSeconds() - cpu) * 1e3);
  const Revision then = store->CurrentRevision();
  Fill(*store, 10'000);
  start = SteadyClock::now();
  // Values are the same, so nothing differs but what is put under other keys.
  for (int i = 0; i < 10; ++i) {
    std::vector<Op> ops;
    for (int k = 0; k < 1000; ++k) {
      ops.push_back(std::move(OnePut("/more/" + std::to_string(i * 1000 + k))[0]));
    }
    SUBLET_CHECK(store->TransactSync(std::move(ops)).ok());
  }
  start = SteadyClock::now();
  const auto rolled = store->Rollback("/", then);
  SUBLET_CHECK(rolled.ok() && rolled->deleted == 10'000);
  std::printf("%-36s %9.0f ms\n", "rollback of 10,000 created objects", SecondsSince(start) * 1e3);
  start = SteadyClock::now();
  const auto back = store->Rollback("/more/", rolled->first - 1);
  SUBLET_CHECK(back.ok() && back->restored == 10'000);
  std::printf("%-36s %9.0f ms\n", "rollback of 10,000 deleted objects", SecondsSince(start) * 1e3);
}

void RunFanOut(const std::string& folder, double seconds, int watchers) {
  auto store = *OpenSqliteStore({.directory = folder});
  std::atomic<std::int64_t> wakes{0};
  std::vector<std::unique_ptr<Subscription>> watches;
  for (int i = 0; i < watchers; ++i) {
    watches.push_back(
        *store->Watch({.prefix = "/pods/", .items_max = 1u << 20, .on_ready = [&wakes] {
                         wakes.fetch_add(1, std::memory_order_relaxed);
                       }}));
    std::vector<EventPtr> events;
    SUBLET_CHECK((*watches[static_cast<std::size_t>(i)]).Pull(events, 1).ok());
  }
  std::vector<EventPtr> events;
  std::int64_t writes = 0;
  double pulling = 0;
  const auto start = SteadyClock::now();
  while (SecondsSince(start) < seconds) {
    SUBLET_CHECK(store->TransactSync(OnePut(PodKey(1))).ok());
    ++writes;
    const auto pull = SteadyClock::now();
    for (const auto& watch : watches) {
      events.clear();
      SUBLET_CHECK(watch->Pull(events, 16).ok());
      SUBLET_CHECK(watch->Pull(events, 16).ok());
    }
    pulling += SecondsSince(pull);
  }
  const double each = SecondsSince(start) / static_cast<double>(writes);
  std::printf("write seen by %-5d watchers         %9.1f us a write, of it %.1f us pulling\n",
              watchers, each * 1e6, pulling / static_cast<double>(writes) * 1e6);
}

}  // namespace
}  // namespace sublet::storage

int main(int argc, char** argv) {
  using namespace sublet::storage;
  std::string base =
      std::filesystem::absolute(argc > 1 ? argv[1] : ".").string() + "/storage-benchmark-XXXXXX";
  SUBLET_CHECK(::mkdtemp(base.data()) != nullptr);
  const double seconds = argc > 2 ? std::atof(argv[2]) : 1.0;
  for (const int batch : {1, 16, 64}) {
    RunRawSqlite(base, seconds, batch);
  }
  for (const int writers : {1, 16, 64}) {
    RunWriters(base + "/w" + std::to_string(writers), seconds, writers);
  }
  RunReads(base + "/reads", seconds);
  RunOpenAndRollback(base + "/open");
  for (const int watchers : {1, 100, 1000}) {
    RunFanOut(base + "/fan" + std::to_string(watchers), seconds, watchers);
  }
  std::filesystem::remove_all(base);
  return 0;
}
