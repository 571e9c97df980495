#include "client/exec_credential.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "kube/timestamp.h"

extern char** environ;

namespace sublet::client {
namespace {

using kube::Json;

constexpr std::chrono::seconds kPluginTime{60};
constexpr std::size_t kOutputBytesMax = 1 << 20;

struct Plugin {
  std::string api_version;
  std::vector<std::string> arguments;  // the command first
  std::vector<std::string> environment;
  std::string install_hint;
  bool interactive = false;
};

std::string MemberText(const Json& object, std::string_view key) {
  return std::string(kube::FindString(object, {key}));
}

std::vector<char*> Pointers(std::vector<std::string>& texts) {
  std::vector<char*> out;
  for (std::string& text : texts) {
    out.push_back(text.data());
  }
  out.push_back(nullptr);
  return out;
}

Status Failure(const Plugin& plugin, const std::string& why) {
  std::string message = "getting credentials: exec: " + plugin.arguments[0] + ": " + why;
  if (!plugin.install_hint.empty()) {
    message += "\n" + plugin.install_hint;
  }
  return Status(Reason::kUnauthorized, std::move(message));
}

// Reads until the end of the pipe. Errors: Timeout, RequestEntityTooLarge.
Result<std::string> ReadPipe(int fd, Deadline deadline) {
  std::string out;
  char buffer[8192];
  for (;;) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    pollfd entry{fd, POLLIN, 0};
    if (left.count() <= 0 || poll(&entry, 1, static_cast<int>(left.count())) == 0) {
      return Timeout("no answer within a minute");
    }
    const ssize_t count = read(fd, buffer, sizeof buffer);
    if (count == 0) {
      return out;
    }
    if (count < 0 && errno != EINTR) {
      return InternalError(std::strerror(errno));
    }
    out.append(buffer, count > 0 ? static_cast<std::size_t>(count) : 0);
    if (out.size() > kOutputBytesMax) {
      return Status(Reason::kRequestEntityTooLarge, "it printed more than 1 MiB");
    }
  }
}

Result<Credential> RunPlugin(Plugin plugin) {
  int output[2];
  if (pipe2(output, O_CLOEXEC) != 0) {
    return InternalError(std::string("pipe: ") + std::strerror(errno));
  }
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, output[1], STDOUT_FILENO);
  if (!plugin.interactive) {
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  }
  std::vector<char*> arguments = Pointers(plugin.arguments);
  std::vector<char*> environment = Pointers(plugin.environment);
  pid_t pid = 0;
  const int spawned =
      posix_spawnp(&pid, arguments[0], &actions, nullptr, arguments.data(), environment.data());
  posix_spawn_file_actions_destroy(&actions);
  close(output[1]);
  if (spawned != 0) {
    close(output[0]);
    return Failure(plugin, std::strerror(spawned));
  }
  auto text = ReadPipe(output[0], After(kPluginTime));
  close(output[0]);
  if (!text.ok()) {
    kill(pid, SIGKILL);
  }
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (!text.ok()) {
    return Failure(plugin, text.error().message());
  }
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    return Failure(plugin, "it failed with exit code " +
                               std::to_string(WIFEXITED(status) ? WEXITSTATUS(status) : -1));
  }
  auto credential = ParseExecCredential(*text);
  if (!credential.ok()) {
    return Failure(plugin, credential.error().message());
  }
  return credential;
}

void SetVariable(std::vector<std::string>* environment, const std::string& name,
                 const std::string& value) {
  std::erase_if(*environment,
                [&](const std::string& entry) { return entry.starts_with(name + "="); });
  environment->push_back(name + "=" + value);
}

// What the plugin may know about the cluster.
Json ExecInfo(const Plugin& plugin, const Json& exec, const Json& cluster) {
  Json info = {{"apiVersion", plugin.api_version},
               {"kind", "ExecCredential"},
               {"spec", {{"interactive", plugin.interactive}}}};
  if (kube::FindBool(exec, {"provideClusterInfo"})) {
    Json& out = info["spec"]["cluster"];
    out["server"] = MemberText(cluster, "server");
    for (const char* key : {"certificate-authority-data", "tls-server-name", "proxy-url"}) {
      if (const std::string value = MemberText(cluster, key); !value.empty()) {
        out[key] = value;
      }
    }
  }
  return info;
}

}  // namespace

Result<std::function<Result<Credential>()>> MakeExecCredential(const Json& exec,
                                                               const Json& cluster) {
  Plugin plugin;
  plugin.api_version = MemberText(exec, "apiVersion");
  if (plugin.api_version != "client.authentication.k8s.io/v1" &&
      plugin.api_version != "client.authentication.k8s.io/v1beta1") {
    return BadRequest("the kubeconfig's exec plugin has apiVersion \"" + plugin.api_version +
                      "\"; client.authentication.k8s.io/v1 and v1beta1 are known");
  }
  plugin.arguments.push_back(MemberText(exec, "command"));
  if (plugin.arguments[0].empty()) {
    return BadRequest("the kubeconfig's exec plugin names no command");
  }
  if (const Json* args = kube::Find(exec, {"args"}); args != nullptr && args->is_array()) {
    for (const Json& arg : *args) {
      plugin.arguments.push_back(arg.is_string() ? arg.get<std::string>() : "");
    }
  }
  plugin.install_hint = MemberText(exec, "installHint");
  plugin.interactive = MemberText(exec, "interactiveMode") != "Never" && isatty(STDIN_FILENO) == 1;
  for (char** at = environ; *at != nullptr; ++at) {
    plugin.environment.emplace_back(*at);
  }
  if (const Json* env = kube::Find(exec, {"env"}); env != nullptr && env->is_array()) {
    for (const Json& entry : *env) {
      SetVariable(&plugin.environment, MemberText(entry, "name"), MemberText(entry, "value"));
    }
  }
  SetVariable(&plugin.environment, "KUBERNETES_EXEC_INFO",
              kube::Dump(ExecInfo(plugin, exec, cluster)));
  return std::function<Result<Credential>()>([plugin] { return RunPlugin(plugin); });
}

Result<Credential> ParseExecCredential(std::string_view text) {
  SUBLET_TRY(const Json answer, kube::ParseJson(text));
  if (kube::FindString(answer, {"kind"}) != "ExecCredential") {
    return BadRequest("it printed no ExecCredential");
  }
  Credential out;
  out.bearer_token = kube::FindString(answer, {"status", "token"});
  out.certificate_pem = kube::FindString(answer, {"status", "clientCertificateData"});
  out.key_pem = kube::FindString(answer, {"status", "clientKeyData"});
  if (out.bearer_token.empty() && (out.certificate_pem.empty() || out.key_pem.empty())) {
    return BadRequest("it printed neither a token nor a client certificate and key");
  }
  if (const auto expires =
          kube::FindTime(kube::FindString(answer, {"status", "expirationTimestamp"}))) {
    out.expires = *expires;
  }
  return out;
}

}  // namespace sublet::client
