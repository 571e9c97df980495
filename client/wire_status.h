// The Status a server sent, from its HTTP answer or from an ERROR frame of a watch.
// Used by client.cc and by every Transport. Threads: any.
#pragma once

#include <string_view>

#include "base/status.h"
#include "client/transport.h"
#include "kube/json.h"

namespace sublet::client {

// The error that `response` (code >= 400) carries: the Status object of its body, or one made of the
// code and the first kilobyte of the text when the body is something else (a proxy's page).
Status StatusOfResponse(const HttpResponse& response);

// The same from a decoded Status object.
Status StatusOfJson(const kube::Json& object, int code_fallback);

}  // namespace sublet::client
