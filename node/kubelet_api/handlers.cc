// What the kubelet API answers: the handlers of KubeletServer.
#include <nlohmann/json.hpp>

#include "base/log.h"
#include "kube/timestamp.h"
#include "node/kubelet_api/connection.h"
#include "node/kubelet_api/port_forward.h"
#include "node/kubelet_api/remote_command.h"
#include "node/kubelet_api/server.h"
#include "node/kubelet_api/stats.h"
#include "node/pod/logs.h"

namespace sublet::node {
namespace {

using kube::Json;

constexpr std::string_view kText = "text/plain; charset=utf-8";
constexpr std::string_view kJson = "application/json";

// The run that the pod's status shows as the last one to end: while a container waits for its next
// start that is the newest. nullptr when there is none.
const Incarnation* LastEnded(const PodSnapshot& pod, const ContainerRecord& record,
                             const std::string& name) {
  const Incarnation* found = record.previous ? &*record.previous : nullptr;
  if (pod.status == nullptr || !record.HasEnded()) {
    return found;
  }
  for (const char* list :
       {"containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"}) {
    const Json* statuses = kube::Find(*pod.status, {list});
    for (const Json& status : statuses != nullptr ? *statuses : Json::array()) {
      if (kube::FindString(status, {"name"}) == name &&
          kube::FindString(status, {"lastState", "terminated", "containerID"})
              .ends_with(record.current->id)) {
        found = &*record.current;
      }
    }
  }
  return found;
}

// Cancels when the client of a long answer goes away: nothing else reads its connection meanwhile.
class GoneWatcher {
 public:
  GoneWatcher(TlsConnection& connection, Canceller& cancel)
      : thread_([&connection, &cancel, this] {
          ::pthread_setname_np(::pthread_self(), "kubelet-gone");
          char chunk[256];
          while (!stop_.load()) {
            auto n = connection.Read(chunk, sizeof(chunk), After(std::chrono::seconds(1)));
            if ((n.ok() && *n == 0) || (!n.ok() && !n.error().Is(Reason::kTimeout))) {
              cancel.Cancel();
              return;
            }
          }
        }) {}
  ~GoneWatcher() {
    stop_.store(true);
    thread_.join();
  }
  GoneWatcher(const GoneWatcher&) = delete;
  GoneWatcher& operator=(const GoneWatcher&) = delete;

 private:
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

Result<LogOptions> ParseLogOptions(const KubeletRequest& request, WallTime now) {
  LogOptions options;
  options.follow = request.Flag("follow");
  options.timestamps = request.Flag("timestamps");
  const auto number = [&](const char* name) -> Result<std::optional<std::int64_t>> {
    const std::string text(request.Query(name));
    if (text.empty()) {
      return std::optional<std::int64_t>();
    }
    char* end = nullptr;
    const long long value = std::strtoll(text.c_str(), &end, 10);
    if (*end != '\0' || value < 0) {
      return BadRequest(std::string(name) + " must not be \"" + text + "\"");
    }
    return std::optional<std::int64_t>(value);
  };
  SUBLET_TRY(options.tail_lines, number("tailLines"));
  SUBLET_TRY(options.limit_bytes, number("limitBytes"));
  SUBLET_TRY(const auto since_seconds, number("sinceSeconds"));
  if (since_seconds) {
    options.since = now - std::chrono::seconds(*since_seconds);
  }
  if (const auto text = request.Query("sinceTime"); !text.empty()) {
    SUBLET_TRY(options.since, kube::ParseTime(text));
  }
  const std::string_view stream = request.Query("stream");
  if (stream == "Stdout") {
    options.stream = StreamId::kStdout;
  } else if (stream == "Stderr") {
    options.stream = StreamId::kStderr;
  }
  return options;
}

Json PodList(const Snapshots& pods) {
  Json items = Json::array();
  for (const auto& pod : pods) {
    Json item = *pod->plan->object;
    item["apiVersion"] = "v1";
    item["kind"] = "Pod";
    item["status"] = *pod->status;
    items.push_back(std::move(item));
  }
  return {{"kind", "PodList"},
          {"apiVersion", "v1"},
          {"metadata", Json::object()},
          {"items", std::move(items)}};
}

}  // namespace

void KubeletServer::Dispatch(Connection& connection, const KubeletRequest& request,
                             std::string early, bool* reusable) {
  const auto parts = request.PathParts();
  const std::string first = parts.empty() ? "" : parts[0];
  const bool close = !request.keep_alive;
  if (first == "containerLogs") {
    ServeLogs(connection, request);
    *reusable = false;
  } else if (first == "exec" || first == "attach") {
    ServeExec(connection, request, std::move(early), first == "attach");
    *reusable = false;
  } else if (first == "portForward") {
    ServeForward(connection, request, std::move(early));
    *reusable = false;
  } else if (first == "run") {
    ServeRun(connection, request);
    *reusable = false;
  } else if (first == "pods" || first == "runningpods") {
    connection.Answer(200, kJson, kube::Dump(PodList(pods_.List())), close);
  } else if (request.path == "/stats/summary" || request.path == "/stats/summary/") {
    connection.Answer(200, kJson,
                      kube::Dump(MakeSummary(options_.node_name, pods_.List(), network_,
                                             options_.root, clock_.Now())),
                      close);
  } else if (request.path == "/metrics/resource") {
    connection.Answer(200, kText, MakeResourceMetrics(pods_.List(), clock_.Now()), close);
  } else if (request.path == "/metrics/cadvisor") {
    connection.Answer(200, kText, MakeCadvisorMetrics(pods_.List()), close);
  } else if (request.path == "/metrics" || request.path == "/metrics/probes") {
    connection.Answer(200, kText, MakeAgentMetrics(pods_.List(), options_.node_name), close);
  } else {
    connection.Answer(404, kText, "404 page not found\n", close);
  }
}

Result<KubeletServer::Found> KubeletServer::FindContainer(const std::vector<std::string>& parts,
                                                          bool running) const {
  // [verb, namespace, pod, container] or [verb, namespace, pod, uid, container]
  if (parts.size() < 4 || parts.size() > 5) {
    return Status(Reason::kNotFound, "404 page not found");
  }
  Found found;
  found.pod = pods_.Find(parts[1], parts[2]);
  if (found.pod == nullptr || (parts.size() == 5 && found.pod->plan->uid != parts[3])) {
    return Status(Reason::kNotFound, "pod does not exist");
  }
  const std::string& name = parts.back();
  found.container = found.pod->plan->Find(name);
  if (found.container == nullptr) {
    return Status(Reason::kNotFound, "container not found (\"" + name + "\")");
  }
  const ContainerRecord* record = found.pod->record.Find(name);
  if (record == nullptr || !record->current || (running && !record->IsRunning())) {
    return Status(Reason::kNotFound, "container not found (\"" + name + "\")");
  }
  found.run = *record->current;
  return found;
}

void KubeletServer::ServeLogs(Connection& connection, const KubeletRequest& request) {
  const auto parts = request.PathParts();
  auto options = ParseLogOptions(request, clock_.Now());
  if (!options.ok()) {
    connection.Answer(400, kText, options.error().message(), true);
    return;
  }
  const std::string name = parts.size() == 4 ? parts[3] : "";
  const auto pod = parts.size() == 4 ? pods_.Find(parts[1], parts[2]) : nullptr;
  if (pod == nullptr) {
    connection.Answer(404, kText, parts.size() == 4 ? "pod \"" + parts[2] + "\" not found" : "",
                      true);
    return;
  }
  if (pod->plan->Find(name) == nullptr) {
    connection.Answer(404, kText,
                      "container \"" + name + "\" not found in pod \"" + parts[2] + "\"", true);
    return;
  }
  const ContainerRecord* record = pod->record.Find(name);
  const bool previous = request.Flag("previous");
  const Incarnation* run = nullptr;
  if (record != nullptr && previous) {
    run = LastEnded(*pod, *record, name);
    if (run == nullptr) {
      connection.Answer(
          400, kText,
          "previous terminated container \"" + name + "\" in pod \"" + parts[2] + "\" not found",
          true);
      return;
    }
  } else if (record != nullptr && record->current) {
    run = &*record->current;
  }
  if (run == nullptr) {
    std::string why = "ContainerCreating";
    if (record != nullptr && record->waiting) {
      why = record->waiting->reason;
    } else if (!IsInitialized(*pod->plan, pod->record)) {
      why = "PodInitializing";
    }
    connection.Answer(
        400, kText,
        "container \"" + name + "\" in pod \"" + parts[2] + "\" is waiting to start: " + why, true);
    return;
  }
  const std::string id = run->id;
  const auto ended = [this, &parts, &name, &id] {
    const auto now = pods_.Find(parts[1], parts[2]);
    const ContainerRecord* state = now == nullptr ? nullptr : now->record.Find(name);
    return state == nullptr || !state->current || state->current->id != id || !state->IsRunning();
  };
  ChunkedResponse response(*connection.tls, kText);
  Result<void> read;
  {
    std::unique_ptr<GoneWatcher> watcher;
    if (options->follow) {
      watcher = std::make_unique<GoneWatcher>(*connection.tls, connection.cancel);
    }
    read = ReadLog(
        run->log_path, *options, [&](std::string_view text) { return response.Write(text); }, ended,
        &connection.cancel);
  }
  if (!read.ok()) {
    response.Write("failed to read the log: " + read.error().message() + "\n");
  }
  response.Finish();
}

void KubeletServer::ServeExec(Connection& connection, const KubeletRequest& request,
                              std::string early, bool is_attach) {
  auto found = FindContainer(request.PathParts(), true);
  if (!found.ok()) {
    connection.Answer(404, kText, found.error().message(), true);
    return;
  }
  const RemoteCommandOptions options = ParseRemoteCommandOptions(request);
  if (!options.stdin && !options.stdout && !options.stderr) {
    connection.Answer(400, kText, "you must specify at least 1 of stdin, stdout, stderr", true);
    return;
  }
  const std::vector<std::string> command = request.QueryAll("command");
  if (!is_attach && command.empty()) {
    connection.Answer(400, kText, "you must specify a command", true);
    return;
  }
  const auto open = [&]() -> Result<std::unique_ptr<StreamSession>> {
    if (is_attach) {
      AttachSpec spec;
      spec.tty = found->run.tty;
      spec.attach_stdin = options.stdin;
      spec.keep_stdin = !found->container->stdin_once;
      spec.attach_stdout = options.stdout;
      spec.attach_stderr = options.stderr && !found->run.tty;
      return engine_.Attach(found->run.id, spec);
    }
    ExecSpec spec;
    spec.argv = command;
    spec.tty = options.tty;
    spec.attach_stdin = options.stdin;
    spec.attach_stdout = options.stdout;
    spec.attach_stderr = options.stderr;
    return engine_.Exec(found->run.id, spec);
  };
  auto served = ServeRemoteCommand(*connection.tls, request, std::move(early), options, open);
  if (!served.ok() && served.error().Is(Reason::kBadRequest)) {
    connection.Answer(400, kText, served.error().message(), true);
  }
}

void KubeletServer::ServeForward(Connection& connection, const KubeletRequest& request,
                                 std::string early) {
  const auto parts = request.PathParts();
  const auto pod = parts.size() >= 3 ? pods_.Find(parts[1], parts[2]) : nullptr;
  if (pod == nullptr || !pod->record.sandbox ||
      pod->record.sandbox->phase != ContainerPhase::kRunning) {
    connection.Answer(404, kText, "pod does not exist", true);
    return;
  }
  const std::string namespace_name = parts[1];
  const std::string name = parts[2];
  const auto connect = [this, namespace_name, name](int port) -> Result<int> {
    // Looked up anew for each connection: the sandbox may have been made again.
    const auto now = pods_.Find(namespace_name, name);
    if (now == nullptr || !now->record.sandbox || now->record.sandbox->pid == 0) {
      return Status(Reason::kNotFound, "the pod is not running");
    }
    return ConnectInNamespace(now->record.sandbox->pid, port);
  };
  auto served = ServePortForward(*connection.tls, request, std::move(early), connect);
  if (!served.ok() && served.error().Is(Reason::kBadRequest)) {
    connection.Answer(400, kText, served.error().message(), true);
  }
}

void KubeletServer::ServeRun(Connection& connection, const KubeletRequest& request) {
  auto found = FindContainer(request.PathParts(), true);
  if (!found.ok()) {
    connection.Answer(404, kText, found.error().message(), true);
    return;
  }
  std::vector<std::string> argv;
  const std::string command(request.Query("cmd"));
  for (std::size_t at = 0; at < command.size();) {
    auto end = command.find(' ', at);
    end = end == std::string::npos ? command.size() : end;
    if (end > at) {
      argv.push_back(command.substr(at, end - at));
    }
    at = end + 1;
  }
  if (argv.empty()) {
    connection.Answer(400, kText, "you must specify a command", true);
    return;
  }
  auto output = RunExec(engine_, found->run.id, argv, After(std::chrono::seconds(60)), 1 << 20,
                        &connection.cancel);
  connection.Answer(output.ok() ? 200 : 500, kText,
                    output.ok() ? output->output : output.error().message(), true);
}

}  // namespace sublet::node
