// EventRecorder: Events about objects ("FailedScheduling", "SuccessfulCreate"), written in the
// background with the same folding as client-go: a repeated event raises `count` of the one there
// is, many similar ones become one "(combined from similar events): ...", a talkative source is cut
// off. Bounds: 1,000 waiting events (more are dropped and counted), 4,096 remembered keys. Source:
// client-go tools/record.
#pragma once

#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <thread>

#include "base/mutex.h"
#include "client/client.h"

namespace sublet::client {

// What an event is about.
struct EventTarget {
  std::string api_version;
  std::string kind;
  std::string namespace_name;
  std::string name;
  std::string uid;
  std::string resource_version;
  std::string field_path;  // "spec.containers{web}" or ""
};
// The target for a whole object. `api_version` and `kind` stand in for missing ones.
EventTarget EventTargetOf(const kube::Json& object, std::string_view api_version = "",
                          std::string_view kind = "");

class EventRecorder {
 public:
  // `component` is the source shown by kubectl describe ("deployment-controller"), `host` the
  // node's name or "".
  EventRecorder(Client client, std::string component, std::string host, const Clock& clock);
  ~EventRecorder();  // Stop

  // `type` is "Normal" or "Warning". Returns at once; never fails the caller. Threads: any.
  void Event(const EventTarget& target, std::string_view type, std::string_view reason,
             std::string_view message);
  // Writes what is queued (at most 5 s) and joins. Idempotent.
  void Stop();

  std::int64_t dropped() const;
  // The same recorder speaking for another component; shares queue and thread.
  // Lifetime: must not outlive this one.
  class Source;
  Source As(std::string component);

 private:
  struct Item {
    EventTarget target;
    std::string component;
    std::string type;
    std::string reason;
    std::string message;
    WallTime time;
  };
  // What was written under one key, so that a repetition patches it.
  struct Written {
    std::string name;
    std::int64_t count = 0;
    std::string first_time;
    WallTime last;
  };
  // Per (source, target, reason): how many different messages lately.
  struct Similar {
    std::map<std::string, int> messages;
    WallTime since;
  };
  // Token bucket per (source, target).
  struct Bucket {
    double tokens = 25;
    WallTime last;
  };
  void Enqueue(Item item);
  void Run();
  void Write(Item item);
  void Create(const Item& item, const std::string& key);
  bool Allowed(const Item& item);
  std::string Fold(Item* item);

  const Client client_;
  const std::string component_;
  const std::string host_;
  const Clock& clock_;

  mutable Mutex mutex_;
  CondVar wake_;
  std::deque<Item> queue_ SUBLET_GUARDED_BY(mutex_);
  bool stopped_ SUBLET_GUARDED_BY(mutex_) = false;
  bool running_ SUBLET_GUARDED_BY(mutex_) = false;
  std::int64_t dropped_ SUBLET_GUARDED_BY(mutex_) = 0;
  // The writer thread's ("events").
  std::map<std::string, Written> written_;
  std::map<std::string, Similar> similar_;
  std::map<std::string, Bucket> buckets_;
  std::int64_t last_stamp_ = 0;
  Deadline stop_deadline_ SUBLET_GUARDED_BY(mutex_) = Deadline::max();
  std::thread thread_;  // started with the first event
};

class EventRecorder::Source {
 public:
  Source(EventRecorder& recorder, std::string component)
      : recorder_(&recorder), component_(std::move(component)) {}
  void Event(const EventTarget& target, std::string_view type, std::string_view reason,
             std::string_view message) const;

 private:
  EventRecorder* recorder_;
  std::string component_;
};

}  // namespace sublet::client
