#include "node/pod/actions.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/log.h"
#include "gpu/api/guard.h"
#include "kube/object.h"
#include "node/engine/image_archive.h"
#include "node/pod/cdi.h"
#include "node/pod/hooks.h"
#include "node/pod/logs.h"

namespace sublet::node {
namespace {

using kube::FindBool;

constexpr std::size_t kTerminationBytesMax = 4096;
constexpr std::size_t kFallbackBytesMax = 2048;
constexpr int kFallbackLines = 80;
// The process is gone; how long the engine may take to write that down.
constexpr std::chrono::seconds kEngineNoticesWithin{10};
constexpr std::chrono::milliseconds kAskEngineMost{250};

std::string PodFolder(const PodServicesConfig& config, const PodPlan& plan) {
  return config.root + "/pods/" + plan.uid;
}

Result<void> WriteEtcFiles(PodServices& services, const PodPlan& plan, const std::string& ip) {
  const std::string folder = PodFolder(services.config, plan) + "/etc";
  SUBLET_RETURN_IF_ERROR(MakeDirectories(folder));
  const DnsConfig& dns = services.config.dns;
  SUBLET_RETURN_IF_ERROR(WriteFile(folder + "/resolv.conf", MakeResolvConf(plan, dns), 0644));
  SUBLET_RETURN_IF_ERROR(WriteFile(
      folder + "/hosts",
      MakeHosts(plan, ip, dns, plan.host_network ? ReadFile("/etc/hosts", 1 << 20) : ""), 0644));
  if (plan.host_network) {
    return {};
  }
  return WriteFile(folder + "/hostname", plan.hostname + "\n", 0644);
}

void AddEtcMounts(PodServices& services, const PodPlan& plan, std::vector<EngineMount>* mounts) {
  const std::string folder = PodFolder(services.config, plan) + "/etc";
  for (const char* name : {"resolv.conf", "hosts", "hostname"}) {
    const std::string target = std::string("/etc/") + name;
    const bool taken = std::any_of(mounts->begin(), mounts->end(), [&](const EngineMount& mount) {
      return mount.target == target || mount.target == "/etc";
    });
    if (!taken && !(plan.host_network && std::string_view(name) == "hostname")) {
      EngineMount mount;
      mount.source = folder + "/" + name;
      mount.target = target;
      mounts->push_back(std::move(mount));
    }
  }
}

// Waits for the process; false when a descriptor of `others` became readable or time ran out first.
bool WaitProcess(int pidfd, Deadline deadline, Canceller& control, Canceller& abandon) {
  for (;;) {
    pollfd fds[3] = {{pidfd, POLLIN, 0}, {control.fd(), POLLIN, 0}, {abandon.fd(), POLLIN, 0}};
    int timeout = -1;
    if (deadline != Deadline::max()) {
      const auto left =
          std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
      timeout = static_cast<int>(std::clamp<long long>(left.count(), 0, 1 << 30));
    }
    const int n = ::poll(fds, 3, timeout);
    if (n < 0 && errno == EINTR) {
      continue;
    }
    return n > 0 && fds[0].revents != 0;
  }
}

int LabelInt(const ContainerState& state, const char* name) {
  const auto it = state.labels.find(name);
  return it == state.labels.end() ? 0 : std::atoi(it->second.c_str());
}

PodFacts FactsOf(const PodServices& services, const SandboxRecord& sandbox, const PodPlan& plan) {
  PodFacts facts;
  facts.host_ips = services.config.host_ips;
  facts.pod_ip = plan.host_network && !facts.host_ips.empty() ? facts.host_ips[0] : sandbox.ip;
  facts.allocatable = services.config.allocatable;
  return facts;
}

// Everything that can be wrong with the configuration, before the engine is asked.
Result<ContainerSpec> Configure(PodServices& services, const StartRequest& request,
                                const ImageInfo& image, CdiEdits* cdi) {
  const PodPlan& plan = request.plan;
  const ContainerPlan& container = request.container;
  const PodFacts pod_facts = FactsOf(services, request.sandbox, plan);
  const bool links = FindBool(*plan.object, {"spec", "enableServiceLinks"}, true);
  ContainerFacts facts;
  facts.instance = services.config.instance;
  facts.attempt = request.attempt;
  facts.sandbox_id = request.sandbox.id;
  facts.image = image;
  facts.node_memory_bytes = services.config.memory_bytes;
  facts.oom_score_floor = services.config.oom_score_floor;
  facts.seccomp_folder = services.config.root + "/seccomp";
  facts.target_container_id = request.target_container_id;
  SUBLET_TRY(facts.environment,
             MakeEnvironment(plan, container, pod_facts,
                             services.agent.ServiceVariables(plan.namespace_name, links),
                             services.volumes.source()));
  SUBLET_TRY(facts.mounts, services.volumes.MountsOf(plan, container, facts.environment));
  AddEtcMounts(services, plan, &facts.mounts);
  facts.log_path = LogPath(services.config, plan, container.name, request.attempt);
  SUBLET_RETURN_IF_ERROR(MakeDirectories(facts.log_path.substr(0, facts.log_path.rfind('/'))));
  const std::string messages = PodFolder(services.config, plan) + "/termination/" + container.name;
  SUBLET_RETURN_IF_ERROR(MakeDirectories(messages));
  facts.termination_file = messages + "/" + std::to_string(request.attempt);
  SUBLET_RETURN_IF_ERROR(WriteFile(facts.termination_file, "", 0666));
  SUBLET_TRY(ContainerSpec spec, MakeContainerSpec(plan, container, facts));
  if (spec.stop_signal.empty()) {
    spec.stop_signal = image.stop_signal;
  }
  spec.labels[kLabelStopSignal] = spec.stop_signal;
  SUBLET_TRY(auto devices, CdiDevicesOf(kube::AnnotationsOf(*plan.object)));
  // The pod's GPU slice belongs to the containers that asked for it.
  const bool is_without_slice = !gpu::SeesDevices(*plan.object, container.name) &&
                                std::erase_if(devices, [](const std::string& device) {
                                  return device.starts_with(std::string(gpu::kCdiKind) + "=");
                                }) > 0;
  SUBLET_TRY(*cdi, ResolveCdi(services.config.cdi_folders, devices));
  if (is_without_slice) {
    cdi->env.push_back("NVIDIA_VISIBLE_DEVICES=void");
  }
  ApplyCdi(*cdi, &spec);
  return spec;
}

Result<std::string> CreateReplacing(ContainerEngine& engine, const ContainerSpec& spec) {
  auto id = engine.Create(spec);
  if (!id.ok() && id.error().Is(Reason::kAlreadyExists)) {
    // Left by an agent that was killed between create and start.
    SUBLET_RETURN_IF_ERROR(engine.Remove(spec.name));
    id = engine.Create(spec);
  }
  return id;
}

}  // namespace

std::string LogPath(const PodServicesConfig& config, const PodPlan& plan,
                    const std::string& container, int attempt) {
  return PodFolder(config, plan) + "/logs/" + container + "/" + std::to_string(attempt) + ".log";
}

Result<SandboxRecord> CreateSandbox(PodServices& services, const PodPlan& plan, int attempt) {
  SandboxRecord record;
  record.attempt = attempt;
  SandboxFacts facts;
  facts.instance = services.config.instance;
  facts.attempt = attempt;
  facts.image = kPauseImage;
  facts.oom_score_floor = services.config.oom_score_floor;
  if (!plan.runtime_class.empty()) {
    SUBLET_TRY(facts.runtime, services.agent.FindRuntime(plan.runtime_class));
  }
  Ipv4 address = 0;
  if (!plan.host_network) {
    SUBLET_TRY(address, services.network.Allocate(plan.uid));
    record.ip = FormatIpv4(address);
    facts.ip = record.ip;
  }
  SUBLET_RETURN_IF_ERROR(WriteEtcFiles(services, plan, record.ip));
  const ContainerSpec spec = MakeSandboxSpec(plan, facts);
  auto created = CreateReplacing(services.engine, spec);
  if (!created.ok() && created.error().Is(Reason::kNotFound)) {
    // Someone pruned the engine's images.
    SUBLET_RETURN_IF_ERROR(EnsurePauseImage(services.engine));
    created = CreateReplacing(services.engine, spec);
  }
  if (!created.ok()) {
    return std::move(created).error();
  }
  record.id = std::move(created).value();
  auto up = [&]() -> Result<void> {
    SUBLET_RETURN_IF_ERROR(services.engine.Start(record.id));
    SUBLET_TRY(const ContainerState state, services.engine.Inspect(record.id));
    record.pid = state.pid;
    record.phase = state.phase;
    if (state.phase != ContainerPhase::kRunning) {
      return InternalError("the sandbox ended at once");
    }
    return plan.host_network ? Ok() : services.network.Attach(plan.uid, state.pid, address);
  }();
  if (!up.ok()) {
    if (auto removed = services.engine.Remove(record.id); !removed.ok()) {
      log::Warn("cannot remove a failed sandbox",
                {{"pod", plan.Text()}, {"error", removed.error()}});
    }
    return std::move(up).error();
  }
  return record;
}

StartResult StartContainer(PodServices& services, const StartRequest& request, Canceller* cancel) {
  const PodPlan& plan = request.plan;
  const ContainerPlan& container = request.container;
  StartResult result;
  const auto emit = [&](bool warning, const std::string& reason, const std::string& message) {
    services.agent.Emit(plan, container.name, warning, reason, message);
  };
  const auto fail = [&](const char* reason, const Status& error) {
    emit(true, "Failed", std::string("Error: ") + error.message());
    result.failure = Failure{reason, error.message()};
  };
  Images::Outcome image = services.images.Ensure(plan, container, emit, cancel);
  if (image.failure) {
    result.failure = std::move(image.failure);
    return result;
  }
  CdiEdits cdi;
  auto spec = Configure(services, request, image.image, &cdi);
  if (!spec.ok()) {
    fail("CreateContainerConfigError", spec.error());
    return result;
  }
  HookGate gate(services.config.root, cdi, &*spec);
  auto id = CreateReplacing(services.engine, *spec);
  if (!id.ok()) {
    fail("CreateContainerError", id.error());
    return result;
  }
  emit(false, "Created", "Created container: " + container.name);
  Incarnation run;
  run.id = *id;
  run.sandbox_id = request.sandbox.id;
  run.attempt = request.attempt;
  run.image = container.image;
  run.image_id = image.image.digests.empty() ? image.image.id : image.image.digests[0];
  run.image_hash = container.image_hash;
  run.log_path = spec->log_path;
  run.stop_signal = spec->stop_signal;
  run.termination_file = spec->labels[kLabelTermination];
  run.tty = container.tty;
  result.old_container_id = request.old_container_id;
  auto started = services.engine.Start(*id);
  auto state = started.ok() ? services.engine.Inspect(*id)
                            : Result<ContainerState>(std::move(started).error());
  if (state.ok()) {
    if (auto hooks = gate.Run(services.engine, *state); !hooks.ok()) {
      state = std::move(hooks).error();
    }
  }
  if (!state.ok()) {
    fail("RunContainerError", state.error());
    if (auto killed = services.engine.Signal(*id, "SIGKILL"); !killed.ok()) {
      log::Warn("cannot kill a container that failed to start", {{"error", killed.error()}});
    }
    run.phase = ContainerPhase::kExited;
    run.exit_code = 128;
    run.reason = "StartError";
    run.message = result.failure->message;
    run.started_at = WallTime{};
    run.finished_at = services.clock.Now();
    result.run = std::move(run);
    return result;
  }
  emit(false, "Started", "Started container " + container.name);
  run.phase = state->phase;
  run.pid = state->pid;
  run.started_at = state->started_at;
  if (services.config.runtime_name != "podman") {
    run.log_path = state->log_path;
  }
  result.run = std::move(run);
  return result;
}

namespace {

// Number of "SIGTERM", "TERM" or "15"; 0 for what is none of the ordinary signals.
int SignalNumber(std::string_view name) {
  if (name.substr(0, 3) == "SIG") {
    name.remove_prefix(3);
  }
  for (int number = 1; number < 32; ++number) {
    const char* known = ::sigabbrev_np(number);
    if ((known != nullptr && name == known) || name == std::to_string(number)) {
      return number;
    }
  }
  return 0;
}

// Signals the first process of a container. The engines start a process of their own for that,
// which costs more than anything else of a pod's end; so it is done here when the process is
// certainly the container's (its cgroup says so), and by the engine otherwise.
Result<void> SignalRun(ContainerEngine& engine, const Incarnation& run, int pidfd,
                       const std::string& signal) {
  const int number = SignalNumber(signal);
  if (number > 0 &&
      ReadFile("/proc/" + std::to_string(run.pid) + "/cgroup", 1 << 16).find(run.id) !=
          std::string::npos &&
      ::syscall(SYS_pidfd_send_signal, pidfd, number, nullptr, 0) == 0) {
    return Ok();
  }
  return engine.Signal(run.id, signal);
}

}  // namespace

void StopContainer(PodServices& services, const PodPlan& plan, const ContainerPlan& container,
                   const Incarnation& run, const std::string& pod_ip, StopControl& control,
                   Canceller& abandon) {
  const int pidfd = run.pid > 0 ? static_cast<int>(::syscall(SYS_pidfd_open, run.pid, 0)) : -1;
  if (pidfd < 0) {
    return;  // gone already
  }
  const auto left = [&] {
    return std::chrono::duration_cast<std::chrono::milliseconds>(control.deadline() -
                                                                 std::chrono::steady_clock::now());
  };
  bool hook_ran = false;
  if (container.pre_stop.kind != HandlerPlan::Kind::kNone && left().count() > 0) {
    HandlerTarget target;
    target.container_id = run.id;
    target.pod_ip = pod_ip;
    const HandlerOutcome outcome =
        RunHandler(services.engine, container.pre_stop, container, target, left(), &control.wake());
    hook_ran = !control.wake().cancelled();
    if (!outcome.success && hook_ran) {
      services.agent.Emit(plan, container.name, true, "FailedPreStopHook",
                          "PreStopHook failed: " + outcome.output);
    }
  }
  if (left().count() > 0 || hook_ran) {
    const std::string signal = run.stop_signal.empty() ? "SIGTERM" : run.stop_signal;
    if (auto sent = SignalRun(services.engine, run, pidfd, signal); !sent.ok()) {
      log::Warn("cannot signal a container", {{"pod", plan.Text()}, {"error", sent.error()}});
    }
  }
  // After a hook that used up the time the process still gets two seconds.
  const Deadline at_least = hook_ran ? After(std::chrono::seconds(2)) : Deadline::min();
  bool ended = false;
  while (!ended && !abandon.cancelled() &&
         (left().count() > 0 || at_least > std::chrono::steady_clock::now())) {
    Canceller never;
    // A shortened deadline wakes once; from then on the new deadline alone counts.
    ended = WaitProcess(pidfd, std::max(control.deadline(), at_least),
                        control.wake().cancelled() ? never : control.wake(), abandon);
  }
  // SIGKILL until the process is gone: the engine may be restarting.
  while (!ended && !abandon.cancelled()) {
    if (auto killed = SignalRun(services.engine, run, pidfd, "SIGKILL"); !killed.ok()) {
      log::Warn("cannot kill a container", {{"pod", plan.Text()}, {"error", killed.error()}});
    }
    Canceller never;
    ended = WaitProcess(pidfd, After(std::chrono::seconds(5)), never, abandon);
  }
  ::close(pidfd);
}

Result<Incarnation> InspectEnded(PodServices& services, const ContainerPlan* container,
                                 const Incarnation& run, bool out_of_memory) {
  Incarnation ended = run;
  ended.phase = ContainerPhase::kExited;
  ended.pid = 0;
  const Deadline deadline = After(kEngineNoticesWithin);
  // When many end at once the engine is behind; asking it all the time would keep it there.
  for (std::chrono::milliseconds pause{4};; pause = std::min(2 * pause, kAskEngineMost)) {
    auto state = services.engine.Inspect(run.id);
    if (!state.ok() && !state.error().Is(Reason::kNotFound)) {
      return std::move(state).error();
    }
    if (!state.ok() ||
        (state->phase == ContainerPhase::kRunning && std::chrono::steady_clock::now() > deadline)) {
      ended.exit_code = 137;
      ended.reason = "ContainerStatusUnknown";
      ended.message = "The container could not be located when the pod was terminated";
      ended.finished_at = services.clock.Now();
      return ended;
    }
    if (state->phase != ContainerPhase::kRunning) {
      ended.exit_code = state->exit_code;
      ended.finished_at =
          state->finished_at == WallTime{} ? services.clock.Now() : state->finished_at;
      out_of_memory = out_of_memory || state->oom_killed;
      break;
    }
    std::this_thread::sleep_for(pause);
  }
  if (ended.exit_code == 137 && !out_of_memory) {
    out_of_memory = KernelLogSaysOom(run.id);
  }
  ended.reason = out_of_memory && ended.exit_code == 137 ? "OOMKilled"
                 : ended.exit_code == 0                  ? "Completed"
                                                         : "Error";
  const std::string& file = run.termination_file;
  if (!file.empty()) {
    ended.message = ReadFile(file, kTerminationBytesMax);
  }
  if (ended.message.empty() && ended.exit_code != 0 && container != nullptr &&
      container->fallback_to_logs) {
    ended.message = TailOfLog(ended.log_path, kFallbackLines, kFallbackBytesMax);
  }
  return ended;
}

Incarnation RecoverIncarnation(const ContainerState& state) {
  Incarnation run;
  run.id = state.id;
  run.sandbox_id = state.Label(kLabelSandbox);
  run.phase = state.phase;
  run.attempt = LabelInt(state, kLabelAttempt);
  run.pid = state.pid;
  run.exit_code = state.exit_code;
  run.started_at = state.started_at;
  run.finished_at = state.finished_at;
  run.image = state.Label(kLabelImage);
  run.image_id = state.image_id;
  if (!run.image_id.empty() && run.image_id.find(':') == std::string::npos) {
    run.image_id = "sha256:" + run.image_id;
  }
  run.image_hash = state.Label(kLabelImageHash);
  run.termination_file = state.Label(kLabelTermination);
  run.stop_signal = state.Label(kLabelStopSignal);
  run.log_path = state.log_path.empty() ? state.Label(kLabelLogPath) : state.log_path;
  run.tty = state.tty;
  return run;
}

}  // namespace sublet::node
