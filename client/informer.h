// Informer: a live copy of the objects of one resource (list + watch), with change handlers and
// indexes; InformerFactory shares them and reads all their streams on one thread. Controllers,
// scheduler, syncer and node agent read the API only through these.
//
// What an entry holds: typed metadata, the published JSON bytes (shared with the watch frame they
// came in, never a tree: one that the transport hands over is read and let go) and, if the consumer asked, a small typed record made once per event.
//
// Invariants:
//  1. The cache is always a state the server had, plus the caller's own writes (2); events of one
//     resource are applied in resourceVersion order.
//  2. A writer hands what the server answered to NoteWritten / NoteDeleted; from then on the cache
//     shows it, and older events about it are ignored. So a reconciler sees its own writes and
//     needs no expectations. Relies on resourceVersions being comparable numbers (Kubernetes >=
//     1.35 and etcd always); with others the two calls do nothing.
//  3. Handlers run without a lock, in order for one object except for the caller's own writes; they
//     must only enqueue keys or update state of their own.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/mutex.h"
#include "client/client.h"
#include "kube/object.h"

namespace sublet::client {

// One object as the cache holds it. Immutable. Threads: any.
struct CachedObject {
  kube::ObjectKey key;
  std::string uid;
  std::string resource_version;
  std::int64_t revision = 0;  // resource_version as a number; 0 when it is none
  std::int64_t generation = 0;
  std::string creation_timestamp;                           // RFC 3339
  std::string deletion_timestamp;                           // "" = not being deleted
  std::vector<std::pair<std::string, std::string>> labels;  // sorted by key
  std::vector<kube::OwnerReference> owners;
  std::vector<std::string> finalizers;
  Chunk bytes;            // nullptr when the informer keeps none
  std::string_view json;  // the object's JSON inside `bytes`
  std::shared_ptr<const void> record;

  bool deleting() const { return !deletion_timestamp.empty(); }
  // The owner with controller: true, or nullptr.
  const kube::OwnerReference* controller() const;
  // "" when absent.
  std::string_view Label(std::string_view key) const;
  // The whole object as a tree of the caller's own. Errors: InternalError (no bytes kept).
  Result<kube::Json> Parse() const;
  // What InformerOptions::make_record returned; T must be that type.
  template <typename T>
  const T& As() const {
    return *static_cast<const T*>(record.get());
  }
};
using ObjectPtr = std::shared_ptr<const CachedObject>;

// Reads the typed part of `object` (metadata only, no bytes). Errors: BadRequest (no name).
Result<CachedObject> ReadMetadata(const kube::Json& object);
// The same from encoded bytes, parsing nothing but the metadata. Errors: BadRequest.
Result<CachedObject> ScanMetadata(std::string_view json);

struct InformerOptions {
  kube::GroupVersionResource resource;
  std::string kind;            // written into items of a list, which carry none; "" = leave
  std::string namespace_name;  // "" = all
  std::string label_selector;
  std::string field_selector;
  bool metadata_only = false;
  bool keep_bytes = true;
  // Cuts what the consumer never reads before the bytes are kept (costs one encoding per event);
  // metadata.managedFields is worth cutting where many objects are held.
  std::function<void(kube::Json&)> trim;
  // The typed record of an object; runs on the factory's thread or a writer's.
  std::function<std::shared_ptr<const void>(const kube::Json&)> make_record;
  // Objects it refuses are shown to the handlers (added or changed: before nullptr; deleted: after
  // nullptr) but not stored. After a relist deletions of such objects may have been missed:
  // `on_relist` is called then, on the factory's thread.
  std::function<bool(const CachedObject&)> keep;
  std::function<void()> on_relist;
};

class Informer {
 public:
  // before nullptr = added, after nullptr = deleted.
  using Handler = std::function<void(const ObjectPtr& before, const ObjectPtr& after)>;
  using IndexFunction = std::function<std::vector<std::string>(const CachedObject&)>;

  Informer(Client client, InformerOptions options);
  ~Informer();
  Informer(const Informer&) = delete;
  Informer& operator=(const Informer&) = delete;

  const InformerOptions& options() const { return options_; }

  // Handlers and indexes are added before or after the start; a handler added late first gets an
  // "added" for everything there is. Threads: any.
  void AddHandler(Handler handler);
  // `name` is the caller's; adding the same name again changes nothing.
  void AddIndex(std::string_view name, IndexFunction function);

  bool synced() const { return synced_.load(std::memory_order_acquire); }
  // False when `deadline` passed first.
  bool WaitSynced(Deadline deadline) const;

  // Lister. Results are sorted by namespace and name, so decisions made from them are repeatable.
  ObjectPtr Get(const kube::ObjectKey& key) const;  // nullptr = absent
  std::vector<ObjectPtr> List() const;
  std::vector<ObjectPtr> ListNamespace(std::string_view namespace_name) const;
  std::vector<ObjectPtr> ByIndex(std::string_view index, std::string_view value) const;
  std::size_t size() const;

  // Invariant 2. `object` is what the server answered to a write.
  void NoteWritten(const kube::Json& object);
  // The object was removed at once (a Delete answered with a Status). `uid` guards against a
  // successor of the same name.
  void NoteDeleted(const kube::ObjectKey& key, std::string_view uid);

 private:
  friend class InformerFactory;
  struct Change {
    ObjectPtr before;
    ObjectPtr after;
  };
  enum class PumpResult { kIdle, kMore, kReopen };

  // The factory's thread only.
  Result<void> Open(std::function<void()> ready, bool* notifies);
  PumpResult Pump(Deadline deadline, int events_max);
  Result<void> ListAll();
  Result<void> HandleFrame(const Chunk& chunk, const std::shared_ptr<const kube::Json>& tree);
  Result<void> HandleBookmark(std::string_view text);
  void AddIncoming(ObjectPtr object);
  void FinishInitial(std::int64_t revision, std::string resource_version);
  void CloseStream();
  // Any thread.
  Result<ObjectPtr> MakeObject(const kube::Json& object) const;
  // `tree` is what `json` says, where somebody has parsed it already; else null.
  Result<ObjectPtr> MakeObject(const Chunk& frame, std::string_view json,
                               const kube::Json* tree) const;
  void ApplyEvent(bool deleted, ObjectPtr object);
  void Store(ObjectPtr object, std::vector<Change>* changes) SUBLET_REQUIRES(mutex_);
  void Erase(const kube::ObjectKey& key, std::vector<Change>* changes) SUBLET_REQUIRES(mutex_);
  void IndexOne(const ObjectPtr& object, bool add) SUBLET_REQUIRES(mutex_);
  void Notify(const std::vector<Change>& changes);

  const Client client_;
  const InformerOptions options_;
  std::atomic<bool> synced_{false};

  // The reader's thread only, but for Close.
  bool watch_list_ = true;  // false once the server refused it
  bool initial_ = false;    // collecting the state of a WatchList
  std::map<kube::ObjectKey, ObjectPtr> incoming_;
  std::string resume_version_;  // "" = list anew
  bool event_seen_ = false;     // on the current stream

  mutable Mutex mutex_;
  mutable CondVar synced_changed_;
  std::shared_ptr<Stream> stream_ SUBLET_GUARDED_BY(mutex_);
  bool stopped_ SUBLET_GUARDED_BY(mutex_) = false;
  std::map<kube::ObjectKey, ObjectPtr> objects_ SUBLET_GUARDED_BY(mutex_);
  std::int64_t seen_revision_ SUBLET_GUARDED_BY(mutex_) = 0;  // the stream has shown all up to here
  std::unordered_set<std::string> ghosts_ SUBLET_GUARDED_BY(mutex_);  // uids deleted by NoteDeleted
  struct Index {
    IndexFunction function;
    std::unordered_map<std::string, std::map<kube::ObjectKey, ObjectPtr>> entries;
  };
  std::map<std::string, Index, std::less<>> indexes_ SUBLET_GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<const Handler>> handlers_ SUBLET_GUARDED_BY(mutex_);
};

// Index functions that many need.
// By the uid of the owner with controller: true.
std::vector<std::string> IndexByController(const CachedObject& object);
// By "key=value" of every label.
std::vector<std::string> IndexByLabel(const CachedObject& object);
inline constexpr std::string_view kControllerIndex = "controller";
inline constexpr std::string_view kLabelIndex = "label";

// Owns the informers of one client and the thread ("informers") that reads their streams; informers
// on a transport without NotifyWhenReady get a thread each. A lost stream is resumed where it was;
// an Expired one is listed anew; failures back off from 0.2 s to 30 s with jitter.
class InformerFactory {
 public:
  explicit InformerFactory(Client client);
  ~InformerFactory();

  // The informer for these options, made on first use; resource, namespace and selectors decide
  // whether two are the same, and the first caller's record and trim functions stay.
  // Lifetime: until Remove or the factory's end. Threads: any; starts reading at once when the
  // factory is started.
  Informer& For(const InformerOptions& options);
  // Stops and destroys one (a CRD that went away). No other user may hold it.
  void Remove(Informer& informer);

  // Called on the reading thread each time an informer got its first state. Set before Start.
  void OnSynced(std::function<void()> callback);
  void Start();
  // False when `deadline` passed before every informer had its first state.
  bool WaitSynced(Deadline deadline);
  void Stop();  // idempotent; joins

 private:
  struct Source;
  // Shared with the ready callbacks of streams, which may come after the factory's end.
  struct Signal {
    Mutex mutex;
    CondVar wake;
    bool started SUBLET_GUARDED_BY(mutex) = false;
    bool stopped SUBLET_GUARDED_BY(mutex) = false;
    std::map<std::string, std::shared_ptr<Source>> sources SUBLET_GUARDED_BY(mutex);
    // Ready and with nobody driving it; first come, first driven, so that none starves.
    std::deque<std::shared_ptr<Source>> due SUBLET_GUARDED_BY(mutex);
    std::optional<MonotonicTime> earliest SUBLET_GUARDED_BY(mutex);  // no source's `next` is before
    std::function<void()> on_synced SUBLET_GUARDED_BY(mutex);

    // True when `source` joined `due`; then the reading thread must be woken.
    bool MakeReady(const std::shared_ptr<Source>& source) SUBLET_REQUIRES(mutex);
    // Makes those ready whose `next` has come.
    void TakeTimers(MonotonicTime now) SUBLET_REQUIRES(mutex);
  };
  static void StopInformer(Informer& informer);
  void Run();
  std::shared_ptr<Source> PickDue();
  // Opens or reads; returns when to come back, or nullopt for "when ready".
  std::optional<MonotonicTime> Drive(const std::shared_ptr<Source>& source);
  static MonotonicTime Reopen(Source& source);
  void HandOver(const std::shared_ptr<Source>& source);
  void RunAlone(Source& source);
  void TellSynced(Source& source);

  const Client client_;
  const std::shared_ptr<Signal> signal_;
  std::thread thread_;
};

}  // namespace sublet::client
