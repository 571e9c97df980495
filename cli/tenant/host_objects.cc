// What a host gets once: the CRDs, and the controller that publishes NodeUsage.
#include <nlohmann/json.hpp>

#include "cli/tenant/objects.h"
#include "embedded/HostManifests.h"

namespace sublet::cli {
namespace {

using kube::Json;

constexpr const char* kSystem = "sublet-system";

Json Object(const char* api_version, const char* kind, const char* name, bool namespaced) {
  Json object = {{"apiVersion", api_version},
                 {"kind", kind},
                 {"metadata", {{"name", name}, {"labels", {{"app", "sublet-node-usage"}}}}}};
  if (namespaced) {
    object["metadata"]["namespace"] = kSystem;
  }
  return object;
}

Json Rule(Json groups, Json resources, Json verbs) {
  return {{"apiGroups", std::move(groups)},
          {"resources", std::move(resources)},
          {"verbs", std::move(verbs)}};
}

}  // namespace

std::vector<Json> HostObjects() {
  std::vector<Json> objects;
  for (const char* file : {"nodeusage-crd.yaml", "gpuslice-crd.yaml", "gpunode-crd.yaml"}) {
    auto documents = kube::ParseYamlDocuments(embedded::HostManifests(file));
    SUBLET_CHECK(documents.ok() && !documents->empty());  // our own files, checked by a test
    for (Json& document : *documents) {
      objects.push_back(std::move(document));
    }
  }
  return objects;
}

std::vector<Json> NodeUsageObjects(const std::string& image) {
  Json role = Object("rbac.authorization.k8s.io/v1", "ClusterRole", "sublet-node-usage", false);
  const Json read = Json::array({"get", "list", "watch"});
  role["rules"] = Json::array(
      {Rule(Json::array({""}), Json::array({"nodes", "pods"}), read),
       Rule(Json::array({"sublet.dev"}), Json::array({"nodeusages", "nodeusages/status"}),
            Json::array({"create", "delete", "get", "list", "patch", "update", "watch"}))});
  Json binding =
      Object("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", "sublet-node-usage", false);
  binding["roleRef"] = {{"apiGroup", "rbac.authorization.k8s.io"},
                        {"kind", "ClusterRole"},
                        {"name", "sublet-node-usage"}};
  binding["subjects"] = Json::array(
      {{{"kind", "ServiceAccount"}, {"name", "sublet-node-usage"}, {"namespace", kSystem}}});
  Json deployment = Object("apps/v1", "Deployment", "sublet-node-usage", true);
  const Json labels = {{"app", "sublet-node-usage"}};
  const Json container = {{"name", "node-usage"},
                          {"image", image},
                          {"command", Json::array({"/sublet", "node-usage"})},
                          {"resources", {{"requests", {{"cpu", "10m"}, {"memory", "32Mi"}}}}},
                          {"securityContext",
                           {{"allowPrivilegeEscalation", false},
                            {"readOnlyRootFilesystem", true},
                            {"capabilities", {{"drop", Json::array({"ALL"})}}}}}};
  deployment["spec"] = {{"replicas", 1},
                        {"selector", {{"matchLabels", labels}}},
                        {"template",
                         {{"metadata", {{"labels", labels}}},
                          {"spec",
                           {{"serviceAccountName", "sublet-node-usage"},
                            {"securityContext", {{"runAsNonRoot", true}, {"runAsUser", 65532}}},
                            {"containers", Json::array({container})}}}}}};
  return {Object("v1", "Namespace", kSystem, false),
          Object("v1", "ServiceAccount", "sublet-node-usage", true), std::move(role),
          std::move(binding), std::move(deployment)};
}

}  // namespace sublet::cli
