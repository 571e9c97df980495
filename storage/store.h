// Store: keys to bytes with revisions. The storage of one control plane; knows no JSON, no HTTP and
// no Kubernetes. apiserver/ is its only user, through this header alone: no SQL and no file leaves
// the folder, so that another engine (etcd) can stand behind it.
//
// Invariants
//  1. One revision counter for all keys, it only grows, across restarts too. Every committed
//     transaction that changed something takes exactly one revision.
//  2. A transaction is answered, and its events are published, only after it is durable. Whoever
//     got the answer reads and watches its own write.
//  3. Subscribers see every event of their range once, in revision order, without gaps.
//  4. Values are immutable and shared: the buffer that a Get returns is the one every List and
//     every watcher gets.
// Threads: every method may be called from any thread. Callbacks say their thread.
// Source: what etcd promises to kube-apiserver (reference: etcd API guarantees), minus what it
// never uses.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/once_slot.h"
#include "base/result.h"

namespace sublet::storage {

using Revision = std::int64_t;  // 0 = none

inline constexpr std::uint32_t kNoHole = 0xffffffffu;

// What an upper layer wants to find beside the bytes without parsing them again (labels, field
// values). Storage carries it and never looks inside.
struct Attachment {
  virtual ~Attachment() = default;
};

// The published bytes of one version of one object.
struct Value {
  std::string bytes;
  // Where the decimal revision stands inside `bytes`; kNoHole when the value carries none.
  std::uint32_t revision_offset = kNoHole;
  std::uint32_t revision_length = 0;
  std::shared_ptr<const Attachment> attachment;
};
using ValuePtr = std::shared_ptr<const Value>;

struct Record {
  std::string key;
  Revision create_revision = 0;
  Revision mod_revision = 0;
  ValuePtr value;
};

// One key of a transaction. `expected` is the compare part:
//   nullopt: no condition;  0: the key must not exist;  N: its mod_revision must be N.
struct Op {
  enum class Kind : std::uint8_t { kPut, kDelete, kCheck };
  Kind kind = Kind::kPut;
  std::string key;
  std::optional<Revision> expected;
  // kPut: the encoded object with an empty hole: storage inserts the decimal revision at
  // `revision_offset` (no bytes are replaced) unless it is kNoHole.
  std::string bytes;
  std::uint32_t revision_offset = kNoHole;
  std::shared_ptr<const Attachment> attachment;
  // Seconds until the key deletes itself (Events); 0 = never. Such keys keep no history.
  std::int64_t ttl_seconds = 0;
  // kPut/kDelete of keys that change often and whose past nobody reads (Leases): no history kept
  // beyond the API horizon.
  bool short_history = false;
};

struct TxnResult {
  // False: a compare failed, nothing was written; `conflict` names the op.
  bool committed = false;
  std::size_t conflict = 0;  // index into the ops
  Revision revision = 0;     // of the commit; on a conflict the current store revision
  // Per op. Put: the published value. Delete: the last state with the deletion's revision, as the
  // event shows it; null when there was nothing. Check: null.
  std::vector<ValuePtr> values;
  std::optional<Record> current;  // on a conflict: what stands at that key now (nullopt: nothing)
};
// Runs on the writer thread after the commit, or on the caller's for a refusal before queueing:
// must be short and must not call a blocking form. Errors:
//   BadRequest              no ops or more than 4096, a key empty, above 4 KiB or named twice
//   RequestEntityTooLarge   a value above 16 MiB
//   TooManyRequests         the queue is full (StoreOptions); try again
//   ServiceUnavailable      the store is stopping, or the disk is full (writes work again when it
//                           is not; reads always do)
//   Forbidden               the file became read-only
//   InternalError           I/O error, damaged file
// After any of them nothing of the transaction is visible.
using TxnCallback = std::function<void(Result<TxnResult>)>;

struct ListResult {
  std::vector<Record> records;  // ascending by key
  Revision revision = 0;        // the revision the list is true at
  bool more = false;            // the limit cut the list
  std::int64_t remaining = 0;   // records after the cut, when more
};

enum class EventType : std::uint8_t { kCreate, kUpdate, kDelete };

// One change. Shared by all subscribers. For a delete `value` is the last state with the deletion's
// revision in its hole, as Kubernetes shows it. `previous` is the state before (null for a create).
struct Event {
  Revision revision = 0;
  EventType type = EventType::kCreate;
  std::string key;
  ValuePtr value;
  ValuePtr previous;
  // One slot for an upper layer's derived encodings of this event (Table row, protobuf), made on
  // demand and shared by all watchers. Whoever comes first puts it; storage never looks inside.
  mutable OnceSlot<const Attachment> derived;
};
using EventPtr = std::shared_ptr<const Event>;

// A running watch. Events are pulled; `on_ready` (given to Watch) is called when Pull may have more
// after it returned nothing. Destroying the Subscription ends it: on_ready is not called
// afterwards.
class Subscription {
 public:
  virtual ~Subscription() = default;
  // Moves up to `max` events into `out` (appended). Returns the number moved; 0 = nothing now.
  // Errors: Expired, when this subscriber fell behind its bound (items_max) or its history was
  // compacted; ServiceUnavailable (the store stops), InternalError (I/O). The subscription is then
  // dead. Blocks on the disk only while it catches up with events that memory no longer holds.
  // Threads: any; calls wait for each other. It may outlive the store.
  virtual Result<std::size_t> Pull(std::vector<EventPtr>& out, std::size_t max) = 0;
  // The highest revision R such that every event of the range up to R has been pulled: what a
  // bookmark may say. Grows also when other keys change.
  virtual Revision Progress() const = 0;
};

struct WatchOptions {
  // Keys that start with it. Ends with '/' for a collection.
  std::string prefix;
  // Events after this revision. 0 = only new ones.
  Revision after = 0;
  // Undelivered events before the watch is dropped with Expired. The past that it catches up with
  // does not count.
  std::size_t items_max = 4096;
  // Called from any thread, also while the store publishes: must only wake somebody up, and must
  // not end its own subscription. Never called from within Pull.
  std::function<void()> on_ready;
};

// What a rollback did. Each changed key took a revision of its own: first..last.
struct RollbackResult {
  Revision first = 0;  // 0 when nothing differed
  Revision last = 0;
  std::size_t restored = 0;
  std::size_t deleted = 0;
};

struct StoreStats {
  Revision revision = 0;
  Revision compacted = 0;
  std::size_t keys = 0;
  std::size_t bytes_in_memory = 0;
  std::int64_t file_bytes = 0;
  std::int64_t syncs = 0;         // fdatasync calls since start
  std::int64_t transactions = 0;  // committed since start
  std::size_t subscriptions = 0;
};

class Store {
 public:
  virtual ~Store() = default;

  // The current record. Errors: NotFound-shaped absence is nullopt, never an error.
  virtual std::optional<Record> Get(std::string_view key) const = 0;
  // The record as of `revision` (0 = current). Errors: Expired (compacted), Timeout (a revision
  // that is not reached yet: WaitForRevision first), InternalError (I/O).
  virtual Result<std::optional<Record>> GetAt(std::string_view key, Revision revision) const = 0;
  // Records whose key starts with `prefix`, after `start_after` (exclusive, "" = from the start),
  // at `revision` (0 = current), at most `limit` (0 = all). One consistent snapshot. Current lists
  // and those of the last few thousand changes come from memory; older ones read the file, with a
  // cost per change since then. Errors: as GetAt.
  virtual Result<ListResult> List(std::string_view prefix, std::string_view start_after,
                                  std::size_t limit, Revision revision) const = 0;
  // The same for the history horizon: reaches back further than CompactedRevision(), and leaves out
  // keys with a TTL or short history. Errors: as List, Expired at or below HistoryRevision() - 1.
  virtual Result<ListResult> ListHistory(std::string_view prefix, std::string_view start_after,
                                         std::size_t limit, Revision revision) const = 0;
  // The oldest revision that ListHistory and Rollback can still show.
  virtual Revision HistoryRevision() const = 0;
  // The last revision committed at or before `time`, to name a point of the history by the clock.
  // Errors: Expired (nothing so old is kept), InternalError (I/O).
  virtual Result<Revision> RevisionAt(WallTime time) const = 0;
  // Number of current keys under prefix.
  virtual std::size_t Count(std::string_view prefix) const = 0;

  // Applies all ops or none. Never blocks; the answer arrives by callback.
  virtual void Transact(std::vector<Op> ops, TxnCallback done) = 0;
  // The same, waiting. Not from a TxnCallback.
  Result<TxnResult> TransactSync(std::vector<Op> ops);

  // Makes everything under `prefix` what ListHistory shows at `revision`, in one durable step that
  // writes the difference as new revisions: for a watcher time never runs backwards. Keys with a
  // TTL or short history stay as they are. Errors: Expired, and those of a transaction. Threads:
  // any but the writer's; blocks, about 10 us per differing key.
  virtual Result<RollbackResult> Rollback(std::string_view prefix, Revision revision) = 0;

  // Events after options.after. Errors: Expired (`after` is older than the API horizon),
  // ServiceUnavailable (stopped). A future `after` simply waits.
  virtual Result<std::unique_ptr<Subscription>> Watch(WatchOptions options) = 0;

  // The revision of the last commit that readers can see.
  virtual Revision CurrentRevision() const = 0;
  // Reads, lists and watches at or below it answer Expired. Always below CurrentRevision().
  virtual Revision CompactedRevision() const = 0;
  // Waits until CurrentRevision() >= revision. False at the deadline.
  virtual bool WaitForRevision(Revision revision, Deadline deadline) const = 0;

  // Facts outside the revisions (DESIGN.md section 4, syncer: name mappings and last synced
  // values). Durable when it returns; no history, no watch, not touched by rollback. value nullopt
  // = remove.
  virtual Result<void> PutLocal(
      const std::vector<std::pair<std::string, std::optional<std::string>>>& entries) = 0;
  virtual Result<std::vector<std::pair<std::string, std::string>>> ListLocal(
      std::string_view prefix) const = 0;

  virtual StoreStats Stats() const = 0;
  // Ends writes, waits for the last commit, ends the watches, releases the directory. What waits is
  // still answered; reads of the current state go on. Idempotent; the destructor calls it. Not from
  // a TxnCallback.
  virtual void Stop() = 0;
};

struct StoreOptions {
  std::string directory;  // created when missing; holds state.db and its lock file
  // Makes the attachment of a value read back from disk. Called during Open on its thread, and on
  // the calling thread of a read at an old revision.
  std::function<std::shared_ptr<const Attachment>(std::string_view key, std::string_view bytes)>
      make_attachment;
  std::chrono::milliseconds api_horizon = std::chrono::minutes(5);
  std::chrono::milliseconds history_horizon = std::chrono::hours(24 * 7);
  std::int64_t history_bytes_max = 512ll << 20;
  std::size_t queue_ops_max = 8192;  // waiting transactions; more are refused with TooManyRequests
  const Clock* clock = nullptr;      // null = the machine's
};

// Opens or creates the store. Errors, each with a message that says what to do: Conflict (directory
// in use by another process), Forbidden (read-only or no permission), ServiceUnavailable (disk
// full), InternalError (file corrupt), BadRequest (written by a newer version).
// Threads: any; blocks until the key index is rebuilt.
Result<std::unique_ptr<Store>> OpenSqliteStore(StoreOptions options);

}  // namespace sublet::storage
