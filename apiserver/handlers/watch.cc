#include <nlohmann/json.hpp>
#include <optional>

#include "apiserver/handlers/read_common.h"
#include "apiserver/handlers/respond.h"
#include "apiserver/handlers/verbs.h"
#include "apiserver/handlers/watch_socket.h"
#include "apiserver/handlers/watch_stream.h"
#include "base/random.h"
#include "kube/json.h"
#include "kube/status_json.h"

namespace sublet::apiserver {
namespace {

// How long a watch lives when the client does not say: between this and twice this.
constexpr std::int64_t kDefaultSeconds = 1800;

// A stream of one ERROR frame: how a watch that cannot start is told to relist.
class ErrorStream final : public ByteStream {
 public:
  explicit ErrorStream(const Status& status)
      : frame_("{\"type\":\"ERROR\",\"object\":" + kube::Dump(kube::StatusToJson(status)) + "}\n") {
  }
  State Pull(std::vector<Body::Piece>& out, std::size_t) override {
    PieceSink(out).Own(std::move(frame_));
    return State::kEnd;
  }
  void Start(std::function<void()>) override {}

 private:
  std::string frame_;
};

Result<WatchPlan> MakePlan(const Call& call, const ListOptions& options) {
  const auto& store = *call.context->store;
  WatchPlan plan;
  std::string_view name = call.name();
  SUBLET_TRY(plan.selection,
             Selection::Parse(*call.resource, options.label_selector, options.field_selector));
  if (!name.empty()) {
    const auto selected = plan.selection.single_name();
    if (!options.field_selector.empty() && selected != name) {
      return BadRequest("fieldSelector metadata.name doesn't match requested name");
    }
    if (selected.empty()) {
      SUBLET_TRY(plan.selection, Selection::Parse(*call.resource, options.label_selector,
                                                  "metadata.name=" + std::string(name)));
    }
  }
  std::string_view namespace_name = call.namespace_name();
  if (namespace_name.empty()) {
    namespace_name = plan.selection.single_namespace();
  }
  plan.prefix = call.type().CollectionPrefix(namespace_name);
  if (!plan.selection.single_name().empty() &&
      (!namespace_name.empty() || !call.type().namespaced)) {
    plan.prefix = call.type().Key(namespace_name, plan.selection.single_name());
  }
  plan.bookmarks = options.bookmarks;
  const std::int64_t seconds =
      options.timeout_seconds > 0
          ? options.timeout_seconds
          : kDefaultSeconds + static_cast<std::int64_t>(RandomUint64() % kDefaultSeconds);
  plan.end = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
  const bool wants_initial = options.send_initial_events.value_or(options.revision == 0);
  if (!wants_initial) {
    plan.after = options.revision > 0 ? options.revision : store.CurrentRevision();
    return plan;
  }
  SUBLET_RETURN_IF_ERROR(CheckNotInFuture(store, options.revision));
  SUBLET_TRY(auto list, store.List(plan.prefix, "", 0, 0));
  plan.after = list.revision;
  plan.initial_bookmark = plan.bookmarks && options.send_initial_events.value_or(false);
  plan.initial = std::move(list.records);
  if (!plan.selection.empty()) {
    std::erase_if(plan.initial, [&](const storage::Record& record) {
      return !plan.selection.Matches(record.key, *record.value);
    });
  }
  return plan;
}

// The events as the answer's body, or behind a handshake as messages of a WebSocket.
void SendEvents(Responder& responder, Response head, const Response* handshake,
                std::unique_ptr<ByteStream> stream) {
  if (handshake == nullptr) {
    return responder.SendStream(std::move(head), std::move(stream));
  }
  std::shared_ptr<ByteStream> shared = std::move(stream);
  responder.SendUpgrade(
      *handshake, {[shared](RawConnection& connection) { RunWatchSocket(connection, *shared); }});
}

}  // namespace

void HandleWatch(CallPtr call) {
  std::optional<Response> handshake;
  if (WantsWebSocket(*call->request)) {
    auto accepted = AcceptWebSocket(*call->request);
    if (!accepted.ok()) {
      return SendError(*call, accepted.error());
    }
    handshake = std::move(*accepted);
  }
  const auto options = ParseListOptions(call->request->query);
  if (!options.ok()) {
    // A watch gives a bad revision its own code.
    constexpr std::string_view kListPrefix = "invalid resource version: ";
    const std::string& text = options.error().message();
    if (text.starts_with(kListPrefix)) {
      return SendError(*call, Status(Reason::kUnknown, 500, text.substr(kListPrefix.size())));
    }
    return SendError(*call, options.error());
  }
  auto plan = MakePlan(*call, *options);
  if (!plan.ok()) {
    return SendError(*call, plan.error());
  }
  Response head;
  head.content_type =
      call->form.stream_watch ? "application/json;stream=watch" : "application/json";
  AddWarnings(*call, head);
  // The answer leaves through the responder; the stream keeps the rest of the call alive.
  auto responder = std::move(call->responder);
  const auto asked = options->revision;
  auto stream = std::make_unique<WatchStream>(call, std::move(*plan));
  if (const auto opened = stream->Open(); !opened.ok()) {
    if (!opened.error().Is(Reason::kExpired)) {
      call->responder = std::move(responder);
      return SendError(*call, opened.error());
    }
    const auto oldest = call->context->store->CompactedRevision();
    SendEvents(
        *responder, std::move(head), handshake ? &*handshake : nullptr,
        std::make_unique<ErrorStream>(Expired("too old resource version: " + std::to_string(asked) +
                                              " (" + std::to_string(oldest) + ")")));
    return;
  }
  SendEvents(*responder, std::move(head), handshake ? &*handshake : nullptr, std::move(stream));
}

}  // namespace sublet::apiserver
