#include "apiserver/handlers/delete.h"
#include "apiserver/handlers/delete_object.h"
#include "apiserver/handlers/respond.h"
#include "apiserver/handlers/selection.h"
#include "apiserver/handlers/verbs.h"
#include "base/mutex.h"

namespace sublet::apiserver {
namespace {

// Deletes under way at once: enough to fill a group commit, few enough to leave room for others.
constexpr std::size_t kInFlightMax = 64;

// One deletecollection: what was found, and how far its deletion is.
class Sweep : public std::enable_shared_from_this<Sweep> {
 public:
  Sweep(CallPtr call, DeleteOptions options, storage::ListResult found)
      : call_(std::move(call)), options_(std::move(options)), found_(std::move(found)) {}

  // Starts deletions until the window is full. Threads: the pool's or the first caller's; never two
  // at once (pumping_).
  void Pump() SUBLET_EXCLUDES(mutex_) {
    while (true) {
      std::size_t index = 0;
      {
        MutexLock lock(mutex_);
        if (next_ >= found_.records.size() || failed_ || in_flight_ >= kInFlightMax) {
          pumping_ = false;
          break;
        }
        index = next_++;
        ++in_flight_;
      }
      Start(index);
    }
    FinishWhenDone();
  }

 private:
  void Start(std::size_t index) {
    const auto& record = found_.records[index];
    const auto parts = SplitKey(record.key, call_->type().prefix.size(), call_->type().namespaced);
    auto job = std::make_shared<DeleteJob>();
    job->call = call_;
    job->name = std::string(parts.name);
    job->namespace_name = std::string(parts.namespace_name);
    job->options = options_;
    job->done = [self = shared_from_this()](Result<DeleteOutcome> result) {
      self->Done(std::move(result));
    };
    RunDelete(std::move(job));
  }

  void Done(Result<DeleteOutcome> result) SUBLET_EXCLUDES(mutex_) {
    bool pump = false;
    {
      MutexLock lock(mutex_);
      --in_flight_;
      if (!result.ok() && !result.error().Is(Reason::kNotFound) && !failed_) {
        failed_ = true;
        error_ = std::make_unique<Status>(result.error());
      }
      pump =
          !pumping_ && !failed_ && next_ < found_.records.size() && in_flight_ <= kInFlightMax / 2;
      pumping_ = pumping_ || pump;
    }
    if (pump && !call_->context->offload([self = shared_from_this()] { self->Pump(); })) {
      MutexLock lock(mutex_);
      pumping_ = false;
      failed_ = true;
      error_ = std::make_unique<Status>(
          TooManyRequests("too many requests, please try again later.", 1));
    }
    FinishWhenDone();
  }

  void FinishWhenDone() SUBLET_EXCLUDES(mutex_) {
    {
      MutexLock lock(mutex_);
      const bool all = failed_ || next_ >= found_.records.size();
      if (answered_ || pumping_ || in_flight_ > 0 || !all) {
        return;
      }
      answered_ = true;
    }
    // Nobody else touches the sweep any more.
    if (error_ != nullptr) {
      return SendError(*call_, *error_);
    }
    const ObjectWriter writer(*call_->resource, call_->form, call_->context->clock->Now());
    std::vector<Body::Piece> pieces;
    PieceSink sink(pieces);
    sink.Own(writer.ListHead(found_.revision, "", 0));
    bool first = true;
    for (const auto& record : found_.records) {
      writer.ListItem(sink, record.value, first);
      first = false;
    }
    sink.Literal(writer.ListTail());
    SendPieces(*call_, 200, std::move(pieces));
  }

  const CallPtr call_;
  const DeleteOptions options_;
  const storage::ListResult found_;
  Mutex mutex_;
  std::size_t next_ SUBLET_GUARDED_BY(mutex_) = 0;
  std::size_t in_flight_ SUBLET_GUARDED_BY(mutex_) = 0;
  bool pumping_ SUBLET_GUARDED_BY(mutex_) = true;
  bool failed_ SUBLET_GUARDED_BY(mutex_) = false;
  bool answered_ SUBLET_GUARDED_BY(mutex_) = false;
  std::unique_ptr<Status> error_;  // written under mutex_, read by the one that answers
};

}  // namespace

void HandleDeleteCollection(CallPtr call) {
  const auto list = ParseListOptions(call->request->query);
  if (!list.ok()) {
    return SendError(*call, list.error());
  }
  const auto options = ReadDeleteOptions(*call);
  if (!options.ok()) {
    return SendError(*call, options.error());
  }
  const auto selection =
      Selection::Parse(*call->resource, list->label_selector, list->field_selector);
  if (!selection.ok()) {
    return SendError(*call, selection.error());
  }
  auto found =
      call->context->store->List(call->type().CollectionPrefix(call->namespace_name()), "", 0, 0);
  if (!found.ok()) {
    return SendError(*call, found.error());
  }
  if (!selection->empty()) {
    std::erase_if(found->records, [&](const storage::Record& record) {
      return !selection->Matches(record.key, *record.value);
    });
  }
  if (list->limit > 0 && found->records.size() > static_cast<std::size_t>(list->limit)) {
    found->records.resize(static_cast<std::size_t>(list->limit));
  }
  std::make_shared<Sweep>(std::move(call), *options, std::move(*found))->Pump();
}

}  // namespace sublet::apiserver
