#include "cli/node_command.h"

#include <CLI/CLI.hpp>
#include <cstdio>

#include "client/kubeconfig.h"
#include "node/simulate/simulated_nodes.h"

namespace sublet::cli {
namespace {

constexpr int kUsage = 2;
constexpr int kNodesMax = 5000;

int Refuse(const std::string& why) {
  std::fprintf(stderr, "sublet node: %s\n", why.c_str());
  return kUsage;
}

// "a=b" pairs of a flag that may stand several times.
bool ReadPairs(const std::vector<std::string>& texts,
               std::vector<std::pair<std::string, std::string>>* out) {
  for (const std::string& text : texts) {
    const std::size_t equals = text.find('=');
    if (equals == std::string::npos || equals == 0) {
      return false;
    }
    out->emplace_back(text.substr(0, equals), text.substr(equals + 1));
  }
  return true;
}

}  // namespace

int RunNodeCommand(int argc, char** argv) {
  node::SimulateOptions options;
  options.nodes = 0;
  std::string kubeconfig;
  std::string context;
  std::vector<std::string> labels;
  std::vector<std::string> resources;
  CLI::App app("Simulated nodes: pods bound there become Running without containers", "sublet node");
  app.add_option("--simulate", options.nodes, "how many nodes (1-5000)")->required();
  app.add_option("--kubeconfig", kubeconfig, "whose API server (default: as kubectl)");
  app.add_option("--context", context, "context of the kubeconfig");
  app.add_option("--name-prefix", options.name_prefix, "names are PREFIX0, PREFIX1, ...")
      ->capture_default_str();
  app.add_option("--first", options.first, "number of the first node")->capture_default_str();
  app.add_option("--cpu", options.cpu, "per node")->capture_default_str();
  app.add_option("--memory", options.memory, "per node")->capture_default_str();
  app.add_option("--pods", options.pods, "per node")->capture_default_str();
  app.add_option("--gpus", options.gpus, "per node")->capture_default_str();
  app.add_option("--label", labels, "KEY=VALUE on every node; may be repeated");
  app.add_option("--resource", resources, "NAME=AMOUNT on every node; may be repeated");
  app.add_flag("--delete-at-exit", options.delete_nodes_at_stop, "delete the nodes at the end");
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    std::fputs(app.help().c_str(), stdout);
    return 0;
  } catch (const CLI::ParseError& error) {
    return Refuse(std::string(error.what()) + "\nsublet node --help lists the flags");
  }
  if (options.nodes < 1 || options.nodes > kNodesMax) {
    return Refuse("--simulate: allowed is 1 to 5000");
  }
  if (!ReadPairs(labels, &options.labels) || !ReadPairs(resources, &options.extra_resources)) {
    return Refuse("--label and --resource take KEY=VALUE");
  }
  const auto connection = client::FindConnection(kubeconfig, context);
  if (!connection.ok()) {
    return Refuse(connection.error().message());
  }
  const auto made = client::Connect(*connection, "sublet-node/simulate");
  if (!made.ok()) {
    return Refuse(made.error().message());
  }
  return node::RunSimulatedNodes(options, *made);
}

}  // namespace sublet::cli
