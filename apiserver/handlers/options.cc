#include "apiserver/handlers/options.h"

#include <charconv>
#include <nlohmann/json.hpp>

#include "apiserver/text.h"
#include "kube/field_error.h"
#include "kube/typed.h"

namespace sublet::apiserver {
namespace {

constexpr std::string_view kMetaGroup = "meta.k8s.io";

Status InvalidOptions(std::string_view kind, std::vector<StatusCause> causes) {
  return Invalid(kMetaGroup, kind, "", std::move(causes));
}

StatusCause ForbiddenField(std::string_view field, std::string_view why) {
  return {"FieldValueForbidden", "Forbidden: " + std::string(why), std::string(field)};
}

StatusCause NotSupported(std::string_view field, std::string_view value,
                         std::initializer_list<std::string_view> supported) {
  std::string message = "Unsupported value: " + std::string(value) + ": supported values: ";
  bool first = true;
  for (const auto item : supported) {
    message += first ? "" : ", ";
    message += Quoted(item);
    first = false;
  }
  return {"FieldValueNotSupported", std::move(message), std::string(field)};
}

// Go's conversion of query values to bool: absent and "" are false, "false" and "0" too.
bool QueryBool(const Query& query, std::string_view name) {
  if (!query.Has(name)) {
    return false;
  }
  const auto value = query.Get(name);
  return value != "false" && value != "0";
}

Result<std::int64_t> QueryInt(const Query& query, std::string_view name) {
  const auto text = query.Get(name);
  if (text.empty()) {
    return std::int64_t{0};
  }
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) {
    return BadRequest("strconv.ParseInt: parsing " + Quoted(text) + ": invalid syntax");
  }
  return value;
}

// The dry run values of a query or a body: only "All" exists.
bool CheckDryRun(const std::vector<std::string>& values, std::vector<StatusCause>& causes) {
  bool all = true;
  std::string shown;
  for (const auto& value : values) {
    all = all && value == "All";
    shown += (shown.empty() ? "" : ",") + Quoted(value);
  }
  shown = "[" + shown + "]";
  if (!all) {
    causes.push_back(NotSupported("dryRun", shown, {"All"}));
  }
  return !values.empty();
}

std::vector<std::string> DryRunOfQuery(const Query& query) {
  std::vector<std::string> values;
  for (const auto value : query.All("dryRun")) {
    values.emplace_back(value);
  }
  return values;
}

void CheckFieldManager(std::string_view manager, std::vector<StatusCause>& causes) {
  constexpr std::size_t kBytesMax = 128;
  if (manager.size() > kBytesMax) {
    causes.push_back(
        {"FieldValueTooLong", "Too long: may not be more than 128 bytes", "fieldManager"});
  }
  for (std::size_t i = 0; i < manager.size(); ++i) {
    const auto c = static_cast<unsigned char>(manager[i]);
    if (c < 0x20 || c == 0x7f) {
      char code[16];
      std::snprintf(code, sizeof(code), "U+%04X", c);
      causes.push_back({"FieldValueInvalid",
                        "Invalid value: " + kube::GoQuote(manager) + ": invalid character " + code +
                            " (at position " + std::to_string(i) + ")",
                        "fieldManager"});
    }
  }
}

// The printable start of the User-Agent, as Kubernetes derives a manager from it.
std::string ManagerOfUserAgent(std::string_view agent) {
  constexpr std::size_t kBytesMax = 128;
  agent = agent.substr(0, agent.find('/'));
  std::string manager;
  for (const char c : agent) {
    if (static_cast<unsigned char>(c) >= 0x20 && c != 0x7f && manager.size() < kBytesMax) {
      manager += c;
    }
  }
  return manager;
}

void CheckListMatch(const ListOptions& options, std::string_view match,
                    std::vector<StatusCause>& causes) {
  constexpr std::string_view kField = "resourceVersionMatch";
  if (!match.empty()) {
    if (options.resource_version.empty()) {
      causes.push_back(ForbiddenField(
          kField, "resourceVersionMatch is forbidden unless resourceVersion is provided"));
    }
    if (!options.continue_token.empty()) {
      causes.push_back(
          ForbiddenField(kField, "resourceVersionMatch is forbidden when continue is provided"));
    }
    if (match != "Exact" && match != "NotOlderThan") {
      causes.push_back(NotSupported(kField, Quoted(match), {"Exact", "NotOlderThan", ""}));
    }
    if (match == "Exact" && options.resource_version == "0") {
      causes.push_back(ForbiddenField(
          kField, "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\""));
    }
  }
  if (options.send_initial_events.has_value()) {
    causes.push_back(
        ForbiddenField("sendInitialEvents", "sendInitialEvents is forbidden for list"));
  }
}

void CheckWatchMatch(const ListOptions& options, std::string_view match,
                     std::vector<StatusCause>& causes) {
  constexpr std::string_view kField = "resourceVersionMatch";
  if (options.send_initial_events.has_value() && match != "NotOlderThan") {
    causes.push_back(ForbiddenField(
        kField, "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"));
  }
  if (match.empty()) {
    return;
  }
  if (!options.send_initial_events.has_value()) {
    causes.push_back(ForbiddenField(
        kField,
        "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"));
  }
  if (match != "NotOlderThan") {
    causes.push_back(NotSupported(kField, Quoted(match), {"NotOlderThan"}));
  }
  if (!options.continue_token.empty()) {
    causes.push_back(
        ForbiddenField(kField, "resourceVersionMatch is forbidden when continue is provided"));
  }
}

Result<void> ReadDeleteBody(const kube::Json& given, DeleteOptions& options,
                            std::vector<std::string>& dry_run) {
  kube::Json body = given;
  SUBLET_RETURN_IF_ERROR(
      kube::NormalizeTyped(kube::schema::FindType("meta.k8s.io", "v1", "DeleteOptions"), &body));
  if (const auto it = body.find("gracePeriodSeconds"); it != body.end() && !it->is_null()) {
    options.grace_seconds = it->get<std::int64_t>();
  }
  if (const auto it = body.find("preconditions"); it != body.end() && it->is_object()) {
    options.uid = std::string(kube::FindString(*it, {"uid"}));
    options.resource_version = std::string(kube::FindString(*it, {"resourceVersion"}));
  }
  if (const auto it = body.find("orphanDependents"); it != body.end() && !it->is_null()) {
    options.orphan_dependents = it->get<bool>();
  }
  if (const auto it = body.find("propagationPolicy"); it != body.end() && !it->is_null()) {
    options.propagation = it->get<std::string>();
  }
  if (const auto it = body.find("dryRun"); it != body.end() && it->is_array()) {
    for (const auto& item : *it) {
      dry_run.push_back(item.is_string() ? item.get<std::string>() : "");
    }
  }
  return Ok();
}

Result<void> ReadDeleteQuery(const Query& query, DeleteOptions& options,
                             std::vector<std::string>& dry_run) {
  if (query.Has("gracePeriodSeconds")) {
    SUBLET_TRY(const std::int64_t seconds, QueryInt(query, "gracePeriodSeconds"));
    options.grace_seconds = seconds;
  }
  if (query.Has("orphanDependents")) {
    options.orphan_dependents = QueryBool(query, "orphanDependents");
  }
  options.propagation = std::string(query.Get("propagationPolicy"));
  dry_run = DryRunOfQuery(query);
  return Ok();
}

}  // namespace

Result<std::int64_t> ParseResourceVersion(std::string_view text) {
  if (text.empty()) {
    return std::int64_t{0};
  }
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0) {
    return BadRequest("invalid resource version: resourceVersion: Invalid value: " + Quoted(text) +
                      ": strconv.ParseUint: parsing " + Quoted(text) + ": invalid syntax");
  }
  return value;
}

Result<ListOptions> ParseListOptions(const Query& query) {
  ListOptions options;
  options.label_selector = std::string(query.Get("labelSelector"));
  options.field_selector = std::string(query.Get("fieldSelector"));
  options.resource_version = std::string(query.Get("resourceVersion"));
  options.continue_token = std::string(query.Get("continue"));
  SUBLET_TRY(options.limit, QueryInt(query, "limit"));
  SUBLET_TRY(options.timeout_seconds, QueryInt(query, "timeoutSeconds"));
  options.watch = QueryBool(query, "watch");
  options.bookmarks = QueryBool(query, "allowWatchBookmarks");
  if (query.Has("sendInitialEvents")) {
    options.send_initial_events = QueryBool(query, "sendInitialEvents");
  }
  const auto match = query.Get("resourceVersionMatch");
  std::vector<StatusCause> causes;
  if (options.watch) {
    CheckWatchMatch(options, match, causes);
  } else {
    CheckListMatch(options, match, causes);
  }
  if (!causes.empty()) {
    return InvalidOptions("ListOptions", std::move(causes));
  }
  if (match == "Exact") {
    options.match = RevisionMatch::kExact;
  } else if (match == "NotOlderThan") {
    options.match = RevisionMatch::kNotOlderThan;
  }
  SUBLET_TRY(options.revision, ParseResourceVersion(options.resource_version));
  return options;
}

Result<WriteOptions> ParseWriteOptions(const Request& request, std::string_view kind,
                                       bool is_apply) {
  WriteOptions options;
  std::vector<StatusCause> causes;
  options.has_force = request.query.Has("force");
  options.force = QueryBool(request.query, "force");
  options.field_manager = std::string(request.query.Get("fieldManager"));
  if (is_apply && options.field_manager.empty()) {
    causes.push_back(
        {"FieldValueRequired", "Required value: is required for apply patch", "fieldManager"});
  }
  if (!is_apply && options.has_force && kind == "PatchOptions") {
    causes.push_back(ForbiddenField("force", "may not be specified for non-apply patch"));
  }
  CheckFieldManager(options.field_manager, causes);
  options.dry_run = CheckDryRun(DryRunOfQuery(request.query), causes);
  const auto validation = request.query.Get("fieldValidation");
  if (validation == "Strict") {
    options.validation = FieldValidation::kStrict;
  } else if (validation == "Ignore") {
    options.validation = FieldValidation::kIgnore;
  } else if (!validation.empty() && validation != "Warn") {
    causes.push_back(
        NotSupported("fieldValidation", Quoted(validation), {"", "Ignore", "Strict", "Warn"}));
  }
  if (!causes.empty()) {
    return InvalidOptions(kind, std::move(causes));
  }
  if (options.field_manager.empty()) {
    options.field_manager = ManagerOfUserAgent(request.Header("user-agent"));
  }
  if (options.field_manager.empty()) {
    options.field_manager = "unknown";
  }
  return options;
}

Result<DeleteOptions> ParseDeleteOptions(const Request& request, const kube::Json* body) {
  DeleteOptions options;
  std::vector<std::string> dry_run;
  if (body != nullptr) {
    SUBLET_RETURN_IF_ERROR(ReadDeleteBody(*body, options, dry_run));
  } else {
    SUBLET_RETURN_IF_ERROR(ReadDeleteQuery(request.query, options, dry_run));
  }
  std::vector<StatusCause> causes;
  if (options.orphan_dependents.has_value() && !options.propagation.empty()) {
    causes.push_back({"FieldValueInvalid",
                      "Invalid value: " + Quoted(options.propagation) +
                          ": orphanDependents and deletionPropagation cannot be both set",
                      "propagationPolicy"});
  }
  if (!options.propagation.empty() && options.propagation != "Foreground" &&
      options.propagation != "Background" && options.propagation != "Orphan") {
    causes.push_back(NotSupported("propagationPolicy", Quoted(options.propagation),
                                  {"Foreground", "Background", "Orphan", "nil"}));
  }
  options.dry_run = CheckDryRun(dry_run, causes);
  if (!causes.empty()) {
    return InvalidOptions("DeleteOptions", std::move(causes));
  }
  return options;
}

}  // namespace sublet::apiserver
