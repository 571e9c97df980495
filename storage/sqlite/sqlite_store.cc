// The Store on one SQLite file: wires the parts and owns their lifetimes. What each does stands in
// its header; the order of a write is writer.h, of a read view.h and snapshot_list.h.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <condition_variable>
#include <cstring>

#include "base/log.h"
#include "storage/sqlite/snapshot_list.h"
#include "storage/sqlite/vfs.h"
#include "storage/sqlite/writer.h"

namespace sublet::storage {
namespace {

Status FileStatus(int error, std::string_view what, const std::string& path) {
  const std::string message = std::string(what) + " " + path + ": " + std::strerror(error);
  switch (error) {
    case EACCES:
    case EPERM:
    case EROFS:
      return Status(Reason::kForbidden,
                    message + "; check the owner and mode of the data directory");
    case ENOSPC:
    case EDQUOT: return ServiceUnavailable(message + "; free space on that disk");
    default: return InternalError(message);
  }
}

// Makes the names of newly created files durable.
void SyncDirectory(const std::string& directory) {
  const int descriptor = ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor >= 0) {
    ::fsync(descriptor);
    ::close(descriptor);
  }
}

Result<void> MakeDirectories(const std::string& path) {
  for (std::size_t slash = path.find('/', 1);; slash = path.find('/', slash + 1)) {
    const std::string part = path.substr(0, slash);
    struct stat there {};
    if (::mkdir(part.c_str(), 0700) == 0) {
      SyncDirectory(part + "/..");
    } else if (const int error = errno; error != EEXIST && ::stat(part.c_str(), &there) != 0) {
      return FileStatus(error, "cannot create the data directory", part);
    }
    if (slash == std::string::npos) {
      return {};
    }
  }
}

// Held for the life of a store. The kernel lets go of it when the process dies, however it dies.
class DirectoryLock {
 public:
  ~DirectoryLock() {
    if (descriptor_ >= 0) {
      ::close(descriptor_);
    }
  }
  Result<void> Take(const std::string& directory) {
    const std::string path = directory + "/state.lock";
    descriptor_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (descriptor_ < 0) {
      return FileStatus(errno, "cannot open the lock file", path);
    }
    if (::flock(descriptor_, LOCK_EX | LOCK_NB) != 0) {
      char pid[32] = {};
      const ssize_t length = ::pread(descriptor_, pid, sizeof pid - 1, 0);
      ::close(std::exchange(descriptor_, -1));
      return Status(Reason::kConflict,
                    "the data directory " + directory + " is in use by process " +
                        (length > 0 ? std::string(pid, ::strcspn(pid, "\n")) : "unknown") +
                        "; stop that one or choose another directory");
    }
    // For the message above only; the lock is what counts, so a full disk does not matter here.
    const std::string pid = std::to_string(::getpid()) + "\n";
    if (::ftruncate(descriptor_, 0) == 0) {
      (void)!::pwrite(descriptor_, pid.data(), pid.size(), 0);
    }
    return {};
  }
  void Release() {
    if (descriptor_ >= 0) {
      ::close(std::exchange(descriptor_, -1));
    }
  }

 private:
  int descriptor_ = -1;
};

class SqliteStore final : public Store {
 public:
  SqliteStore(StoreOptions options, const TestHooks* hooks)
      : options_(std::move(options)),
        hooks_(hooks),
        path_(options_.directory + "/state.db"),
        vfs_(hooks == nullptr ? nullptr : hooks->files),
        queue_({.requests_max = options_.queue_ops_max}) {}
  ~SqliteStore() override { Stop(); }

  Result<void> Open() {
    SUBLET_RETURN_IF_ERROR(MakeDirectories(options_.directory));
    SUBLET_RETURN_IF_ERROR(lock_.Take(options_.directory));
    SUBLET_RETURN_IF_ERROR(OpenDatabase(connection_, path_, vfs_.name(), hooks_));
    SyncDirectory(options_.directory);
    SUBLET_TRY(Loaded loaded, LoadRows(connection_, options_.make_attachment));
    view_ = std::make_shared<View>(loaded.tree, loaded.revision, loaded.compacted,
                                   loaded.history_compacted,
                                   hooks_ == nullptr ? EventLog::Limits{} : hooks_->log_limits);
    reader_ = std::make_shared<HistoryReader>(path_, view_, options_.make_attachment);
    hub_ = std::make_shared<WatchHub>(view_, reader_);
    writer_ = std::make_unique<Writer>(
        connection_,
        Writer::Parts{.options = &options_,
                      .hooks = hooks_,
                      .clock = options_.clock == nullptr ? &SystemClock() : options_.clock,
                      .view = view_,
                      .hub = hub_,
                      .reader = reader_,
                      .queue = &queue_});
    SUBLET_RETURN_IF_ERROR(writer_->Open(std::move(loaded)));
    writer_->Start();
    return {};
  }

  std::optional<Record> Get(std::string_view key) const override {
    const View::Snapshot now = view_->Current();
    const Entry* entry = now.tree.Find(key);
    return entry == nullptr ? std::nullopt : std::optional<Record>(entry->ToRecord());
  }

  Result<std::optional<Record>> GetAt(std::string_view key, Revision revision) const override {
    if (revision == 0) {
      return Get(key);
    }
    // The key is the first that has itself as prefix.
    SUBLET_TRY(ListResult list, List(key, "", 1, revision));
    if (list.records.empty() || list.records[0].key != key) {
      return std::optional<Record>();
    }
    return std::optional<Record>(std::move(list.records[0]));
  }

  Result<ListResult> List(std::string_view prefix, std::string_view start_after, std::size_t limit,
                          Revision revision) const override {
    const ListRequest request{prefix, start_after, limit};
    if (revision == 0 || revision == view_->revision()) {
      View::Snapshot now = view_->Current();
      if (revision == 0 || revision == now.revision) {
        return ListCurrent(std::move(now), request);
      }
    }
    return ListPast(*view_, *reader_, request, revision, HistoryReader::Horizon::kApi);
  }

  Result<ListResult> ListHistory(std::string_view prefix, std::string_view start_after,
                                 std::size_t limit, Revision revision) const override {
    return ListPast(*view_, *reader_, {prefix, start_after, limit}, revision,
                    HistoryReader::Horizon::kHistory);
  }
  Revision HistoryRevision() const override { return view_->history_compacted() + 1; }
  Result<Revision> RevisionAt(WallTime time) const override {
    SUBLET_TRY(const Revision revision,
               reader_->RevisionAt(
                   std::chrono::duration_cast<std::chrono::milliseconds>(time.time_since_epoch())
                       .count()));
    if (revision <= view_->history_compacted()) {
      return Expired("nothing so old is kept: the history begins at revision " +
                     std::to_string(HistoryRevision()));
    }
    return revision;
  }

  std::size_t Count(std::string_view prefix) const override {
    return view_->Current().tree.CountPrefix(prefix);
  }

  void Transact(std::vector<Op> ops, TxnCallback done) override {
    if (Result<void> checked = CheckOps(ops); !checked.ok()) {
      done(checked.error());
      return;
    }
    WriteRequest request;
    for (const Op& op : ops) {
      request.bytes += op.key.size() + op.bytes.size();
    }
    request.ops = std::move(ops);
    request.done = std::move(done);
    Add(std::move(request));
  }

  Result<RollbackResult> Rollback(std::string_view prefix, Revision revision) override {
    WriteRequest request;
    Waiter<RollbackResult> waiter;
    request.rollback = std::make_unique<RollbackRequest>(
        RollbackRequest{std::string(prefix), revision, waiter.Callback()});
    // A refusal before queueing answers through `done`.
    request.done = [done = request.rollback->done](const Result<TxnResult>& refused) {
      done(refused.error());
    };
    Add(std::move(request));
    return waiter.Wait();
  }

  Result<std::unique_ptr<Subscription>> Watch(WatchOptions options) override {
    return hub_->Subscribe(std::move(options));
  }

  Revision CurrentRevision() const override { return view_->revision(); }
  Revision CompactedRevision() const override { return view_->compacted(); }
  bool WaitForRevision(Revision revision, Deadline deadline) const override {
    return view_->WaitFor(revision, deadline);
  }

  Result<void> PutLocal(
      const std::vector<std::pair<std::string, std::optional<std::string>>>& entries) override {
    if (entries.empty()) {
      return {};
    }
    WriteRequest request;
    for (const auto& [key, value] : entries) {
      request.bytes += key.size() + (value ? value->size() : 0);
    }
    request.local = entries;
    Waiter<TxnResult> waiter;
    request.done = waiter.Callback();
    Add(std::move(request));
    const Result<TxnResult> done = waiter.Wait();
    return done.ok() ? Result<void>() : Result<void>(done.error());
  }

  Result<std::vector<std::pair<std::string, std::string>>> ListLocal(
      std::string_view prefix) const override {
    return reader_->ReadLocal(prefix);
  }

  StoreStats Stats() const override {
    StoreStats stats;
    const View::Snapshot now = view_->Current();
    stats.revision = now.revision;
    stats.compacted = view_->compacted();
    stats.keys = now.tree.size();
    stats.bytes_in_memory =
        writer_->counters().value_bytes.load(std::memory_order_relaxed) + view_->log_bytes();
    for (const char* suffix : {"", "-wal"}) {
      struct stat file {};
      if (::stat((path_ + suffix).c_str(), &file) == 0) {
        stats.file_bytes += file.st_size;
      }
    }
    stats.syncs = vfs_.syncs();
    stats.transactions = writer_->counters().transactions.load(std::memory_order_relaxed);
    stats.subscriptions = hub_->size();
    return stats;
  }

  void Stop() override {
    queue_.Close();
    MutexLock lock(stop_mutex_);
    if (stopped_) {
      return;
    }
    stopped_ = true;
    if (writer_ != nullptr) {
      writer_->Join();
    }
    if (hub_ != nullptr) {
      hub_->Stop();
      reader_->Stop();
    }
    if (writer_ != nullptr) {
      writer_->CloseStatements();
    }
    connection_.Close();
    lock_.Release();
  }

 private:
  // Waits for one callback.
  template <typename T>
  class Waiter {
   public:
    std::function<void(Result<T>)> Callback() {
      return [this](Result<T> result) {
        MutexLock lock(mutex_);
        result_ = std::move(result);
        ready_.NotifyOne();
      };
    }
    Result<T> Wait() {
      MutexLock lock(mutex_);
      while (!result_) {
        ready_.Wait(mutex_);
      }
      return std::move(*result_);
    }

   private:
    Mutex mutex_;
    CondVar ready_;
    std::optional<Result<T>> result_ SUBLET_GUARDED_BY(mutex_);
  };

  void Add(WriteRequest request) {
    switch (queue_.Add(request)) {
      case WriteQueue::Added::kYes: return;
      case WriteQueue::Added::kFull:
        request.done(TooManyRequests("too many writes are waiting for the disk", 1));
        return;
      case WriteQueue::Added::kClosed:
        request.done(ServiceUnavailable("the store is stopping"));
        return;
    }
  }

  const StoreOptions options_;
  const TestHooks* const hooks_;
  const std::string path_;
  DirectoryLock lock_;
  Vfs vfs_;
  Connection connection_;  // the writer's
  WriteQueue queue_;
  std::shared_ptr<View> view_;
  std::shared_ptr<HistoryReader> reader_;
  std::shared_ptr<WatchHub> hub_;
  std::unique_ptr<Writer> writer_;
  Mutex stop_mutex_;
  bool stopped_ SUBLET_GUARDED_BY(stop_mutex_) = false;
};

}  // namespace

Result<std::unique_ptr<Store>> OpenSqliteStoreForTest(StoreOptions options,
                                                      const TestHooks* hooks) {
  auto store = std::make_unique<SqliteStore>(std::move(options), hooks);
  SUBLET_RETURN_IF_ERROR(store->Open());
  return std::unique_ptr<Store>(std::move(store));
}

Result<std::unique_ptr<Store>> OpenSqliteStore(StoreOptions options) {
  return OpenSqliteStoreForTest(std::move(options), nullptr);
}

}  // namespace sublet::storage
