#include "cli/host/host_command.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/host/engine.h"
#include "cli/host/host_state.h"
#include "cli/host/process.h"
#include "cli/host_install_command.h"
#include "cli/host_session.h"
#include "cli/output.h"
#include "cli/tenant/image.h"
#include "cli/tenant/tenants.h"
#include "kube/object.h"

namespace sublet::cli {
namespace {

using kube::Json;

constexpr const char* kNodeName = "sublet-host";
constexpr const char* kPodNet = "10.244.0.0/16";
constexpr const char* kGateway = "10.244.0.1";
constexpr const char* kServiceNet = "10.96.0.0/12";

struct UpFlags {
  std::string engine;
  std::string gpu_model = "Simulated GPU";
  std::string gpu_memory = "16Gi";
  std::int64_t gpus = 0;
  std::int64_t nodes = 0;
  std::int64_t port = 6443;
  std::int64_t timeout = 60;
};

std::string KubeconfigFile() { return HostDirectory() + "/admin.kubeconfig"; }
std::string NodeKubeconfigFile() { return HostDirectory() + "/node.kubeconfig"; }
std::string LogFile(const std::string& name) { return HostDirectory() + "/logs/" + name + ".log"; }

// One up or down at a time.
class HostLock {
 public:
  HostLock() : fd_(open((HostDirectory() + "/lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)) {}
  ~HostLock() {
    if (fd_ >= 0) {
      close(fd_);
    }
  }
  // Tries for two seconds: children of a command that was killed hold its lock until they exec.
  bool Take() const {
    for (int i = 0; fd_ >= 0 && i < 40; ++i) {
      if (flock(fd_, LOCK_EX | LOCK_NB) == 0) {
        return true;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    return false;
  }

 private:
  const int fd_;
};

Result<client::Client> HostClient() {
  SUBLET_TRY(const client::Connection connection, client::FindConnection(KubeconfigFile(), ""));
  return client::Connect(connection, "sublet-cli");
}

// Whether every process lives, and the API and, through it, the node agent answer.
bool IsUp(const HostState& state) {
  if (state.processes.empty() ||
      !std::all_of(state.processes.begin(), state.processes.end(), IsAlive)) {
    return false;
  }
  const auto client = HostClient();
  if (!client.ok()) {
    return false;
  }
  const auto quick = client->WithTimeout(std::chrono::seconds(2));
  return quick.GetRaw("/readyz").ok() &&
         quick.GetRaw(std::string("/api/v1/nodes/") + kNodeName + "/proxy/healthz").ok();
}

// The command that removes what the node agent made on the machine.
std::vector<std::string> NodeCommand(const HostState& state, bool cleanup) {
  std::vector<std::string> command = {OwnPath(),
                                      "node",
                                      "--kubeconfig=" + NodeKubeconfigFile(),
                                      "--context=node",
                                      "--network-context=network",
                                      "--engine=" + state.engine_socket,
                                      "--state-dir=" + HostDirectory() + "/node",
                                      std::string("--node-name=") + kNodeName,
                                      std::string("--pod-net=") + kPodNet,
                                      std::string("--service-net=") + kServiceNet,
                                      "--cdi-dir=" + HostDirectory() + "/cdi"};
  if (cleanup) {
    command.push_back("--cleanup");
  }
  return command;
}

// Stops what runs, all at once and the engine last; then what the agent left on the machine goes. A
// part that does not end at once is killed: each survives that, and what it holds is given up here.
void TearDown(const HostState& state) {
  Process engine;
  for (const Process& process : state.processes) {
    if (process.name == "engine") {
      engine = process;
    } else if (IsAlive(process)) {
      kill(static_cast<pid_t>(process.pid), SIGTERM);
    }
  }
  const Deadline deadline = After(std::chrono::milliseconds(300));
  for (auto process = state.processes.rbegin(); process != state.processes.rend(); ++process) {
    if (process->name != "engine") {
      StopProcess(*process, deadline);
    }
  }
  if (!state.engine_socket.empty() && access(state.engine_socket.c_str(), F_OK) == 0) {
    RunProcess(NodeCommand(state, true), {}, LogFile("cleanup"));
  }
  StopProcess(engine, After(std::chrono::seconds(5)));
}

class Up {
 public:
  explicit Up(const UpFlags& flags) : flags_(flags), progress_(false) {}

  Result<void> Run() {
    mkdir((HostDirectory() + "/logs").c_str(), 0700);
    if (const auto old = LoadHostState()) {
      if (IsUp(*old)) {
        state_ = *old;
        progress_.Begin("host is up already");
        return WriteContext();
      }
      if (Repair(*old)) {
        return WriteContext();
      }
      progress_.Begin("leftovers of an earlier host removed");
      TearDown(*old);
      state_ = HostState();
    }
    auto started = Start();
    if (!started.ok()) {
      progress_.Failed();
      TearDown(state_);
      unlink((HostDirectory() + "/host.json").c_str());
    }
    return started;
  }
  void Done() { progress_.Done(); }
  // So that the first create does not wait for it. When it fails, create says what to do.
  void MakeTenantImage() {
    progress_.Begin("tenant image ready");
    if (!EnsureEmbeddedImage().ok()) {
      progress_.Failed();
    }
  }
  std::chrono::milliseconds total() const { return progress_.total(); }

 private:
  // Starts again what has ended of a host that was up, and leaves the rest and all pods alone.
  // False when that does not make it whole (an up was cut short).
  bool Repair(const HostState& old) {
    const auto alive = [&](std::string_view name) {
      return std::any_of(old.processes.begin(), old.processes.end(), [&](const Process& process) {
        return process.name == name && IsAlive(process);
      });
    };
    const auto known = [&](std::string_view name) {
      return std::any_of(old.processes.begin(), old.processes.end(),
                         [&](const Process& process) { return process.name == name; });
    };
    if (!known("serve") || !known("node") || access(KubeconfigFile().c_str(), F_OK) != 0) {
      return false;
    }
    state_ = old;
    std::erase_if(state_.processes, [](const Process& process) { return !IsAlive(process); });
    const auto repaired = [&]() -> Result<void> {
      if (known("engine") && !alive("engine")) {
        progress_.Begin("container engine serves again");
        SUBLET_TRY(const EngineChoice engine,
                   RestartEngine(HostDirectory() + "/engine", old.boot_id != BootId()));
        SUBLET_RETURN_IF_ERROR(Remember(engine.process));
      }
      if (!alive("serve")) {
        progress_.Begin("control plane serves again");
        SUBLET_RETURN_IF_ERROR(StartServe());
      }
      if (known("gpud") && !alive("gpud")) {
        progress_.Begin("GPUs managed again");
        SUBLET_RETURN_IF_ERROR(StartOne("gpud", GpudCommand()));
      }
      if (!alive("node")) {
        progress_.Begin("node agent runs again");
        SUBLET_RETURN_IF_ERROR(StartOne("node", NodeCommand(state_, false)));
      }
      if (known("nodes") && !alive("nodes")) {
        progress_.Begin(std::to_string(state_.nodes) + " simulated nodes again");
        SUBLET_RETURN_IF_ERROR(StartNodes());
      }
      SUBLET_RETURN_IF_ERROR(WaitForNode());
      return Wait("all parts", "node", [this] { return IsUp(state_); });
    }();
    if (!repaired.ok()) {
      progress_.Failed();
    }
    return repaired.ok();
  }

  Result<void> Start() {
    state_.version = std::string(kVersion);
    state_.port = static_cast<std::uint16_t>(flags_.port);
    state_.gpus = flags_.gpus;
    state_.nodes = flags_.nodes;
    progress_.Begin("container engine answers");
    SUBLET_TRY(EngineChoice engine, ChooseEngine(flags_.engine, HostDirectory() + "/engine"));
    state_.engine_socket = engine.socket;
    if (engine.process.pid != 0) {
      SUBLET_RETURN_IF_ERROR(Remember(engine.process));
    }
    progress_.Begin("control plane serves (" + engine.name + ")");
    SUBLET_RETURN_IF_ERROR(StartServe());
    if (flags_.gpus > 0) {
      progress_.Begin(std::to_string(flags_.gpus) + " simulated GPUs managed");
      SUBLET_RETURN_IF_ERROR(StartOne("gpud", GpudCommand()));
    }
    progress_.Begin("node is Ready");
    SUBLET_RETURN_IF_ERROR(StartOne("node", NodeCommand(state_, false)));
    SUBLET_RETURN_IF_ERROR(WaitForNode());
    if (flags_.nodes > 0) {
      progress_.Begin(std::to_string(flags_.nodes) + " simulated nodes added");
      SUBLET_RETURN_IF_ERROR(StartNodes());
    }
    progress_.Begin(std::string("kubectl context ") + std::string(kEmbeddedContext));
    return WriteContext();
  }

  Result<void> Remember(Process process) {
    state_.processes.push_back(std::move(process));
    return SaveHostState(state_);
  }

  Result<void> StartOne(const std::string& name, const std::vector<std::string>& command) {
    SUBLET_TRY(Process process, StartProcess(name, command, {}, LogFile(name)));
    return Remember(std::move(process));
  }

  Result<void> StartNodes() {
    return StartOne("nodes", {OwnPath(), "node", "--simulate=" + std::to_string(state_.nodes),
                              "--kubeconfig=" + KubeconfigFile()});
  }

  Result<void> StartServe() {
    unlink(KubeconfigFile().c_str());
    const std::string port = std::to_string(state_.port);
    SUBLET_RETURN_IF_ERROR(StartOne(
        "serve",
        {OwnPath(), "serve", "--role=host", "--data-dir=" + HostDirectory() + "/serve",
         "--listen=127.0.0.1:" + port, std::string("--pod-listen=") + kGateway + ":" + port,
         "--write-kubeconfig=" + KubeconfigFile(),
         std::string("--write-node-kubeconfig=") + kNodeName + "=" + NodeKubeconfigFile()}));
    return Wait("the host's API", "serve", [] {
      const auto client = HostClient();
      return client.ok() && client->WithTimeout(std::chrono::seconds(2)).GetRaw("/readyz").ok();
    });
  }

  Result<void> WaitForNode() {
    SUBLET_TRY(const client::Client client, HostClient());
    return Wait("its node", "node", [&client] {
      const auto node = client.Get({{"", "v1", "nodes"}, "", kNodeName, ""});
      return node.ok() && kube::IsConditionTrue(*node, "Ready");
    });
  }

  std::vector<std::string> GpudCommand() const {
    return {OwnPath(),
            "gpud",
            "--kubeconfig=" + KubeconfigFile(),
            std::string("--node-name=") + kNodeName,
            "--run-dir=" + HostDirectory() + "/gpud",
            "--install-dir=" + HostDirectory() + "/gpu",
            "--cdi-dir=" + HostDirectory() + "/cdi",
            "--simulate=" + std::to_string(state_.gpus),
            "--model=" + flags_.gpu_model,
            "--memory=" + flags_.gpu_memory};
  }

  // Until `ready`, the deadline, or the end of the process that should make it so.
  Result<void> Wait(const std::string& what, const std::string& process,
                    const std::function<bool()>& ready) {
    const auto deadline = After(std::chrono::seconds(flags_.timeout));
    auto pause = std::chrono::milliseconds(2);
    while (std::chrono::steady_clock::now() < deadline) {
      if (ready()) {
        return Ok();
      }
      for (const Process& one : state_.processes) {
        if (one.name == process && !IsAlive(one)) {
          return InternalError("sublet " + process + " ended; its last lines:\n" +
                               Tail(LogFile(process), 6) + "  the whole log: sublet host logs " +
                               process);
        }
      }
      std::this_thread::sleep_for(pause);
      pause =
          std::min<std::chrono::milliseconds>(pause + pause / 4, std::chrono::milliseconds(100));
    }
    return Timeout("waited " + std::to_string(flags_.timeout) + " s for " + what +
                   "; the last lines of its log:\n" + Tail(LogFile(process), 6));
  }

  // The administrator's credentials become context sublet-host of the user's kubeconfig.
  Result<void> WriteContext() {
    SUBLET_TRY(const client::Kubeconfig own, client::Kubeconfig::Load(KubeconfigFile()));
    const Json* cluster = nullptr;
    const Json* user = nullptr;
    for (const std::string& name : own.contexts()) {
      const Json* context = own.FindContext(name);
      cluster = own.FindCluster(kube::FindString(*context, {"cluster"}));
      user = own.FindUser(kube::FindString(*context, {"user"}));
    }
    if (cluster == nullptr || user == nullptr) {
      return InternalError(KubeconfigFile() + " holds no context");
    }
    return client::WriteContext(client::Kubeconfig::Paths("").front(),
                                {std::string(kEmbeddedContext), *cluster, *user, "", true});
  }

  const UpFlags& flags_;
  Progress progress_;
  HostState state_;
};

int HostUp(int argc, char** argv) {
  UpFlags flags;
  Flags parser("sublet host up",
               "Starts a one-machine Kubernetes on this machine's container engine.");
  parser.Text(&flags.engine, "--engine", "podman, docker or a socket (default: what is there)");
  parser.Number(&flags.gpus, "--gpus", "simulated GPUs of the node");
  parser.Text(&flags.gpu_model, "--gpu-model", "their model");
  parser.Text(&flags.gpu_memory, "--gpu-memory", "their memory (default 16Gi)");
  parser.Number(&flags.nodes, "--nodes", "simulated nodes besides the real one");
  parser.Number(&flags.port, "--port", "port of the API on 127.0.0.1 (default 6443)");
  parser.Duration(&flags.timeout, "--timeout", "how long to wait for each part (default 1m)");
  if (const auto exit_code = parser.Parse(argc, argv)) {
    return *exit_code;
  }
  if (flags.gpus < 0 || flags.gpus > 16 || flags.nodes < 0 || flags.nodes > 5000 ||
      flags.port < 1 || flags.port > 65535) {
    return Fail(BadRequest("--gpus takes 0 to 16, --nodes 0 to 5000, --port 1 to 65535"));
  }
  if (geteuid() != 0) {
    return Fail(Status(Reason::kForbidden,
                       "the embedded host needs root: it makes networks and "
                       "firewall rules for pods"),
                "sudo sublet host up");
  }
  const HostLock lock;
  if (!lock.Take()) {
    return Fail(Status(Reason::kConflict, "another sublet host up or down is running"));
  }
  Up up(flags);
  const auto started = up.Run();
  if (!started.ok()) {
    return Fail(started.error(), started.error().Is(Reason::kNotFound) ? "" : "sublet host logs");
  }
  up.MakeTenantImage();
  up.Done();
  std::fprintf(stderr, "The host is up (%lld ms). Make a tenant with: sublet create team-a\n",
               static_cast<long long>(up.total().count()));
  return 0;
}

void RemoveFiles() {
  // Bind mounts and overlay layers of a private engine may still be mounted below.
  RunProcess({"sh", "-c",
              "for m in $(awk -v d=\"$0\" 'index($5, d \"/\") == 1 {print $5}' "
              "/proc/self/mountinfo | sort -r); do umount -l \"$m\"; done; rm -rf \"$0\"",
              HostDirectory()},
             {}, "/dev/null");
}

int HostDown(int argc, char** argv) {
  bool force = false;
  Flags parser("sublet host down", "Stops the embedded host and removes everything it made.");
  parser.Bool(&force, "--force", "also when tenants are there");
  if (const auto exit_code = parser.Parse(argc, argv)) {
    return *exit_code;
  }
  const HostLock lock;
  if (!lock.Take()) {
    return Fail(Status(Reason::kConflict, "another sublet host up or down is running"));
  }
  const auto state = LoadHostState();
  if (!state) {
    // An up that failed, or a reboot, may have left files.
    (void)client::RemoveContext(client::Kubeconfig::Paths("").front(),
                                std::string(kEmbeddedContext));
    RemoveFiles();
    std::fprintf(stderr, "No host is up; nothing to do.\n");
    return 0;
  }
  if (!force && IsUp(*state)) {
    HostFlags flags;
    flags.context = kEmbeddedContext;
    const auto host = OpenHost(flags);
    const auto tenants =
        host.ok() ? ListTenants(*host, "") : Result<std::vector<TenantInfo>>(host.error());
    if (tenants.ok() && !tenants->empty()) {
      std::string names;
      for (const TenantInfo& tenant : *tenants) {
        names += (names.empty() ? "" : ", ") + tenant.name;
      }
      return Fail(Status(Reason::kConflict, "the host has tenants: " + names),
                  "sublet delete NAME for each, or: sublet host down --force");
    }
  }
  Progress progress(false);
  progress.Begin("processes and pods stopped");
  TearDown(*state);
  progress.Begin("files and context removed");
  const std::string kubeconfig = client::Kubeconfig::Paths("").front();
  if (const auto contexts = client::Kubeconfig::Load(); contexts.ok()) {
    for (const std::string& context : contexts->contexts()) {
      const auto tenant = ParseTenantContext(context);
      if (tenant && tenant->parent == kEmbeddedContext) {
        (void)client::RemoveContext(kubeconfig, context);
      }
    }
  }
  (void)client::RemoveContext(kubeconfig, std::string(kEmbeddedContext));
  RemoveFiles();
  progress.Done();
  std::fprintf(stderr, "The host is gone.\n");
  return 0;
}

int HostStatus(int argc, char** argv) {
  std::string output;
  Flags parser("sublet host status", "Shows what runs of the embedded host.");
  parser.OneOf(&output, "-o,--output", {"json"}, "print as JSON");
  if (const auto exit_code = parser.Parse(argc, argv)) {
    return *exit_code;
  }
  const auto state = LoadHostState();
  if (!state) {
    return Fail(Status(Reason::kNotFound, "no host is up"), "sublet host up");
  }
  Json processes = Json::array();
  bool all = true;
  Table table({"PROCESS", "PID", "STATE", "LOG"});
  for (const Process& process : state->processes) {
    const bool alive = IsAlive(process);
    all = all && alive;
    processes.push_back({{"name", process.name}, {"pid", process.pid}, {"alive", alive}});
    table.Row({process.name, std::to_string(process.pid), alive ? "running" : "ended",
               LogFile(process.name)});
  }
  const bool up = all && IsUp(*state);
  if (output == "json") {
    std::printf("%s\n",
                kube::DumpPretty({{"up", up},
                                  {"api", "https://127.0.0.1:" + std::to_string(state->port)},
                                  {"engineSocket", state->engine_socket},
                                  {"gpus", state->gpus},
                                  {"processes", processes}})
                    .c_str());
    return up ? 0 : 1;
  }
  std::printf("API:     https://127.0.0.1:%u (%s)\nEngine:  %s\n", state->port,
              up ? "answers" : "does not answer", state->engine_socket.c_str());
  table.Print();
  if (!up) {
    std::fprintf(stderr, "  next: sublet host up\n");
  }
  return up ? 0 : 1;
}

int HostLogs(int argc, char** argv) {
  std::string name = "serve";
  std::int64_t tail = 100;
  bool follow = false;
  Flags parser("sublet host logs", "Prints the log of a part of the embedded host.");
  parser.Positional(&name, "PART", "serve, node, gpud or engine (default serve)", false);
  parser.Number(&tail, "--tail", "how many lines (default 100)");
  parser.Bool(&follow, "-f,--follow", "go on with what is written, until the host is gone");
  if (const auto exit_code = parser.Parse(argc, argv)) {
    return *exit_code;
  }
  if (!PrintLog(LogFile(name), static_cast<std::size_t>(std::max<std::int64_t>(tail, 1)), follow)) {
    return Fail(Status(Reason::kNotFound, "there is no log of \"" + name + "\""),
                "sublet host status");
  }
  return 0;
}

}  // namespace

int RunHost(int argc, char** argv) {
  const std::string action = argc > 1 ? argv[1] : "--help";
  const std::pair<const char*, int (*)(int, char**)> actions[] = {{"up", HostUp},
                                                                  {"down", HostDown},
                                                                  {"status", HostStatus},
                                                                  {"logs", HostLogs},
                                                                  {"install", RunHostInstall}};
  for (const auto& [name, run] : actions) {
    if (action == name) {
      return run(argc - 1, argv + 1);
    }
  }
  const bool help = action == "--help" || action == "-h";
  SayUnknownAction("sublet host", action);
  std::fprintf(help ? stdout : stderr,
               "usage: sublet host <action>\n"
               "  up        start a one-machine Kubernetes on this machine's container engine\n"
               "  down      stop it and remove everything it made\n"
               "  status    what runs of it\n"
               "  logs      the log of one of its parts\n"
               "  install   put on a real cluster, once, what tenants share\n");
  return help ? 0 : 2;
}

}  // namespace sublet::cli
