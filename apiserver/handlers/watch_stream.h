// WatchStream: the bytes of one watch, pulled by the transport: initial objects, live events,
// bookmarks, the end. Plain JSON events are three pieces around the published buffer, so a thousand
// watchers share one encoding; tables are encoded once per event and shared through it.
//
// Invariants
//  1. Frames leave in revision order; a bookmark's revision is never above the next event's.
//  2. A watcher that falls behind storage's bound is ended cleanly: the client comes back with the
//     last revision it saw.
// Threads: Pull and Start on the connection's thread; wake-ups come from the store's publisher and
// the timer thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "apiserver/handlers/api_context.h"
#include "apiserver/handlers/object_writer.h"
#include "apiserver/handlers/options.h"
#include "apiserver/handlers/selection.h"
#include "apiserver/handlers/timer_queue.h"

namespace sublet::apiserver {

struct WatchPlan {
  std::string prefix;
  std::vector<storage::Record> initial;  // sent as ADDED first
  storage::Revision after = 0;           // live events after it
  bool bookmarks = false;
  bool initial_bookmark = false;  // WatchList: mark the end of the initial objects
  MonotonicTime end = MonotonicTime::max();
  Selection selection;
};

class WatchStream final : public ByteStream {
 public:
  // `call` lives as long as the stream: it keeps the resource alive. Its responder is not used.
  WatchStream(CallPtr call, WatchPlan plan);
  ~WatchStream() override;

  // Errors: Expired (plan.after is before the horizon). Called once, before the stream is sent.
  Result<void> Open();

  State Pull(std::vector<Body::Piece>& out, std::size_t bytes_max) override;
  void Start(std::function<void()> wake) override;

 private:
  struct Waker;

  std::shared_ptr<const kube::Json> FreshTree(const storage::Value& value,
                                              const storage::Event* event) const;
  void AppendEvent(std::vector<Body::Piece>& out, const storage::Event& event);
  void AppendFrame(std::vector<Body::Piece>& out, std::string_view type,
                   const storage::ValuePtr& value, const storage::Event* event);
  void AppendBookmark(std::vector<Body::Piece>& out, storage::Revision revision, bool initial_end);
  void AppendTimely(std::vector<Body::Piece>& out, MonotonicTime now);
  void ArmTimer(MonotonicTime now);
  bool Matches(const std::string& key, const storage::ValuePtr& value) const;

  const CallPtr call_;
  WatchPlan plan_;
  ObjectWriter writer_;
  std::shared_ptr<Waker> waker_;
  const bool takes_trees_;  // a watch of this process
  std::unique_ptr<storage::Subscription> subscription_;
  std::size_t next_initial_ = 0;
  std::vector<storage::EventPtr> events_;
  std::size_t next_event_ = 0;
  bool first_frame_ = true;
  bool last_bookmark_sent_ = false;
  MonotonicTime next_bookmark_ = MonotonicTime::max();
  TimerQueue::Id timer_ = 0;
  MonotonicTime timer_at_ = MonotonicTime::max();
};

}  // namespace sublet::apiserver
