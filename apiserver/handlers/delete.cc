#include "apiserver/handlers/delete.h"

#include <nlohmann/json.hpp>

#include "apiserver/handlers/body.h"
#include "apiserver/handlers/delete_object.h"
#include "apiserver/handlers/respond.h"
#include "apiserver/handlers/verbs.h"

namespace sublet::apiserver {

Result<DeleteOptions> ReadDeleteOptions(const Call& call) {
  if (call.request->body.empty()) {
    return ParseDeleteOptions(*call.request, nullptr);
  }
  SUBLET_TRY(const RawBody raw, ParseBody(call, false));
  const auto kind = kube::FindString(raw.tree, {"kind"});
  if (!kind.empty() && kind != "DeleteOptions") {
    return BadRequest("no kind \"" + std::string(kind) + "\" is registered for version \"" +
                      std::string(kube::FindString(raw.tree, {"apiVersion"}, "v1")) +
                      "\" in scheme \"pkg/api/legacyscheme/scheme.go:30\"");
  }
  return ParseDeleteOptions(*call.request, &raw.tree);
}

void AnswerDelete(Call& call, const DeleteOptions& options, Result<DeleteOutcome> result,
                  std::string_view name) {
  if (!result.ok()) {
    return SendError(call, result.error());
  }
  if (result->removed && !call.resource->returns_deleted_object) {
    return SendDeleted(call, name, result->uid);
  }
  // 202 only for clients that asked in the old way and must wait.
  const int code =
      !result->removed && options.orphan_dependents.has_value() && !*options.orphan_dependents
          ? 202
          : 200;
  if (result->tree != nullptr) {
    return SendTree(call, code, *result->tree);
  }
  SendValue(call, code, result->value);
}

void HandleDelete(CallPtr call) {
  const auto options = ReadDeleteOptions(*call);
  if (!options.ok()) {
    return SendError(*call, options.error());
  }
  auto job = std::make_shared<DeleteJob>();
  job->call = call;
  job->name = call->name();
  job->namespace_name = call->namespace_name();
  job->options = *options;
  job->done = [call, options = *options, at = std::weak_ptr(job)](Result<DeleteOutcome> result) {
    if (const auto ended = at.lock()) {
      for (auto& text : ended->warnings) {
        call->Warn(std::move(text));
      }
    }
    AnswerDelete(*call, options, std::move(result), call->name());
  };
  RunDelete(std::move(job));
}

}  // namespace sublet::apiserver
