#include "kube/status_json.h"

#include <nlohmann/json.hpp>

namespace sublet::kube {
namespace {

void PutText(Json* object, const char* key, std::string_view text) {
  if (!text.empty()) {
    (*object)[key] = std::string(text);
  }
}

Json DetailsToJson(const StatusDetails& details) {
  Json out = Json::object();
  PutText(&out, "name", details.name);
  PutText(&out, "group", details.group);
  PutText(&out, "kind", details.kind);
  PutText(&out, "uid", details.uid);
  for (const StatusCause& cause : details.causes) {
    Json one = Json::object();
    PutText(&one, "reason", cause.reason);
    PutText(&one, "message", cause.message);
    PutText(&one, "field", cause.field);
    out["causes"].push_back(std::move(one));
  }
  if (details.retry_after_seconds != 0) {
    out["retryAfterSeconds"] = details.retry_after_seconds;
  }
  return out;
}

StatusDetails DetailsFromJson(const Json& json) {
  StatusDetails details;
  details.name = FindString(json, {"name"});
  details.group = FindString(json, {"group"});
  details.kind = FindString(json, {"kind"});
  details.uid = FindString(json, {"uid"});
  details.retry_after_seconds = static_cast<int>(FindInt(json, {"retryAfterSeconds"}));
  if (const Json* causes = Find(json, {"causes"}); causes != nullptr && causes->is_array()) {
    for (const Json& cause : *causes) {
      details.causes.push_back({std::string(FindString(cause, {"reason"})),
                                std::string(FindString(cause, {"message"})),
                                std::string(FindString(cause, {"field"}))});
    }
  }
  return details;
}

// The reason that belongs to an HTTP code when the server named none.
Reason ReasonFromCode(int code) {
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
    case 500: return Reason::kInternalError;
    case 503: return Reason::kServiceUnavailable;
    case 504: return Reason::kTimeout;
    default: return Reason::kUnknown;
  }
}

}  // namespace

Json StatusToJson(const Status& status) {
  Json out = {{"kind", "Status"},
              {"apiVersion", "v1"},
              {"metadata", Json::object()},
              {"status", "Failure"},
              {"code", status.code()}};
  PutText(&out, "message", status.message());
  PutText(&out, "reason", ReasonName(status.reason()));
  if (status.has_details()) {
    out["details"] = DetailsToJson(status.details());
  }
  return out;
}

Status StatusFromJson(const Json& body, int http_code) {
  const auto code = static_cast<int>(FindInt(body, {"code"}, http_code));
  Reason reason = ReasonFromName(FindString(body, {"reason"}));
  if (reason == Reason::kUnknown && Find(body, {"reason"}) == nullptr &&
      FindString(body, {"kind"}) != "Status") {
    reason = ReasonFromCode(code);
  }
  Status status(reason, code, std::string(FindString(body, {"message"})));
  if (const Json* details = Find(body, {"details"}); details != nullptr && details->is_object()) {
    return std::move(status).With(DetailsFromJson(*details));
  }
  return status;
}

Status StatusFromBody(std::string_view body, int http_code) {
  if (const auto json = ParseJson(body);
      json.ok() && json->is_object() && FindString(*json, {"kind"}) == "Status") {
    return StatusFromJson(*json, http_code);
  }
  return {ReasonFromCode(http_code), http_code,
          body.empty() ? "the server answered with code " + std::to_string(http_code)
                       : std::string(body.substr(0, 4096))};
}

Json SuccessStatus(const ResourceName& what, std::string_view name, std::string_view uid) {
  StatusDetails details;
  details.name = name;
  details.group = what.group;
  details.kind = what.resource;
  details.uid = uid;
  return {{"kind", "Status"},
          {"apiVersion", "v1"},
          {"metadata", Json::object()},
          {"status", "Success"},
          {"details", DetailsToJson(details)}};
}

}  // namespace sublet::kube
