#include <nlohmann/json.hpp>

#include "apiserver/auth/default_policy.h"
#include "server/bootstrap.h"
#include "server/node_kubeconfig.h"

namespace sublet::server {
namespace {

using kube::Json;

Json Object(const char* api_version, const char* kind, const std::string& name,
            const char* namespace_name = "") {
  Json object = {{"apiVersion", api_version}, {"kind", kind}, {"metadata", {{"name", name}}}};
  if (*namespace_name != '\0') {
    object["metadata"]["namespace"] = namespace_name;
  }
  return object;
}

Json Namespace(const std::string& name) {
  Json object = Object("v1", "Namespace", name);
  object["metadata"]["labels"] = {{"kubernetes.io/metadata.name", name}};
  object["spec"] = {{"finalizers", {"kubernetes"}}};
  object["status"] = {{"phase", "Active"}};
  return object;
}

Json PriorityClass(const std::string& name, std::int64_t value, const char* description) {
  Json object = Object("scheduling.k8s.io/v1", "PriorityClass", name);
  object["metadata"]["generation"] = 1;
  object["value"] = value;
  object["description"] = description;
  object["preemptionPolicy"] = "PreemptLowerPriority";
  return object;
}

// Source: k8s.io/apiserver pkg/apis/flowcontrol/bootstrap.
struct Level {
  const char* name;
  int shares;
  int lendable;
  int queues;  // 0 = refuse at once
  int hand_size;
};
constexpr Level kLevels[] = {
    {"catch-all", 5, 0, 0, 0},         {"global-default", 20, 50, 128, 6},
    {"leader-election", 10, 0, 16, 4}, {"node-high", 40, 25, 64, 6},
    {"system", 30, 33, 64, 6},         {"workload-high", 40, 50, 128, 6},
    {"workload-low", 100, 90, 128, 6},
};

Json FlowObject(const char* kind, const std::string& name) {
  Json object = Object("flowcontrol.apiserver.k8s.io/v1", kind, name);
  object["metadata"]["annotations"] = {{"apf.kubernetes.io/autoupdate-spec", "true"}};
  object["metadata"]["generation"] = 1;
  return object;
}

void AddLevels(std::vector<Json>& out) {
  Json exempt = FlowObject("PriorityLevelConfiguration", "exempt");
  exempt["spec"] = {{"type", "Exempt"},
                    {"exempt", {{"nominalConcurrencyShares", 0}, {"lendablePercent", 0}}}};
  exempt["status"] = Json::object();
  out.push_back(std::move(exempt));
  for (const Level& level : kLevels) {
    Json response = {{"type", "Reject"}};
    if (level.queues > 0) {
      response = {
          {"type", "Queue"},
          {"queuing",
           {{"queues", level.queues}, {"handSize", level.hand_size}, {"queueLengthLimit", 50}}}};
    }
    Json object = FlowObject("PriorityLevelConfiguration", level.name);
    object["spec"] = {{"type", "Limited"},
                      {"limited",
                       {{"nominalConcurrencyShares", level.shares},
                        {"lendablePercent", level.lendable},
                        {"limitResponse", std::move(response)}}}};
    object["status"] = Json::object();
    out.push_back(std::move(object));
  }
}

Json Group(const char* name) { return {{"kind", "Group"}, {"group", {{"name", name}}}}; }
Json UserSubject(const char* name) { return {{"kind", "User"}, {"user", {{"name", name}}}}; }
Json KubeSystemAccount(const char* name) {
  return {{"kind", "ServiceAccount"},
          {"serviceAccount", {{"name", name}, {"namespace", "kube-system"}}}};
}

Json AllResources() {
  return {{"verbs", {"*"}},
          {"apiGroups", {"*"}},
          {"resources", {"*"}},
          {"namespaces", {"*"}},
          {"clusterScope", true}};
}
Json AllPaths() { return {{"verbs", {"*"}}, {"nonResourceURLs", {"*"}}}; }
Json Leases(Json verbs) {
  return {{"verbs", std::move(verbs)},
          {"apiGroups", {"coordination.k8s.io"}},
          {"resources", {"leases"}},
          {"namespaces", {"*"}}};
}

void AddSchema(std::vector<Json>& out, const char* name, const char* level, int precedence,
               const char* distinguisher, Json rules) {
  Json object = FlowObject("FlowSchema", name);
  object["spec"] = {{"matchingPrecedence", precedence},
                    {"priorityLevelConfiguration", {{"name", level}}},
                    {"rules", Json::array({std::move(rules)})}};
  if (*distinguisher != '\0') {
    object["spec"]["distinguisherMethod"] = {{"type", distinguisher}};
  }
  object["status"] = {
      {"conditions",
       {{{"type", "Dangling"},
         {"status", "False"},
         {"reason", "Found"},
         {"message", "This FlowSchema references the PriorityLevelConfiguration object named \"" +
                         std::string(level) + "\" and it exists"}}}}};
  out.push_back(std::move(object));
}

// A list of one is spelt Json::array({x}): what Json{x} is depends on the compiler.
void AddSchemas(std::vector<Json>& out) {
  const auto everything = [](Json subjects) {
    return Json{{"subjects", std::move(subjects)},
                {"resourceRules", {AllResources()}},
                {"nonResourceRules", {AllPaths()}}};
  };
  const auto resources = [](Json subjects, Json rules) {
    return Json{{"subjects", std::move(subjects)}, {"resourceRules", std::move(rules)}};
  };
  const Json everybody = {Group("system:unauthenticated"), Group("system:authenticated")};
  constexpr auto kUser = "ByUser";
  constexpr auto kNamespace = "ByNamespace";
  AddSchema(out, "exempt", "exempt", 1, "", everything(Json::array({Group("system:masters")})));
  AddSchema(out, "probes", "exempt", 2, "",
            {{"subjects", everybody},
             {"nonResourceRules",
              {{{"verbs", {"get"}}, {"nonResourceURLs", {"/healthz", "/readyz", "/livez"}}}}}});
  AddSchema(out, "system-leader-election", "leader-election", 100, kUser,
            resources({UserSubject("system:kube-controller-manager"),
                       UserSubject("system:kube-scheduler"), KubeSystemAccount("*")},
                      Json::array({Leases({"get", "create", "update"})})));
  AddSchema(out, "endpoint-controller", "workload-high", 150, kUser,
            resources({UserSubject("system:kube-controller-manager"),
                       KubeSystemAccount("endpoint-controller"),
                       KubeSystemAccount("endpointslicemirroring-controller")},
                      {{{"verbs", {"get", "create", "update"}},
                        {"apiGroups", {""}},
                        {"resources", {"endpoints"}},
                        {"namespaces", {"*"}}}}));
  AddSchema(out, "workload-leader-election", "leader-election", 200, kUser,
            resources(Json::array({KubeSystemAccount("*")}),
                      Json::array({Leases({"get", "create", "update"})})));
  AddSchema(
      out, "system-node-high", "node-high", 400, kUser,
      resources(Json::array({Group("system:nodes")}), {{{"verbs", {"*"}},
                                                        {"apiGroups", {""}},
                                                        {"resources", {"nodes", "nodes/status"}},
                                                        {"namespaces", {"*"}},
                                                        {"clusterScope", true}},
                                                       Leases({"*"})}));
  AddSchema(out, "system-nodes", "system", 500, kUser,
            everything(Json::array({Group("system:nodes")})));
  AddSchema(out, "kube-controller-manager", "workload-high", 800, kNamespace,
            everything(Json::array({UserSubject("system:kube-controller-manager")})));
  AddSchema(out, "kube-scheduler", "workload-high", 800, kNamespace,
            everything(Json::array({UserSubject("system:kube-scheduler")})));
  AddSchema(out, "kube-system-service-accounts", "workload-high", 900, kNamespace,
            everything(Json::array({KubeSystemAccount("*")})));
  AddSchema(out, "service-accounts", "workload-low", 9000, kUser,
            everything(Json::array({Group("system:serviceaccounts")})));
  AddSchema(out, "global-default", "global-default", 9900, kUser, everything(everybody));
  AddSchema(out, "catch-all", "catch-all", 10000, kUser, everything(everybody));
}

Json KubernetesService(const BootstrapFacts& facts) {
  Json object = Object("v1", "Service", "kubernetes", "default");
  object["metadata"]["labels"] = {{"component", "apiserver"}, {"provider", "kubernetes"}};
  object["spec"] = {
      {"clusterIP", facts.service_ip},
      {"clusterIPs", {facts.service_ip}},
      {"internalTrafficPolicy", "Cluster"},
      {"ipFamilies", {facts.service_ip.find(':') == std::string::npos ? "IPv4" : "IPv6"}},
      {"ipFamilyPolicy", "SingleStack"},
      {"ports",
       {{{"name", "https"},
         {"port", 443},
         {"protocol", "TCP"},
         {"targetPort", facts.endpoint_port}}}},
      {"sessionAffinity", "None"},
      {"type", "ClusterIP"}};
  object["status"] = {{"loadBalancer", Json::object()}};
  return object;
}

Json Ready(const char* type, const char* reason, const char* message) {
  Json condition = {{"type", type}, {"status", "True"}, {"reason", reason}, {"message", message}};
  return {{"conditions", Json::array({std::move(condition)})}};
}

// The range of Service addresses, and the first of them.
void AddServiceRange(const BootstrapFacts& facts, std::vector<Json>& out) {
  if (facts.service_ip != "10.96.0.1") {
    return;  // a range of somebody else's
  }
  Json range = Object("networking.k8s.io/v1", "ServiceCIDR", "kubernetes");
  range["spec"] = {{"cidrs", {"10.96.0.0/12"}}};
  range["status"] = Ready("Ready", "", "Kubernetes default Service CIDR is ready");
  out.push_back(std::move(range));
  Json address = Object("networking.k8s.io/v1", "IPAddress", facts.service_ip);
  address["metadata"]["labels"] = {{"ipaddress.kubernetes.io/ip-family", "IPv4"},
                                   {"ipaddress.kubernetes.io/managed-by", "ipallocator.k8s.io"}};
  address["spec"] = {
      {"parentRef", {{"resource", "services"}, {"namespace", "default"}, {"name", "kubernetes"}}}};
  out.push_back(std::move(address));
}

// The groups that this server serves itself. Source: k8s.io/kubernetes
// pkg/controlplane/apiserver/aggregator.go (the numbers).
struct LocalGroup {
  const char* group;
  const char* version;
  int group_priority;
  int version_priority;
};
constexpr LocalGroup kLocalGroups[] = {
    {"", "v1", 18000, 1},
    {"apps", "v1", 17800, 15},
    {"events.k8s.io", "v1", 17750, 15},
    {"authentication.k8s.io", "v1", 17700, 15},
    {"authorization.k8s.io", "v1", 17600, 15},
    {"autoscaling", "v1", 17500, 15},
    {"autoscaling", "v2", 17500, 30},
    {"batch", "v1", 17400, 15},
    {"certificates.k8s.io", "v1", 17300, 15},
    {"networking.k8s.io", "v1", 17200, 15},
    {"policy", "v1", 17100, 15},
    {"rbac.authorization.k8s.io", "v1", 17000, 15},
    {"storage.k8s.io", "v1", 16800, 15},
    {"admissionregistration.k8s.io", "v1", 16700, 15},
    {"apiextensions.k8s.io", "v1", 16700, 15},
    {"scheduling.k8s.io", "v1", 16600, 15},
    {"coordination.k8s.io", "v1", 16500, 15},
    {"node.k8s.io", "v1", 16300, 15},
    {"discovery.k8s.io", "v1", 16200, 15},
    {"resource.k8s.io", "v1", 16200, 21},
    {"flowcontrol.apiserver.k8s.io", "v1", 16100, 21},
};

void AddApiServices(std::vector<Json>& out) {
  for (const LocalGroup& local : kLocalGroups) {
    const std::string group = local.group;
    Json object =
        Object("apiregistration.k8s.io/v1", "APIService", std::string(local.version) + "." + group);
    object["metadata"]["labels"] = {{"kube-aggregator.kubernetes.io/automanaged", "onstart"}};
    object["spec"] = {{"version", local.version},
                      {"groupPriorityMinimum", local.group_priority},
                      {"versionPriority", local.version_priority}};
    if (!group.empty()) {
      object["spec"]["group"] = group;
    }
    object["status"] = Ready("Available", "Local", "Local APIServices are always available");
    out.push_back(std::move(object));
  }
}

Json AuthenticationConfig(const BootstrapFacts& facts) {
  Json object = Object("v1", "ConfigMap", "extension-apiserver-authentication", "kube-system");
  object["data"] = {{"client-ca-file", facts.authority_certificate}};
  return object;
}

}  // namespace

std::vector<Json> BootstrapObjects(const BootstrapFacts& facts) {
  std::vector<Json> objects;
  for (const char* name : {"default", "kube-node-lease", "kube-public", "kube-system"}) {
    objects.push_back(Namespace(name));
  }
  for (Json& object : apiserver::DefaultRbacObjects()) {
    objects.push_back(std::move(object));
  }
  objects.push_back(PriorityClass("system-cluster-critical", 2000000000,
                                  "Used for system critical pods that must run in the cluster, "
                                  "but can be moved to another node if necessary."));
  objects.push_back(PriorityClass("system-node-critical", 2000001000,
                                  "Used for system critical pods that must not be moved from "
                                  "their current node."));
  AddLevels(objects);
  AddSchemas(objects);
  objects.push_back(AuthenticationConfig(facts));
  objects.push_back(KubernetesService(facts));
  AddServiceRange(facts, objects);
  AddApiServices(objects);
  if (facts.local_volumes) {
    objects.push_back(NodeNetworkRole());
    objects.push_back(NodeNetworkBinding());
    // The controllers' local-path provisioner makes the volumes (controllers/claim_controllers.h).
    objects.push_back(
        {{"apiVersion", "storage.k8s.io/v1"},
         {"kind", "StorageClass"},
         {"metadata",
          {{"name", "local-path"},
           {"annotations", {{"storageclass.kubernetes.io/is-default-class", "true"}}}}},
         {"provisioner", "sublet.dev/local-path"},
         {"reclaimPolicy", "Delete"},
         {"volumeBindingMode", "Immediate"}});
  }
  return objects;
}

}  // namespace sublet::server
