// TestHooks: where tests reach into the engine. Production passes null and pays one compare per
// point. Nothing here is reachable from configuration.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "storage/event_log.h"
#include "storage/store.h"

namespace sublet::storage {

enum class FileKind : std::uint8_t { kDatabase, kLog, kOther };

// Sees, and may fail, every change of the database files. All calls come before the change, with
// `path` as SQLite opened it. Results are SQLite codes (SQLITE_OK lets it happen).
// Threads: the thread that uses the connection.
class FileObserver {
 public:
  virtual ~FileObserver() = default;
  virtual int OnWrite(FileKind kind, const char* path, const void* data, int bytes,
                      std::int64_t offset) = 0;
  virtual int OnTruncate(FileKind kind, const char* path, std::int64_t bytes) = 0;
  virtual int OnSync(FileKind kind, const char* path) = 0;
};

struct TestHooks {
  // Called by the writer at named points: open.schema, open.rebuilt, commit.begin, commit.row,
  // commit.before, commit.after, commit.published, commit.answered, compact.before, compact.after,
  // vacuum.after, checkpoint.after; idle: about to sleep without any timer.
  std::function<void(const char* point)> at;
  FileObserver* files = nullptr;
  EventLog::Limits log_limits;
  int checkpoint_pages = 0;  // 0 = the default
  // True: every free page goes back to the file system at once.
  bool vacuum_always = false;
  // Planted bugs, each of which the suites must catch.
  bool answer_before_commit = false;
  bool skip_sync = false;
  bool publish_before_commit = false;
};

// OpenSqliteStore with `hooks`, which must outlive the store.
Result<std::unique_ptr<Store>> OpenSqliteStoreForTest(StoreOptions options, const TestHooks* hooks);

}  // namespace sublet::storage
