#include "base/status.h"

#include <algorithm>
#include <array>
#include <utility>

namespace sublet {
namespace {

struct ReasonRow {
  Reason reason;
  std::string_view name;
  int code;
};

constexpr std::array<ReasonRow, 19> kReasons = {{
    {Reason::kUnknown, "", 500},
    {Reason::kUnauthorized, "Unauthorized", 401},
    {Reason::kForbidden, "Forbidden", 403},
    {Reason::kNotFound, "NotFound", 404},
    {Reason::kAlreadyExists, "AlreadyExists", 409},
    {Reason::kConflict, "Conflict", 409},
    {Reason::kGone, "Gone", 410},
    {Reason::kInvalid, "Invalid", 422},
    {Reason::kServerTimeout, "ServerTimeout", 500},
    {Reason::kTimeout, "Timeout", 504},
    {Reason::kTooManyRequests, "TooManyRequests", 429},
    {Reason::kBadRequest, "BadRequest", 400},
    {Reason::kMethodNotAllowed, "MethodNotAllowed", 405},
    {Reason::kNotAcceptable, "NotAcceptable", 406},
    {Reason::kRequestEntityTooLarge, "RequestEntityTooLarge", 413},
    {Reason::kUnsupportedMediaType, "UnsupportedMediaType", 415},
    {Reason::kInternalError, "InternalError", 500},
    {Reason::kExpired, "Expired", 410},
    {Reason::kServiceUnavailable, "ServiceUnavailable", 503},
}};

std::string Qualified(const ResourceName& what) {
  std::string text(what.resource);
  if (!what.group.empty()) {
    text.append(".").append(what.group);
  }
  return text;
}

StatusDetails DetailsOf(const ResourceName& what, std::string_view name) {
  StatusDetails details;
  details.name = name;
  details.group = what.group;
  details.kind = what.resource;
  return details;
}

std::string Quoted(std::string_view name) { return "\"" + std::string(name) + "\""; }

}  // namespace

std::string_view ReasonName(Reason reason) {
  return kReasons[static_cast<std::size_t>(reason)].name;
}

Reason ReasonFromName(std::string_view name) {
  for (const ReasonRow& row : kReasons) {
    if (row.name == name) {
      return row.reason;
    }
  }
  return Reason::kUnknown;
}

int HttpCode(Reason reason) { return kReasons[static_cast<std::size_t>(reason)].code; }

Status::Status(Reason reason, std::string message)
    : Status(reason, HttpCode(reason), std::move(message)) {}

Status::Status(Reason reason, int code, std::string message)
    : reason_(reason), code_(code), message_(std::move(message)) {}

Status&& Status::With(StatusDetails details) && {
  details_ = std::move(details);
  has_details_ = true;
  return std::move(*this);
}

Status&& Status::WithCause(StatusCause cause) && {
  details_.causes.push_back(std::move(cause));
  has_details_ = true;
  return std::move(*this);
}

Status&& Status::WithRetryAfter(int seconds) && {
  details_.retry_after_seconds = seconds;
  has_details_ = true;
  return std::move(*this);
}

Status&& Status::Prefixed(std::string_view prefix) && {
  message_ = std::string(prefix) + ": " + message_;
  return std::move(*this);
}

Status NotFound(const ResourceName& what, std::string_view name) {
  return Status(Reason::kNotFound, Qualified(what) + " " + Quoted(name) + " not found")
      .With(DetailsOf(what, name));
}

Status AlreadyExists(const ResourceName& what, std::string_view name) {
  return Status(Reason::kAlreadyExists, Qualified(what) + " " + Quoted(name) + " already exists")
      .With(DetailsOf(what, name));
}

Status Conflict(const ResourceName& what, std::string_view name, std::string_view why) {
  return Status(Reason::kConflict, "Operation cannot be fulfilled on " + Qualified(what) + " " +
                                       Quoted(name) + ": " + std::string(why))
      .With(DetailsOf(what, name));
}

Status Forbidden(const ResourceName& what, std::string_view name, std::string_view why) {
  std::string message = Qualified(what);
  if (!name.empty()) {
    message += " " + Quoted(name);
  }
  message += " is forbidden: " + std::string(why);
  return Status(Reason::kForbidden, std::move(message)).With(DetailsOf(what, name));
}

Status Expired(std::string_view message) { return {Reason::kExpired, std::string(message)}; }
Status BadRequest(std::string_view message) { return {Reason::kBadRequest, std::string(message)}; }
Status Unauthorized() { return {Reason::kUnauthorized, "Unauthorized"}; }

Status InternalError(std::string_view message) {
  return Status(Reason::kInternalError, "Internal error occurred: " + std::string(message))
      .WithCause({"", std::string(message), ""});
}

Status Timeout(std::string_view message) {
  return {Reason::kTimeout, "Timeout: " + std::string(message)};
}

Status TooManyRequests(std::string_view message, int retry_after_seconds) {
  return Status(Reason::kTooManyRequests, std::string(message)).WithRetryAfter(retry_after_seconds);
}

Status ServiceUnavailable(std::string_view message) {
  return {Reason::kServiceUnavailable, std::string(message)};
}

Status Invalid(std::string_view group, std::string_view kind, std::string_view name,
               std::vector<StatusCause> causes) {
  std::string what(kind);
  if (!group.empty()) {
    what.append(".").append(group);
  }
  // What several fields say alike is said once; the causes keep all.
  std::vector<std::string> texts;
  for (const StatusCause& cause : causes) {
    std::string text = cause.field.empty() ? cause.message : cause.field + ": " + cause.message;
    if (std::find(texts.begin(), texts.end(), text) == texts.end()) {
      texts.push_back(std::move(text));
    }
  }
  std::string list;
  for (const std::string& text : texts) {
    list.append(list.empty() ? "" : ", ").append(text);
  }
  if (texts.size() > 1) {
    list = "[" + list + "]";
  }
  StatusDetails details;
  details.name = name;
  details.group = group;
  details.kind = kind;
  details.causes = std::move(causes);
  return Status(Reason::kInvalid, what + " " + Quoted(name) + " is invalid: " + list)
      .With(std::move(details));
}

}  // namespace sublet
