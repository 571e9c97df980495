// Answers: the one place where a handler's result becomes a Response in the negotiated form.
// Threads: any; each sends the Call's only answer. A call that was answered must not be used again.
#pragma once

#include <string_view>

#include "apiserver/handlers/api_context.h"
#include "apiserver/handlers/object_writer.h"
#include "base/status.h"

namespace sublet::apiserver {

void SendError(Call& call, const Status& status, std::string_view continue_token = "");
// A published object.
void SendValue(Call& call, int code, const storage::ValuePtr& value);
// An object that is only a tree (dry run, reviews), already in the served version.
void SendTree(Call& call, int code, const kube::Json& tree);
// A finished delete.
void SendDeleted(Call& call, std::string_view name, std::string_view uid);
// JSON text made of pieces (lists). `pieces` are moved out.
void SendPieces(Call& call, int code, std::vector<Body::Piece> pieces);
// Any text as it stands.
void SendText(Call& call, int code, std::string content_type, std::string text);

// Puts the collected warnings into Warning headers; part of all of the above, public for streams.
void AddWarnings(const Call& call, Response& response);

}  // namespace sublet::apiserver
