// Compactor: moves the two horizons and deletes what lies behind them, a small chunk at a time
// between commits, then gives free pages back to the file system.
//
// How: a row names the version it replaced (prev). Walking the rows in order up to a horizon and
// deleting each row's prev, and deletions themselves, leaves exactly the newest version of every
// key at the horizon: no index is needed. Rows of short history are walked up to the API horizon,
// all rows up to the history horizon. Invariant: the view's horizon moves before rows that it
// covers are deleted (history_reader.h), and is written with the deletion. Overflow: above
// history_bytes_max the history horizon moves up to the API horizon; above twice that the API
// horizon moves too, so the file stays bounded under any load. Threads: confined to the writer.
#pragma once

#include <chrono>

#include "storage/revision_times.h"
#include "storage/sqlite/schema.h"
#include "storage/view.h"

namespace sublet::storage {

class Compactor {
 public:
  using Millis = RevisionTimes::Millis;
  struct Options {
    std::chrono::milliseconds api_horizon;
    std::chrono::milliseconds history_horizon;
    std::int64_t history_bytes_max = 0;
  };

  // `hooks` may be null.
  Compactor(Connection& connection, View& view, const Options& options, const TestHooks* hooks);
  // Reads where the last run stopped. `now_unix_ms` places the commit times of the file on our
  // clock.
  Result<void> Open(const Loaded& loaded, Millis now, std::int64_t now_unix_ms);

  void NoteCommit(Millis now, Revision revision);
  // Rows that stopped being current (or deletions) of this many bytes were written.
  void AddHistoryBytes(std::int64_t bytes) { history_bytes_ += bytes; }
  std::int64_t history_bytes() const { return history_bytes_; }
  // Before the connection closes.
  void CloseStatements();

  // Moves horizons and deletes at most one chunk, unless it is too early for the next one. `busy`:
  // requests wait. Errors: as a commit; the chunk is then tried again later.
  Result<void> Step(Millis now, bool busy);
  // When Step has something to do; nullopt = not before the next NoteCommit.
  std::optional<Millis> NextWake() const;

 private:
  struct Scan {
    const char* meta;
    bool short_only;
    RowId position = 0;  // rows up to here are done
  };
  struct Chunk {
    std::int64_t deleted_bytes = 0;
    RowId position = 0;
  };

  void MoveHorizons(Millis now);
  RowId Limit(const Scan& scan) const;
  bool HasWork() const;
  bool IsFarOverLimit() const { return history_bytes_ > 2 * options_.history_bytes_max; }
  Result<void> RunChunk(Scan& scan);
  Result<Chunk> DeleteBehind(const Scan& scan);
  Result<void> DeleteRow(RowId row, Chunk& chunk);
  Result<void> SaveMeta(const char* name, std::int64_t value);
  Result<void> Vacuum();

  Connection& connection_;
  View& view_;
  const Options options_;
  const TestHooks* const hooks_;
  RevisionTimes api_times_;
  RevisionTimes history_times_;
  Scan api_scan_{"api_scan", true};
  Scan history_scan_{"history_scan", false};
  std::int64_t history_bytes_ = 0;
  bool vacuum_due_ = false;
  int chunks_since_vacuum_ = 0;
  Millis not_before_ = 0;
  bool failed_ = false;  // the last chunk
  std::optional<Statement> select_;
  std::optional<Statement> delete_;
  std::optional<Statement> save_;
};

}  // namespace sublet::storage
