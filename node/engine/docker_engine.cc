// The Docker-compatible API of Podman and Docker behind ContainerEngine. Where the two differ, the
// branch on EngineKind stands here or in docker_json.cc, with the reason.
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <semaphore>

#include "base/mutex.h"
#include "kube/json.h"
#include "node/engine/docker_exec.h"
#include "node/engine/docker_json.h"
#include "node/engine/engine.h"

namespace sublet::node {
namespace {

using kube::Find;
using kube::FindString;
using kube::Json;
using std::chrono::seconds;

constexpr seconds kCallTimeout{30};
// Starting, killing and removing wait for the runtime, which a loaded machine slows down.
constexpr seconds kSlowCallTimeout{120};
constexpr seconds kImageTimeout{1800};

Status FromAnswer(const EngineResponse& response, std::string_view what) {
  std::string message;
  if (auto parsed = kube::ParseJson(response.body); parsed.ok()) {
    message = FindString(*parsed, {"message"});
    if (message.empty()) {
      message = FindString(*parsed, {"cause"});
    }
  }
  if (message.empty()) {
    message = response.body.substr(0, 512);
  }
  const Reason reason = response.code == 404   ? Reason::kNotFound
                        : response.code == 409 ? Reason::kConflict
                        : response.code == 400 ? Reason::kBadRequest
                                               : Reason::kInternalError;
  if (message.find("is already in use") != std::string::npos &&
      what.find("create") != std::string_view::npos) {
    return Status(Reason::kAlreadyExists, message);  // Podman answers 500, Docker 409
  }
  return Status(reason, message);
}

class DockerEngine final : public ContainerEngine {
 public:
  explicit DockerEngine(const std::string& socket_path) : http_(socket_path) {}

  Result<EngineInfo> Info() override {
    {
      MutexLock lock(mutex_);
      if (info_) {
        return *info_;
      }
    }
    SUBLET_TRY(const EngineResponse response, Call("GET", "/_ping", {}, seconds(5)));
    if (response.code != 200) {
      return FromAnswer(response, "ping");
    }
    EngineInfo parsed = ParseEngineInfo(response.Header("server"));
    MutexLock lock(mutex_);
    info_ = parsed;
    return parsed;
  }

  Result<std::vector<std::string>> ListRuntimes() override {
    SUBLET_TRY(const Json info, GetJson("/info"));
    std::vector<std::string> names;
    if (const Json* runtimes = Find(info, {"Runtimes"}); runtimes && runtimes->is_object()) {
      for (const auto& [name, unused] : runtimes->items()) {
        names.push_back(name);
      }
    }
    return names;
  }

  Result<void> Ping() override {
    SUBLET_TRY(const EngineResponse response, Call("GET", "/_ping", {}, seconds(5)));
    return response.code == 200 ? Ok() : FromAnswer(response, "ping");
  }

  Result<ImageInfo> InspectImage(const std::string& reference) override {
    SUBLET_TRY(const Json image, GetJson(Path("/images/" + UrlEncode(reference) + "/json")));
    return ParseImage(image);
  }

  Result<std::vector<ImageInfo>> ListImages() override {
    SUBLET_TRY(const Json list, GetJson(Path("/images/json")));
    std::vector<ImageInfo> images;
    for (const Json& item : list) {
      images.push_back(ParseImage(item));
    }
    return images;
  }

  Result<void> PullImage(const std::string& reference, const RegistryAuth* auth,
                         Canceller* cancel) override;
  Result<void> LoadImage(int archive_fd) override;

  Result<void> RemoveImage(const std::string& reference) override {
    return Expect(Call("DELETE", Path("/images/" + UrlEncode(reference)), {}, kSlowCallTimeout),
                  "remove image", {200, 404});
  }

  Result<std::string> Create(const ContainerSpec& spec) override {
    SUBLET_TRY(const EngineInfo info, Info());
    // Podman's Docker-compatible form mounts a writable /tmp, /run and /var/tmp into a read-only
    // container; its own form does not.
    const bool libpod = info.kind == EngineKind::kPodman && spec.read_only_root;
    const std::string body =
        kube::Dump(libpod ? LibpodCreateBody(spec) : CreateBody(spec, info.kind));
    const std::string path = libpod ? LibpodPath("/containers/create")
                                    : Path("/containers/create?name=" + UrlEncode(spec.name));
    SUBLET_TRY(const EngineResponse response, Call("POST", path, body, kSlowCallTimeout));
    if (response.code != 201) {
      return FromAnswer(response, "create");
    }
    SUBLET_TRY(const Json answer, kube::ParseJson(response.body));
    return std::string(FindString(answer, {"Id"}));
  }

  Result<void> Start(const std::string& id) override {
    return Expect(Call("POST", Path("/containers/" + id + "/start"), {}, kSlowCallTimeout), "start",
                  {204, 304});
  }

  Result<ContainerState> Inspect(const std::string& id) override {
    SUBLET_TRY(const Json answer, GetJson(Path("/containers/" + id + "/json")));
    return ParseContainer(answer);
  }

  Result<std::vector<ContainerSummary>> List(const std::string& label,
                                             const std::string& value) override {
    const Json filters = {{"label", {label + "=" + value}}};
    SUBLET_TRY(const Json list,
               GetJson(Path("/containers/json?all=1&filters=" + UrlEncode(kube::Dump(filters)))));
    std::vector<ContainerSummary> out;
    for (const Json& item : list) {
      ContainerSummary summary;
      summary.id = FindString(item, {"Id"});
      summary.running = FindString(item, {"State"}) == "running";
      if (const Json* labels = Find(item, {"Labels"}); labels != nullptr && labels->is_object()) {
        for (const auto& [key, text] : labels->items()) {
          summary.labels[key] = text.is_string() ? text.get<std::string>() : "";
        }
      }
      out.push_back(std::move(summary));
    }
    return out;
  }

  Result<void> Signal(const std::string& id, const std::string& signal) override {
    SUBLET_TRY(const EngineResponse response,
               Call("POST", Path("/containers/" + id + "/kill?signal=" + UrlEncode(signal)), {},
                    kSlowCallTimeout));
    // A container that has ended: Docker 409, Podman 500 with one of these texts.
    if (response.code == 204 || response.code == 409 ||
        response.body.find("can only kill running") != std::string::npos ||
        response.body.find("container state improper") != std::string::npos) {
      return {};
    }
    return FromAnswer(response, "kill");
  }

  Result<void> Remove(const std::string& id) override;
  Result<bool> RemoveSandbox(const std::string& id) override {
    SUBLET_TRY(const EngineInfo info, Info());
    SUBLET_RETURN_IF_ERROR(Remove(id));
    return info.kind == EngineKind::kPodman;
  }
  Result<void> UpdateResources(const std::string& id, const ResourceUpdate& update) override;

  Result<std::unique_ptr<StreamSession>> Exec(const std::string& id,
                                              const ExecSpec& spec) override {
    return StartExec(http_, id, spec);
  }
  Result<std::unique_ptr<StreamSession>> Attach(const std::string& id,
                                                const AttachSpec& spec) override {
    return StartAttach(http_, id, spec);
  }

 private:
  static std::string Path(const std::string& path) { return "/v1.41" + path; }
  static std::string LibpodPath(const std::string& path) { return "/v4.0.0/libpod" + path; }

  Result<EngineResponse> Call(std::string method, std::string target, std::string body,
                              seconds timeout) const {
    EngineRequest request;
    request.method = std::move(method);
    request.target = std::move(target);
    request.body = std::move(body);
    request.deadline = After(timeout);
    return http_.Call(request);
  }

  Result<Json> GetJson(const std::string& target) const {
    SUBLET_TRY(const EngineResponse response, Call("GET", target, {}, kCallTimeout));
    if (response.code != 200) {
      return FromAnswer(response, "get");
    }
    kube::JsonLimits limits;
    limits.bytes_max = 64u << 20;
    return kube::ParseJson(response.body, limits);
  }

  static Result<void> Expect(Result<EngineResponse> response, std::string_view what,
                             std::initializer_list<int> codes) {
    if (!response.ok()) {
      return std::move(response).error();
    }
    for (const int code : codes) {
      if (response->code == code) {
        return {};
      }
    }
    return FromAnswer(*response, what);
  }

  // An engine that is told to remove a hundred containers at once spends its time on its own locks.
  static constexpr int kRemovalsMost = 6;
  struct ReleaseAtEnd {
    std::counting_semaphore<kRemovalsMost>& slots;
    ~ReleaseAtEnd() { slots.release(); }
  };
  std::counting_semaphore<kRemovalsMost> removals_{kRemovalsMost};
  UnixHttp http_;
  Mutex mutex_;
  std::optional<EngineInfo> info_ SUBLET_GUARDED_BY(mutex_);
};

// The text of the first line with an "error" member, or "".
std::string ProgressError(std::string_view lines) {
  while (!lines.empty()) {
    const auto end = lines.find('\n');
    const std::string_view line = lines.substr(0, end);
    if (line.find("\"error\"") != std::string_view::npos) {
      if (auto parsed = kube::ParseJson(line); parsed.ok()) {
        if (const auto text = FindString(*parsed, {"error"}); !text.empty()) {
          return std::string(text);
        }
      }
    }
    if (end == std::string_view::npos) {
      break;
    }
    lines.remove_prefix(end + 1);
  }
  return {};
}

Result<void> DockerEngine::PullImage(const std::string& reference, const RegistryAuth* auth,
                                     Canceller* cancel) {
  EngineRequest request;
  request.method = "POST";
  request.target = Path("/images/create?fromImage=" + UrlEncode(reference));
  request.deadline = After(kImageTimeout);
  if (auth != nullptr) {
    request.headers.emplace_back("X-Registry-Auth", EncodeRegistryAuth(*auth));
  }
  SUBLET_TRY(const EngineResponse response, http_.Call(request, cancel));
  if (response.code != 200) {
    return FromAnswer(response, "pull");
  }
  // Failures come as 200 with a progress line that says so.
  if (std::string error = ProgressError(response.body); !error.empty()) {
    const bool missing = error.find("not found") != std::string::npos ||
                         error.find("manifest unknown") != std::string::npos;
    return Status(missing ? Reason::kNotFound : Reason::kInternalError, std::move(error));
  }
  return {};
}

Result<void> DockerEngine::LoadImage(int archive_fd) {
  EngineRequest request;
  request.method = "POST";
  request.target = Path("/images/load?quiet=true");
  request.content_type = "application/x-tar";
  request.body_fd = archive_fd;
  request.deadline = After(kImageTimeout);
  SUBLET_TRY(const EngineResponse response, http_.Call(request));
  if (response.code != 200) {
    return FromAnswer(response, "load");
  }
  if (std::string error = ProgressError(response.body); !error.empty()) {
    return InternalError(error);
  }
  return {};
}

Result<void> DockerEngine::Remove(const std::string& id) {
  SUBLET_TRY(const EngineInfo info, Info());
  removals_.acquire();
  const ReleaseAtEnd release{removals_};
  if (info.kind == EngineKind::kPodman) {
    // Podman refuses to remove a sandbox before its members unless told that they go as well.
    return Expect(
        Call("DELETE", LibpodPath("/containers/" + id + "?force=true&depend=true&timeout=0&v=true"),
             {}, kSlowCallTimeout),
        "remove", {200, 204, 404});
  }
  auto removed =
      Call("DELETE", Path("/containers/" + id + "?force=true&v=true"), {}, kSlowCallTimeout);
  // 409: another removal of it is under way, which is as good.
  return Expect(std::move(removed), "remove", {204, 404, 409});
}

Result<void> DockerEngine::UpdateResources(const std::string& id, const ResourceUpdate& update) {
  SUBLET_TRY(const EngineInfo info, Info());
  Json body = Json::object();
  if (info.kind == EngineKind::kDocker) {
    if (update.memory_bytes != 0) {
      body["Memory"] = update.memory_bytes;
      body["MemorySwap"] = update.memory_bytes;
    }
    if (update.cpu_shares != 0) {
      body["CpuShares"] = update.cpu_shares;
    }
    if (update.cpu_quota_us != 0) {
      body["CpuQuota"] = update.cpu_quota_us;
      body["CpuPeriod"] = update.cpu_period_us;
    }
    return Expect(
        Call("POST", Path("/containers/" + id + "/update"), kube::Dump(body), kCallTimeout),
        "update", {200});
  }
  // Podman 4.3 has no update in its Docker-compatible API.
  if (update.memory_bytes != 0) {
    body["memory"] = {{"limit", update.memory_bytes}, {"swap", update.memory_bytes}};
  }
  if (update.cpu_shares != 0) {
    body["cpu"]["shares"] = update.cpu_shares;
  }
  if (update.cpu_quota_us != 0) {
    body["cpu"]["quota"] = update.cpu_quota_us;
    body["cpu"]["period"] = update.cpu_period_us;
  }
  return Expect(
      Call("POST", LibpodPath("/containers/" + id + "/update"), kube::Dump(body), kCallTimeout),
      "update", {200, 201});
}

bool IsSocket(const std::string& path) {
  struct stat info {};
  return !path.empty() && ::stat(path.c_str(), &info) == 0 && S_ISSOCK(info.st_mode);
}

std::string SocketFromEnvironment(const char* name) {
  const char* value = std::getenv(name);
  std::string_view text = value == nullptr ? "" : value;
  if (text.substr(0, 7) == "unix://") {
    text.remove_prefix(7);
  }
  return text.empty() || text.front() != '/' ? "" : std::string(text);
}

}  // namespace

std::unique_ptr<ContainerEngine> OpenEngine(const std::string& socket_path) {
  return std::make_unique<DockerEngine>(socket_path);
}

Result<std::string> FindEngineSocket(const std::string& explicit_path) {
  if (!explicit_path.empty()) {
    std::string path = explicit_path;
    if (path.rfind("unix://", 0) == 0) {
      path.erase(0, 7);
    }
    if (!IsSocket(path)) {
      return Status(Reason::kNotFound, "no container engine listens on " + path);
    }
    return path;
  }
  for (const char* name : {"SUBLET_ENGINE_SOCKET", "DOCKER_HOST", "CONTAINER_HOST"}) {
    if (const std::string path = SocketFromEnvironment(name); IsSocket(path)) {
      return path;
    }
  }
  const char* runtime_dir = std::getenv("XDG_RUNTIME_DIR");
  for (const std::string& path :
       {std::string("/run/podman/podman.sock"), std::string("/var/run/docker.sock"),
        std::string(runtime_dir == nullptr ? "" : runtime_dir) + "/podman/podman.sock"}) {
    if (IsSocket(path)) {
      return path;
    }
  }
  return Status(Reason::kNotFound,
                "no container engine is running: install one (Debian: apt install podman, or apt "
                "install docker.io) and start its service (systemctl start podman.socket, or "
                "podman system service --time=0 &)");
}

}  // namespace sublet::node
