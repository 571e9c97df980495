#include "storage/sqlite/compactor.h"

#include <algorithm>

namespace sublet::storage {
namespace {

// Deleting costs about 50 us a row (reference figures), so a chunk delays a commit by a few ms.
constexpr std::size_t kChunkDeletions = 64;
// Far over the limit the chunk must outrun the largest group of writes.
constexpr std::size_t kChunkDeletionsOverLimit = 1024;
constexpr std::int64_t kChunkRows = 2048;  // looked at
constexpr int kVacuumPages = 64;
constexpr int kChunksPerVacuum = 8;
// Free pages are reused by new rows; only what is more than this goes back to the file system.
constexpr std::int64_t kFreePagesKept = 256;
// After a chunk the compactor pauses this many times the chunk's duration.
constexpr int kPauseBusy = 9;
constexpr int kPauseIdle = 3;
constexpr int kPauseOverLimit = 1;
constexpr int kPauseFarOverLimit = 0;
constexpr RevisionTimes::Millis kPauseAfterError = 5000;

void Reach(const TestHooks* hooks, const char* point) {
  if (hooks != nullptr && hooks->at) [[unlikely]] {
    hooks->at(point);
  }
}

}  // namespace

Compactor::Compactor(Connection& connection, View& view, const Options& options,
                     const TestHooks* hooks)
    : connection_(connection),
      view_(view),
      options_(options),
      hooks_(hooks),
      api_times_(options.api_horizon, 64),
      history_times_(options.history_horizon, 1024) {}

Result<void> Compactor::Open(const Loaded& loaded, Millis now, std::int64_t now_unix_ms) {
  SUBLET_TRY(api_scan_.position, ReadMeta(connection_, api_scan_.meta));
  SUBLET_TRY(history_scan_.position, ReadMeta(connection_, history_scan_.meta));
  history_bytes_ = loaded.history_bytes;
  for (const auto& [unix_ms, revision] : loaded.times) {
    // A clock that was wrong, then or now, must not make rows immortal or old at once: a time in
    // the future counts as now.
    const Millis age = std::max<std::int64_t>(0, now_unix_ms - unix_ms);
    NoteCommit(now - age, revision);
  }
  SUBLET_TRY(select_, connection_.Prepare("SELECT id, prev, flags FROM kv"
                                          " WHERE id > ? AND id <= ? ORDER BY id LIMIT ?"));
  SUBLET_TRY(delete_, connection_.Prepare("DELETE FROM kv WHERE id = ?"
                                          " RETURNING length(CAST(key AS BLOB)), length(value)"));
  SUBLET_TRY(save_, connection_.Prepare("INSERT INTO meta(name, value) VALUES(?1, ?2)"
                                        " ON CONFLICT(name) DO UPDATE SET value = ?2"));
  return {};
}

void Compactor::CloseStatements() {
  select_.reset();
  delete_.reset();
  save_.reset();
}

void Compactor::NoteCommit(Millis now, Revision revision) {
  api_times_.Note(now, revision);
  history_times_.Note(now, revision);
}

void Compactor::MoveHorizons(Millis now) {
  // What was current one horizon ago must stay readable, what came before need not.
  if (const auto expired = api_times_.TakeExpired(now);
      expired && *expired - 1 > view_.compacted()) {
    view_.SetCompacted(*expired - 1);
  }
  if (const auto expired = history_times_.TakeExpired(now);
      expired && *expired - 1 > view_.history_compacted()) {
    view_.SetHistoryCompacted(*expired - 1);
    view_.SetCompacted(std::max(view_.compacted(), *expired - 1));
  }
}

// The last row that `scan` may walk over: the oldest readable revision, whose own row replaced
// something that is no longer readable.
RowId Compactor::Limit(const Scan& scan) const {
  if (scan.short_only) {
    return LastRow(view_.compacted() + 1);
  }
  if (IsFarOverLimit()) {
    return LastRow(view_.revision());
  }
  return LastRow((history_bytes_ > options_.history_bytes_max ? view_.compacted()
                                                              : view_.history_compacted()) +
                 1);
}

bool Compactor::HasWork() const {
  return vacuum_due_ || api_scan_.position < Limit(api_scan_) ||
         history_scan_.position < Limit(history_scan_);
}

std::optional<Compactor::Millis> Compactor::NextWake() const {
  if (HasWork()) {
    return not_before_;
  }
  const auto api = api_times_.Next();
  const auto history = history_times_.Next();
  return api && history ? std::min(*api, *history) : (api ? api : history);
}

Result<void> Compactor::Step(Millis now, bool busy) {
  MoveHorizons(now);
  // Far over the limit there is no pause to wait for, but after a failure.
  const bool too_early = now < not_before_ && (failed_ || !IsFarOverLimit());
  if (too_early || !HasWork()) {
    return {};
  }
  const auto start = std::chrono::steady_clock::now();
  Result<void> done;
  if (vacuum_due_ && chunks_since_vacuum_ >= kChunksPerVacuum) {
    done = Vacuum();  // also while there is always more to delete
  } else if (history_scan_.position < Limit(history_scan_)) {
    done = RunChunk(history_scan_);
  } else if (api_scan_.position < Limit(api_scan_)) {
    done = RunChunk(api_scan_);
  } else {
    done = Vacuum();
  }
  failed_ = !done.ok();
  if (failed_) {
    if (connection_.InTransaction()) {
      (void)connection_.Exec("ROLLBACK");
    }
    not_before_ = now + kPauseAfterError;
    return done;
  }
  const auto took = std::chrono::duration_cast<std::chrono::microseconds>(
                        std::chrono::steady_clock::now() - start)
                        .count();
  const int pause = IsFarOverLimit()                              ? kPauseFarOverLimit
                    : history_bytes_ > options_.history_bytes_max ? kPauseOverLimit
                    : busy                                        ? kPauseBusy
                                                                  : kPauseIdle;
  not_before_ = now + took * pause / 1000;
  return {};
}

Result<void> Compactor::RunChunk(Scan& scan) {
  SUBLET_RETURN_IF_ERROR(connection_.Exec("BEGIN IMMEDIATE"));
  SUBLET_TRY(const Chunk chunk, DeleteBehind(scan));
  if (chunk.deleted_bytes == 0) {
    // Where the walk stands need not be durable: the next start walks there again.
    SUBLET_RETURN_IF_ERROR(connection_.Exec("ROLLBACK"));
    scan.position = chunk.position;
    return {};
  }
  SUBLET_RETURN_IF_ERROR(SaveMeta(scan.meta, chunk.position));
  SUBLET_RETURN_IF_ERROR(SaveMeta("revision", view_.revision()));
  SUBLET_RETURN_IF_ERROR(SaveMeta("compacted", view_.compacted()));
  SUBLET_RETURN_IF_ERROR(SaveMeta("history_compacted", view_.history_compacted()));
  Reach(hooks_, "compact.before");
  SUBLET_RETURN_IF_ERROR(connection_.Exec("COMMIT"));
  Reach(hooks_, "compact.after");
  scan.position = chunk.position;
  history_bytes_ -= chunk.deleted_bytes;
  vacuum_due_ = true;
  ++chunks_since_vacuum_;
  return {};
}

Result<Compactor::Chunk> Compactor::DeleteBehind(const Scan& scan) {
  struct Doomed {
    RowId prev;
    RowId self;  // 0: stays
  };
  const RowId limit = Limit(scan);
  const std::size_t deletions_max = IsFarOverLimit() ? kChunkDeletionsOverLimit : kChunkDeletions;
  Chunk chunk;
  std::vector<Doomed> doomed;
  std::int64_t rows = 0;
  select_->Bind(1, scan.position);
  select_->Bind(2, limit);
  select_->Bind(3, kChunkRows);
  chunk.position = scan.position;
  while (doomed.size() < deletions_max) {
    SUBLET_TRY(const bool more, select_->Step());
    if (!more) {
      chunk.position = rows < kChunkRows ? limit : chunk.position;
      break;
    }
    ++rows;
    chunk.position = select_->Int(0);
    const RowId prev = select_->Int(1);
    const std::int64_t flags = select_->Int(2);
    const RowId self = (flags & kRowDeleted) != 0 ? chunk.position : 0;
    if ((prev != 0 || self != 0) && (!scan.short_only || (flags & kRowShortHistory) != 0)) {
      doomed.push_back({prev, self});
    }
  }
  select_->Reset();
  if (!scan.short_only) {
    // Pushed by bytes rather than by time: the horizons follow the walk, before the deletions.
    const Revision behind = std::min(RevisionOf(chunk.position), view_.revision()) - 1;
    if (behind > view_.history_compacted()) {
      view_.SetHistoryCompacted(behind);
    }
    if (behind > view_.compacted()) {
      view_.SetCompacted(behind);
    }
  }
  for (const Doomed& pair : doomed) {
    SUBLET_RETURN_IF_ERROR(DeleteRow(pair.prev, chunk));
    SUBLET_RETURN_IF_ERROR(DeleteRow(pair.self, chunk));
  }
  return chunk;
}

Result<void> Compactor::DeleteRow(RowId row, Chunk& chunk) {
  if (row == 0) {
    return {};
  }
  delete_->Bind(1, row);
  SUBLET_TRY(const bool found, delete_->Step());
  if (found) {
    chunk.deleted_bytes += RowBytes(static_cast<std::size_t>(delete_->Int(0)),
                                    static_cast<std::size_t>(delete_->Int(1)));
    SUBLET_TRY(const bool more, delete_->Step());
    (void)more;
  }
  delete_->Reset();
  return {};
}

Result<void> Compactor::SaveMeta(const char* name, std::int64_t value) {
  save_->BindText(1, name);
  save_->Bind(2, value);
  return save_->Run();
}

Result<void> Compactor::Vacuum() {
  chunks_since_vacuum_ = 0;
  SUBLET_TRY(const std::int64_t free_pages, connection_.QueryInt("PRAGMA freelist_count"));
  SUBLET_TRY(const std::int64_t pages, connection_.QueryInt("PRAGMA page_count"));
  const bool always = hooks_ != nullptr && hooks_->vacuum_always;
  if (free_pages <= (always ? 0 : std::max(kFreePagesKept, pages / 8))) {
    vacuum_due_ = false;
    return {};
  }
  const std::string sql = "PRAGMA incremental_vacuum(" + std::to_string(kVacuumPages) + ")";
  SUBLET_RETURN_IF_ERROR(connection_.Exec(sql.c_str()));
  Reach(hooks_, "vacuum.after");
  return {};
}

}  // namespace sublet::storage
