// MemoryServer: the least an informer and a reconciler can be tried on without the API server:
// generic create, get, list, update, merge patch, delete and watch with resourceVersions, no
// validation, no defaults, no admission. What needs those is tested on the real pipeline.
// Threads: any.
#pragma once

#include <deque>
#include <map>
#include <set>

#include "base/mutex.h"
#include "client/transport.h"
#include "kube/json.h"

namespace sublet::client::testing {

class MemoryServer final : public Transport, public std::enable_shared_from_this<MemoryServer> {
 public:
  struct Options {
    bool watch_list = true;  // false: answers 422 to sendInitialEvents
    // Answers sendInitialEvents with an ERROR event, as upstream does before an old etcd.
    bool watch_list_ends = false;
    // The initial events are followed by the deletion of each object, before the end of the initial ones.
    bool gone_at_once = false;
    bool notifies = true;  // streams support NotifyWhenReady
  };
  MemoryServer() = default;
  explicit MemoryServer(Options options) : options_(options) {}

  Result<HttpResponse> RoundTrip(const HttpRequest& request) override;
  Result<std::unique_ptr<Stream>> OpenStream(const HttpRequest& request) override;
  Result<std::unique_ptr<Tunnel>> OpenTunnel(const HttpRequest& request) override;

  // The next `count` requests are answered with `response` instead.
  void FailNext(int count, HttpResponse response);
  // Ends every open watch; with `expired`, older resourceVersions are answered 410 from now on.
  void CutWatches(bool expired);
  // Holds events back from watchers until Release, as a slow network would.
  void HoldEvents();
  void ReleaseEvents();
  int requests() const;

 private:
  friend class MemoryStream;
  struct Path;
  struct Event {
    std::int64_t revision;
    std::string collection;
    std::string namespace_name;
    Chunk frame;
  };
  HttpResponse Handle(const HttpRequest& request) SUBLET_REQUIRES(mutex_);
  HttpResponse Write(const Path& path, kube::Json object, const kube::Json* before)
      SUBLET_REQUIRES(mutex_);
  HttpResponse Remove(const Path& path, kube::Json object) SUBLET_REQUIRES(mutex_);
  HttpResponse List(const Path& path) SUBLET_REQUIRES(mutex_);
  void Publish(const Path& path, const char* type, const kube::Json& object)
      SUBLET_REQUIRES(mutex_);
  std::vector<std::function<void()>> Wakeups() SUBLET_REQUIRES(mutex_);

  const Options options_{};
  mutable Mutex mutex_;
  CondVar changed_;
  std::int64_t revision_ SUBLET_GUARDED_BY(mutex_) = 100;
  std::int64_t oldest_ SUBLET_GUARDED_BY(mutex_) = 0;
  std::int64_t visible_ SUBLET_GUARDED_BY(mutex_) = INT64_MAX;
  int requests_ SUBLET_GUARDED_BY(mutex_) = 0;
  int fail_count_ SUBLET_GUARDED_BY(mutex_) = 0;
  int generation_ SUBLET_GUARDED_BY(mutex_) = 0;  // of watches; CutWatches raises it
  HttpResponse fail_response_ SUBLET_GUARDED_BY(mutex_);
  // collection path without namespace -> "ns/name" -> object
  std::map<std::string, std::map<std::string, kube::Json>> objects_ SUBLET_GUARDED_BY(mutex_);
  std::deque<Event> events_ SUBLET_GUARDED_BY(mutex_);
  std::set<class MemoryStream*> streams_ SUBLET_GUARDED_BY(mutex_);
};

}  // namespace sublet::client::testing
