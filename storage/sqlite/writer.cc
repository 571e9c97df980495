#include "storage/sqlite/writer.h"

#include <pthread.h>
#include <sqlite3.h>

#include <algorithm>

#include "base/log.h"
#include "storage/difference.h"
#include "storage/sqlite/snapshot_list.h"

namespace sublet::storage {
namespace {

// Pages in the write-ahead log at which it is copied into the database. Larger: rare long stalls;
// smaller: more writing. (reference figures: 250 best p99, 1000 best throughput)
constexpr int kCheckpointPages = 500;
constexpr std::size_t kExpiredPerRound = 256;

int NoteLogPages(void* pages, sqlite3*, const char*, int now) {
  *static_cast<int*>(pages) = now;
  return SQLITE_OK;
}

}  // namespace

Writer::Writer(Connection& connection, const Parts& parts)
    : connection_(connection),
      parts_(parts),
      compactor_(connection, *parts.view,
                 {.api_horizon = parts.options->api_horizon,
                  .history_horizon = parts.options->history_horizon,
                  .history_bytes_max = parts.options->history_bytes_max},
                 parts.hooks),
      checkpoint_at_(parts.hooks != nullptr && parts.hooks->checkpoint_pages > 0
                         ? parts.hooks->checkpoint_pages
                         : kCheckpointPages) {}

Writer::~Writer() { Join(); }

Result<void> Writer::Open(Loaded loaded) {
  SUBLET_RETURN_IF_ERROR(compactor_.Open(loaded, Now(), NowUnixMs()));
  SUBLET_TRY(begin_, connection_.Prepare("BEGIN IMMEDIATE"));
  SUBLET_TRY(commit_, connection_.Prepare("COMMIT"));
  SUBLET_TRY(insert_,
             connection_.Prepare("INSERT INTO kv(id, key, created, prev, time, flags, hole,"
                                 " expires, value) VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?)"));
  SUBLET_TRY(put_local_, connection_.Prepare("INSERT INTO local(key, value) VALUES(?1, ?2)"
                                             " ON CONFLICT(key) DO UPDATE SET value = ?2"));
  SUBLET_TRY(remove_local_, connection_.Prepare("DELETE FROM local WHERE key = ?"));
  sqlite3_wal_hook(connection_.handle(), NoteLogPages, &log_pages_);
  tree_ = std::move(loaded.tree);
  revision_ = loaded.revision;
  counters_.value_bytes.store(loaded.value_bytes, std::memory_order_relaxed);
  for (KeyCursor cursor(tree_, ""); cursor.entry() != nullptr; cursor.Next()) {
    if (cursor.entry()->expires_unix != 0) {
      expiring_.emplace(cursor.entry()->expires_unix, cursor.entry()->key);
    }
  }
  Reach("open.rebuilt");
  return {};
}

void Writer::Start() {
  thread_ = std::thread([this] { Run(); });
  pthread_setname_np(thread_.native_handle(), "storage-writer");
}

void Writer::Join() {
  if (thread_.joinable()) {
    thread_.join();
  }
}

void Writer::CloseStatements() {
  begin_.reset();
  commit_.reset();
  insert_.reset();
  put_local_.reset();
  remove_local_.reset();
  compactor_.CloseStatements();
}

Writer::Millis Writer::Now() const {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             parts_.clock->Monotonic().time_since_epoch())
      .count();
}

std::int64_t Writer::NowUnixMs() const {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             parts_.clock->Now().time_since_epoch())
      .count();
}

void Writer::Reach(const char* point) const {
  if (parts_.hooks != nullptr && parts_.hooks->at) [[unlikely]] {
    parts_.hooks->at(point);
  }
}

void Writer::Run() {
  for (;;) {
    WriteQueue::Group group = parts_.queue->Take(NextWake());
    if (group.closed) {
      break;
    }
    if (!group.requests.empty()) {
      RunGroup(std::move(group.requests));
    }
    CheckpointIfDue();
    ExpireKeys();
    if (!damaged_) {
      const Result<void> compacted = compactor_.Step(Now(), !parts_.queue->empty());
      if (!compacted.ok()) {
        log::Warn("compaction failed", {{"error", compacted.error()}});
      }
    }
  }
  if (stale_commit_) {
    Probe();
  }
}

Deadline Writer::NextWake() const {
  std::optional<Millis> wake = damaged_ ? std::nullopt : compactor_.NextWake();
  const Millis now = Now();
  if (!expiring_.empty() && !failure_) {
    const Millis left = expiring_.begin()->first * 1000 - NowUnixMs();
    wake = std::min(wake.value_or(now + left), now + left);
  }
  if (!wake) {
    Reach("idle");
    return Deadline::max();
  }
  return After(std::chrono::milliseconds(std::max<Millis>(0, *wake - now)));
}

// A rollback looks at what is published, so it ends the group before it.
void Writer::RunGroup(std::vector<WriteRequest> group) {
  std::vector<WriteRequest> part;
  for (WriteRequest& request : group) {
    if (!request.rollback) {
      part.push_back(std::move(request));
      continue;
    }
    if (!part.empty()) {
      CommitGroup(std::exchange(part, {}));
    }
    request.rollback->done(RunRollback(*request.rollback));
  }
  if (!part.empty()) {
    CommitGroup(std::move(part));
  }
}

void Writer::CommitGroup(std::vector<WriteRequest> group) {
  Reach("commit.begin");
  Batch batch(tree_, revision_);
  std::vector<Answer> answers;
  answers.reserve(group.size());
  for (WriteRequest& request : group) {
    answers.push_back(Apply(batch, request));
  }
  if (parts_.hooks != nullptr) [[unlikely]] {
    if (parts_.hooks->publish_before_commit) {
      Publish(batch);
    }
    if (parts_.hooks->answer_before_commit) {
      for (std::size_t i = 0; i < group.size(); ++i) {
        std::exchange(group[i].done, [](const Answer&) {})(answers[i]);
      }
    }
  }
  const Result<void> written = WriteGroup(batch, group);
  if (!written.ok()) {
    NoteFailure(written.error());
    for (const WriteRequest& request : group) {
      request.done(written.error());
    }
    return;
  }
  Account(batch);
  if (parts_.hooks == nullptr || !parts_.hooks->publish_before_commit) {
    Publish(batch);
  }
  Reach("commit.published");
  for (std::size_t i = 0; i < group.size(); ++i) {
    group[i].done(std::move(answers[i]));
  }
  Reach("commit.answered");
}

Result<RollbackResult> Writer::RunRollback(const RollbackRequest& request) {
  SUBLET_TRY(const ListResult then,
             ListPast(*parts_.view, *parts_.reader, {.prefix = request.prefix}, request.revision,
                      HistoryReader::Horizon::kHistory));
  std::vector<Op> ops = DifferenceTo(then, tree_, request.prefix);
  RollbackResult result;
  Batch batch(tree_, revision_);
  for (Op& op : ops) {
    ++(op.kind == Op::Kind::kPut ? result.restored : result.deleted);
    std::vector<Op> one;
    one.push_back(std::move(op));
    batch.Apply(std::move(one), 0);
  }
  if (batch.rows().empty()) {
    return result;
  }
  if (Result<void> written = WriteGroup(batch, {}); !written.ok()) {
    NoteFailure(written.error());
    return written.error();
  }
  result.first = revision_ + 1;
  result.last = batch.revision();
  Account(batch);
  Publish(batch);
  return result;
}

Writer::Answer Writer::Apply(Batch& batch, WriteRequest& request) const {
  if (request.ops.empty()) {  // local facts only
    TxnResult result;
    result.committed = true;
    result.revision = batch.revision();
    return result;
  }
  return batch.Apply(std::move(request.ops), NowUnixMs() / 1000);
}

Result<void> Writer::WriteGroup(const Batch& batch, const std::vector<WriteRequest>& group) {
  const bool has_local = std::any_of(group.begin(), group.end(), [](const WriteRequest& request) {
    return !request.local.empty();
  });
  if (batch.rows().empty() && !has_local) {
    return {};
  }
  if (damaged_) {
    return *failure_;
  }
  Result<void> written = WriteRows(batch, group);
  if (!written.ok() && connection_.InTransaction()) {
    // Nothing to do about a failure: the next BEGIN reports it.
    (void)connection_.Exec("ROLLBACK");
  }
  return written;
}

Result<void> Writer::WriteRows(const Batch& batch, const std::vector<WriteRequest>& group) {
  SUBLET_RETURN_IF_ERROR(begin_->Run());
  const std::int64_t now_unix_ms = NowUnixMs();
  for (const PendingRow& row : batch.rows()) {
    SUBLET_RETURN_IF_ERROR(InsertRow(row, now_unix_ms));
    Reach("commit.row");
  }
  for (const WriteRequest& request : group) {
    SUBLET_RETURN_IF_ERROR(WriteLocal(request));
  }
  Reach("commit.before");
  auto committed = commit_->Run();
  if (!committed.ok()) {
    stale_commit_ = true;
    return committed;
  }
  stale_commit_ = false;
  if (failure_) {
    log::Info("writes work again", {{"revision", batch.revision()}});
    failure_.reset();
  }
  Reach("commit.after");
  return {};
}

Result<void> Writer::InsertRow(const PendingRow& row, std::int64_t now_unix_ms) {
  Statement& insert = *insert_;
  insert.Bind(1, row.id());
  insert.BindText(2, row.event->key);
  insert.Bind(3, row.created());
  insert.Bind(4, row.prev());
  insert.Bind(5, now_unix_ms);
  insert.Bind(6, (row.after ? 0 : kRowDeleted) | (row.short_history ? kRowShortHistory : 0));
  insert.Bind(7, -1);
  insert.Bind(8, row.after ? row.after->expires_unix : 0);
  if (row.after) {
    const Value& value = *row.after->value;
    if (value.revision_offset != kNoHole) {
      insert.Bind(7, value.revision_offset);
    }
    insert.BindBlob(9, value.bytes);
  } else {
    insert.BindNull(9);
  }
  return insert.Run();
}

Result<void> Writer::WriteLocal(const WriteRequest& request) {
  for (const auto& [key, value] : request.local) {
    if (value) {
      put_local_->BindText(1, key);
      put_local_->BindBlob(2, *value);
      SUBLET_RETURN_IF_ERROR(put_local_->Run());
    } else {
      remove_local_->BindText(1, key);
      SUBLET_RETURN_IF_ERROR(remove_local_->Run());
    }
  }
  return {};
}

void Writer::NoteFailure(const Status& error) {
  if (!failure_) {
    log::Error("writing failed; reads go on", {{"error", error}});
  }
  failure_ = error;
  if (ClassifySqliteCode(connection_.last_code()) == SqliteFailure::kCorrupt) {
    damaged_ = true;
  }
  if (stale_commit_) {
    Probe();
  }
}

bool Writer::Probe() {
  const Result<void> written = connection_.Exec(
      "INSERT INTO meta(name, value) VALUES('probe', 1)"
      " ON CONFLICT(name) DO UPDATE SET value = value + 1");
  stale_commit_ = !written.ok();
  return written.ok();
}

void Writer::Publish(const Batch& batch) {
  tree_ = batch.tree();
  revision_ = batch.revision();
  if (!batch.events().empty()) {
    parts_.view->Publish(tree_, revision_, batch.events());
    parts_.hub->Publish(batch.events(), revision_);
  }
}

// The bookkeeping that only committed rows may change.
void Writer::Account(const Batch& batch) {
  if (batch.rows().empty()) {
    return;
  }
  std::size_t bytes = counters_.value_bytes.load(std::memory_order_relaxed);
  Revision last = 0;
  for (const PendingRow& row : batch.rows()) {
    if (const EntryRef& before = row.event->before) {
      compactor_.AddHistoryBytes(RowBytes(*before));
      bytes -= before->key.size() + before->value->bytes.size();
      if (before->expires_unix != 0) {
        expiring_.erase({before->expires_unix, before->key});
      }
    }
    if (row.after) {
      bytes += row.after->key.size() + row.after->value->bytes.size();
      if (row.after->expires_unix != 0) {
        expiring_.emplace(row.after->expires_unix, row.after->key);
      }
    } else {
      compactor_.AddHistoryBytes(RowBytes(row.event->key.size(), 0));
    }
    if (row.event->revision != last) {
      last = row.event->revision;
      counters_.transactions.fetch_add(1, std::memory_order_relaxed);
    }
  }
  counters_.value_bytes.store(bytes, std::memory_order_relaxed);
  compactor_.NoteCommit(Now(), batch.revision());
}

// One transaction per key: each gets its own revision, as if somebody had deleted it.
void Writer::ExpireKeys() {
  const std::int64_t now_unix = NowUnixMs() / 1000;
  std::vector<WriteRequest> group;
  for (const auto& [due, key] : expiring_) {
    if (due > now_unix || group.size() == kExpiredPerRound) {
      break;
    }
    WriteRequest request;
    Op op;
    op.kind = Op::Kind::kDelete;
    op.key = key;
    request.ops.push_back(std::move(op));
    request.done = [](const Answer&) {};
    group.push_back(std::move(request));
  }
  if (!group.empty()) {
    CommitGroup(std::move(group));
  }
}

void Writer::CheckpointIfDue() {
  if (log_pages_ < checkpoint_at_ || damaged_) {
    return;
  }
  const int step = parts_.hooks != nullptr && parts_.hooks->checkpoint_pages > 0
                       ? parts_.hooks->checkpoint_pages
                       : kCheckpointPages;
  int pages = 0;
  int copied = 0;
  const int code = sqlite3_wal_checkpoint_v2(connection_.handle(), nullptr,
                                             SQLITE_CHECKPOINT_PASSIVE, &pages, &copied);
  if (code != SQLITE_OK && code != SQLITE_BUSY) {
    log::Warn("checkpoint failed", {{"error", connection_.Error(code, "checkpoint")}});
  }
  // A reader holds the rest back, or it failed: again when as much has been added.
  checkpoint_at_ = code == SQLITE_OK && copied == pages ? step : log_pages_ + step;
  log_pages_ = copied == pages ? 0 : log_pages_;
  Reach("checkpoint.after");
}

}  // namespace sublet::storage
