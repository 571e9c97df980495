// Writer: the one thread that changes the store. It takes what waits as a group, applies it to a
// copy of the index, writes the rows in one SQLite transaction, and only then publishes the copy,
// hands the events to the watches and answers, in this order. Between groups it expires keys, moves
// the horizons and checkpoints.
//
// A commit that fails: the copy is dropped, so nothing was visible, and all of the group get the
// error. A later group tries again, so a full disk heals by itself; a damaged file does not and
// refuses every write.
// Threads: Open before Start on the opener's thread; then everything on the thread
// "storage-writer".
#pragma once

#include <atomic>
#include <set>
#include <thread>

#include "storage/batch.h"
#include "storage/sqlite/compactor.h"
#include "storage/sqlite/history_reader.h"
#include "storage/write_queue.h"

namespace sublet::storage {

class Writer {
 public:
  struct Parts {
    const StoreOptions* options;
    const TestHooks* hooks;  // may be null
    const Clock* clock;
    std::shared_ptr<View> view;
    std::shared_ptr<WatchHub> hub;
    std::shared_ptr<const HistoryReader> reader;
    WriteQueue* queue;
  };
  struct Counters {
    std::atomic<std::int64_t> transactions{0};
    std::atomic<std::size_t> value_bytes{0};
  };

  // `connection` is open; it and everything in `parts` outlive the writer.
  Writer(Connection& connection, const Parts& parts);
  ~Writer();

  Result<void> Open(Loaded loaded);
  void Start();
  // Answers what waits, then ends the thread. The queue must be closed.
  void Join();
  // Before the connection closes.
  void CloseStatements();
  const Counters& counters() const { return counters_; }

 private:
  using Millis = RevisionTimes::Millis;
  using Answer = Result<TxnResult>;

  void Run();
  Millis Now() const;
  std::int64_t NowUnixMs() const;
  Deadline NextWake() const;
  void Reach(const char* point) const;

  void RunGroup(std::vector<WriteRequest> group);
  void CommitGroup(std::vector<WriteRequest> group);
  Result<RollbackResult> RunRollback(const RollbackRequest& request);
  Answer Apply(Batch& batch, WriteRequest& request) const;
  // Makes the batch and the group's local facts durable.
  Result<void> WriteGroup(const Batch& batch, const std::vector<WriteRequest>& group);
  Result<void> WriteRows(const Batch& batch, const std::vector<WriteRequest>& group);
  Result<void> InsertRow(const PendingRow& row, std::int64_t now_unix_ms);
  Result<void> WriteLocal(const WriteRequest& request);
  void NoteFailure(const Status& error);
  // Overwrites what a failed commit may have left in the log, so that no restart can find it.
  bool Probe();
  void Publish(const Batch& batch);
  void Account(const Batch& batch);

  void ExpireKeys();
  void CheckpointIfDue();

  Connection& connection_;
  const Parts parts_;
  Compactor compactor_;
  std::optional<Statement> begin_;
  std::optional<Statement> commit_;
  std::optional<Statement> insert_;
  std::optional<Statement> put_local_;
  std::optional<Statement> remove_local_;
  KeyTree tree_;
  Revision revision_ = 0;
  // (unix second, key) of every key that deletes itself.
  std::set<std::pair<std::int64_t, std::string>> expiring_;
  std::optional<Status> failure_;  // of the last group
  bool damaged_ = false;
  bool stale_commit_ = false;  // a failed commit may stand in the log
  int log_pages_ = 0;          // in the write-ahead log, as of the last commit
  int checkpoint_at_ = 0;
  Counters counters_;
  std::thread thread_;
};

}  // namespace sublet::storage
