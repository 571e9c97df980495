#include "client/client.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <thread>

#include "kube/status_json.h"

namespace sublet::client {
namespace {

constexpr int kRetriesMax = 5;
constexpr std::chrono::seconds kRetryAfterMax{10};
// Lists of other servers may be large; a list of ours is paged by who needs it.
constexpr kube::JsonLimits kAnswerLimits{.bytes_max = 1u << 30, .depth_max = 512};
constexpr std::string_view kMetadataAccept =
    "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
constexpr std::string_view kMetadataListAccept =
    "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";

void AppendEscaped(std::string* out, std::string_view text) {
  static constexpr char kHex[] = "0123456789ABCDEF";
  for (const char c : text) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '-' || c == '_' || c == '.' || c == '~';
    if (plain) {
      out->push_back(c);
    } else {
      const auto byte = static_cast<unsigned char>(c);
      out->push_back('%');
      out->push_back(kHex[byte >> 4]);
      out->push_back(kHex[byte & 15]);
    }
  }
}

// A query string; starts with '?' once something is in it.
class Query {
 public:
  Query& Add(std::string_view key, std::string_view value) {
    if (!value.empty()) {
      text_ += text_.empty() ? '?' : '&';
      text_ += key;
      text_ += '=';
      AppendEscaped(&text_, value);
    }
    return *this;
  }
  Query& AddFlag(std::string_view key, bool value) { return value ? Add(key, "true") : *this; }
  Query& AddNumber(std::string_view key, std::int64_t value) {
    return value != 0 ? Add(key, std::to_string(value)) : *this;
  }
  std::string Take() { return std::move(text_); }

 private:
  std::string text_;
};

std::string WriteQuery(const WriteOptions& options) {
  return Query()
      .Add("fieldManager", options.field_manager)
      .Add("dryRun", options.dry_run ? "All" : "")
      .AddFlag("force", options.force)
      .Take();
}

Query ListQuery(const ListOptions& options) {
  Query query;
  query.Add("labelSelector", options.label_selector)
      .Add("fieldSelector", options.field_selector)
      .Add("resourceVersion", options.resource_version)
      .Add("resourceVersionMatch", options.resource_version_match)
      .AddNumber("limit", options.limit)
      .Add("continue", options.continue_token);
  return query;
}

std::string WatchQuery(const WatchOptions& options) {
  Query query;
  query.AddFlag("watch", true)
      .Add("labelSelector", options.label_selector)
      .Add("fieldSelector", options.field_selector)
      .Add("resourceVersion", options.resource_version)
      .AddFlag("allowWatchBookmarks", options.bookmarks || options.send_initial_events)
      .AddNumber("timeoutSeconds", options.timeout_seconds);
  if (options.send_initial_events) {
    query.Add("sendInitialEvents", "true").Add("resourceVersionMatch", "NotOlderThan");
  }
  return query.Take();
}

kube::Json DeleteBody(const DeleteOptions& options) {
  kube::Json body = {{"kind", "DeleteOptions"}, {"apiVersion", "v1"}};
  if (options.grace_period_seconds) {
    body["gracePeriodSeconds"] = *options.grace_period_seconds;
  }
  if (!options.propagation_policy.empty()) {
    body["propagationPolicy"] = options.propagation_policy;
  }
  if (!options.uid.empty()) {
    body["preconditions"]["uid"] = options.uid;
  }
  if (!options.resource_version.empty()) {
    body["preconditions"]["resourceVersion"] = options.resource_version;
  }
  return body;
}

std::string_view ContentTypeOf(PatchType type) {
  switch (type) {
    case PatchType::kJson: return "application/json-patch+json";
    case PatchType::kMerge: return "application/merge-patch+json";
    case PatchType::kStrategicMerge: return "application/strategic-merge-patch+json";
    case PatchType::kApply: return "application/apply-patch+yaml";
  }
  return "";
}

// nullopt = do not retry.
std::optional<std::chrono::seconds> RetryDelay(const HttpResponse& response) {
  if (response.code != 429 && response.code != 503 && response.code != 504) {
    return std::nullopt;
  }
  const std::string_view text = response.Header("Retry-After");
  int seconds = -1;
  std::from_chars(text.data(), text.data() + text.size(), seconds);
  if (seconds < 0) {
    return std::nullopt;
  }
  return std::min<std::chrono::seconds>(std::chrono::seconds(seconds), kRetryAfterMax);
}

std::optional<WatchEvent::Type> TypeOf(std::string_view text) {
  if (text == "ADDED") {
    return WatchEvent::Type::kAdded;
  }
  if (text == "MODIFIED") {
    return WatchEvent::Type::kModified;
  }
  if (text == "DELETED") {
    return WatchEvent::Type::kDeleted;
  }
  if (text == "BOOKMARK") {
    return WatchEvent::Type::kBookmark;
  }
  return std::nullopt;
}

class DecodedWatch final : public Watch {
 public:
  explicit DecodedWatch(std::unique_ptr<Stream> stream) : stream_(std::move(stream)) {}

  Result<std::optional<WatchEvent>> Next(Deadline deadline) override {
    SUBLET_TRY(std::optional<Chunk> chunk, stream_->Next(deadline));
    if (!chunk) {
      return std::optional<WatchEvent>();
    }
    SUBLET_TRY(kube::Json frame, kube::ParseJson(**chunk, kAnswerLimits));
    const std::string_view type = kube::FindString(frame, {"type"});
    kube::Json* object = kube::Find(frame, {"object"});
    if (object == nullptr) {
      return ServiceUnavailable("a watch event without an object");
    }
    if (type == "ERROR") {
      return kube::StatusFromJson(*object, 500);
    }
    const auto known = TypeOf(type);
    if (!known) {
      return ServiceUnavailable("a watch event of unknown type");
    }
    return std::optional<WatchEvent>(
        WatchEvent{*known, std::make_shared<const kube::Json>(std::move(*object))});
  }
  void Close() override { stream_->Close(); }

 private:
  std::unique_ptr<Stream> stream_;
};

}  // namespace

std::optional<WatchFrame> SplitWatchFrame(std::string_view frame) {
  constexpr std::string_view kStart = R"({"type":")";
  constexpr std::string_view kMiddle = R"(","object":)";
  if (!frame.starts_with(kStart) || !frame.ends_with('}')) {
    return std::nullopt;
  }
  frame.remove_prefix(kStart.size());
  const std::size_t quote = frame.find('"');
  if (quote == std::string_view::npos || !frame.substr(quote).starts_with(kMiddle)) {
    return std::nullopt;
  }
  WatchFrame parts;
  parts.type = frame.substr(0, quote);
  parts.object = frame.substr(quote + kMiddle.size());
  parts.object.remove_suffix(1);
  if (!parts.object.starts_with('{') || !parts.object.ends_with('}')) {
    return std::nullopt;
  }
  return parts;
}

Client::Client(std::shared_ptr<Transport> transport, std::string user_agent)
    : transport_(std::move(transport)), user_agent_(std::move(user_agent)) {}

Client Client::As(std::string user, std::vector<std::string> groups) const {
  Client copy = *this;
  copy.impersonation_.clear();
  copy.impersonation_.emplace_back("Impersonate-User", std::move(user));
  for (std::string& group : groups) {
    copy.impersonation_.emplace_back("Impersonate-Group", std::move(group));
  }
  return copy;
}

Client Client::WithTimeout(std::chrono::milliseconds timeout) const {
  Client copy = *this;
  copy.timeout_ = timeout;
  return copy;
}

std::string Client::PathOf(const Target& target) {
  std::string path;
  const auto add = [&path](std::string_view part) {
    path += '/';
    AppendEscaped(&path, part);
  };
  path = target.resource.group.empty() ? "/api" : "/apis";
  if (!target.resource.group.empty()) {
    add(target.resource.group);
  }
  add(target.resource.version);
  if (!target.namespace_name.empty()) {
    path += "/namespaces";
    add(target.namespace_name);
  }
  add(target.resource.resource);
  if (!target.name.empty()) {
    add(target.name);
  }
  if (!target.subresource.empty()) {
    path += '/';
    path += target.subresource;
  }
  return path;
}

HttpRequest Client::NewRequest(std::string method, std::string path_and_query) const {
  HttpRequest request;
  request.method = std::move(method);
  request.target = std::move(path_and_query);
  return request;
}

Result<HttpResponse> Client::Send(HttpRequest request) const {
  if (request.deadline == Deadline::max()) {
    request.deadline = After(timeout_);
  }
  const auto has = [&request](std::string_view name) {
    return std::any_of(request.headers.begin(), request.headers.end(),
                       [&](const auto& header) { return HeaderNameEquals(header.first, name); });
  };
  if (!has("Accept")) {
    request.headers.emplace_back("Accept", "application/json");
  }
  request.headers.emplace_back("User-Agent", user_agent_);
  request.headers.insert(request.headers.end(), impersonation_.begin(), impersonation_.end());
  for (int attempt = 0;; ++attempt) {
    SUBLET_TRY(HttpResponse response, transport_->RoundTrip(request));
    const auto delay = RetryDelay(response);
    if (!delay || attempt == kRetriesMax ||
        std::chrono::steady_clock::now() + *delay >= request.deadline) {
      return response;
    }
    std::this_thread::sleep_for(*delay);
  }
}

Result<kube::Json> Client::SendForObject(HttpRequest request, bool reads_answer) const {
  SUBLET_TRY(const HttpResponse response, Send(std::move(request)));
  if (response.code >= 400) {
    return kube::StatusFromBody(response.body, response.code);
  }
  if (!reads_answer) {
    return kube::Json();
  }
  return kube::ParseJson(response.body, kAnswerLimits);
}

Result<kube::Json> Client::Write(std::string method, const Target& target, std::string query,
                                 const kube::Json& body, std::string_view content_type,
                                 bool reads_answer) const {
  HttpRequest request = NewRequest(std::move(method), PathOf(target) + query);
  request.headers.emplace_back("Content-Type", content_type);
  request.body = kube::Dump(body);
  return SendForObject(std::move(request), reads_answer);
}

Result<kube::Json> Client::Get(const Target& target) const {
  return SendForObject(NewRequest("GET", PathOf(target)));
}

Result<kube::Json> Client::List(const Target& target, const ListOptions& options) const {
  HttpRequest request = NewRequest("GET", PathOf(target) + ListQuery(options).Take());
  if (options.metadata_only) {
    request.headers.emplace_back("Accept", kMetadataListAccept);
  }
  return SendForObject(std::move(request));
}

Result<kube::Json> Client::Create(const Target& target, const kube::Json& object,
                                  const WriteOptions& options) const {
  // Creation goes to the collection; a subresource (pods/NAME/binding) needs the name.
  Target collection = target;
  if (collection.subresource.empty()) {
    collection.name.clear();
  }
  return Write("POST", collection, WriteQuery(options), object, "application/json",
               options.reads_answer);
}

Result<kube::Json> Client::Update(const Target& target, const kube::Json& object,
                                  const WriteOptions& options) const {
  return Write("PUT", target, WriteQuery(options), object, "application/json",
               options.reads_answer);
}

Result<kube::Json> Client::Patch(const Target& target, PatchType type, const kube::Json& patch,
                                 const WriteOptions& options) const {
  return Write("PATCH", target, WriteQuery(options), patch, ContentTypeOf(type),
               options.reads_answer);
}

Result<kube::Json> Client::Apply(const Target& target, const kube::Json& object,
                                 const WriteOptions& options) const {
  return Write("PATCH", target, WriteQuery(options), object, ContentTypeOf(PatchType::kApply),
               options.reads_answer);
}

Result<kube::Json> Client::Delete(const Target& target, const DeleteOptions& options) const {
  return Write("DELETE", target, "", DeleteBody(options), "application/json");
}

Result<kube::Json> Client::DeleteCollection(const Target& target, const ListOptions& list,
                                            const DeleteOptions& options) const {
  Target collection = target;
  collection.name.clear();
  return Write("DELETE", collection, ListQuery(list).Take(), DeleteBody(options),
               "application/json");
}

Result<std::unique_ptr<Stream>> Client::OpenWatchStream(const Target& target,
                                                        const WatchOptions& options) const {
  HttpRequest request = NewRequest("GET", PathOf(target) + WatchQuery(options));
  request.headers.emplace_back("Accept",
                               options.metadata_only ? kMetadataAccept : "application/json");
  request.headers.emplace_back("User-Agent", user_agent_);
  request.headers.insert(request.headers.end(), impersonation_.begin(), impersonation_.end());
  request.deadline = After(timeout_);  // for the answer's head; the stream lives on
  return transport_->OpenStream(request);
}

Result<std::unique_ptr<Watch>> Client::OpenWatch(const Target& target,
                                                 const WatchOptions& options) const {
  SUBLET_TRY(auto stream, OpenWatchStream(target, options));
  return std::unique_ptr<Watch>(std::make_unique<DecodedWatch>(std::move(stream)));
}

Result<std::string> Client::GetRaw(std::string_view path_and_query) const {
  HttpRequest request = NewRequest("GET", std::string(path_and_query));
  request.headers.emplace_back("Accept", "*/*");
  SUBLET_TRY(HttpResponse response, Send(std::move(request)));
  if (response.code >= 400) {
    return kube::StatusFromBody(response.body, response.code);
  }
  return std::move(response.body);
}

}  // namespace sublet::client
