#include "cli/tenant/objects.h"

#include <map>
#include <nlohmann/json.hpp>

#include "kube/validation_names.h"
#include "syncer/names.h"

namespace sublet::cli {
namespace {

using kube::Json;

constexpr int kApiPort = 8443;
constexpr int kDnsPort = 1053;

struct Maker {
  const TenantSpec& spec;
  const config::TenantConfig& config;

  Json Labels() const { return {{"app", "sublet"}, {"release", spec.name}}; }

  Json Object(std::string_view api_version, std::string_view kind, std::string name,
              bool namespaced = true) const {
    Json object = {{"apiVersion", api_version},
                   {"kind", kind},
                   {"metadata", {{"name", std::move(name)}, {"labels", Labels()}}}};
    if (namespaced) {
      object["metadata"]["namespace"] = spec.host_namespace;
    }
    return object;
  }

  // Names of cluster-scoped objects carry the namespace: two tenants may share a name.
  std::string ClusterName() const { return "sublet-" + spec.name + "-" + spec.host_namespace; }

  Json Namespace() const {
    Json object = Object("v1", "Namespace", spec.host_namespace, false);
    object["metadata"]["annotations"] = {{"sublet.dev/created", "true"}};
    return object;
  }

  Json Config() const {
    Json object = Object("v1", "Secret", "sublet-config-" + spec.name);
    object["type"] = "Opaque";
    object["stringData"] = {{"config.yaml", spec.values}};
    return object;
  }

  Json Role() const {
    Json object = Object("rbac.authorization.k8s.io/v1", "Role", "sublet-" + spec.name);
    const Json all = {"create", "delete", "get", "list", "patch", "update", "watch"};
    const auto rule = [](Json groups, Json resources, Json verbs) {
      return Json{{"apiGroups", std::move(groups)},
                  {"resources", std::move(resources)},
                  {"verbs", std::move(verbs)}};
    };
    Json rules = Json::array();
    rules.push_back(rule(Json::array({""}),
                         Json::array({"configmaps", "secrets", "services", "pods",
                                      "persistentvolumeclaims", "endpoints"}),
                         all));
    rules.push_back(rule(Json::array({""}),
                         Json::array({"pods/status", "pods/ephemeralcontainers", "pods/resize"}),
                         Json::array({"patch", "update"})));
    rules.push_back(rule(Json::array({""}),
                         Json::array({"pods/attach", "pods/exec", "pods/portforward"}),
                         Json::array({"create", "get"})));
    rules.push_back(rule(Json::array({""}), Json::array({"pods/log"}), Json::array({"get"})));
    rules.push_back(
        rule(Json::array({""}), Json::array({"events"}), Json::array({"get", "list", "watch"})));
    rules.push_back(rule(Json::array({"discovery.k8s.io"}), Json::array({"endpointslices"}), all));
    rules.push_back(rule(Json::array({"gpu.sublet.dev"}), Json::array({"gpuslices"}),
                         Json::array({"create", "delete", "get", "list", "watch"})));
    if (config.ingresses || config.network_policies) {
      rules.push_back(rule(Json::array({"networking.k8s.io"}),
                           Json::array({"ingresses", "networkpolicies"}), all));
    }
    if (config.pod_disruption_budgets) {
      rules.push_back(rule(Json::array({"policy"}), Json::array({"poddisruptionbudgets"}), all));
    }
    if (config.service_accounts) {
      rules.push_back(rule(Json::array({""}), Json::array({"serviceaccounts"}), all));
    }
    object["rules"] = std::move(rules);
    return object;
  }

  // Read-only, and only what names no other tenant.
  Json ClusterRole() const {
    Json object = Object("rbac.authorization.k8s.io/v1", "ClusterRole", ClusterName(), false);
    const Json read = {"get", "list", "watch"};
    const Json all = {"create", "delete", "get", "list", "patch", "update", "watch"};
    object["rules"] = Json::array(
        {{{"apiGroups", {""}}, {"resources", {"nodes"}}, {"verbs", read}},
         {{"apiGroups", {"sublet.dev"}}, {"resources", {"nodeusages"}}, {"verbs", read}},
         {{"apiGroups", {"gpu.sublet.dev"}}, {"resources", {"gpunodes"}}, {"verbs", read}},
         {{"apiGroups", {"storage.k8s.io"}},
          {"resources", {"storageclasses"}},
          {"verbs", config.storage_classes_to_host ? all : read}},
         {{"apiGroups", {"networking.k8s.io"}}, {"resources", {"ingressclasses"}}, {"verbs", read}},
         {{"apiGroups", {"node.k8s.io"}}, {"resources", {"runtimeclasses"}}, {"verbs", read}},
         {{"apiGroups", {"scheduling.k8s.io"}},
          {"resources", {"priorityclasses"}},
          {"verbs", config.priority_classes_to_host ? all : read}}});
    if (config.persistent_volumes_to_host) {
      object["rules"].push_back(
          {{"apiGroups", {""}}, {"resources", {"persistentvolumes"}}, {"verbs", all}});
    }
    return object;
  }

  Json Binding(std::string_view kind, std::string name, std::string_view role_kind,
               std::string role, bool namespaced) const {
    Json object = Object("rbac.authorization.k8s.io/v1", kind, std::move(name), namespaced);
    object["roleRef"] = {
        {"apiGroup", "rbac.authorization.k8s.io"}, {"kind", role_kind}, {"name", std::move(role)}};
    object["subjects"] = Json::array({{{"kind", "ServiceAccount"},
                                       {"name", "sublet-" + spec.name},
                                       {"namespace", spec.host_namespace}}});
    return object;
  }

  // In a namespace that Services are replicated from: those Services, and nothing else there.
  void AddImports(std::vector<Json>& out) const {
    std::map<std::string, Json> names;
    for (const config::Replication& row : config.replicate_from_host) {
      const auto slash = row.from.find('/');
      const std::string space =
          slash == std::string::npos ? spec.host_namespace : row.from.substr(0, slash);
      names[space].push_back(row.from.substr(slash + 1));
    }
    for (auto& [space, services] : names) {
      Json role = Object("rbac.authorization.k8s.io/v1", "Role", ClusterName());
      role["rules"] = Json::array({{{"apiGroups", {""}},
                                    {"resources", {"services"}},
                                    {"resourceNames", std::move(services)},
                                    {"verbs", {"get", "list", "watch"}}}});
      Json binding = Binding("RoleBinding", ClusterName(), "Role", ClusterName(), true);
      for (Json* object : {&role, &binding}) {
        (*object)["metadata"]["namespace"] = space;
        (*object)["metadata"]["labels"]["sublet.dev/imports"] = spec.host_namespace;
      }
      out.push_back(std::move(role));
      out.push_back(std::move(binding));
    }
  }

  Json Service() const {
    Json object = Object("v1", "Service", spec.name);
    object["metadata"]["labels"]["sublet.dev/service"] = "true";
    object["spec"] = {
        {"type", config.control_plane.service_type},
        {"selector", Labels()},
        {"ports",
         Json::array(
             {{{"name", "https"}, {"port", 443}, {"targetPort", kApiPort}, {"protocol", "TCP"}},
              {{"name", "dns"}, {"port", 53}, {"targetPort", kDnsPort}, {"protocol", "UDP"}},
              {{"name", "dns-tcp"},
               {"port", 53},
               {"targetPort", kDnsPort},
               {"protocol", "TCP"}}})}};
    return object;
  }

  Json HeadlessService() const {
    Json object = Object("v1", "Service", spec.name + "-headless");
    object["spec"] = {
        {"clusterIP", "None"},
        {"publishNotReadyAddresses", true},
        {"selector", Labels()},
        {"ports",
         Json::array(
             {{{"name", "https"}, {"port", 443}, {"targetPort", kApiPort}, {"protocol", "TCP"}}})}};
    return object;
  }

  Json Container(std::string_view name, Json arguments) const {
    const auto& plane = config.control_plane;
    return {
        {"name", name},
        {"image", spec.image},
        {"imagePullPolicy", "IfNotPresent"},
        {"command", Json::array({"/sublet"})},
        {"args", std::move(arguments)},
        {"securityContext",
         {{"allowPrivilegeEscalation", false},
          {"readOnlyRootFilesystem", true},
          {"capabilities", {{"drop", Json::array({"ALL"})}}}}},
        {"resources",
         {{"requests", {{"cpu", plane.cpu_request}, {"memory", plane.memory_request}}},
          {"limits", {{"memory", plane.memory_limit}}}}},
        {"volumeMounts",
         Json::array({{{"name", "data"}, {"mountPath", "/data"}},
                      {{"name", "config"}, {"mountPath", "/etc/sublet"}, {"readOnly", true}}})}};
  }

  Json PodSpec() const {
    // A broken file or configuration is said by the init container, before anything serves.
    Json check =
        Container("check", Json::array({"serve", "--check", "--role=tenant", "--data-dir=/data",
                                        "--config=/etc/sublet/config.yaml"}));
    Json serve =
        Container("syncer", Json::array({"serve", "--role=tenant", "--tenant=" + spec.name,
                                         "--data-dir=/data", "--config=/etc/sublet/config.yaml",
                                         "--listen=0.0.0.0:" + std::to_string(kApiPort),
                                         "--dns-listen=0.0.0.0:" + std::to_string(kDnsPort)}));
    serve["ports"] =
        Json::array({{{"name", "https"}, {"containerPort", kApiPort}, {"protocol", "TCP"}},
                     {{"name", "dns"}, {"containerPort", kDnsPort}, {"protocol", "UDP"}},
                     {{"name", "dns-tcp"}, {"containerPort", kDnsPort}, {"protocol", "TCP"}}});
    serve["env"] = Json::array(
        {{{"name", "POD_NAMESPACE"},
          {"valueFrom", {{"fieldRef", {{"fieldPath", "metadata.namespace"}}}}}},
         {{"name", "POD_NAME"}, {"valueFrom", {{"fieldRef", {{"fieldPath", "metadata.name"}}}}}},
         {{"name", "POD_IP"}, {"valueFrom", {{"fieldRef", {{"fieldPath", "status.podIP"}}}}}}});
    const auto probe = [](std::string_view path, int period, int failures) {
      return Json{{"httpGet", {{"path", path}, {"port", kApiPort}, {"scheme", "HTTPS"}}},
                  {"periodSeconds", period},
                  {"failureThreshold", failures}};
    };
    serve["readinessProbe"] = probe("/readyz", 1, 3);
    serve["livenessProbe"] = probe("/livez", 10, 6);
    serve["startupProbe"] = probe("/livez", 1, 120);
    Json volumes = Json::array(
        {{{"name", "config"}, {"secret", {{"secretName", "sublet-config-" + spec.name}}}}});
    if (!spec.persistent) {
      volumes.push_back({{"name", "data"}, {"emptyDir", Json::object()}});
    }
    return {{"serviceAccountName", "sublet-" + spec.name},
            {"terminationGracePeriodSeconds", 10},
            {"enableServiceLinks", false},
            {"securityContext",
             {{"runAsNonRoot", true},
              {"runAsUser", 65532},
              {"runAsGroup", 65532},
              {"fsGroup", 65532},
              {"seccompProfile", {{"type", "RuntimeDefault"}}}}},
            {"initContainers", Json::array({std::move(check)})},
            {"containers", Json::array({std::move(serve)})},
            {"volumes", std::move(volumes)}};
  }

  Json StatefulSet() const {
    Json object = Object("apps/v1", "StatefulSet", spec.name);
    object["spec"] = {{"replicas", 1},
                      {"serviceName", spec.name + "-headless"},
                      {"podManagementPolicy", "Parallel"},
                      {"selector", {{"matchLabels", Labels()}}},
                      {"template",
                       {{"metadata",
                         {{"labels", Labels()},
                          // Other values are another pod: that is how an upgrade takes effect.
                          {"annotations", {{"sublet.dev/config", syncer::Hash10(spec.values)}}}}},
                        {"spec", PodSpec()}}}};
    if (spec.persistent) {
      Json claim = {
          {"apiVersion", "v1"},
          {"kind", "PersistentVolumeClaim"},
          {"metadata", {{"name", "data"}}},
          {"spec",
           {{"accessModes", {"ReadWriteOnce"}},
            {"resources", {{"requests", {{"storage", config.control_plane.persistence_size}}}}}}}};
      if (!config.control_plane.storage_class.empty()) {
        claim["spec"]["storageClassName"] = config.control_plane.storage_class;
      }
      object["spec"]["volumeClaimTemplates"] = Json::array({std::move(claim)});
    }
    return object;
  }

  Json Quota() const {
    Json object = Object("v1", "ResourceQuota", "sublet-" + spec.name);
    object["spec"]["hard"] = config.quota_enabled ? Json(config.quota) : Json::object();
    if (config.gpu_devices >= 0) {
      // Slices are counted where they are asked for; this bounds GPUs that come without a slice.
      object["spec"]["hard"]["requests.nvidia.com/gpu"] = std::to_string(config.gpu_devices);
    }
    return object;
  }

  Json Limits() const {
    Json object = Object("v1", "LimitRange", "sublet-" + spec.name);
    object["spec"]["limits"] = Json::array({{{"type", "Container"},
                                             {"default", config.limit_default},
                                             {"defaultRequest", config.limit_default_request}}});
    return object;
  }

  // Pods of the tenant reach each other, their API and DNS, and the outside; nobody else reaches
  // them.
  Json Policy() const {
    Json object = Object("networking.k8s.io/v1", "NetworkPolicy", "sublet-work-" + spec.name);
    object["spec"] = {
        {"podSelector", Json::object()},
        {"policyTypes", Json::array({"Ingress"})},
        {"ingress", Json::array({{{"from", Json::array({{{"podSelector", Json::object()}}})}}})}};
    return object;
  }
};

}  // namespace

Result<void> CheckTenantName(std::string_view name) {
  // Room for "sublet-config-" and the pod's "-0" within 63 characters.
  if (name.size() > 40) {
    return BadRequest("tenant name \"" + std::string(name) + "\" has more than 40 characters");
  }
  bool good = !name.empty() && name.front() != '-' && name.back() != '-' && name.front() >= 'a' &&
              name.front() <= 'z';
  for (const char c : name) {
    good = good && ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-');
  }
  if (!good) {
    return BadRequest("tenant name \"" + std::string(name) +
                      "\" must start with a letter and consist of a-z, 0-9 and '-'");
  }
  return Ok();
}

std::string DefaultNamespace(std::string_view name) { return "sublet-" + std::string(name); }

std::vector<Json> TenantObjects(const TenantSpec& spec, const config::TenantConfig& config) {
  const Maker maker{spec, config};
  std::vector<Json> objects;
  if (spec.create_namespace) {
    objects.push_back(maker.Namespace());
  }
  objects.push_back(maker.Object("v1", "ServiceAccount", "sublet-" + spec.name));
  Json workload = maker.Object("v1", "ServiceAccount", "sublet-workload-" + spec.name);
  workload["automountServiceAccountToken"] = false;
  objects.push_back(std::move(workload));
  objects.push_back(maker.Config());
  objects.push_back(maker.Role());
  objects.push_back(
      maker.Binding("RoleBinding", "sublet-" + spec.name, "Role", "sublet-" + spec.name, true));
  objects.push_back(maker.ClusterRole());
  objects.push_back(maker.Binding("ClusterRoleBinding", maker.ClusterName(), "ClusterRole",
                                  maker.ClusterName(), false));
  maker.AddImports(objects);
  if (config.quota_enabled || config.gpu_devices >= 0) {
    objects.push_back(maker.Quota());
  }
  if (config.limit_range_enabled) {
    objects.push_back(maker.Limits());
  }
  if (config.network_policy) {
    objects.push_back(maker.Policy());
  }
  objects.push_back(maker.Service());
  objects.push_back(maker.HeadlessService());
  objects.push_back(maker.StatefulSet());
  return objects;
}

}  // namespace sublet::cli
