// Client: Kubernetes verbs on JSON objects over a Transport. Controllers, scheduler, syncer, node
// agent and CLI all use this and nothing else to talk to an API server, in process or remote.
// Threads: any; every call blocks until the answer or the deadline.
// Errors: the server's own Status (NotFound, Conflict, AlreadyExists, Invalid, Forbidden, Expired,
// TooManyRequests after the built-in retries ...), Timeout, ServiceUnavailable.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "client/transport.h"
#include "kube/json.h"
#include "kube/names.h"

namespace sublet::client {

// What a call is about. namespace_name "" = cluster scope, or all namespaces for list and watch.
struct Target {
  kube::GroupVersionResource resource;
  std::string namespace_name;
  std::string name;
  std::string subresource;  // "status", "scale", "binding", ... or ""
};

struct ListOptions {
  std::string label_selector;
  std::string field_selector;
  std::string resource_version;        // "" = most recent, "0" = any
  std::string resource_version_match;  // "", "Exact", "NotOlderThan"
  std::int64_t limit = 0;
  std::string continue_token;
  bool metadata_only = false;  // PartialObjectMetadata items
};

struct WatchOptions {
  std::string label_selector;
  std::string field_selector;
  std::string resource_version;
  bool bookmarks = true;
  bool send_initial_events = false;  // WatchList
  int timeout_seconds = 0;           // 0 = the server's choice
  bool metadata_only = false;        // PartialObjectMetadata objects
};

struct WriteOptions {
  std::string field_manager;  // "" = the client's user agent
  bool dry_run = false;
  bool force = false;  // apply only
  // False: the object in the answer is not decoded, and the call returns null. For writers that only
  // ask whether it was written.
  bool reads_answer = true;
};

struct DeleteOptions {
  std::optional<std::int64_t> grace_period_seconds;
  std::string propagation_policy;  // "", "Background", "Foreground", "Orphan"
  std::string uid;                 // precondition
  std::string resource_version;    // precondition
};

enum class PatchType { kJson, kMerge, kStrategicMerge, kApply };

// One frame of a watch stream, taken apart without building a tree.
struct WatchFrame {
  std::string_view type;    // "ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"
  std::string_view object;  // the object's JSON
};
// The two parts of `frame`, valid while it lives; nullopt when it is not spelt
// {"type":T,"object":{...}} in this order without spaces (legal, so callers then parse it).
std::optional<WatchFrame> SplitWatchFrame(std::string_view frame);

struct WatchEvent {
  enum class Type { kAdded, kModified, kDeleted, kBookmark };
  Type type = Type::kAdded;
  std::shared_ptr<const kube::Json> object;
};

class Watch {
 public:
  virtual ~Watch() = default;
  // nullopt: the server ended the watch. Errors: Timeout (nothing until the deadline), Expired
  // (relist), ServiceUnavailable (connection lost).
  virtual Result<std::optional<WatchEvent>> Next(Deadline deadline) = 0;
  virtual void Close() = 0;
};

class Client {
 public:
  // `user_agent` is the default field manager up to the first '/'. transport outlives the client
  // through the shared pointer.
  Client(std::shared_ptr<Transport> transport, std::string user_agent);

  // A copy that acts as another user (Impersonate-User, -Group); rights are checked by the server.
  Client As(std::string user, std::vector<std::string> groups) const;
  // Default time for a call: 30 s.
  Client WithTimeout(std::chrono::milliseconds timeout) const;

  Result<kube::Json> Get(const Target& target) const;
  // The list object: {metadata, items}.
  Result<kube::Json> List(const Target& target, const ListOptions& options = {}) const;
  // `object` needs apiVersion and kind; returns what the server stored.
  Result<kube::Json> Create(const Target& target, const kube::Json& object,
                            const WriteOptions& options = {}) const;
  Result<kube::Json> Update(const Target& target, const kube::Json& object,
                            const WriteOptions& options = {}) const;
  Result<kube::Json> Patch(const Target& target, PatchType type, const kube::Json& patch,
                           const WriteOptions& options = {}) const;
  // Server-side apply; options.field_manager required.
  Result<kube::Json> Apply(const Target& target, const kube::Json& object,
                           const WriteOptions& options) const;
  // Returns the Status or the object that is being deleted.
  Result<kube::Json> Delete(const Target& target, const DeleteOptions& options = {}) const;
  Result<kube::Json> DeleteCollection(const Target& target, const ListOptions& list,
                                      const DeleteOptions& options = {}) const;
  Result<std::unique_ptr<Watch>> OpenWatch(const Target& target, const WatchOptions& options) const;
  // The same, undecoded: one frame per event, ERROR frames included (informers keep the bytes).
  Result<std::unique_ptr<Stream>> OpenWatchStream(const Target& target,
                                                  const WatchOptions& options) const;

  // Any path: discovery, health, logs. Errors as above for codes >= 400.
  Result<std::string> GetRaw(std::string_view path_and_query) const;
  // Adds user agent, impersonation, Accept and deadline where `request` leaves them out, sends it,
  // and retries answers 429, 503 and 504 that carry Retry-After: at most 5 times, at most 10 s each
  // and never past the deadline. Any HTTP code is an answer. Errors: Timeout, ServiceUnavailable.
  Result<HttpResponse> Send(HttpRequest request) const;

  Transport& transport() const { return *transport_; }
  const std::string& user_agent() const { return user_agent_; }
  // The path of a target: "/apis/apps/v1/namespaces/a/deployments/b/status".
  static std::string PathOf(const Target& target);

 private:
  HttpRequest NewRequest(std::string method, std::string path_and_query) const;
  Result<kube::Json> SendForObject(HttpRequest request, bool reads_answer = true) const;
  Result<kube::Json> Write(std::string method, const Target& target, std::string query,
                           const kube::Json& body, std::string_view content_type,
                           bool reads_answer = true) const;

  std::shared_ptr<Transport> transport_;
  std::string user_agent_;
  Headers impersonation_;
  std::chrono::milliseconds timeout_{30000};
};

}  // namespace sublet::client
