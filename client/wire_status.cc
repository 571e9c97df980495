#include "client/wire_status.h"

#include <charconv>
#include <nlohmann/json.hpp>
#include <string>

namespace sublet::client {
namespace {

// What a code means when no reason was sent.  Source: k8s apimachinery NewGenericServerResponse.
Reason ReasonOfCode(int code) {
  switch (code) {
    case 400: return Reason::kBadRequest;
    case 401: return Reason::kUnauthorized;
    case 403: return Reason::kForbidden;
    case 404: return Reason::kNotFound;
    case 405: return Reason::kMethodNotAllowed;
    case 406: return Reason::kNotAcceptable;
    case 409: return Reason::kConflict;
    case 410: return Reason::kGone;
    case 413: return Reason::kRequestEntityTooLarge;
    case 415: return Reason::kUnsupportedMediaType;
    case 422: return Reason::kInvalid;
    case 429: return Reason::kTooManyRequests;
    case 503: return Reason::kServiceUnavailable;
    case 504: return Reason::kTimeout;
    default: return code >= 500 ? Reason::kInternalError : Reason::kUnknown;
  }
}

StatusDetails DetailsOfJson(const kube::Json& details) {
  StatusDetails out;
  out.name = kube::FindString(details, {"name"});
  out.group = kube::FindString(details, {"group"});
  out.kind = kube::FindString(details, {"kind"});
  out.uid = kube::FindString(details, {"uid"});
  out.retry_after_seconds = static_cast<int>(kube::FindInt(details, {"retryAfterSeconds"}));
  if (const kube::Json* causes = kube::Find(details, {"causes"}); causes && causes->is_array()) {
    for (const kube::Json& cause : *causes) {
      out.causes.push_back({std::string(kube::FindString(cause, {"reason"})),
                            std::string(kube::FindString(cause, {"message"})),
                            std::string(kube::FindString(cause, {"field"}))});
    }
  }
  return out;
}

}  // namespace

Status StatusOfJson(const kube::Json& object, int code_fallback) {
  const int code = static_cast<int>(kube::FindInt(object, {"code"}, code_fallback));
  Reason reason = ReasonFromName(kube::FindString(object, {"reason"}));
  if (reason == Reason::kUnknown) {
    reason = ReasonOfCode(code);
  }
  Status status(reason, code, std::string(kube::FindString(object, {"message"})));
  if (const kube::Json* details = kube::Find(object, {"details"}); details && details->is_object()) {
    return std::move(status).With(DetailsOfJson(*details));
  }
  return status;
}

Status StatusOfResponse(const HttpResponse& response) {
  if (auto body = kube::ParseJson(response.body);
      body.ok() && kube::FindString(*body, {"kind"}) == "Status") {
    return StatusOfJson(*body, response.code);
  }
  std::string text = response.body.substr(0, 1024);
  if (text.empty()) {
    text = "the server answered with HTTP code " + std::to_string(response.code);
  }
  Status status(ReasonOfCode(response.code), response.code, std::move(text));
  int seconds = 0;
  const std::string_view after = response.Header("Retry-After");
  std::from_chars(after.data(), after.data() + after.size(), seconds);
  if (seconds > 0) {
    return std::move(status).WithRetryAfter(seconds);
  }
  return status;
}

}  // namespace sublet::client
