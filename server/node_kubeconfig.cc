#include "server/node_kubeconfig.h"

#include <nlohmann/json.hpp>

#include "base/base64.h"

namespace sublet::server {
namespace {

using kube::Json;

constexpr const char* kNetworkUser = "sublet:node-network";

Json Rule(const char* group, std::initializer_list<const char*> resources) {
  Json rule = {{"apiGroups", Json::array({group})},
               {"verbs", Json::array({"get", "list", "watch"})}};
  rule["resources"] = Json::array();
  for (const char* resource : resources) {
    rule["resources"].push_back(resource);
  }
  return rule;
}

// As upstream marks the roles that are made whole again at each start.
Json Metadata() {
  return {{"name", kNetworkUser},
          {"labels", {{"kubernetes.io/bootstrapping", "rbac-defaults"}}},
          {"annotations", {{"rbac.authorization.kubernetes.io/autoupdate", "true"}}}};
}

}  // namespace

Result<std::string> MakeNodeKubeconfig(const apiserver::CertificateAuthority& authority,
                                       const std::string& server, const std::string& node_name,
                                       WallTime now) {
  apiserver::LeafOptions node;
  node.common_name = "system:node:" + node_name;
  node.organizations = {"system:nodes"};
  node.is_client = true;
  apiserver::LeafOptions network;
  network.common_name = kNetworkUser;
  network.is_client = true;
  Json file = {{"apiVersion", "v1"},
               {"kind", "Config"},
               {"current-context", "node"},
               {"clusters", Json::array({{{"name", "host"},
                                          {"cluster",
                                           {{"server", server},
                                            {"certificate-authority-data",
                                             EncodeBase64(authority.pair().certificate)}}}}})},
               {"contexts", Json::array()},
               {"users", Json::array()}};
  const std::pair<const char*, const apiserver::LeafOptions*> users[] = {{"node", &node},
                                                                         {"network", &network}};
  for (const auto& [name, leaf] : users) {
    SUBLET_TRY(const apiserver::KeyPair pair, authority.Issue(*leaf, now));
    file["contexts"].push_back(
        {{"name", name}, {"context", {{"cluster", "host"}, {"user", name}}}});
    file["users"].push_back({{"name", name},
                             {"user",
                              {{"client-certificate-data", EncodeBase64(pair.certificate)},
                               {"client-key-data", EncodeBase64(pair.key)}}}});
  }
  return file.dump(1) + "\n";
}

Json NodeNetworkRole() {
  return {{"apiVersion", "rbac.authorization.k8s.io/v1"},
          {"kind", "ClusterRole"},
          {"metadata", Metadata()},
          {"rules", Json::array({Rule("", {"services", "pods", "namespaces"}),
                                 Rule("discovery.k8s.io", {"endpointslices"}),
                                 Rule("networking.k8s.io", {"networkpolicies"})})}};
}

Json NodeNetworkBinding() {
  return {{"apiVersion", "rbac.authorization.k8s.io/v1"},
          {"kind", "ClusterRoleBinding"},
          {"metadata", Metadata()},
          {"roleRef",
           {{"apiGroup", "rbac.authorization.k8s.io"},
            {"kind", "ClusterRole"},
            {"name", kNetworkUser}}},
          {"subjects", Json::array({{{"apiGroup", "rbac.authorization.k8s.io"},
                                     {"kind", "User"},
                                     {"name", kNetworkUser}}})}};
}

}  // namespace sublet::server
