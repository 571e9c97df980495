#include "node/engine/docker_json.h"

#include <sys/utsname.h>

#include <ctime>
#include <nlohmann/json.hpp>

namespace sublet::node {
namespace {

using kube::Find;
using kube::FindBool;
using kube::FindInt;
using kube::FindString;
using kube::Json;

std::vector<std::string> Strings(const Json* list) {
  std::vector<std::string> out;
  if (list != nullptr && list->is_array()) {
    for (const Json& item : *list) {
      if (item.is_string()) {
        out.push_back(item.get<std::string>());
      }
    }
  } else if (list != nullptr && list->is_string() && !list->get_ref<const std::string&>().empty()) {
    out.push_back(list->get<std::string>());
  }
  return out;
}

void SetIf(Json* object, const char* key, std::int64_t value) {
  if (value != 0) {
    (*object)[key] = value;
  }
}

void SetIf(Json* object, const char* key, const std::string& value) {
  if (!value.empty()) {
    (*object)[key] = value;
  }
}

Json DockerMounts(const ContainerSpec& spec) {
  Json mounts = Json::array();
  for (const EngineMount& mount : spec.mounts) {
    Json item = {{"Type", "bind"}, {"Source", mount.source}, {"Target", mount.target}};
    item["ReadOnly"] = mount.read_only;
    if (!mount.propagation.empty()) {
      item["BindOptions"] = {{"Propagation", mount.propagation}};
    }
    mounts.push_back(std::move(item));
  }
  return mounts;
}

void SetResources(const ContainerSpec& spec, Json* host) {
  SetIf(host, "Memory", spec.memory_bytes);
  SetIf(host, "MemorySwap", spec.memory_bytes);  // no swap beyond the limit, as Kubernetes
  SetIf(host, "MemoryReservation", spec.memory_reservation_bytes);
  SetIf(host, "CpuShares", spec.cpu_shares);
  SetIf(host, "CpuQuota", spec.cpu_quota_us);
  SetIf(host, "CpuPeriod", spec.cpu_period_us);
  SetIf(host, "PidsLimit", spec.pids_limit);
  SetIf(host, "ShmSize", spec.shm_size_bytes);
  SetIf(host, "CgroupParent", spec.cgroup_parent);
  if (spec.oom_score_adj) {
    (*host)["OomScoreAdj"] = *spec.oom_score_adj;
  }
}

void SetSecurity(const ContainerSpec& spec, Json* host) {
  if (spec.privileged) {
    (*host)["Privileged"] = true;
  }
  if (spec.read_only_root) {
    (*host)["ReadonlyRootfs"] = true;
  }
  if (!spec.cap_add.empty()) {
    (*host)["CapAdd"] = spec.cap_add;
  }
  if (!spec.cap_drop.empty()) {
    (*host)["CapDrop"] = spec.cap_drop;
  }
  if (!spec.groups.empty()) {
    (*host)["GroupAdd"] = spec.groups;
  }
  if (!spec.sysctls.empty()) {
    (*host)["Sysctls"] = spec.sysctls;
  }
  Json options = Json::array();
  if (spec.no_new_privileges) {
    options.push_back("no-new-privileges");
  }
  if (!spec.seccomp.empty()) {
    options.push_back("seccomp=" + spec.seccomp);
  }
  if (!options.empty()) {
    (*host)["SecurityOpt"] = std::move(options);
  }
}

void SetLog(const ContainerSpec& spec, EngineKind kind, Json* host) {
  Json config = {{"max-size", "10m"}};
  if (kind == EngineKind::kPodman) {
    if (!spec.log_path.empty()) {
      config["path"] = spec.log_path;
    }
    (*host)["LogConfig"] = {{"Type", "k8s-file"}, {"Config", std::move(config)}};
  } else {
    (*host)["LogConfig"] = {{"Type", "json-file"}, {"Config", std::move(config)}};
  }
}

}  // namespace

Json CreateBody(const ContainerSpec& spec, EngineKind kind) {
  Json host = Json::object();
  host["NetworkMode"] = spec.network_mode;
  SetIf(&host, "IpcMode", spec.ipc_mode);
  SetIf(&host, "PidMode", spec.pid_mode);
  SetIf(&host, "UsernsMode", spec.user_namespace_mode);
  SetIf(&host, "Runtime", spec.runtime);
  // Docker takes the sandbox's UTS namespace along with its network and refuses the option at
  // start.
  if (kind == EngineKind::kPodman || spec.uts_mode == "host") {
    SetIf(&host, "UTSMode", spec.uts_mode);
  }
  SetResources(spec, &host);
  SetSecurity(spec, &host);
  SetLog(spec, kind, &host);
  host["RestartPolicy"] = {{"Name", kind == EngineKind::kPodman ? "" : "no"}};
  if (!spec.mounts.empty()) {
    host["Mounts"] = DockerMounts(spec);
  }
  if (!spec.tmpfs.empty()) {
    host["Tmpfs"] = spec.tmpfs;
  }
  for (const EngineDevice& device : spec.devices) {
    host["Devices"].push_back({{"PathOnHost", device.host_path},
                               {"PathInContainer", device.container_path},
                               {"CgroupPermissions", device.permissions}});
  }

  Json body = {{"Image", spec.image}, {"Labels", spec.labels}, {"HostConfig", std::move(host)}};
  if (!spec.argv.empty()) {
    body["Entrypoint"] = {spec.argv[0]};
    body["Cmd"] = std::vector<std::string>(spec.argv.begin() + 1, spec.argv.end());
  }
  body["Env"] = spec.env;
  SetIf(&body, "WorkingDir", spec.working_dir);
  SetIf(&body, "User", spec.user);
  SetIf(&body, "Hostname", spec.hostname);
  SetIf(&body, "StopSignal", spec.stop_signal);
  body["Tty"] = spec.tty;
  body["OpenStdin"] = spec.stdin_open;
  body["StdinOnce"] = spec.stdin_once;
  // The image's own health check would be run by the engine beside the probes.
  body["Healthcheck"] = {{"Test", {"NONE"}}};
  return body;
}

ContainerState ParseContainer(const Json& inspect) {
  ContainerState state;
  state.id = FindString(inspect, {"Id"});
  state.name = FindString(inspect, {"Name"});
  if (!state.name.empty() && state.name.front() == '/') {
    state.name.erase(0, 1);
  }
  if (const Json* labels = Find(inspect, {"Config", "Labels"}); labels && labels->is_object()) {
    for (const auto& [key, value] : labels->items()) {
      state.labels[key] = value.is_string() ? value.get<std::string>() : "";
    }
  }
  state.image_id = FindString(inspect, {"Image"});
  const std::string_view status = FindString(inspect, {"State", "Status"});
  if (status == "created" || status == "configured" || status == "initialized") {
    state.phase = ContainerState::Phase::kCreated;
  } else if (status == "running" || status == "paused" || status == "stopping" ||
             status == "restarting" || status == "removing") {
    state.phase = ContainerState::Phase::kRunning;
  } else {
    state.phase = ContainerState::Phase::kExited;
  }
  state.pid = static_cast<int>(FindInt(inspect, {"State", "Pid"}));
  if (state.phase != ContainerState::Phase::kRunning) {
    state.pid = 0;
  }
  state.exit_code = static_cast<int>(FindInt(inspect, {"State", "ExitCode"}));
  state.oom_killed = FindBool(inspect, {"State", "OOMKilled"});
  state.error = FindString(inspect, {"State", "Error"});
  state.created_at = ParseEngineTime(FindString(inspect, {"Created"}));
  state.started_at = ParseEngineTime(FindString(inspect, {"State", "StartedAt"}));
  state.finished_at = ParseEngineTime(FindString(inspect, {"State", "FinishedAt"}));
  state.log_path = FindString(inspect, {"LogPath"});
  if (const auto path = FindString(inspect, {"HostConfig", "LogConfig", "Path"}); !path.empty()) {
    state.log_path = path;
  }
  // Podman names its bundle; Docker's is where containerd keeps the tasks of its namespace.
  if (const auto config = FindString(inspect, {"OCIConfigPath"}); !config.empty()) {
    state.bundle = config.substr(0, config.rfind('/'));
  } else if (state.phase == ContainerState::Phase::kRunning) {
    state.bundle = "/run/containerd/io.containerd.runtime.v2.task/moby/" + state.id;
  }
  state.tty = FindBool(inspect, {"Config", "Tty"});
  return state;
}

ImageInfo ParseImage(const Json& inspect) {
  ImageInfo image;
  image.id = FindString(inspect, {"Id"});
  if (!image.id.empty() && image.id.find(':') == std::string::npos) {
    image.id = "sha256:" + image.id;
  }
  image.tags = Strings(Find(inspect, {"RepoTags"}));
  image.digests = Strings(Find(inspect, {"RepoDigests"}));
  image.size_bytes = FindInt(inspect, {"Size"});
  image.entrypoint = Strings(Find(inspect, {"Config", "Entrypoint"}));
  image.command = Strings(Find(inspect, {"Config", "Cmd"}));
  image.env = Strings(Find(inspect, {"Config", "Env"}));
  image.user = FindString(inspect, {"Config", "User"});
  image.working_dir = FindString(inspect, {"Config", "WorkingDir"});
  image.stop_signal = FindString(inspect, {"Config", "StopSignal"});
  return image;
}

EngineInfo ParseEngineInfo(std::string_view server) {
  EngineInfo out;
  const auto slash = server.find('/');
  if (server.substr(0, slash) == "Libpod") {
    out.kind = EngineKind::kPodman;
    out.log_format = LogFormat::kCri;
  }
  if (slash != std::string_view::npos) {
    out.version = server.substr(slash + 1, server.find(' ', slash) - slash - 1);
  }
  utsname machine{};
  ::uname(&machine);
  const std::string_view name = machine.machine;
  out.architecture = name == "x86_64" ? "amd64" : name == "aarch64" ? "arm64" : name;
  return out;
}

WallTime ParseEngineTime(std::string_view text) {
  std::tm parts{};
  const std::string copy(text);
  const char* rest = ::strptime(copy.c_str(), "%Y-%m-%dT%H:%M:%S", &parts);
  if (rest == nullptr || parts.tm_year + 1900 < 1970) {
    return WallTime{};  // Docker's zero time is the year 1
  }
  auto time = std::chrono::system_clock::from_time_t(::timegm(&parts));
  if (*rest == '.') {
    std::int64_t nanos = 0;
    std::int64_t unit = 100'000'000;
    for (++rest; *rest >= '0' && *rest <= '9'; ++rest, unit /= 10) {
      nanos += (*rest - '0') * unit;
    }
    time += std::chrono::duration_cast<WallTime::duration>(std::chrono::nanoseconds(nanos));
  }
  if ((*rest == '+' || *rest == '-') && std::string_view(rest).size() >= 6) {
    const int hours = (rest[1] - '0') * 10 + (rest[2] - '0');
    const int minutes = (rest[4] - '0') * 10 + (rest[5] - '0');
    const auto offset = std::chrono::minutes(hours * 60 + minutes);
    time += *rest == '+' ? -offset : offset;
  }
  return time;
}

std::string UrlEncode(std::string_view text) {
  static constexpr char kHex[] = "0123456789ABCDEF";
  std::string out;
  for (const char c : text) {
    const auto u = static_cast<unsigned char>(c);
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
        c == '.' || c == '_' || c == '~') {
      out += c;
    } else {
      out += '%';
      out += kHex[u >> 4];
      out += kHex[u & 15];
    }
  }
  return out;
}

std::string EncodeRegistryAuth(const RegistryAuth& auth) {
  const Json value = auth.identity_token.empty()
                         ? Json{{"username", auth.username}, {"password", auth.password}}
                         : Json{{"identitytoken", auth.identity_token}};
  static constexpr char kAlphabet[] =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
  const std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  std::string out;
  for (std::size_t i = 0; i < text.size(); i += 3) {
    std::uint32_t group = 0;
    for (std::size_t k = 0; k < 3; ++k) {
      group = group << 8 | (i + k < text.size() ? static_cast<unsigned char>(text[i + k]) : 0u);
    }
    for (std::size_t k = 0; k < 4; ++k) {
      out += i + k > text.size() ? '=' : kAlphabet[group >> (18 - 6 * k) & 63];
    }
  }
  return out;
}

}  // namespace sublet::node
