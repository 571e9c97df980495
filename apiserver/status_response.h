// StatusResponse: an error as the metav1.Status body that every client understands, written without
// a JSON tree. Threads: any. Source: k8s.io/apimachinery metav1.Status field order.
#pragma once

#include "apiserver/response.h"
#include "base/status.h"

namespace sublet::apiserver {

// The JSON text of `status` with a final newline, as kube-apiserver sends it.
std::string StatusJson(const Status& status);
// 4xx or 5xx with that body; adds Retry-After where the status carries it.
Response StatusResponse(const Status& status);

// Appends `text` as a JSON string with quotes; invalid UTF-8 becomes U+FFFD.
void AppendJsonString(std::string& out, std::string_view text);

}  // namespace sublet::apiserver
