#include "cli/scheduler_command.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>

#include "cli/flags.h"
#include "cli/output.h"
#include "client/kubeconfig.h"
#include "kube/status_json.h"
#include "scheduler/bench.h"
#include "scheduler/cases.h"
#include "scheduler/replay.h"

namespace sublet::cli {
namespace {

using kube::Json;

constexpr std::size_t kManifestMax = std::size_t{3} << 20;

// Percent-encodes what is no letter, digit or one of "-._".
std::string Encoded(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '.' || c == '_') {
      out += c;
    } else {
      char hex[4];
      std::snprintf(hex, sizeof(hex), "%%%02X", static_cast<unsigned char>(c));
      out += hex;
    }
  }
  return out;
}

Result<Json> Ask(const std::string& context, const std::string& path) {
  SUBLET_TRY(const client::Connection connection, client::FindConnection("", context));
  SUBLET_TRY(const client::Client client, client::Connect(connection, "sublet-cli"));
  SUBLET_TRY(const std::string text, client.GetRaw(path));
  return kube::ParseJson(text);
}

Result<Json> Post(const std::string& context, const std::string& path, const Json& body) {
  SUBLET_TRY(const client::Connection connection, client::FindConnection("", context));
  SUBLET_TRY(const client::Client client, client::Connect(connection, "sublet-cli"));
  client::HttpRequest request;
  request.method = "POST";
  request.target = path;
  request.headers.emplace_back("Content-Type", "application/json");
  request.body = kube::Dump(body);
  SUBLET_TRY(client::HttpResponse response, client.Send(std::move(request)));
  if (response.code >= 400) {
    return kube::StatusFromBody(response.body, response.code);
  }
  return kube::ParseJson(response.body);
}

Result<std::string> ReadManifest(const std::string& file) {
  std::string text;
  std::FILE* in = file == "-" ? stdin : std::fopen(file.c_str(), "r");
  if (in == nullptr) {
    return BadRequest(file + ": " + std::strerror(errno));
  }
  char buffer[65536];
  for (std::size_t got = 0; (got = std::fread(buffer, 1, sizeof(buffer), in)) > 0;) {
    text.append(buffer, got);
    if (text.size() > kManifestMax) {
      break;
    }
  }
  if (in != stdin) {
    std::fclose(in);
  }
  if (text.size() > kManifestMax) {
    return Status(Reason::kRequestEntityTooLarge, file + " is larger than 3 MiB");
  }
  return text;
}

std::string Number(const Json& value) {
  const double number = value.is_number() ? value.get<double>() : 0;
  if (number == -1) {
    return "-";
  }
  char text[32];
  std::snprintf(text, sizeof(text), "%.4g", number);
  return text;
}

void PrintQueue(Table& table, const Json& queue) {
  const Json& gpu = queue["resources"]["gpu"];
  const Json& cpu = queue["resources"]["cpu"];
  table.Row({std::string(static_cast<std::size_t>(kube::FindInt(queue, {"depth"})) * 2, ' ') +
                 std::string(kube::FindString(queue, {"name"})),
             Number(gpu["quota"]), Number(gpu["limit"]), Number(gpu["fairShare"]),
             Number(gpu["allocated"]), Number(gpu["requested"]), Number(cpu["allocated"]),
             Number(cpu["requested"])});
}

Table QueueTable() {
  return Table({"QUEUE", "GPU-QUOTA", "GPU-LIMIT", "GPU-FAIR", "GPU-USED", "GPU-ASKED",
                "CPU-USED(m)", "CPU-ASKED(m)"});
}

int Queues(int argc, char** argv) {
  std::string context;
  std::string output;
  Flags parser("sublet scheduler queues",
               "The queues of the current cluster: quota, fair share, allocated and requested.");
  parser.Text(&context, "--context", "kubeconfig context of the tenant (default: the current one)");
  parser.OneOf(&output, "-o,--output", {"json"}, "print as JSON");
  if (const auto exit_code = parser.Parse(argc, argv)) {
    return *exit_code;
  }
  const auto answer = Ask(context, "/sublet/scheduler/queues");
  if (!answer.ok()) {
    return Fail(answer.error(), "sublet connect NAME");
  }
  if (output == "json") {
    std::printf("%s\n", kube::DumpPretty(*answer).c_str());
    return 0;
  }
  Table table = QueueTable();
  for (const Json& queue : *answer) {
    PrintQueue(table, queue);
  }
  table.Print();
  return 0;
}

void PrintNodes(const Json& answer) {
  if (answer["nodes"].empty()) {
    return;
  }
  // Of a pod that has its node the table says where one more like it would fit.
  const std::string_view own = kube::FindString(answer, {"node"});
  std::printf("\n%s:\n", own.empty() ? "Nodes" : "Nodes, for one more pod like it");
  Table table({"NODE", "RESULT"});
  for (const Json& row : answer["nodes"]) {
    const auto reason = kube::FindString(row, {"reason"});
    table.Row({std::string(kube::FindString(row, {"node"})),
               reason.empty() ? "fits" : std::string(reason)});
  }
  table.Print();
}

void PrintHolders(const Json& answer) {
  if (answer["holders"].empty()) {
    return;
  }
  std::printf("\nWho holds GPUs:\n");
  Table table({"NODE", "POD", "QUEUE", "GPUS", "PRIORITY", "PREEMPTIBLE"});
  for (const Json& row : answer["holders"]) {
    table.Row({row.value("node", ""), row.value("pod", ""), row.value("queue", ""),
               Number(row["gpus"]), Number(row["priority"]),
               row.value("preemptible", false) ? "yes" : "no"});
  }
  table.Print();
}

void PrintExplanation(const Json& answer) {
  const auto line = [&answer](const char* title, const char* member) {
    const auto text = kube::FindString(answer, {member});
    if (!text.empty()) {
      std::printf("%-10s %.*s\n", title, static_cast<int>(text.size()), text.data());
    }
  };
  line("Pod:", "pod");
  line("Group:", "podGroup");
  line("Queue:", "queue");
  line("Status:", "status");
  line("Node:", "node");
  line("Why:", "dominant");
  for (const Json& failure : answer["failures"]) {
    const auto detail = kube::FindString(failure, {"detail"});
    const auto message = detail.empty() ? kube::FindString(failure, {"message"}) : detail;
    if (message == kube::FindString(answer, {"dominant"})) {
      continue;
    }
    std::printf("  - %.*s\n", static_cast<int>(message.size()), message.data());
  }
  PrintNodes(answer);
  PrintHolders(answer);
  if (!answer["queues"].empty()) {
    std::printf("\nQueues, from the pod's to the root:\n");
    Table table = QueueTable();
    for (const Json& queue : answer["queues"]) {
      PrintQueue(table, queue);
    }
    table.Print();
  }
  for (const Json& attempt : answer["attempts"]) {
    std::printf("\nTried %s: %s\n", attempt.value("action", "").c_str(),
                attempt.value("result", "").c_str());
  }
  if (answer.contains("retryInMilliseconds")) {
    std::printf("\nTime alone may change the answer in %.1f s.\n",
                answer["retryInMilliseconds"].get<double>() / 1000);
  }
  if (!answer["suggestions"].empty()) {
    std::printf("\nWhat would change it (each verified on a copy of the cluster):\n");
    for (const Json& suggestion : answer["suggestions"]) {
      std::printf("  - %s: %s\n", suggestion.value("change", "").c_str(),
                  suggestion.value("outcome", "").c_str());
    }
  } else if (kube::FindString(answer, {"node"}).empty()) {
    std::printf("\nNo single change that was tried on a copy of the cluster would place it.\n");
  }
}

int Explain(int argc, char** argv) {
  std::string context;
  std::string space = "default";
  std::string pod;
  std::string output;
  Flags parser("sublet scheduler explain", "Why a pod is where it is, or why it waits.");
  parser.Positional(&pod, "POD", "pod/NAME or NAME");
  parser.Text(&space, "-n,--namespace", "its namespace (default: default)");
  parser.Text(&context, "--context", "kubeconfig context of the tenant (default: the current one)");
  parser.OneOf(&output, "-o,--output", {"json"}, "print as JSON");
  if (const auto exit_code = parser.Parse(argc, argv)) {
    return *exit_code;
  }
  for (const char* prefix : {"pod/", "pods/"}) {
    if (pod.starts_with(prefix)) {
      pod.erase(0, std::strlen(prefix));
    }
  }
  const auto answer = Ask(
      context, "/sublet/scheduler/explain?namespace=" + Encoded(space) + "&pod=" + Encoded(pod));
  if (!answer.ok()) {
    return Fail(answer.error(), "kubectl get pods -n " + space);
  }
  if (output == "json") {
    std::printf("%s\n", kube::DumpPretty(*answer).c_str());
  } else {
    PrintExplanation(*answer);
  }
  return 0;
}

// KAI's messages go over several lines.
std::string OneLine(std::string text) {
  while (!text.empty() && text.back() == '\n') {
    text.pop_back();
  }
  for (std::size_t at = text.find('\n'); at != std::string::npos; at = text.find('\n', at)) {
    text.replace(at, 1, at == 0 ? "" : " ");
  }
  return text;
}

void PrintWhatIf(const Json& answer) {
  for (const Json& pod : answer["pods"]) {
    const std::string name = pod.value("namespace", "") + "/" + pod.value("name", "");
    const std::string node = pod.value("node", "");
    if (node.empty()) {
      std::printf("%s would wait: %s\n", name.c_str(), OneLine(pod.value("why", "")).c_str());
      continue;
    }
    std::string devices;
    for (const Json& device : pod.value("devices", Json::array())) {
      devices += (devices.empty() ? " on device " : ", ") + device.get<std::string>();
    }
    std::printf("%s would run on %s%s\n", name.c_str(), node.c_str(), devices.c_str());
  }
  for (const Json& pod : answer["evicted"]) {
    const std::string back = pod.value("backOn", "");
    std::printf("%s/%s would be evicted from %s (%s) and %s\n", pod.value("namespace", "").c_str(),
                pod.value("name", "").c_str(), pod.value("node", "").c_str(),
                pod.value("action", "").c_str(),
                back.empty() ? "wait" : ("run again on " + back).c_str());
  }
  for (const Json& pod : answer["others"]) {
    std::printf("%s/%s, which waits now, would run on %s\n", pod.value("namespace", "").c_str(),
                pod.value("name", "").c_str(), pod.value("node", "").c_str());
  }
  if (answer["pods"].empty() && answer["evicted"].empty() && answer["others"].empty()) {
    std::printf("no pod would move\n");
  }
  if (!answer.value("settled", true)) {
    std::printf("still deciding after %s cycles\n", answer["cycles"].dump().c_str());
  }
}

int WhatIf(int argc, char** argv) {
  std::string context;
  std::string file;
  std::string output;
  Flags parser("sublet scheduler whatif",
               "What would come of a manifest, played out on a copy: nothing is created.");
  parser.Text(&file, "-f,--filename", "manifest (YAML or JSON); - is the standard input");
  parser.Text(&context, "--context", "kubeconfig context of the tenant (default: the current one)");
  parser.OneOf(&output, "-o,--output", {"json"}, "print as JSON");
  if (const auto exit_code = parser.Parse(argc, argv)) {
    return *exit_code;
  }
  if (file.empty()) {
    std::fprintf(stderr, "sublet scheduler whatif: -f FILE is needed\n");
    return 2;
  }
  const auto text = ReadManifest(file);
  if (!text.ok()) {
    return Fail(text.error());
  }
  const auto documents = kube::ParseYamlDocuments(*text);
  if (!documents.ok()) {
    return Fail(documents.error());
  }
  const auto answer = Post(context, "/sublet/scheduler/whatif", {{"objects", *documents}});
  if (!answer.ok()) {
    return Fail(answer.error());
  }
  if (output == "json") {
    std::printf("%s\n", kube::DumpPretty(*answer).c_str());
  } else {
    PrintWhatIf(*answer);
  }
  return 0;
}

}  // namespace

int RunScheduler(int argc, char** argv) {
  const std::string action = argc > 1 ? argv[1] : "--help";
  if (action == "explain") {
    return Explain(argc - 1, argv + 1);
  }
  if (action == "queues") {
    return Queues(argc - 1, argv + 1);
  }
  if (action == "whatif") {
    return WhatIf(argc - 1, argv + 1);
  }
  const std::vector<std::string> rest(argv + std::min(argc, 2), argv + argc);
  if (action == "cases") {
    return scheduler::RunCasesCommand(rest);
  }
  if (action == "bench") {
    return scheduler::RunBenchCommand(rest);
  }
  if (action == "replay") {
    return scheduler::RunReplayCommand(rest);
  }
  SayUnknownAction("sublet scheduler", action);
  std::fprintf(action == "--help" || action == "-h" ? stdout : stderr,
               "usage: sublet scheduler <action>\n"
               "  explain POD    why a pod is where it is, or why it waits\n"
               "  queues         quota, fair share, allocated and requested of every queue\n"
               "  whatif -f M    what would come of a manifest, without creating anything\n"
               "  replay FILE    one history of a cluster under several profiles\n"
               "  cases FILE...  run case files against the engine\n"
               "  bench          time the engine on a made-up cluster\n");
  return action == "--help" || action == "-h" ? 0 : 2;
}

}  // namespace sublet::cli
