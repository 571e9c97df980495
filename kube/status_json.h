// Status (base/status.h) as the metav1.Status object on the wire, both ways.
#pragma once

#include <string_view>

#include "base/result.h"
#include "kube/json.h"

namespace sublet::kube {

// {"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure",...}. Threads: any.
Json StatusToJson(const Status& status);
// The Status that a server sent. `http_code` counts when the body names none.
Status StatusFromJson(const Json& body, int http_code);
// The same from the raw answer: a body that is no Status becomes the message, its reason is the one
// that belongs to the code.
Status StatusFromBody(std::string_view body, int http_code);
// The answer to a finished delete: status Success with details{name, group, kind = resource, uid}.
Json SuccessStatus(const ResourceName& what, std::string_view name, std::string_view uid);

}  // namespace sublet::kube
