#include "client/events.h"

#include <pthread.h>

#include <nlohmann/json.hpp>

#include "base/log.h"
#include "kube/object.h"
#include "kube/timestamp.h"

namespace sublet::client {
namespace {

using kube::Json;

constexpr std::size_t kQueueMax = 1000;
constexpr std::size_t kKeysMax = 4096;
constexpr std::size_t kMessageBytesMax = 1024;
constexpr int kSimilarMax = 10;  // different messages before they are combined
constexpr std::chrono::minutes kSimilarTime{10};
constexpr double kBurst = 25;
constexpr double kRefillPerSecond = 1.0 / 300;
constexpr std::chrono::seconds kStopTime{5};

std::string HexOf(std::int64_t value) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  for (int shift = 60; shift >= 0; shift -= 4) {
    const auto digit = static_cast<std::size_t>(value >> shift) & 15;
    if (digit != 0 || !out.empty()) {
      out += kDigits[digit];
    }
  }
  return out;
}

// Forgets everything when too much is remembered: folding starts anew, nothing is lost.
template <typename Map>
void Bound(Map* map) {
  if (map->size() >= kKeysMax) {
    map->clear();
  }
}

}  // namespace

EventTarget EventTargetOf(const Json& object, std::string_view api_version, std::string_view kind) {
  EventTarget out;
  out.api_version = kube::FindString(object, {"apiVersion"}, api_version);
  out.kind = kube::FindString(object, {"kind"}, kind);
  out.namespace_name = kube::NamespaceOf(object);
  out.name = kube::NameOf(object);
  out.uid = kube::UidOf(object);
  out.resource_version = kube::ResourceVersionOf(object);
  return out;
}

EventRecorder::EventRecorder(Client client, std::string component, std::string host,
                             const Clock& clock)
    : client_(client.WithTimeout(kStopTime)),
      component_(std::move(component)),
      host_(std::move(host)),
      clock_(clock) {}

EventRecorder::~EventRecorder() { Stop(); }

void EventRecorder::Event(const EventTarget& target, std::string_view type, std::string_view reason,
                          std::string_view message) {
  Enqueue({target, component_, std::string(type), std::string(reason), std::string(message),
           clock_.Now()});
}

EventRecorder::Source EventRecorder::As(std::string component) {
  return Source(*this, std::move(component));
}

void EventRecorder::Source::Event(const EventTarget& target, std::string_view type,
                                  std::string_view reason, std::string_view message) const {
  recorder_->Enqueue({target, component_, std::string(type), std::string(reason),
                      std::string(message), recorder_->clock_.Now()});
}

void EventRecorder::Enqueue(Item item) {
  if (item.message.size() > kMessageBytesMax) {
    item.message.resize(kMessageBytesMax);
  }
  {
    MutexLock lock(mutex_);
    if (stopped_ || queue_.size() >= kQueueMax) {
      ++dropped_;
      return;
    }
    queue_.push_back(std::move(item));
    if (!running_) {
      running_ = true;
      thread_ = std::thread([this] {
        pthread_setname_np(pthread_self(), "events");
        Run();
      });
    }
  }
  wake_.NotifyOne();
}

void EventRecorder::Stop() {
  {
    MutexLock lock(mutex_);
    if (stopped_) {
      return;
    }
    stopped_ = true;
    stop_deadline_ = After(kStopTime);
  }
  wake_.NotifyAll();
  if (thread_.joinable()) {
    thread_.join();
  }
}

std::int64_t EventRecorder::dropped() const {
  MutexLock lock(mutex_);
  return dropped_;
}

void EventRecorder::Run() {
  for (;;) {
    Item item;
    {
      MutexLock lock(mutex_);
      while (queue_.empty() && !stopped_) {
        wake_.Wait(mutex_);
      }
      if (queue_.empty() || std::chrono::steady_clock::now() >= stop_deadline_) {
        dropped_ += static_cast<std::int64_t>(queue_.size());
        return;
      }
      item = std::move(queue_.front());
      queue_.pop_front();
    }
    Write(std::move(item));
  }
}

bool EventRecorder::Allowed(const Item& item) {
  Bound(&buckets_);
  const auto [found, added] =
      buckets_.try_emplace(item.component + "|" + item.target.uid + "|" + item.target.name);
  Bucket& bucket = found->second;
  if (!added) {
    const std::chrono::duration<double> passed = item.time - bucket.last;
    bucket.tokens = std::min(kBurst, bucket.tokens + passed.count() * kRefillPerSecond);
  }
  bucket.last = item.time;
  if (bucket.tokens < 1) {
    return false;
  }
  bucket.tokens -= 1;
  return true;
}

// The key under which this event is counted; many similar messages get one key and a marked text.
std::string EventRecorder::Fold(Item* item) {
  const EventTarget& target = item->target;
  const std::string group = item->component + "|" + target.kind + "|" + target.namespace_name +
                            "|" + target.name + "|" + target.uid + "|" + target.field_path + "|" +
                            item->type + "|" + item->reason;
  Bound(&similar_);
  Similar& similar = similar_[group];
  if (item->time - similar.since > kSimilarTime) {
    similar.messages.clear();
    similar.since = item->time;
  }
  similar.messages.try_emplace(item->message, 0);
  if (similar.messages.size() > kSimilarMax) {
    item->message = "(combined from similar events): " + item->message;
    return group;
  }
  return group + "|" + item->message;
}

void EventRecorder::Write(Item item) {
  if (!Allowed(item)) {
    MutexLock lock(mutex_);
    ++dropped_;
    return;
  }
  const std::string key = Fold(&item);
  const auto found = written_.find(key);
  if (found == written_.end()) {
    Create(item, key);
    return;
  }
  Written& written = found->second;
  ++written.count;
  const Json patch = {{"count", written.count},
                      {"message", item.message},
                      {"lastTimestamp", kube::FormatTime(item.time)}};
  const Target target{{"", "v1", "events"},
                      item.target.namespace_name.empty() ? "default" : item.target.namespace_name,
                      written.name,
                      ""};
  const auto patched = client_.Patch(target, PatchType::kMerge, patch, {.reads_answer = false});
  if (!patched.ok() && patched.error().Is(Reason::kNotFound)) {
    Create(item, key);  // it expired meanwhile
  }
}

void EventRecorder::Create(const Item& item, const std::string& key) {
  const std::string namespace_name =
      item.target.namespace_name.empty() ? "default" : item.target.namespace_name;
  const std::string now = kube::FormatTime(item.time);
  Json involved = {{"kind", item.target.kind}, {"name", item.target.name}};
  kube::PutString(&involved, "apiVersion", item.target.api_version);
  kube::PutString(&involved, "namespace", item.target.namespace_name);
  kube::PutString(&involved, "uid", item.target.uid);
  kube::PutString(&involved, "resourceVersion", item.target.resource_version);
  kube::PutString(&involved, "fieldPath", item.target.field_path);
  Json source = {{"component", item.component}};
  kube::PutString(&source, "host", host_);
  // Two events of one instant still need two names.
  last_stamp_ = std::max(last_stamp_ + 1, std::int64_t{item.time.time_since_epoch().count()});
  const std::string name = item.target.name + "." + HexOf(last_stamp_);
  const Json event = {{"apiVersion", "v1"},
                      {"kind", "Event"},
                      {"metadata", {{"name", name}, {"namespace", namespace_name}}},
                      {"involvedObject", std::move(involved)},
                      {"reason", item.reason},
                      {"message", item.message},
                      {"source", std::move(source)},
                      {"firstTimestamp", now},
                      {"lastTimestamp", now},
                      {"count", 1},
                      {"type", item.type},
                      {"reportingComponent", item.component},
                      {"reportingInstance", host_}};
  const auto created = client_.Create({{"", "v1", "events"}, namespace_name, "", ""}, event,
                                      {.reads_answer = false});
  if (created.ok()) {
    Bound(&written_);
    written_[key] = {name, 1, now, item.time};
  } else if (!created.error().Is(Reason::kNotFound) && !created.error().Is(Reason::kForbidden)) {
    // A namespace that is going away refuses events: normal, and silent.
    log::Debug("event not written", {{"reason", item.reason}, {"error", created.error()}});
  }
}

}  // namespace sublet::client
