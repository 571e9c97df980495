#include "cli/host/engine.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <thread>

#include "node/engine/engine.h"

namespace sublet::cli {
namespace {

bool Exists(const std::string& path) { return access(path.c_str(), F_OK) == 0; }

std::string FindProgram(const std::string& name) {
  const char* path = std::getenv("PATH");
  std::string_view rest = path == nullptr ? "/usr/bin:/bin" : path;
  while (!rest.empty()) {
    const auto colon = rest.find(':');
    std::string candidate(rest.substr(0, colon));
    candidate += "/" + name;
    if (access(candidate.c_str(), X_OK) == 0) {
      return candidate;
    }
    rest = colon == std::string_view::npos ? std::string_view() : rest.substr(colon + 1);
  }
  return "";
}

std::string Describe(const node::EngineInfo& info) {
  return (info.kind == node::EngineKind::kPodman ? "podman " : "docker ") + info.version;
}

Result<std::string> Answers(const std::string& socket) {
  const auto engine = node::OpenEngine(socket);
  auto info = engine->Info();
  if (!info.ok()) {
    return std::move(info).error();
  }
  return Describe(*info);
}

// A configuration that works without systemd and without the right to raise limits, and that
// touches nothing of the machine's own Podman.
Result<void> WritePodmanConfiguration(const std::string& directory) {
  std::ofstream containers(directory + "/containers.conf", std::ios::trunc);
  containers << "[containers]\n"
                "default_ulimits = [\"nofile=1024:1024\", \"nproc=1024:1024\"]\n"
                "base_hosts_file = \"none\"\n"
                "log_driver = \"k8s-file\"\n"
                "[engine]\n"
                "runtime = \"runc\"\n"
                "cgroup_manager = \"cgroupfs\"\n"
                "events_logger = \"file\"\n"
                "exit_command_delay = 2\n"
             << "static_dir = \"" << directory << "/graph/libpod\"\n"
             << "tmp_dir = \"" << directory << "/libpod-run\"\n"
             << "volume_path = \"" << directory << "/graph/volumes\"\n"
             << "[network]\nnetwork_backend = \"netavark\"\n"
             << "network_config_dir = \"" << directory << "/networks\"\n";
  std::ofstream storage(directory + "/storage.conf", std::ios::trunc);
  storage << "[storage]\ndriver = \"overlay\"\n"
          << "graphroot = \"" << directory << "/graph\"\n"
          << "runroot = \"" << directory << "/run\"\n";
  containers.close();
  storage.close();
  return containers && storage
             ? Ok()
             : Result<void>(InternalError("cannot write Podman's configuration in " + directory));
}

Result<EngineChoice> StartPodman(const std::string& podman, const std::string& directory) {
  mkdir(directory.c_str(), 0700);
  SUBLET_RETURN_IF_ERROR(WritePodmanConfiguration(directory));
  EngineChoice choice;
  choice.socket = directory + "/podman.sock";
  unlink(choice.socket.c_str());
  SUBLET_TRY(
      choice.process,
      StartProcess("engine", {podman, "system", "service", "--time=0", "unix://" + choice.socket},
                   {"CONTAINERS_CONF=" + directory + "/containers.conf",
                    "CONTAINERS_STORAGE_CONF=" + directory + "/storage.conf"},
                   directory + "/../logs/engine.log"));
  const auto deadline = After(std::chrono::seconds(15));
  while (std::chrono::steady_clock::now() < deadline && IsAlive(choice.process)) {
    if (Exists(choice.socket)) {
      if (auto name = Answers(choice.socket); name.ok()) {
        choice.name = *name;
        return choice;
      }
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  StopProcess(choice.process, After(std::chrono::seconds(1)));
  return Timeout("podman's service did not start:\n" + Tail(directory + "/../logs/engine.log", 5));
}

Result<EngineChoice> OwnPodman(const std::string& directory) {
  const std::string podman = FindProgram("podman");
  if (podman.empty()) {
    return Status(Reason::kNotFound, "no container engine found; run: apt-get install podman runc");
  }
  if (FindProgram("runc").empty()) {
    return Status(Reason::kNotFound,
                  "podman is here, its runtime runc is not; run: apt-get install runc");
  }
  return StartPodman(podman, directory);
}

}  // namespace

Result<EngineChoice> RestartEngine(const std::string& directory, bool rebooted) {
  if (rebooted) {
    // Podman takes a boot for a new one when this state, which elsewhere lies on tmpfs, is gone.
    RunProcess({"rm", "-rf", directory + "/libpod-run", directory + "/run"}, {}, "/dev/null");
  }
  return OwnPodman(directory);
}

Result<EngineChoice> ChooseEngine(const std::string& wanted, const std::string& directory) {
  const char* preset = std::getenv("SUBLET_ENGINE_SOCKET");
  std::string explicit_socket = wanted.starts_with('/') ? wanted : "";
  if (wanted.empty() && preset != nullptr) {
    explicit_socket = preset;
  }
  if (!explicit_socket.empty()) {
    auto name = Answers(explicit_socket);
    if (!name.ok()) {
      return std::move(name).error().Prefixed("no container engine answers at " + explicit_socket);
    }
    return EngineChoice{explicit_socket, {}, *name};
  }
  for (const auto& [engine, socket] :
       {std::pair<const char*, const char*>{"docker", "/var/run/docker.sock"},
        {"podman", "/run/podman/podman.sock"}}) {
    if ((wanted.empty() || wanted == engine) && Exists(socket)) {
      if (auto name = Answers(socket); name.ok()) {
        return EngineChoice{socket, {}, *name};
      }
    }
  }
  if (wanted == "docker") {
    return Status(Reason::kNotFound,
                  "no Docker engine answers at /var/run/docker.sock; run: apt-get install "
                  "docker.io, and start it");
  }
  return OwnPodman(directory);
}

}  // namespace sublet::cli
