#include "client/informer.h"

#include <nlohmann/json.hpp>

#include "base/log.h"
#include "client/json_scan.h"
#include "kube/status_json.h"

namespace sublet::client {
namespace {

constexpr kube::JsonLimits kFrameLimits{.bytes_max = 1u << 30, .depth_max = 512};
constexpr int kPageSize = 500;

bool HasInitialEnd(const kube::Json& bookmark) {
  return kube::FindString(bookmark, {"metadata", "annotations", "k8s.io/initial-events-end"}) ==
         "true";
}

// An object's text without metadata.managedFields: up to half of it, and no record is made of it.
std::string WithoutManagedFields(std::string_view json) {
  constexpr std::string_view kKey = "\"managedFields\":";
  const std::string_view fields = FindMember(FindMember(json, "metadata"), "managedFields");
  const std::size_t value =
      fields.empty() ? 0 : static_cast<std::size_t>(fields.data() - json.data());
  const std::size_t end = value + fields.size();
  if (value < kKey.size() || json.substr(value - kKey.size(), kKey.size()) != kKey ||
      end >= json.size() || json[end] != ',') {
    return std::string(json);  // not there, or spelt another way
  }
  std::string out(json.substr(0, value - kKey.size()));
  out.append(json.substr(end + 1));
  return out;
}

}  // namespace

Informer::Informer(Client client, InformerOptions options)
    : client_(std::move(client)), options_(std::move(options)) {}

Informer::~Informer() { CloseStream(); }

void Informer::AddHandler(Handler handler) {
  auto shared = std::make_shared<const Handler>(std::move(handler));
  std::vector<ObjectPtr> present;
  {
    MutexLock lock(mutex_);
    handlers_.push_back(shared);
    present.reserve(objects_.size());
    for (const auto& [key, object] : objects_) {
      present.push_back(object);
    }
  }
  for (const ObjectPtr& object : present) {
    (*shared)(nullptr, object);
  }
}

void Informer::AddIndex(std::string_view name, IndexFunction function) {
  MutexLock lock(mutex_);
  const auto [found, added] = indexes_.try_emplace(std::string(name));
  if (!added) {
    return;
  }
  found->second.function = std::move(function);
  for (const auto& [key, object] : objects_) {
    for (const std::string& value : found->second.function(*object)) {
      found->second.entries[value][key] = object;
    }
  }
}

bool Informer::WaitSynced(Deadline deadline) const {
  MutexLock lock(mutex_);
  while (!synced() && !stopped_) {
    if (deadline == Deadline::max()) {
      synced_changed_.Wait(mutex_);
    } else if (!synced_changed_.WaitUntil(mutex_, deadline)) {
      break;
    }
  }
  return synced();
}

ObjectPtr Informer::Get(const kube::ObjectKey& key) const {
  MutexLock lock(mutex_);
  const auto found = objects_.find(key);
  return found != objects_.end() ? found->second : nullptr;
}

std::vector<ObjectPtr> Informer::List() const {
  MutexLock lock(mutex_);
  std::vector<ObjectPtr> out;
  out.reserve(objects_.size());
  for (const auto& [key, object] : objects_) {
    out.push_back(object);
  }
  return out;
}

std::vector<ObjectPtr> Informer::ListNamespace(std::string_view namespace_name) const {
  MutexLock lock(mutex_);
  std::vector<ObjectPtr> out;
  for (auto at = objects_.lower_bound({std::string(namespace_name), ""});
       at != objects_.end() && at->first.namespace_name == namespace_name; ++at) {
    out.push_back(at->second);
  }
  return out;
}

std::vector<ObjectPtr> Informer::ByIndex(std::string_view index, std::string_view value) const {
  MutexLock lock(mutex_);
  std::vector<ObjectPtr> out;
  const auto found = indexes_.find(index);
  if (found == indexes_.end()) {
    return out;
  }
  if (const auto entry = found->second.entries.find(std::string(value));
      entry != found->second.entries.end()) {
    for (const auto& [key, object] : entry->second) {
      out.push_back(object);
    }
  }
  return out;
}

std::size_t Informer::size() const {
  MutexLock lock(mutex_);
  return objects_.size();
}

void Informer::NoteWritten(const kube::Json& object) {
  if (!options_.label_selector.empty() || !options_.field_selector.empty()) {
    return;
  }
  auto made = MakeObject(object);
  if (!made.ok() || (*made)->revision == 0 ||
      (!options_.namespace_name.empty() &&
       (*made)->key.namespace_name != options_.namespace_name)) {
    return;
  }
  std::vector<Change> changes;
  {
    MutexLock lock(mutex_);
    const ObjectPtr& written = *made;
    // The stream has passed this write: what it showed since is at least as new.
    if (written->revision <= seen_revision_ || ghosts_.contains(written->uid)) {
      return;
    }
    const auto found = objects_.find(written->key);
    if (found != objects_.end() && found->second->revision >= written->revision) {
      return;
    }
    Store(written, &changes);
  }
  Notify(changes);
}

void Informer::NoteDeleted(const kube::ObjectKey& key, std::string_view uid) {
  std::vector<Change> changes;
  {
    MutexLock lock(mutex_);
    const auto found = objects_.find(key);
    if (found == objects_.end() || found->second->uid != uid || found->second->revision == 0) {
      return;
    }
    ghosts_.insert(std::string(uid));
    Erase(key, &changes);
  }
  Notify(changes);
}

Result<void> Informer::Open(std::function<void()> ready, bool* notifies) {
  event_seen_ = false;
  Target target;
  target.resource = options_.resource;
  target.namespace_name = options_.namespace_name;
  WatchOptions watch;
  watch.label_selector = options_.label_selector;
  watch.field_selector = options_.field_selector;
  watch.metadata_only = options_.metadata_only;
  std::unique_ptr<Stream> stream;
  if (resume_version_.empty() && watch_list_) {
    watch.send_initial_events = true;
    auto opened = client_.OpenWatchStream(target, watch);
    if (opened.ok()) {
      stream = std::move(*opened);
      initial_ = true;
      incoming_.clear();
    } else if (opened.error().Is(Reason::kInvalid) || opened.error().Is(Reason::kBadRequest)) {
      watch_list_ = false;  // an older server: list and watch
      watch.send_initial_events = false;
    } else {
      return std::move(opened).error();
    }
  }
  if (!stream) {
    if (resume_version_.empty()) {
      SUBLET_RETURN_IF_ERROR(ListAll());
    }
    watch.resource_version = resume_version_;
    auto opened = client_.OpenWatchStream(target, watch);
    if (!opened.ok()) {
      if (opened.error().Is(Reason::kExpired) || opened.error().Is(Reason::kGone)) {
        resume_version_.clear();
      }
      return std::move(opened).error();
    }
    stream = std::move(*opened);
  }
  *notifies = stream->NotifyWhenReady(std::move(ready));
  MutexLock lock(mutex_);
  if (stopped_) {
    stream->Close();
  }
  stream_ = std::move(stream);
  return Ok();
}

Result<void> Informer::ListAll() {
  Target target;
  target.resource = options_.resource;
  target.namespace_name = options_.namespace_name;
  ListOptions list;
  list.label_selector = options_.label_selector;
  list.field_selector = options_.field_selector;
  list.metadata_only = options_.metadata_only;
  list.limit = kPageSize;
  incoming_.clear();
  for (;;) {
    SUBLET_TRY(kube::Json page, client_.List(target, list));
    kube::Json* items = kube::Find(page, {"items"});
    if (items != nullptr && items->is_array()) {
      for (kube::Json& item : *items) {
        if (!options_.kind.empty() && !item.contains("kind")) {
          item["kind"] = options_.kind;
          item["apiVersion"] = options_.resource.ApiVersion();
        }
        if (auto object = MakeObject(item); object.ok()) {
          AddIncoming(*object);
        }
      }
    }
    list.continue_token = kube::FindString(page, {"metadata", "continue"});
    if (list.continue_token.empty()) {
      std::string version(kube::FindString(page, {"metadata", "resourceVersion"}));
      FinishInitial(std::strtoll(version.c_str(), nullptr, 10), version);
      return Ok();
    }
  }
}

Informer::PumpResult Informer::Pump(Deadline deadline, int events_max) {
  std::shared_ptr<Stream> stream;
  {
    MutexLock lock(mutex_);
    stream = stream_;
  }
  for (int i = 0; i < events_max; ++i) {
    auto next = stream->Next(deadline);
    if (!next.ok() && next.error().Is(Reason::kTimeout)) {
      return PumpResult::kIdle;
    }
    if (next.ok() && *next) {
      if (auto handled = HandleFrame(**next, stream->TakeTree()); handled.ok()) {
        continue;
      } else {
        next = std::move(handled).error();
      }
    }
    if (!next.ok()) {
      const Status& error = next.error();
      if (error.Is(Reason::kExpired) || error.Is(Reason::kGone)) {
        resume_version_.clear();
      }
      log::Debug("watch ended", {{"resource", options_.resource.resource}, {"error", error}});
    }
    initial_ = false;
    incoming_.clear();
    CloseStream();
    return PumpResult::kReopen;
  }
  return PumpResult::kMore;
}

Result<void> Informer::HandleFrame(const Chunk& chunk,
                                   const std::shared_ptr<const kube::Json>& tree) {
  Chunk frame = chunk;
  auto parts = SplitWatchFrame(*chunk);
  if (!parts) {
    // Spelt another way (spaces, another order): encode it as we like it.
    SUBLET_TRY(const kube::Json whole, kube::ParseJson(*chunk, kFrameLimits));
    const kube::Json* object = kube::Find(whole, {"object"});
    frame = std::make_shared<const std::string>(
        R"({"type":")" + std::string(kube::FindString(whole, {"type"})) + R"(","object":)" +
        (object != nullptr ? kube::Dump(*object) : "{}") + "}");
    parts = SplitWatchFrame(*frame);
    if (!parts) {
      return ServiceUnavailable("a watch event of unknown shape");
    }
  }
  if (parts->type == "ERROR") {
    // Before the initial state was there: a server that cannot serve WatchLists (with an old etcd
    // behind it, say) tells so in the stream. From now on list and watch.
    watch_list_ = watch_list_ && !initial_;
    SUBLET_TRY(const kube::Json status, kube::ParseJson(parts->object));
    return kube::StatusFromJson(status, 500);
  }
  event_seen_ = true;
  if (parts->type == "BOOKMARK") {
    return HandleBookmark(parts->object);
  }
  const bool deleted = parts->type == "DELETED";
  if (deleted && (initial_ || !options_.keep)) {
    // Who is told of it gets the object as it was cached: which one it is is all that counts here.
    SUBLET_TRY(CachedObject gone, ScanMetadata(parts->object));
    if (initial_) {
      incoming_.erase(gone.key);
      return Ok();
    }
    resume_version_ = gone.resource_version;
    ApplyEvent(true, std::make_shared<const CachedObject>(std::move(gone)));
    return Ok();
  }
  SUBLET_TRY(ObjectPtr made, MakeObject(frame, parts->object, tree.get()));
  if (initial_) {
    AddIncoming(std::move(made));
    return Ok();
  }
  resume_version_ = made->resource_version;
  ApplyEvent(deleted, std::move(made));
  return Ok();
}

Result<void> Informer::HandleBookmark(std::string_view text) {
  SUBLET_TRY(const kube::Json bookmark, kube::ParseJson(text, kFrameLimits));
  std::string version(kube::FindString(bookmark, {"metadata", "resourceVersion"}));
  const std::int64_t revision = std::strtoll(version.c_str(), nullptr, 10);
  if (initial_ && HasInitialEnd(bookmark)) {
    initial_ = false;
    FinishInitial(revision, std::move(version));
  } else if (!initial_ && !version.empty()) {
    resume_version_ = std::move(version);
    MutexLock lock(mutex_);
    seen_revision_ = std::max(seen_revision_, revision);
  }
  return Ok();
}

void Informer::AddIncoming(ObjectPtr object) {
  if (options_.keep && !options_.keep(*object)) {
    Notify({{nullptr, std::move(object)}});
    return;
  }
  incoming_[object->key] = std::move(object);
}

Result<ObjectPtr> Informer::MakeObject(const kube::Json& object) const {
  SUBLET_TRY(CachedObject made, ReadMetadata(object));
  if (options_.make_record) {
    made.record = options_.make_record(object);
  }
  if (options_.keep_bytes) {
    if (options_.trim) {
      kube::Json trimmed = object;
      options_.trim(trimmed);
      made.bytes = std::make_shared<const std::string>(kube::Dump(trimmed));
    } else {
      made.bytes = std::make_shared<const std::string>(kube::Dump(object));
    }
    made.json = *made.bytes;
  }
  return ObjectPtr(std::make_shared<const CachedObject>(std::move(made)));
}

Result<ObjectPtr> Informer::MakeObject(const Chunk& frame, std::string_view json,
                                       const kube::Json* tree) const {
  if (tree != nullptr && !options_.trim) {
    SUBLET_TRY(CachedObject made, ReadMetadata(*tree));
    if (options_.make_record) {
      made.record = options_.make_record(*tree);
    }
    if (options_.keep_bytes) {
      made.bytes = frame;
      made.json = json;
    }
    return ObjectPtr(std::make_shared<const CachedObject>(std::move(made)));
  }
  if (options_.make_record || options_.trim) {
    SUBLET_TRY(kube::Json object, kube::ParseJson(WithoutManagedFields(json), kFrameLimits));
    SUBLET_TRY(CachedObject made, ReadMetadata(object));
    if (options_.make_record) {
      made.record = options_.make_record(object);
    }
    if (options_.keep_bytes && options_.trim) {
      options_.trim(object);
      made.bytes = std::make_shared<const std::string>(kube::Dump(object));
      made.json = *made.bytes;
    } else if (options_.keep_bytes) {
      made.bytes = frame;
      made.json = json;
    }
    return ObjectPtr(std::make_shared<const CachedObject>(std::move(made)));
  }
  SUBLET_TRY(CachedObject made, ScanMetadata(json));
  if (options_.keep_bytes) {
    made.bytes = frame;
    made.json = json;
  }
  return ObjectPtr(std::make_shared<const CachedObject>(std::move(made)));
}

void Informer::FinishInitial(std::int64_t revision, std::string resource_version) {
  std::vector<Change> changes;
  bool again = false;
  {
    MutexLock lock(mutex_);
    std::vector<kube::ObjectKey> gone;
    for (const auto& [key, object] : objects_) {
      // An own write newer than this state stays (invariant 2).
      if (!incoming_.contains(key) && object->revision <= revision) {
        gone.push_back(key);
      }
    }
    for (const kube::ObjectKey& key : gone) {
      Erase(key, &changes);
    }
    std::unordered_set<std::string> ghosts;
    for (auto& [key, object] : incoming_) {
      if (ghosts_.contains(object->uid)) {
        ghosts.insert(object->uid);
        continue;
      }
      const auto found = objects_.find(key);
      if (found != objects_.end() && object->revision != 0 &&
          found->second->revision >= object->revision) {
        continue;
      }
      Store(std::move(object), &changes);
    }
    ghosts_ = std::move(ghosts);
    seen_revision_ = revision;
    resume_version_ = std::move(resource_version);
    incoming_.clear();
    again = synced_.exchange(true, std::memory_order_acq_rel);
  }
  synced_changed_.NotifyAll();
  Notify(changes);
  if (again && options_.on_relist) {
    options_.on_relist();
  }
}

void Informer::ApplyEvent(bool deleted, ObjectPtr object) {
  std::vector<Change> changes;
  const bool kept = !options_.keep || options_.keep(*object);
  {
    MutexLock lock(mutex_);
    seen_revision_ = std::max(seen_revision_, object->revision);
    const auto found = objects_.find(object->key);
    if (deleted) {
      if (ghosts_.erase(object->uid) > 0) {
        return;
      }
      if (found != objects_.end() && found->second->uid == object->uid) {
        Erase(kube::ObjectKey(object->key), &changes);
      } else if (options_.keep) {
        changes.push_back({std::move(object), nullptr});
      }
    } else if (!kept) {
      if (found != objects_.end()) {
        Erase(kube::ObjectKey(object->key), &changes);
        changes.back().after = std::move(object);
      } else {
        changes.push_back({nullptr, std::move(object)});
      }
    } else {
      if (ghosts_.contains(object->uid) || (found != objects_.end() && object->revision != 0 &&
                                            found->second->revision >= object->revision)) {
        return;
      }
      Store(std::move(object), &changes);
    }
  }
  Notify(changes);
}

void Informer::Store(ObjectPtr object, std::vector<Change>* changes) {
  ObjectPtr& slot = objects_[object->key];
  if (slot) {
    IndexOne(slot, false);
  }
  changes->push_back({slot, object});
  slot = std::move(object);
  IndexOne(slot, true);
}

void Informer::Erase(const kube::ObjectKey& key, std::vector<Change>* changes) {
  const auto found = objects_.find(key);
  if (found == objects_.end()) {
    return;
  }
  IndexOne(found->second, false);
  changes->push_back({found->second, nullptr});
  objects_.erase(found);
}

void Informer::IndexOne(const ObjectPtr& object, bool add) {
  for (auto& [name, index] : indexes_) {
    for (const std::string& value : index.function(*object)) {
      if (add) {
        index.entries[value][object->key] = object;
      } else if (const auto found = index.entries.find(value); found != index.entries.end()) {
        found->second.erase(object->key);
        if (found->second.empty()) {
          index.entries.erase(found);
        }
      }
    }
  }
}

void Informer::Notify(const std::vector<Change>& changes) {
  if (changes.empty()) {
    return;
  }
  std::vector<std::shared_ptr<const Handler>> handlers;
  {
    MutexLock lock(mutex_);
    handlers = handlers_;
  }
  for (const Change& change : changes) {
    for (const auto& handler : handlers) {
      (*handler)(change.before, change.after);
    }
  }
}

void Informer::CloseStream() {
  std::shared_ptr<Stream> stream;
  {
    MutexLock lock(mutex_);
    stream = std::move(stream_);
  }
  if (stream) {
    stream->Close();
  }
}

}  // namespace sublet::client
