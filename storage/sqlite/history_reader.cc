#include "storage/sqlite/history_reader.h"

namespace sublet::storage {
namespace {

// Rows looked at per call of ReadEvents: bounds how long one watcher keeps the connection.
constexpr std::int64_t kScanRowsMax = 2048;

// Ends the read transaction, so that checkpoints can pass it.
class EndOfRead {
 public:
  explicit EndOfRead(Connection& connection) : connection_(connection) {}
  ~EndOfRead() { (void)connection_.Exec("COMMIT"); }
  EndOfRead(const EndOfRead&) = delete;
  EndOfRead& operator=(const EndOfRead&) = delete;

 private:
  Connection& connection_;
};

class ResetAtEnd {
 public:
  explicit ResetAtEnd(Statement& statement) : statement_(statement) {}
  ~ResetAtEnd() { statement_.Reset(); }
  ResetAtEnd(const ResetAtEnd&) = delete;
  ResetAtEnd& operator=(const ResetAtEnd&) = delete;

 private:
  Statement& statement_;
};

}  // namespace

Result<void> HistoryReader::EnsureOpen() const {
  if (stopped_) {
    return ServiceUnavailable("the store is stopping");
  }
  if (connection_.is_open()) {
    return {};
  }
  SUBLET_RETURN_IF_ERROR(connection_.Open({.path = path_, .read_only = true}));
  SUBLET_RETURN_IF_ERROR(connection_.Exec("PRAGMA cache_size=-512"));
  const std::string columns(kRowColumns);
  Statements statements;
  SUBLET_TRY(
      statements.range,
      connection_.Prepare(
          ("SELECT " + columns + " FROM kv WHERE id > ? AND id <= ? ORDER BY id LIMIT ?").c_str()));
  SUBLET_TRY(statements.changes,
             connection_.Prepare("SELECT id, key, prev FROM kv WHERE id > ? AND id <= ?"
                                 " ORDER BY id"));
  SUBLET_TRY(statements.by_id,
             connection_.Prepare(("SELECT " + columns + " FROM kv WHERE id = ?").c_str()));
  statements_ = std::move(statements);
  return {};
}

// A deferred transaction takes its snapshot with the first read.
Result<void> HistoryReader::Begin() const {
  SUBLET_RETURN_IF_ERROR(EnsureOpen());
  return connection_.Exec("BEGIN; SELECT 1 FROM meta LIMIT 1");
}

Result<void> HistoryReader::CheckHorizon(Revision revision, Horizon horizon) const {
  const Revision compacted =
      horizon == Horizon::kApi ? view_->compacted() : view_->history_compacted();
  if (revision <= compacted) {
    return TooOld(revision, compacted);
  }
  return {};
}

Result<EntryRef> HistoryReader::ReadEntry(RowId row) const {
  Statement& by_id = statements_->by_id;
  by_id.Bind(1, row);
  const ResetAtEnd reset(by_id);
  SUBLET_TRY(const bool found, by_id.Step());
  if (!found) {
    return EntryRef();
  }
  SUBLET_TRY(const RawRow raw, ReadRow(by_id));
  return raw.deleted() ? EntryRef() : MakeEntry(raw, make_attachment_);
}

Result<PastEvents::Batch> HistoryReader::ReadEvents(std::string_view prefix, RowId after,
                                                    RowId until, std::size_t max) const {
  MutexLock lock(mutex_);
  SUBLET_RETURN_IF_ERROR(Begin());
  const EndOfRead end(connection_);
  const Revision done =
      after == LastRow(RevisionOf(after)) ? RevisionOf(after) : RevisionOf(after) - 1;
  SUBLET_RETURN_IF_ERROR(CheckHorizon(done, Horizon::kApi));
  return ScanEvents(prefix, after, until, max);
}

Result<PastEvents::Batch> HistoryReader::ScanEvents(std::string_view prefix, RowId after,
                                                    RowId until, std::size_t max) const {
  Batch batch;
  batch.scanned = after;
  Statement& range = statements_->range;
  range.Bind(1, after);
  range.Bind(2, until);
  range.Bind(3, kScanRowsMax);
  const ResetAtEnd reset(range);
  std::int64_t rows = 0;
  while (batch.events.size() < max) {
    SUBLET_TRY(const bool more, range.Step());
    if (!more) {
      break;
    }
    ++rows;
    SUBLET_TRY(const RawRow raw, ReadRow(range));
    batch.scanned = raw.id;
    if (!raw.key.starts_with(prefix)) {
      continue;
    }
    EntryRef before;
    if (raw.prev != 0) {
      SUBLET_TRY(before, ReadEntry(raw.prev));
      if (!before) {
        return InternalError("the database file is damaged: row " + std::to_string(raw.id) +
                             " names a version that is missing; restore it from a backup");
      }
    }
    EntryRef now = raw.deleted() ? EntryRef() : MakeEntry(raw, make_attachment_);
    batch.events.push_back(MakeEvent(raw.id, std::move(before), std::move(now)));
  }
  // Nothing cut the scan short: all up to `until` was seen.
  if (batch.events.size() < max && rows < kScanRowsMax) {
    batch.scanned = until;
  }
  return batch;
}

Result<std::map<std::string, RowId>> HistoryReader::RowsBefore(std::string_view prefix,
                                                               Revision revision, Revision until,
                                                               Horizon horizon) const {
  MutexLock lock(mutex_);
  SUBLET_RETURN_IF_ERROR(Begin());
  const EndOfRead end(connection_);
  SUBLET_RETURN_IF_ERROR(CheckHorizon(revision, horizon));
  std::map<std::string, RowId> rows;
  Statement& changes = statements_->changes;
  changes.Bind(1, LastRow(revision));
  changes.Bind(2, LastRow(until));
  const ResetAtEnd reset(changes);
  for (;;) {
    SUBLET_TRY(const bool more, changes.Step());
    if (!more) {
      return rows;
    }
    const std::string_view key = changes.Bytes(1);
    if (key.starts_with(prefix)) {
      rows.try_emplace(std::string(key), changes.Int(2));
    }
  }
}

Result<std::vector<EntryRef>> HistoryReader::ReadEntries(const std::vector<RowId>& rows,
                                                         Revision revision, Horizon horizon) const {
  MutexLock lock(mutex_);
  SUBLET_RETURN_IF_ERROR(Begin());
  const EndOfRead end(connection_);
  SUBLET_RETURN_IF_ERROR(CheckHorizon(revision, horizon));
  std::vector<EntryRef> entries;
  entries.reserve(rows.size());
  for (const RowId row : rows) {
    SUBLET_TRY(EntryRef entry, ReadEntry(row));
    entries.push_back(std::move(entry));
  }
  return entries;
}

Result<std::vector<std::pair<std::string, std::string>>> HistoryReader::ReadLocal(
    std::string_view prefix) const {
  MutexLock lock(mutex_);
  SUBLET_RETURN_IF_ERROR(EnsureOpen());
  SUBLET_TRY(Statement select,
             connection_.Prepare("SELECT key, value FROM local WHERE key >= ?1 ORDER BY key"));
  select.BindText(1, prefix);
  std::vector<std::pair<std::string, std::string>> facts;
  for (;;) {
    SUBLET_TRY(const bool more, select.Step());
    if (!more || !select.Bytes(0).starts_with(prefix)) {
      return facts;
    }
    facts.emplace_back(select.Bytes(0), select.Bytes(1));
  }
}

Result<Revision> HistoryReader::RevisionAt(std::int64_t unix_ms) const {
  MutexLock lock(mutex_);
  SUBLET_RETURN_IF_ERROR(EnsureOpen());
  // Times ascend with ids but for clock jumps; newest first finds the row soon for a recent time.
  SUBLET_TRY(Statement select, connection_.Prepare("SELECT id FROM kv WHERE time <= ?"
                                                   " ORDER BY id DESC LIMIT 1"));
  select.Bind(1, unix_ms);
  SUBLET_TRY(const bool found, select.Step());
  return found ? RevisionOf(select.Int(0)) : Revision{0};
}

void HistoryReader::Stop() {
  MutexLock lock(mutex_);
  stopped_ = true;
  statements_.reset();
  connection_.Close();
}

}  // namespace sublet::storage
