// Status: the one error value of the project, shaped like Kubernetes' metav1.Status so that an
// error raised deep inside (a missing key in storage) reaches kubectl unchanged. A Status is always
// an error; success is expressed by Result<T> (base/result.h).
// Source: k8s.io/apimachinery pkg/apis/meta/v1 StatusReason, pkg/api/errors.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sublet {

// Every reason Kubernetes knows, plus none of our own: what has no reason there is kInternalError.
enum class Reason : std::uint8_t {
  kUnknown,  // wire form: the reason field is absent
  kUnauthorized,
  kForbidden,
  kNotFound,
  kAlreadyExists,
  kConflict,
  kGone,
  kInvalid,
  kServerTimeout,
  kTimeout,
  kTooManyRequests,
  kBadRequest,
  kMethodNotAllowed,
  kNotAcceptable,
  kRequestEntityTooLarge,
  kUnsupportedMediaType,
  kInternalError,
  kExpired,
  kServiceUnavailable,
};

// Returns the wire spelling ("NotFound"); "" for kUnknown.
std::string_view ReasonName(Reason reason);
// Returns the reason spelt `name`, or kUnknown.
Reason ReasonFromName(std::string_view name);
// Returns the HTTP code that goes with `reason` (404 for kNotFound; 500 for kUnknown).
int HttpCode(Reason reason);

// One field error of an Invalid status, or one conflict of an apply.
struct StatusCause {
  std::string reason;   // "FieldValueRequired", "FieldManagerConflict", ...
  std::string message;  // "Required value"
  std::string field;    // "spec.containers[0].name"; JSON path, may be empty
  bool operator==(const StatusCause&) const = default;
};

struct StatusDetails {
  std::string name;
  std::string group;
  std::string
      kind;  // Kubernetes puts the resource ("pods") here for most reasons, the kind for Invalid
  std::string uid;
  std::vector<StatusCause> causes;
  int retry_after_seconds = 0;
  bool operator==(const StatusDetails&) const = default;
};

class [[nodiscard]] Status {
 public:
  Status(Reason reason, std::string message);
  Status(Reason reason, int code, std::string message);

  Reason reason() const { return reason_; }
  int code() const { return code_; }  // HTTP code
  const std::string& message() const { return message_; }
  const StatusDetails& details() const { return details_; }
  // False when the wire form has no `details` member at all.
  bool has_details() const { return has_details_; }

  Status&& With(StatusDetails details) &&;
  Status&& WithCause(StatusCause cause) &&;
  Status&& WithRetryAfter(int seconds) &&;
  // Puts `prefix` and ": " before the message, for a reader who needs to know what was tried.
  Status&& Prefixed(std::string_view prefix) &&;

  bool Is(Reason reason) const { return reason_ == reason; }

 private:
  Reason reason_;
  int code_;
  std::string message_;
  StatusDetails details_;
  bool has_details_ = false;
};

// What an object error is about. `resource` is the plural ("pods"), `group` "" for core.
struct ResourceName {
  std::string_view group;
  std::string_view resource;
};

// Kubernetes' own texts; the resource is printed as "pods" or "deployments.apps".
Status NotFound(const ResourceName& what, std::string_view name);
Status AlreadyExists(const ResourceName& what, std::string_view name);
Status Conflict(const ResourceName& what, std::string_view name, std::string_view why);
Status Forbidden(const ResourceName& what, std::string_view name, std::string_view why);
Status Expired(std::string_view message);
Status BadRequest(std::string_view message);
Status Unauthorized();
Status InternalError(std::string_view message);
Status Timeout(std::string_view message);
Status TooManyRequests(std::string_view message, int retry_after_seconds);
Status ServiceUnavailable(std::string_view message);
// `kind` is the Kind ("ConfigMap"); the message is Kubernetes' aggregate of `causes`: one cause:
// `Kind.group "name" is invalid: field: message`, more: `... is invalid: [f1: m1, f2: m2]`.
Status Invalid(std::string_view group, std::string_view kind, std::string_view name,
               std::vector<StatusCause> causes);

}  // namespace sublet
