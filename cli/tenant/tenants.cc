#include "cli/tenant/tenants.h"

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/base64.h"
#include "kube/object.h"

namespace sublet::cli {
namespace {

using kube::Json;

constexpr std::string_view kPaused = "sublet.dev/paused";

std::string StatusOf(const Json& set) {
  if (kube::AnnotationOf(set, kPaused) == "true") {
    return "Paused";
  }
  if (kube::FindInt(set, {"spec", "replicas"}, 1) == 0) {
    return "ScaledDown";
  }
  return kube::FindInt(set, {"status", "readyReplicas"}) > 0 ? "Running" : "Starting";
}

std::string VersionOf(const Json& set) {
  const Json* containers = kube::Find(set, {"spec", "template", "spec", "containers"});
  if (containers == nullptr || !containers->is_array() || containers->empty()) {
    return "";
  }
  const std::string image(kube::FindString((*containers)[0], {"image"}));
  const auto colon = image.rfind(':');
  return colon == std::string::npos ? image : image.substr(colon + 1);
}

// Why the tenant's pod is not ready, for people; "" when nothing is wrong yet.
std::string Trouble(const Json& pod) {
  for (const char* list : {"initContainerStatuses", "containerStatuses"}) {
    const Json* statuses = kube::Find(pod, {"status", list});
    if (statuses == nullptr || !statuses->is_array()) {
      continue;
    }
    for (const Json& status : *statuses) {
      const auto waiting = kube::FindString(status, {"state", "waiting", "reason"});
      if (!waiting.empty() && waiting != "PodInitializing" && waiting != "ContainerCreating") {
        return std::string(kube::FindString(status, {"name"})) + ": " + std::string(waiting) + " " +
               std::string(kube::FindString(status, {"state", "waiting", "message"}));
      }
    }
  }
  const Json* scheduled = kube::FindCondition(pod, "PodScheduled");
  if (scheduled != nullptr && kube::FindString(*scheduled, {"status"}) == "False") {
    return std::string(kube::FindString(*scheduled, {"message"}));
  }
  return "";
}

}  // namespace

std::string DecodeSecret(const Json& secret, std::string_view key) {
  const auto text = DecodeBase64(kube::FindString(secret, {"data", key}));
  return text ? *text : "";
}

Result<std::vector<TenantInfo>> ListTenants(const HostSession& host, const std::string& space) {
  client::ListOptions options;
  options.label_selector = "app=sublet";
  SUBLET_TRY(const Json list, host.client.List({kStatefulSets, space, "", ""}, options));
  std::string current;
  if (const auto kubeconfig = client::Kubeconfig::Load(); kubeconfig.ok()) {
    current = kubeconfig->current_context();
  }
  std::vector<TenantInfo> tenants;
  for (const Json& set : list.value("items", Json::array())) {
    TenantInfo tenant;
    tenant.name = kube::NameOf(set);
    tenant.host_namespace = kube::NamespaceOf(set);
    tenant.status = StatusOf(set);
    tenant.version = VersionOf(set);
    tenant.created = kube::FindString(set, {"metadata", "creationTimestamp"});
    tenant.uid = kube::UidOf(set);
    tenant.connected =
        current == TenantContextName(tenant.name, tenant.host_namespace, host.context);
    tenant.stateful_set = set;
    tenants.push_back(std::move(tenant));
  }
  std::sort(tenants.begin(), tenants.end(), [](const TenantInfo& a, const TenantInfo& b) {
    return std::tie(a.host_namespace, a.name) < std::tie(b.host_namespace, b.name);
  });
  return tenants;
}

Result<TenantInfo> FindTenant(const HostSession& host, const std::string& name,
                              const std::string& space) {
  SUBLET_TRY(std::vector<TenantInfo> all, ListTenants(host, space));
  std::vector<TenantInfo> found;
  std::string names;
  for (TenantInfo& tenant : all) {
    names += (names.empty() ? "" : ", ") + tenant.name;
    if (tenant.name == name) {
      found.push_back(std::move(tenant));
    }
  }
  if (found.empty()) {
    return Status(Reason::kNotFound,
                  "there is no tenant \"" + name + "\"" +
                      (space.empty() ? "" : " in namespace \"" + space + "\"") +
                      (names.empty() ? "; the host has none" : "; the host has: " + names));
  }
  if (found.size() > 1) {
    return BadRequest("tenant \"" + name +
                      "\" exists in several namespaces; add -n, for example -n " +
                      found[0].host_namespace);
  }
  return std::move(found[0]);
}

Result<std::optional<TenantAccess>> ReadAccess(const HostSession& host, const TenantInfo& tenant) {
  auto secret = host.client.Get({kSecrets, tenant.host_namespace, "sublet-" + tenant.name, ""});
  if (!secret.ok()) {
    if (secret.error().Is(Reason::kNotFound)) {
      return std::optional<TenantAccess>();
    }
    return std::move(secret).error();
  }
  TenantAccess access{
      DecodeSecret(*secret, "certificate-authority"), DecodeSecret(*secret, "client-certificate"),
      DecodeSecret(*secret, "client-key"), tenant.name + "." + tenant.host_namespace + ".svc"};
  if (access.ca_pem.empty() || access.certificate_pem.empty() || access.key_pem.empty()) {
    return std::optional<TenantAccess>();
  }
  return std::optional<TenantAccess>(std::move(access));
}

namespace {

// One wait for a tenant: its pod by a watch, so that nothing of its start is spent on questions.
class TenantWait {
 public:
  TenantWait(const HostSession& host, const TenantInfo& tenant, Deadline deadline,
             const std::function<void(std::string_view)>& note)
      : host_(host), tenant_(tenant), deadline_(deadline), note_(note) {}

  Result<TenantAccess> Run() {
    client::WatchOptions own;
    own.field_selector = "metadata.name=" + tenant_.name + "-0";
    while (!Over()) {
      // Without a version the watch begins with what is there.
      auto watch = host_.client.OpenWatch({kPods, tenant_.host_namespace, "", ""}, own);
      if (!watch.ok()) {
        if (watch.error().Is(Reason::kForbidden) || watch.error().Is(Reason::kUnauthorized)) {
          return std::move(watch).error();
        }
        missing_ = "an answer of the host (" + watch.error().message() + ")";
        Pause();
        continue;
      }
      SUBLET_TRY(auto access, Follow(**watch));
      if (access) {
        return std::move(*access);
      }
    }
    return Status(Reason::kTimeout,
                  "tenant " + tenant_.name + " did not become ready; still missing: " + missing_);
  }

 private:
  bool Over() const { return std::chrono::steady_clock::now() >= deadline_; }
  static void Pause() { std::this_thread::sleep_for(std::chrono::milliseconds(20)); }

  // Until the tenant is there (its access), or the watch or the time ended (nullopt).
  Result<std::optional<TenantAccess>> Follow(client::Watch& watch) {
    while (!Over()) {
      const auto event = watch.Next(deadline_);
      if (!event.ok() || !*event) {
        Pause();
        break;
      }
      const auto type = (**event).type;
      if (type == client::WatchEvent::Type::kBookmark ||
          type == client::WatchEvent::Type::kDeleted) {
        continue;
      }
      const Json& pod = *(**event).object;
      if (const std::string trouble = Trouble(pod); !trouble.empty()) {
        note_(trouble);
        missing_ = "its pod " + tenant_.name + "-0 (" + trouble + ")";
      }
      if (!kube::IsConditionTrue(pod, "Ready") || kube::IsDeleting(pod)) {
        continue;
      }
      missing_ = "its credentials (Secret sublet-" + tenant_.name + ")";
      while (!Over()) {  // published when it starts to serve: there, or there in a moment
        SUBLET_TRY(auto access, ReadAccess(host_, tenant_));
        if (access) {
          return access;
        }
        Pause();
      }
    }
    return std::optional<TenantAccess>();
  }

  const HostSession& host_;
  const TenantInfo& tenant_;
  const Deadline deadline_;
  const std::function<void(std::string_view)>& note_;
  std::string missing_ = "its pod";
};

}  // namespace

std::string LookAtPod(std::string_view name, std::string_view host_namespace) {
  return "kubectl describe pod -n " + std::string(host_namespace) + " " + std::string(name) +
         "-0    (in the host's context)";
}

Result<TenantAccess> WaitForTenant(const HostSession& host, const TenantInfo& tenant,
                                   Deadline deadline,
                                   const std::function<void(std::string_view)>& note) {
  return TenantWait(host, tenant, deadline, note).Run();
}

}  // namespace sublet::cli
