#include "apiserver/auth/node_rules.h"

#include <string>

namespace sublet::apiserver {
namespace {

using Strings = std::vector<std::string>;

PolicyRule Rule(Strings verbs, std::string group, Strings resources) {
  return {std::move(verbs), {std::move(group)}, std::move(resources), {}, {}};
}

}  // namespace

std::vector<CompiledRule> CompileNodeRules() {
  const Strings read = {"get", "list", "watch"};
  std::vector<PolicyRule> rules;
  rules.push_back(Rule({"create"}, "authentication.k8s.io", {"tokenreviews"}));
  rules.push_back(Rule({"create"}, "authorization.k8s.io",
                       {"localsubjectaccessreviews", "subjectaccessreviews"}));
  rules.push_back(Rule(read, "", {"services", "pods", "nodes"}));
  rules.push_back(Rule({"create"}, "", {"nodes"}));
  rules.push_back(Rule({"update", "patch"}, "", {"nodes", "nodes/status"}));
  rules.push_back(Rule({"create", "patch", "update"}, "", {"events"}));
  rules.push_back(Rule({"create", "patch", "update"}, "events.k8s.io", {"events"}));
  rules.push_back(Rule({"create", "delete"}, "", {"pods"}));
  rules.push_back(Rule({"update", "patch"}, "", {"pods/status"}));
  rules.push_back(Rule({"create"}, "", {"pods/eviction"}));
  rules.push_back(Rule({"get"}, "", {"persistentvolumeclaims/status"}));
  rules.push_back(Rule({"update", "patch"}, "", {"persistentvolumeclaims/status"}));
  rules.push_back(Rule({"create", "get", "list", "watch"}, "certificates.k8s.io",
                       {"certificatesigningrequests"}));
  rules.push_back(Rule(read, "certificates.k8s.io", {"clustertrustbundles"}));
  rules.push_back(
      Rule({"get", "create", "update", "patch", "delete"}, "coordination.k8s.io", {"leases"}));
  rules.push_back(Rule({"get"}, "storage.k8s.io", {"volumeattachments"}));
  rules.push_back(Rule(read, "storage.k8s.io", {"csidrivers"}));
  rules.push_back(
      Rule({"get", "create", "update", "patch", "delete"}, "storage.k8s.io", {"csinodes"}));
  rules.push_back(Rule(read, "node.k8s.io", {"runtimeclasses"}));
  rules.push_back(
      Rule({"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"},
           "resource.k8s.io", {"resourceslices"}));
  std::vector<CompiledRule> compiled;
  for (PolicyRule& rule : rules) {
    compiled.emplace_back(std::move(rule));
  }
  return compiled;
}

std::optional<bool> AskNodeGraph(const Attributes& attributes, std::string_view node,
                                 const NodeGraph* graph) {
  if (!attributes.is_resource) {
    return std::nullopt;
  }
  const auto resource = attributes.resource;
  const bool reads =
      attributes.verb == "get" || attributes.verb == "list" || attributes.verb == "watch";
  bool needs_pod = false;
  if (attributes.group.empty()) {
    needs_pod = resource == "secrets" || resource == "configmaps" ||
                (resource == "persistentvolumeclaims" && attributes.subresource.empty()) ||
                resource == "persistentvolumes";
    if (resource == "serviceaccounts") {
      const bool is_token = attributes.subresource == "token" && attributes.verb == "create";
      return (is_token || (reads && attributes.subresource.empty())) && graph != nullptr &&
             !attributes.name.empty() &&
             graph->NodeUses(node, resource, attributes.namespace_name, attributes.name);
    }
  } else {
    needs_pod = attributes.group == "resource.k8s.io" && resource == "resourceclaims";
  }
  if (!needs_pod) {
    return std::nullopt;
  }
  return reads && attributes.subresource.empty() && !attributes.name.empty() && graph != nullptr &&
         graph->NodeUses(node, resource, attributes.namespace_name, attributes.name);
}

}  // namespace sublet::apiserver
