#include "cli/tenant/endpoint_state.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "base/clock.h"
#include "kube/json.h"

namespace sublet::cli {
namespace {

using kube::Json;

Status SystemError(const std::string& what) {
  return Status(Reason::kInternalError, what + ": " + std::strerror(errno));
}

Result<void> MakeDirectories(const std::string& path) {
  for (std::size_t at = 1; at <= path.size(); ++at) {
    if (at == path.size() || path[at] == '/') {
      const std::string part = path.substr(0, at);
      if (mkdir(part.c_str(), 0700) != 0 && errno != EEXIST) {
        return SystemError("cannot make " + part);
      }
    }
  }
  return Ok();
}

// Context names hold no '/', but nothing a user names may leave the folder.
std::string FileName(const std::string& context) {
  std::string name;
  for (const char c : context) {
    name += c == '/' || c == '.' ? '_' : c;
  }
  return name + ".json";
}

Result<std::string> ReadWhole(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    return Status(Reason::kNotFound, "no " + path);
  }
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

int ConnectLocal(std::uint16_t port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (fd >= 0 && connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) {
    close(fd);
    return -1;
  }
  return fd;
}

// A detached `sublet endpoint CONTEXT`: its own session, nothing of ours held open.
Result<void> Spawn(const std::string& context) {
  const pid_t child = fork();
  if (child < 0) {
    return SystemError("cannot start the local endpoint");
  }
  if (child == 0) {
    setsid();
    if (fork() != 0) {
      _exit(0);
    }
    const int null = open("/dev/null", O_RDWR);
    dup2(null, 0);
    dup2(null, 1);
    dup2(null, 2);
    for (int fd = 3; fd < 256; ++fd) {
      close(fd);
    }
    if (chdir("/") != 0) {
      _exit(1);
    }
    execl("/proc/self/exe", "sublet", "endpoint", context.c_str(), nullptr);
    _exit(127);
  }
  waitpid(child, nullptr, 0);
  return Ok();
}

// True when `pid` runs `sublet endpoint CONTEXT`.
bool IsEndpoint(std::int64_t pid, const std::string& context) {
  const auto line = ReadWhole("/proc/" + std::to_string(pid) + "/cmdline");
  return line.ok() && line->find(std::string("endpoint\0", 9) + context) != std::string::npos;
}

}  // namespace

Result<std::string> EndpointDirectory() {
  const char* state = std::getenv("XDG_STATE_HOME");
  const char* home = std::getenv("HOME");
  std::string path = state != nullptr && *state == '/' ? state
                     : home != nullptr                 ? std::string(home) + "/.local/state"
                                                       : "/tmp/sublet-" + std::to_string(getuid());
  path += "/sublet/endpoints";
  SUBLET_RETURN_IF_ERROR(MakeDirectories(path));
  return path;
}

Result<EndpointState> LoadEndpoint(const std::string& context) {
  SUBLET_TRY(const std::string directory, EndpointDirectory());
  auto text = ReadWhole(directory + "/" + FileName(context));
  if (!text.ok()) {
    return Status(Reason::kNotFound, "context " + context + " is not connected");
  }
  SUBLET_TRY(const Json json, kube::ParseJson(*text));
  EndpointState state;
  state.context = kube::FindString(json, {"context"});
  state.parent = kube::FindString(json, {"parent"});
  state.tenant = kube::FindString(json, {"tenant"});
  state.host_namespace = kube::FindString(json, {"namespace"});
  state.port = static_cast<std::uint16_t>(kube::FindInt(json, {"port"}));
  state.pid = kube::FindInt(json, {"pid"});
  state.paused = kube::FindBool(json, {"paused"});
  state.certificate_pem = kube::FindString(json, {"certificate"});
  state.key_pem = kube::FindString(json, {"key"});
  if (state.context != context || state.port == 0) {
    return BadRequest("the state file of context " + context + " is broken; run: sublet connect " +
                      state.tenant);
  }
  return state;
}

Result<void> SaveEndpoint(const EndpointState& state) {
  SUBLET_TRY(const std::string directory, EndpointDirectory());
  const std::string path = directory + "/" + FileName(state.context);
  const std::string fresh = path + "." + std::to_string(getpid());
  const std::string text = Json{
      {"context", state.context}, {"parent", state.parent},
      {"tenant", state.tenant},   {"namespace", state.host_namespace},
      {"port", state.port},       {"pid", state.pid},
      {"paused", state.paused},   {"certificate", state.certificate_pem},
      {"key", state.key_pem}}.dump();
  const int fd = open(fresh.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd < 0) {
    return SystemError("cannot write " + fresh);
  }
  const bool written = write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  close(fd);
  if (!written || rename(fresh.c_str(), path.c_str()) != 0) {
    unlink(fresh.c_str());
    return SystemError("cannot write " + path);
  }
  return Ok();
}

std::vector<EndpointState> AllEndpoints() {
  std::vector<EndpointState> all;
  const auto directory = EndpointDirectory();
  DIR* folder = directory.ok() ? opendir(directory->c_str()) : nullptr;
  if (folder == nullptr) {
    return all;
  }
  while (const dirent* entry = readdir(folder)) {
    const std::string name = entry->d_name;
    if (!name.ends_with(".json")) {
      continue;
    }
    const auto text = ReadWhole(*directory + "/" + name);
    const auto json = text.ok() ? kube::ParseJson(*text) : Result<Json>(Json::object());
    if (json.ok()) {
      auto state = LoadEndpoint(std::string(kube::FindString(*json, {"context"})));
      if (state.ok()) {
        all.push_back(std::move(*state));
      }
    }
  }
  closedir(folder);
  return all;
}

bool EndpointAnswers(const EndpointState& state) {
  const int fd = ConnectLocal(state.port);
  if (fd < 0) {
    return false;
  }
  close(fd);
  return state.pid != 0 && IsEndpoint(state.pid, state.context);
}

Result<void> StartEndpoint(const EndpointState& state) {
  return EndpointAnswers(state) ? Ok() : Spawn(state.context);
}

Result<void> EnsureEndpoint(EndpointState& state) {
  if (EndpointAnswers(state)) {
    return Ok();
  }
  SUBLET_RETURN_IF_ERROR(Spawn(state.context));
  const auto deadline = After(std::chrono::seconds(5));
  while (std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    if (auto fresh = LoadEndpoint(state.context); fresh.ok() && EndpointAnswers(*fresh)) {
      state = std::move(*fresh);
      return Ok();
    }
  }
  return Timeout("the local endpoint of " + state.tenant +
                 " (127.0.0.1:" + std::to_string(state.port) +
                 ") did not start; run: sublet connect " + state.tenant);
}

void RemoveEndpoint(const std::string& context) {
  const auto state = LoadEndpoint(context);
  const auto directory = EndpointDirectory();
  if (directory.ok()) {
    unlink((*directory + "/" + FileName(context)).c_str());
  }
  if (state.ok() && state->pid > 1 && IsEndpoint(state->pid, context)) {
    kill(static_cast<pid_t>(state->pid), SIGTERM);
  }
}

Result<std::uint16_t> FreePort() {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  const bool good = fd >= 0 &&
                    bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0 &&
                    getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0;
  if (fd >= 0) {
    close(fd);
  }
  if (!good) {
    return SystemError("no free port on 127.0.0.1");
  }
  return ntohs(address.sin_port);
}

}  // namespace sublet::cli
