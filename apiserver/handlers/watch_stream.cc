#include "apiserver/handlers/watch_stream.h"

#include <map>
#include <nlohmann/json.hpp>

#include "apiserver/handlers/fresh_trees.h"
#include "apiserver/registry/json_scan.h"
#include "base/mutex.h"
#include "base/random.h"

namespace sublet::apiserver {
namespace {

constexpr std::size_t kEventsPerPull = 256;
constexpr auto kBookmarkEvery = std::chrono::seconds(60);
// The last bookmark leaves this long before the end.
constexpr auto kBookmarkBeforeEnd = std::chrono::seconds(2);

// Encodings of one event beyond its bytes, by form; shared by all its watchers.
class DerivedForms final : public storage::Attachment {
 public:
  std::shared_ptr<const std::string> Get(const std::string& form,
                                         const std::function<std::string()>& make) const {
    MutexLock lock(mutex_);
    auto& text = forms_[form];
    if (text == nullptr) {
      text = std::make_shared<const std::string>(make());
    }
    return text;
  }

 private:
  mutable Mutex mutex_;
  mutable std::map<std::string, std::shared_ptr<const std::string>> forms_
      SUBLET_GUARDED_BY(mutex_);
};

std::shared_ptr<const DerivedForms> FormsOf(const storage::Event& event) {
  auto slot = event.derived.Load();
  if (slot == nullptr) {
    slot = event.derived.Put(std::make_shared<DerivedForms>());
  }
  return std::static_pointer_cast<const DerivedForms>(slot);
}

std::string FormKey(const Resource& resource, const OutputForm& form) {
  return resource.ApiVersion() + "|" + form.meta_version + "|" +
         std::to_string(static_cast<int>(form.include));
}

std::string_view FramePrefix(std::string_view type) {
  if (type == "ADDED") {
    return "{\"type\":\"ADDED\",\"object\":";
  }
  if (type == "MODIFIED") {
    return "{\"type\":\"MODIFIED\",\"object\":";
  }
  return "{\"type\":\"DELETED\",\"object\":";
}

}  // namespace

// What store and timer call. Outlives the stream inside callbacks that are just being run.
struct WatchStream::Waker {
  Mutex mutex;
  std::function<void()> wake SUBLET_GUARDED_BY(mutex);

  void Wake() {
    std::function<void()> call;
    {
      MutexLock lock(mutex);
      call = wake;
    }
    if (call) {
      call();
    }
  }
};

WatchStream::WatchStream(CallPtr call, WatchPlan plan)
    : call_(std::move(call)),
      plan_(std::move(plan)),
      writer_(*call_->resource, call_->form, call_->context->clock->Now()),
      waker_(std::make_shared<Waker>()),
      takes_trees_(call_->request->loopback && call_->context->fresh_trees != nullptr) {
  if (takes_trees_) {
    call_->context->fresh_trees->Join(call_->type());
  }
  if (plan_.bookmarks) {
    // Spread, so that a thousand watches opened together do not all wake at once.
    next_bookmark_ = std::chrono::steady_clock::now() + kBookmarkEvery +
                     std::chrono::milliseconds(RandomUint64() % 5000);
  }
}

WatchStream::~WatchStream() {
  if (takes_trees_) {
    call_->context->fresh_trees->Leave(call_->type());
  }
  call_->context->timers->Cancel(timer_);
  subscription_.reset();
  MutexLock lock(waker_->mutex);
  waker_->wake = nullptr;
}

Result<void> WatchStream::Open() {
  storage::WatchOptions options;
  options.prefix = plan_.prefix;
  options.after = plan_.after;
  options.on_ready = [waker = waker_] { waker->Wake(); };
  SUBLET_TRY(subscription_, call_->context->store->Watch(std::move(options)));
  return Ok();
}

void WatchStream::Start(std::function<void()> wake) {
  MutexLock lock(waker_->mutex);
  waker_->wake = std::move(wake);
}

bool WatchStream::Matches(const std::string& key, const storage::ValuePtr& value) const {
  return value != nullptr && (plan_.selection.empty() || plan_.selection.Matches(key, *value));
}

// What the writer of a live event had in hand, for a reader of this process.
std::shared_ptr<const kube::Json> WatchStream::FreshTree(const storage::Value& value,
                                                         const storage::Event* event) const {
  if (!takes_trees_ || event == nullptr || event->type == storage::EventType::kDelete ||
      !writer_.IsVerbatim(value)) {
    return nullptr;
  }
  return call_->context->fresh_trees->Find(value);
}

void WatchStream::AppendFrame(std::vector<Body::Piece>& out, std::string_view type,
                              const storage::ValuePtr& value, const storage::Event* event) {
  const std::shared_ptr<const kube::Json> tree = FreshTree(*value, event);
  PieceSink sink(out);
  sink.Literal(FramePrefix(type));
  if (call_->form.as == OutputForm::As::kTable && event != nullptr && !first_frame_) {
    auto text = FormsOf(*event)->Get(FormKey(*call_->resource, call_->form), [&] {
      return writer_.EncodeTree(writer_.TreeOf(*value), false);
    });
    const std::string_view view = *text;
    sink.Shared(std::move(text), view);
  } else {
    writer_.Object(sink, value, first_frame_);
  }
  if (tree != nullptr) {
    out.back().decoded = tree;  // the piece that holds the whole object
  }
  first_frame_ = false;
  sink.Literal("}\n");
}

void WatchStream::AppendEvent(std::vector<Body::Piece>& out, const storage::Event& event) {
  if (event.type == storage::EventType::kDelete) {
    if (Matches(event.key, event.previous != nullptr ? event.previous : event.value)) {
      AppendFrame(out, "DELETED", event.value, &event);
    }
    return;
  }
  const bool matches = Matches(event.key, event.value);
  const bool matched =
      event.type == storage::EventType::kUpdate && Matches(event.key, event.previous);
  if (matches) {
    AppendFrame(out, matched ? "MODIFIED" : "ADDED", event.value, &event);
  } else if (matched) {
    PieceSink sink(out);
    sink.Literal(FramePrefix("DELETED"));
    writer_.ObjectAt(sink, event.previous, event.revision);
    sink.Literal("}\n");
    first_frame_ = false;
  }
}

void WatchStream::AppendBookmark(std::vector<Body::Piece>& out, storage::Revision revision,
                                 bool initial_end) {
  kube::Json metadata = {{"resourceVersion", std::to_string(revision)},
                         {"creationTimestamp", nullptr}};
  if (initial_end) {
    metadata["annotations"] = {{"k8s.io/initial-events-end", "true"}};
  }
  kube::Json object = {{"metadata", std::move(metadata)}};
  switch (call_->form.as) {
    case OutputForm::As::kObject:
      object["kind"] = call_->resource->kind_name();
      object["apiVersion"] = call_->resource->ApiVersion();
      break;
    case OutputForm::As::kPartial:
      object["kind"] = "PartialObjectMetadata";
      object["apiVersion"] = "meta.k8s.io/" + call_->form.meta_version;
      break;
    case OutputForm::As::kTable: {
      object["kind"] = "PartialObjectMetadata";
      object["apiVersion"] = "meta.k8s.io/" + call_->form.meta_version;
      kube::Json cells = kube::Json::array();
      for (std::size_t i = 0; i < call_->strategy().Columns().size(); ++i) {
        cells.push_back("");
      }
      object = {{"kind", "Table"},
                {"apiVersion", "meta.k8s.io/" + call_->form.meta_version},
                {"metadata", {{"resourceVersion", std::to_string(revision)}}},
                {"columnDefinitions", nullptr},
                {"rows", {{{"cells", std::move(cells)}, {"object", std::move(object)}}}}};
      break;
    }
  }
  PieceSink(out).Own("{\"type\":\"BOOKMARK\",\"object\":" + kube::Dump(object) + "}\n");
}

// Bookmarks whose time has come; called only when all events so far were sent.
void WatchStream::AppendTimely(std::vector<Body::Piece>& out, MonotonicTime now) {
  if (!plan_.bookmarks || plan_.initial_bookmark) {
    return;
  }
  const bool near_end = plan_.end != MonotonicTime::max() && !last_bookmark_sent_ &&
                        now >= plan_.end - kBookmarkBeforeEnd;
  if (now < next_bookmark_ && !near_end) {
    return;
  }
  last_bookmark_sent_ = last_bookmark_sent_ || near_end;
  next_bookmark_ = now + kBookmarkEvery;
  AppendBookmark(out, std::max(subscription_->Progress(), plan_.after), false);
}

void WatchStream::ArmTimer(MonotonicTime now) {
  MonotonicTime next = plan_.end;
  if (plan_.bookmarks) {
    next = std::min(next, next_bookmark_);
    if (plan_.end != MonotonicTime::max() && !last_bookmark_sent_) {
      next = std::min(next, std::max(plan_.end - kBookmarkBeforeEnd, now));
    }
  }
  if (next == timer_at_ || next == MonotonicTime::max()) {
    return;
  }
  call_->context->timers->Cancel(timer_);
  timer_at_ = next;
  timer_ = call_->context->timers->Add(next, [waker = waker_] { waker->Wake(); });
}

ByteStream::State WatchStream::Pull(std::vector<Body::Piece>& out, std::size_t bytes_max) {
  std::size_t counted = out.size();
  std::size_t bytes = 0;
  const auto full = [&] {
    for (; counted < out.size(); ++counted) {
      bytes += out[counted].bytes.size();
    }
    return bytes >= bytes_max;
  };
  while (next_initial_ < plan_.initial.size()) {
    AppendFrame(out, "ADDED", plan_.initial[next_initial_++].value, nullptr);
    if (full()) {
      return State::kMore;
    }
  }
  if (plan_.initial_bookmark) {
    plan_.initial_bookmark = false;
    AppendBookmark(out, plan_.after, true);
  }
  plan_.initial = {};
  next_initial_ = 0;
  const auto now = std::chrono::steady_clock::now();
  while (true) {
    while (next_event_ < events_.size()) {
      AppendEvent(out, *events_[next_event_++]);
      if (full()) {
        return State::kMore;
      }
    }
    events_.clear();
    next_event_ = 0;
    const auto pulled = subscription_->Pull(events_, kEventsPerPull);
    if (!pulled.ok()) {
      return State::kEnd;  // fell behind: invariant 2
    }
    if (*pulled == 0) {
      break;
    }
  }
  AppendTimely(out, now);
  if (now >= plan_.end) {
    return State::kEnd;
  }
  ArmTimer(now);
  return State::kWait;
}

}  // namespace sublet::apiserver
