#include "client/testing/memory_server.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/random.h"

namespace sublet::client::testing {

using kube::Json;

// A request path taken apart.
struct MemoryServer::Path {
  std::string collection;  // "/apis/apps/v1|replicasets"
  std::string namespace_name;
  std::string name;
  std::string subresource;
  std::map<std::string, std::string> query;

  static Path Parse(std::string_view target) {
    Path out;
    const std::size_t mark = target.find('?');
    std::string_view rest = mark == std::string_view::npos ? "" : target.substr(mark + 1);
    while (!rest.empty()) {
      const std::string_view pair = rest.substr(0, rest.find('&'));
      rest.remove_prefix(std::min(rest.size(), pair.size() + 1));
      const std::size_t equals = pair.find('=');
      out.query[std::string(pair.substr(0, equals))] =
          equals == std::string_view::npos ? "" : std::string(pair.substr(equals + 1));
    }
    std::vector<std::string> parts;
    std::string_view path = target.substr(0, mark);
    while (!path.empty()) {
      path.remove_prefix(1);
      const std::size_t slash = path.find('/');
      parts.emplace_back(path.substr(0, slash));
      path = slash == std::string_view::npos ? "" : path.substr(slash);
    }
    std::size_t at = parts[0] == "api" ? 2 : 3;
    std::string group;
    for (std::size_t i = 0; i < at && i < parts.size(); ++i) {
      group += "/" + parts[i];
    }
    if (at + 2 < parts.size() && parts[at] == "namespaces") {
      out.namespace_name = parts[at + 1];
      at += 2;
    }
    out.collection = group + "|" + parts[at];
    out.name = at + 1 < parts.size() ? parts[at + 1] : "";
    out.subresource = at + 2 < parts.size() ? parts[at + 2] : "";
    return out;
  }
  std::string Key() const { return namespace_name + "/" + name; }
};

class MemoryStream final : public Stream {
 public:
  MemoryStream(std::shared_ptr<MemoryServer> server, std::string collection,
               std::string namespace_name, std::int64_t from, std::deque<Chunk> initial)
      : server_(std::move(server)),
        collection_(std::move(collection)),
        namespace_name_(std::move(namespace_name)),
        seen_(from),
        initial_(std::move(initial)) {
    MutexLock lock(server_->mutex_);
    generation_ = server_->generation_;
    server_->streams_.insert(this);
  }
  ~MemoryStream() override {
    MutexLock lock(server_->mutex_);
    server_->streams_.erase(this);
  }

  bool NotifyWhenReady(std::function<void()> ready) override {
    if (server_->options_.notifies) {
      MutexLock lock(server_->mutex_);
      ready_ = std::move(ready);
    }
    return server_->options_.notifies;
  }

  Result<std::optional<Chunk>> Next(Deadline deadline) override {
    MutexLock lock(server_->mutex_);
    for (;;) {
      if (closed_ || generation_ != server_->generation_) {
        return std::optional<Chunk>();
      }
      if (!initial_.empty()) {
        Chunk frame = std::move(initial_.front());
        initial_.pop_front();
        return std::optional<Chunk>(std::move(frame));
      }
      for (auto next = std::upper_bound(  // they stand ascending by revision
               server_->events_.begin(), server_->events_.end(), seen_,
               [](std::int64_t seen, const auto&event) { return seen < event.revision; });
           next != server_->events_.end() && next->revision <= server_->visible_; ++next) {
        const MemoryServer::Event& event = *next;
        seen_ = event.revision;
        if (event.collection == collection_ &&
            (namespace_name_.empty() || namespace_name_ == event.namespace_name)) {
          return std::optional<Chunk>(event.frame);
        }
      }
      if (deadline == Deadline::max()) {
        server_->changed_.Wait(server_->mutex_);
      } else if (deadline <= std::chrono::steady_clock::now() ||
                 !server_->changed_.WaitUntil(server_->mutex_, deadline)) {
        armed_ = true;
        return Timeout("nothing yet");
      }
    }
  }

  void Close() override {
    std::function<void()> ready;
    {
      MutexLock lock(server_->mutex_);
      closed_ = true;
      ready = ready_;
    }
    server_->changed_.NotifyAll();
    if (ready) {
      ready();
    }
  }

 private:
  friend class MemoryServer;
  const std::shared_ptr<MemoryServer> server_;
  const std::string collection_;
  const std::string namespace_name_;
  // The rest is under the server's mutex.
  std::int64_t seen_;
  std::deque<Chunk> initial_;
  int generation_ = 0;
  bool closed_ = false;
  bool armed_ = false;
  std::function<void()> ready_;
};

namespace {

HttpResponse Answer(int code, const Json& body) {
  HttpResponse response;
  response.code = code;
  response.body = kube::Dump(body);
  return response;
}

HttpResponse Failure(const Status& status) {
  return Answer(status.code(), {{"kind", "Status"},
                                {"apiVersion", "v1"},
                                {"status", "Failure"},
                                {"message", status.message()},
                                {"reason", std::string(ReasonName(status.reason()))},
                                {"code", status.code()}});
}

Chunk Frame(const char* type, const Json& object) {
  return std::make_shared<const std::string>(std::string(R"({"type":")") + type + R"(","object":)" +
                                             kube::Dump(object) + "}");
}

}  // namespace

std::vector<std::function<void()>> MemoryServer::Wakeups() {
  std::vector<std::function<void()>> out;
  for (MemoryStream* stream : streams_) {
    if (stream->armed_ && stream->ready_) {
      stream->armed_ = false;
      out.push_back(stream->ready_);
    }
  }
  return out;
}

void MemoryServer::Publish(const Path& path, const char* type, const Json& object) {
  events_.push_back({revision_, path.collection, path.namespace_name, Frame(type, object)});
}

HttpResponse MemoryServer::Write(const Path& path, Json object, const Json* before) {
  Json& metadata = object["metadata"];
  metadata["name"] = path.name;
  if (!path.namespace_name.empty()) {
    metadata["namespace"] = path.namespace_name;
  }
  if (before == nullptr) {
    metadata["uid"] = RandomUuid();
    metadata["generation"] = 1;
    metadata["creationTimestamp"] = "2026-01-01T00:00:00Z";
  } else {
    metadata["uid"] = (*before)["metadata"]["uid"];
    metadata["creationTimestamp"] = (*before)["metadata"]["creationTimestamp"];
    const bool same_spec = before->value("spec", Json()) == object.value("spec", Json());
    metadata["generation"] =
        (*before)["metadata"].value("generation", std::int64_t{1}) + (same_spec ? 0 : 1);
    if (metadata.contains("deletionTimestamp") &&
        metadata.value("finalizers", Json::array()).empty()) {
      return Remove(path, object);
    }
  }
  metadata["resourceVersion"] = std::to_string(++revision_);
  objects_[path.collection][path.Key()] = object;
  Publish(path, before == nullptr ? "ADDED" : "MODIFIED", object);
  return Answer(before == nullptr ? 201 : 200, object);
}

HttpResponse MemoryServer::Remove(const Path& path, Json object) {
  objects_[path.collection].erase(path.Key());
  object["metadata"]["resourceVersion"] = std::to_string(++revision_);
  Publish(path, "DELETED", object);
  return Answer(200, {{"kind", "Status"}, {"apiVersion", "v1"}, {"status", "Success"}});
}

HttpResponse MemoryServer::List(const Path& path) {
  Json items = Json::array();
  for (const auto& [key, object] : objects_[path.collection]) {
    if (path.namespace_name.empty() || key.starts_with(path.namespace_name + "/")) {
      items.push_back(object);
    }
  }
  return Answer(200, {{"kind", "List"},
                      {"apiVersion", "v1"},
                      {"metadata", {{"resourceVersion", std::to_string(revision_)}}},
                      {"items", std::move(items)}});
}

HttpResponse MemoryServer::Handle(const HttpRequest& request) {
  Path path = Path::Parse(request.target);
  auto& collection = objects_[path.collection];
  if (request.method == "POST") {
    Json object = *kube::ParseJson(request.body);
    if (path.name.empty()) {
      path.name = kube::FindString(object, {"metadata", "name"});
    }
    if (path.name.empty()) {
      path.name = std::string(kube::FindString(object, {"metadata", "generateName"})) +
                  std::to_string(revision_);
    }
    if (collection.contains(path.Key())) {
      return Failure(AlreadyExists({"", path.collection}, path.name));
    }
    return Write(path, std::move(object), nullptr);
  }
  if (path.name.empty()) {
    return List(path);
  }
  const auto found = collection.find(path.Key());
  if (found == collection.end()) {
    return Failure(NotFound({"", path.collection}, path.name));
  }
  const Json before = found->second;
  if (request.method == "GET") {
    return Answer(200, before);
  }
  if (request.method == "DELETE") {
    const Json options = *kube::ParseJson(request.body);
    const std::string_view uid = kube::FindString(options, {"preconditions", "uid"});
    if (!uid.empty() && uid != kube::FindString(before, {"metadata", "uid"})) {
      return Failure(Conflict({"", path.collection}, path.name, "uid differs"));
    }
    if (before["metadata"].value("finalizers", Json::array()).empty()) {
      return Remove(path, before);
    }
    Json deleting = before;
    deleting["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z";
    return Write(path, std::move(deleting), &before);
  }
  Json body = *kube::ParseJson(request.body);
  const std::string_view version = kube::FindString(body, {"metadata", "resourceVersion"});
  if (!version.empty() && version != kube::FindString(before, {"metadata", "resourceVersion"})) {
    return Failure(Conflict({"", path.collection}, path.name, "the object has been modified"));
  }
  if (request.method == "PATCH") {
    Json patched = before;
    patched.merge_patch(body);
    return Write(path, std::move(patched), &before);
  }
  if (path.subresource == "status") {
    Json updated = before;
    updated["status"] = body.value("status", Json::object());
    return Write(path, std::move(updated), &before);
  }
  return Write(path, std::move(body), &before);
}

Result<HttpResponse> MemoryServer::RoundTrip(const HttpRequest& request) {
  HttpResponse response;
  std::vector<std::function<void()>> wakeups;
  {
    MutexLock lock(mutex_);
    ++requests_;
    if (fail_count_ > 0) {
      --fail_count_;
      return fail_response_;
    }
    response = Handle(request);
    wakeups = Wakeups();
  }
  changed_.NotifyAll();
  for (const auto& wake : wakeups) {
    wake();
  }
  return response;
}

Result<std::unique_ptr<Stream>> MemoryServer::OpenStream(const HttpRequest& request) {
  Path path = Path::Parse(request.target);
  std::deque<Chunk> initial;
  std::int64_t from = std::strtoll(path.query["resourceVersion"].c_str(), nullptr, 10);
  {
    MutexLock lock(mutex_);
    ++requests_;
    if (path.query["sendInitialEvents"] == "true") {
      if (!options_.watch_list) {
        return Status(Reason::kInvalid, "sendInitialEvents is forbidden for watch");
      }
      if (options_.watch_list_ends) {
        initial.push_back(Frame("ERROR", {{"kind", "Status"},
                                          {"apiVersion", "v1"},
                                          {"status", "Failure"},
                                          {"message", "the storage cannot do that"},
                                          {"reason", "InternalError"},
                                          {"code", 500}}));
      }
      for (const auto& [key, object] : objects_[path.collection]) {
        if (path.namespace_name.empty() || key.starts_with(path.namespace_name + "/")) {
          initial.push_back(Frame("ADDED", object));
          if (options_.gone_at_once) {
            initial.push_back(Frame("DELETED", object));
          }
        }
      }
      from = revision_;
      initial.push_back(
          Frame("BOOKMARK", {{"metadata",
                              {{"resourceVersion", std::to_string(revision_)},
                               {"annotations", {{"k8s.io/initial-events-end", "true"}}}}}}));
    } else if (from < oldest_) {
      return Expired("too old resource version");
    }
  }
  return std::unique_ptr<Stream>(std::make_unique<MemoryStream>(
      shared_from_this(), path.collection, path.namespace_name, from, std::move(initial)));
}

Result<std::unique_ptr<Tunnel>> MemoryServer::OpenTunnel(const HttpRequest&) {
  return ServiceUnavailable("no tunnels here");
}

void MemoryServer::FailNext(int count, HttpResponse response) {
  MutexLock lock(mutex_);
  fail_count_ = count;
  fail_response_ = std::move(response);
}

void MemoryServer::CutWatches(bool expired) {
  std::vector<std::function<void()>> wakeups;
  {
    MutexLock lock(mutex_);
    ++generation_;
    if (expired) {
      oldest_ = ++revision_;
      events_.clear();
    }
    wakeups = Wakeups();
  }
  changed_.NotifyAll();
  for (const auto& wake : wakeups) {
    wake();
  }
}

void MemoryServer::HoldEvents() {
  MutexLock lock(mutex_);
  visible_ = revision_;
}

void MemoryServer::ReleaseEvents() {
  std::vector<std::function<void()>> wakeups;
  {
    MutexLock lock(mutex_);
    visible_ = INT64_MAX;
    wakeups = Wakeups();
  }
  changed_.NotifyAll();
  for (const auto& wake : wakeups) {
    wake();
  }
}

int MemoryServer::requests() const {
  MutexLock lock(mutex_);
  return requests_;
}

}  // namespace sublet::client::testing
