#include "apiserver/handlers/options.h"
#include "apiserver/handlers/read_common.h"
#include "apiserver/handlers/respond.h"
#include "apiserver/handlers/verbs.h"

namespace sublet::apiserver {

Status TooLargeResourceVersion(storage::Revision asked, storage::Revision current) {
  Status status(Reason::kTimeout, HttpCode(Reason::kTimeout),
                "Timeout: Too large resource version: " + std::to_string(asked) +
                    ", current: " + std::to_string(current));
  StatusDetails details;
  details.retry_after_seconds = 1;
  details.causes.push_back({"ResourceVersionTooLarge", "Too large resource version", ""});
  return std::move(status).With(std::move(details));
}

Result<void> CheckNotInFuture(const storage::Store& store, storage::Revision revision) {
  const auto current = store.CurrentRevision();
  if (revision > current) {
    return TooLargeResourceVersion(revision, current);
  }
  return Ok();
}

void HandleGet(CallPtr call) {
  const auto& store = *call->context->store;
  const auto revision = ParseResourceVersion(call->request->query.Get("resourceVersion"));
  if (!revision.ok()) {
    constexpr std::string_view kListPrefix = "invalid resource version: ";
    return SendError(*call, Status(Reason::kUnknown, 500,
                                   revision.error().message().substr(kListPrefix.size())));
  }
  if (const auto reached = CheckNotInFuture(store, *revision); !reached.ok()) {
    return SendError(*call, reached.error());
  }
  const auto record = store.Get(call->Key());
  if (!record) {
    return SendError(*call, NotFound(call->resource->Name(), call->name()));
  }
  SendValue(*call, 200, record->value);
}

}  // namespace sublet::apiserver
