// Options: the query parameters of each verb, decoded and judged as Kubernetes does.
// Source: k8s.io/apimachinery pkg/apis/meta/v1 (types, validation), internalversion.
// Threads: any; pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "apiserver/request.h"
#include "base/result.h"
#include "kube/json.h"

namespace sublet::apiserver {

enum class FieldValidation : std::uint8_t { kIgnore, kWarn, kStrict };
enum class RevisionMatch : std::uint8_t { kUnset, kExact, kNotOlderThan };

struct ListOptions {
  std::string label_selector;
  std::string field_selector;
  std::string resource_version;  // "" = most recent
  std::int64_t revision = 0;     // resource_version as a number
  RevisionMatch match = RevisionMatch::kUnset;
  std::int64_t limit = 0;
  std::string continue_token;
  bool watch = false;
  bool bookmarks = false;
  std::optional<bool> send_initial_events;
  std::int64_t timeout_seconds = 0;  // 0 = the server's choice
};
// Errors: Invalid (ListOptions.meta.k8s.io), BadRequest (a value of the wrong type).
Result<ListOptions> ParseListOptions(const Query& query);

struct WriteOptions {
  bool dry_run = false;
  FieldValidation validation = FieldValidation::kWarn;
  std::string field_manager;  // never "": the User-Agent up to '/' when the client named none
  bool force = false;         // apply
  bool has_force = false;
};
// `kind` is "CreateOptions", "UpdateOptions" or "PatchOptions". `is_apply` demands a fieldManager.
// Errors: Invalid, BadRequest.
Result<WriteOptions> ParseWriteOptions(const Request& request, std::string_view kind,
                                       bool is_apply = false);

struct DeleteOptions {
  std::optional<std::int64_t> grace_seconds;
  std::string uid;               // precondition; "" = none
  std::string resource_version;  // precondition
  std::optional<bool> orphan_dependents;
  std::string propagation;  // "", "Background", "Foreground", "Orphan"
  bool dry_run = false;
};
// From the decoded body, or from the query when there is none. Errors: Invalid, BadRequest.
Result<DeleteOptions> ParseDeleteOptions(const Request& request, const kube::Json* body);

// The text of `resourceVersion` as a number. Errors: BadRequest.
Result<std::int64_t> ParseResourceVersion(std::string_view text);

}  // namespace sublet::apiserver
