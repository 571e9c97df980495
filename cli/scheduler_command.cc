#include "cli/scheduler_command.h"

#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>

#include "cli/flags.h"
#include "cli/output.h"
#include "client/kubeconfig.h"
#include "scheduler/bench.h"
#include "scheduler/cases.h"

namespace sublet::cli {
namespace {

using kube::Json;

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
  return Table({"QUEUE", "GPU-QUOTA", "GPU-LIMIT", "GPU-FAIR", "GPU-USED", "GPU-ASKED", "CPU-USED(m)",
                "CPU-ASKED(m)"});
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
    return Fail(answer.error());
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
    std::printf("  - %.*s\n", static_cast<int>(message.size()), message.data());
  }
  if (!answer["nodes"].empty()) {
    std::printf("\nNodes:\n");
    Table table({"NODE", "RESULT"});
    for (const Json& row : answer["nodes"]) {
      const std::string reason(kube::FindString(row, {"reason"}));
      table.Row({std::string(kube::FindString(row, {"node"})), reason.empty() ? "fits" : reason});
    }
    table.Print();
  }
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
  const auto answer = Ask(context, "/sublet/scheduler/explain?namespace=" + Encoded(space) +
                                       "&pod=" + Encoded(pod));
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

}  // namespace

int RunScheduler(int argc, char** argv) {
  const std::string action = argc > 1 ? argv[1] : "--help";
  if (action == "explain") {
    return Explain(argc - 1, argv + 1);
  }
  if (action == "queues") {
    return Queues(argc - 1, argv + 1);
  }
  const std::vector<std::string> rest(argv + std::min(argc, 2), argv + argc);
  if (action == "cases") {
    return scheduler::RunCasesCommand(rest);
  }
  if (action == "bench") {
    return scheduler::RunBenchCommand(rest);
  }
  std::fprintf(action == "--help" || action == "-h" ? stdout : stderr,
               "usage: sublet scheduler <action>\n"
               "  explain POD    why a pod is where it is, or why it waits\n"
               "  queues         quota, fair share, allocated and requested of every queue\n"
               "  cases FILE...  run case files against the engine\n"
               "  bench          time the engine on a made-up cluster\n");
  return action == "--help" || action == "-h" ? 0 : 2;
}

}  // namespace sublet::cli
