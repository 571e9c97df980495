#include "cli/node_command.h"

#include <unistd.h>

#include <cstdio>
#include <map>

#include "base/log.h"
#include "cli/flags.h"
#include "cli/output.h"
#include "client/kubeconfig.h"
#include "node/node.h"
#include "node/simulate/simulated_nodes.h"

namespace sublet::cli {
namespace {

constexpr int kUsage = 2;

struct NodeFlags {
  node::NodeOptions agent;
  node::SimulateOptions simulated;
  std::vector<std::string> labels;
  std::vector<std::string> resources;
  std::vector<std::string> cdi_folders;
  std::string log_level = "info";
  std::int64_t kubelet_port = 10250;
  std::int64_t pods_max = 110;
  std::int64_t nodes = 0;
  std::int64_t first = 0;
  std::int64_t gpus = 0;
  bool cleanup = false;
};

// "a=b" into a map; false for anything else.
bool SplitPair(const std::string& text, std::pair<std::string, std::string>* out) {
  const auto equals = text.find('=');
  if (equals == std::string::npos || equals == 0) {
    return false;
  }
  *out = {text.substr(0, equals), text.substr(equals + 1)};
  return true;
}

void AddFlags(NodeFlags* flags, Flags* parser) {
  node::NodeOptions& agent = flags->agent;
  parser->Text(&agent.kubeconfig, "--kubeconfig", "file that leads to the API server");
  parser->Text(&agent.context, "--context", "context in it: a node's credentials");
  parser->Text(&agent.node_name, "--node-name", "name of the Node (default: the host name)");
  parser->Text(&agent.root_directory, "--state-dir",
               "where volumes, logs and certificates are kept (default /var/lib/sublet/node)");
  parser->Text(&agent.engine_socket, "--engine",
               "socket of Podman or Docker (default: what is there)");
  parser->Text(&agent.node_ip, "--node-ip",
               "address to serve the kubelet API on (default: the pods' gateway)");
  parser->Number(&flags->kubelet_port, "--kubelet-port", "its port (default 10250)");
  parser->Text(&agent.client_ca_file, "--client-ca",
               "authority whose certificates may use it (default: the kubeconfig's)");
  parser->Text(&agent.network_context, "--network-context",
               "context for Services, endpoints and policies (default: --context)");
  parser->Text(&agent.pod_cidr, "--pod-net", "addresses of pods (default 10.244.0.0/24)");
  parser->Text(&agent.service_cidr, "--service-net",
               "addresses of Services (default 10.96.0.0/12)");
  parser->Text(&agent.bridge, "--bridge", "link that holds the gateway address (default sublet0)");
  parser->Text(&agent.cluster_domain, "--cluster-domain", "default cluster.local");
  parser->Text(&agent.cluster_dns, "--cluster-dns",
               "nameserver of pods (default: served here, on the gateway)");
  parser->Bool(&agent.serve_services, "--services", "Services and NetworkPolicies (default true)");
  parser->Number(&flags->pods_max, "--max-pods", "default 110");
  parser->Texts(&flags->cdi_folders, "--cdi-dir",
                "folder of device specifications (default /etc/cdi, /var/run/cdi)");
  parser->Texts(&flags->labels, "--label", "KEY=VALUE of the Node; may be repeated");
  parser->Texts(&flags->resources, "--resource",
                "NAME=AMOUNT the Node has besides; may be repeated");
  parser->Bool(&flags->cleanup, "--cleanup", "remove what an agent left on this machine, then end");
  parser->OneOf(&flags->log_level, "--log-level", {"debug", "info", "warn", "error"},
                "default info");
  node::SimulateOptions& simulated = flags->simulated;
  parser->Number(&flags->nodes, "--simulate", "be N nodes without containers instead");
  parser->Number(&flags->first, "--first", "number of the first simulated node");
  parser->Bool(&simulated.delete_nodes_at_stop, "--delete-at-exit",
               "delete the simulated nodes at the end");
  parser->Number(&simulated.stop_milliseconds, "--stop-ms",
                 "how long a simulated pod with a grace period takes to end (default 0)");
  parser->Text(&simulated.name_prefix, "--name-prefix", "of simulated nodes (default sim-)");
  parser->Text(&simulated.cpu, "--cpu", "of each simulated node (default 32)");
  parser->Text(&simulated.memory, "--memory", "of each simulated node (default 128Gi)");
  parser->Text(&simulated.pods, "--pods", "of each simulated node (default 110)");
  parser->Number(&flags->gpus, "--gpus", "of each simulated node");
}

// False after a message: some value is wrong.
bool Complete(NodeFlags* flags) {
  for (const std::string& text : flags->labels) {
    std::pair<std::string, std::string> pair;
    if (!SplitPair(text, &pair)) {
      std::fprintf(stderr, "sublet node: --label takes KEY=VALUE, not \"%s\"\n", text.c_str());
      return false;
    }
    flags->agent.labels.insert(pair);
    flags->simulated.labels.push_back(pair);
  }
  for (const std::string& text : flags->resources) {
    std::pair<std::string, std::string> pair;
    if (!SplitPair(text, &pair)) {
      std::fprintf(stderr, "sublet node: --resource takes NAME=AMOUNT, not \"%s\"\n", text.c_str());
      return false;
    }
    flags->agent.extra_resources.insert(pair);
    flags->simulated.extra_resources.push_back(pair);
  }
  if (flags->kubelet_port < 0 || flags->kubelet_port > 65535 || flags->pods_max < 1 ||
      flags->pods_max > 1000 || flags->nodes < 0 || flags->nodes > 5000 || flags->gpus < 0) {
    std::fprintf(stderr,
                 "sublet node: --kubelet-port takes 0 to 65535, --max-pods 1 to 1000, --simulate 0 "
                 "to 5000\n");
    return false;
  }
  if (!flags->cdi_folders.empty()) {
    flags->agent.cdi_folders = flags->cdi_folders;
  }
  node::NodeOptions& agent = flags->agent;
  if (agent.root_directory.empty()) {
    agent.root_directory = "/var/lib/sublet/node";
  } else if (agent.root_directory.front() != '/') {
    char folder[4096];
    agent.root_directory = std::string(::getcwd(folder, sizeof(folder)) != nullptr ? folder : "") +
                           "/" + agent.root_directory;
  }
  agent.kubelet_port = static_cast<int>(flags->kubelet_port);
  agent.pods_max = static_cast<int>(flags->pods_max);
  return true;
}

int Simulate(const NodeFlags& flags) {
  const auto connection = client::FindConnection(flags.agent.kubeconfig, flags.agent.context);
  if (!connection.ok()) {
    return Fail(connection.error());
  }
  const auto client = client::Connect(*connection, "sublet-node/simulate");
  if (!client.ok()) {
    return Fail(client.error());
  }
  node::SimulateOptions options = flags.simulated;
  options.nodes = static_cast<int>(flags.nodes);
  options.first = static_cast<int>(flags.first);
  options.gpus = static_cast<int>(flags.gpus);
  return node::RunSimulatedNodes(options, *client);
}

}  // namespace

int RunNodeCommand(int argc, char** argv) {
  NodeFlags flags;
  Flags parser("sublet node", "Run the pods of one node on a container engine, or simulate nodes.");
  AddFlags(&flags, &parser);
  if (const auto exit_code = parser.Parse(argc, argv)) {
    return *exit_code;
  }
  if (!Complete(&flags)) {
    return kUsage;
  }
  constexpr std::pair<const char*, log::Level> kLevels[] = {{"debug", log::Level::kDebug},
                                                            {"info", log::Level::kInfo},
                                                            {"warn", log::Level::kWarn},
                                                            {"error", log::Level::kError}};
  for (const auto& [name, level] : kLevels) {
    if (flags.log_level == name) {
      log::SetLevel(level);
    }
  }
  if (flags.nodes > 0) {
    return Simulate(flags);
  }
  return flags.cleanup ? node::CleanUpNode(flags.agent) : node::RunNode(flags.agent);
}

}  // namespace sublet::cli
