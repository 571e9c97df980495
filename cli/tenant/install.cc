#include "cli/tenant/install.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <nlohmann/json.hpp>
#include <thread>

#include "cli/tenant/objects.h"
#include "kube/object.h"
#include "syncer/names.h"

namespace sublet::cli {
namespace {

using kube::Json;

struct KnownKind {
  std::string_view kind;
  std::string_view group;
  std::string_view version;
  std::string_view resource;
};
constexpr std::array<KnownKind, 14> kKinds = {{
    {"Namespace", "", "v1", "namespaces"},
    {"ServiceAccount", "", "v1", "serviceaccounts"},
    {"Secret", "", "v1", "secrets"},
    {"Service", "", "v1", "services"},
    {"ResourceQuota", "", "v1", "resourcequotas"},
    {"LimitRange", "", "v1", "limitranges"},
    {"Role", "rbac.authorization.k8s.io", "v1", "roles"},
    {"RoleBinding", "rbac.authorization.k8s.io", "v1", "rolebindings"},
    {"ClusterRole", "rbac.authorization.k8s.io", "v1", "clusterroles"},
    {"ClusterRoleBinding", "rbac.authorization.k8s.io", "v1", "clusterrolebindings"},
    {"NetworkPolicy", "networking.k8s.io", "v1", "networkpolicies"},
    {"StatefulSet", "apps", "v1", "statefulsets"},
    {"CustomResourceDefinition", "apiextensions.k8s.io", "v1", "customresourcedefinitions"},
    {"Deployment", "apps", "v1", "deployments"},
}};

// What a syncer makes on the host, in the order it is swept.
constexpr std::array<KnownKind, 12> kSynced = {{
    {"Pod", "", "v1", "pods"},
    {"GpuSlice", "gpu.sublet.dev", "v1alpha1", "gpuslices"},
    {"Service", "", "v1", "services"},
    {"Endpoints", "", "v1", "endpoints"},
    {"EndpointSlice", "discovery.k8s.io", "v1", "endpointslices"},
    {"ConfigMap", "", "v1", "configmaps"},
    {"Secret", "", "v1", "secrets"},
    {"PersistentVolumeClaim", "", "v1", "persistentvolumeclaims"},
    {"ServiceAccount", "", "v1", "serviceaccounts"},
    {"Ingress", "networking.k8s.io", "v1", "ingresses"},
    {"PodDisruptionBudget", "policy", "v1", "poddisruptionbudgets"},
    {"NetworkPolicy", "networking.k8s.io", "v1", "networkpolicies"},
}};

kube::GroupVersionResource ResourceOf(const KnownKind& kind) {
  return {std::string(kind.group), std::string(kind.version), std::string(kind.resource)};
}

// A kind the host does not serve, or an object that is gone, is fine while removing.
Result<void> Tolerate(Result<Json> answer) {
  if (!answer.ok() && !answer.error().Is(Reason::kNotFound) &&
      !answer.error().Is(Reason::kMethodNotAllowed)) {
    return std::move(answer).error();
  }
  return Ok();
}

class Remover {
 public:
  Remover(const HostSession& host, const RemoveOptions& options) : host_(host), options_(options) {}

  Result<void> RemoveControlPlane() {
    client::DeleteOptions now;
    now.grace_period_seconds = 0;
    now.propagation_policy = "Background";
    SUBLET_RETURN_IF_ERROR(Tolerate(
        host_.client.Delete({kStatefulSets, options_.host_namespace, options_.name, ""}, now)));
    return Tolerate(
        host_.client.Delete({kPods, options_.host_namespace, options_.name + "-0", ""}, now));
  }

  Result<void> Sweep() {
    client::ListOptions ours;
    ours.label_selector = "sublet.dev/managed-by=" + options_.name;
    client::DeleteOptions now;
    now.grace_period_seconds = options_.grace_seconds;
    now.propagation_policy = "Background";
    for (const KnownKind& kind : kSynced) {
      if (options_.keep_volumes && kind.kind == "PersistentVolumeClaim") {
        continue;
      }
      SUBLET_RETURN_IF_ERROR(Tolerate(host_.client.DeleteCollection(
          {ResourceOf(kind), options_.host_namespace, "", ""}, ours, now)));
    }
    ours.label_selector = "sublet.dev/managed-by=" +
                          syncer::ManagedByValue({options_.name, options_.host_namespace}, true);
    for (const kube::GroupVersionResource& kind :
         {kube::GroupVersionResource{"scheduling.k8s.io", "v1", "priorityclasses"},
          {"storage.k8s.io", "v1", "storageclasses"},
          {"", "v1", "persistentvolumes"}}) {
      if (!options_.keep_volumes || kind.resource != "persistentvolumes") {
        SUBLET_RETURN_IF_ERROR(
            Tolerate(host_.client.DeleteCollection({kind, "", "", ""}, ours, now)));
      }
    }
    return Ok();
  }

  // Roles that stand in other namespaces: for replicated Services.
  Result<void> RemoveImports() {
    client::ListOptions ours;
    ours.label_selector =
        "sublet.dev/imports=" + options_.host_namespace + ",release=" + options_.name;
    for (const char* resource : {"rolebindings", "roles"}) {
      const kube::GroupVersionResource kind{"rbac.authorization.k8s.io", "v1", resource};
      auto list = host_.client.List({kind, "", "", ""}, ours);
      if (!list.ok()) {
        return std::move(list).error();
      }
      for (const Json& object : list->value("items", Json::array())) {
        SUBLET_RETURN_IF_ERROR(
            Tolerate(host_.client.Delete({kind, std::string(kube::NamespaceOf(object)),
                                          std::string(kube::NameOf(object)), ""})));
      }
    }
    return Ok();
  }

  Result<void> RemoveOwn() {
    TenantSpec spec;
    spec.name = options_.name;
    spec.host_namespace = options_.host_namespace;
    spec.create_namespace = false;
    config::TenantConfig every;
    every.quota_enabled = every.limit_range_enabled = every.network_policy = true;
    client::DeleteOptions now;
    now.propagation_policy = "Background";
    const auto objects = TenantObjects(spec, every);
    for (auto object = objects.rbegin(); object != objects.rend(); ++object) {
      SUBLET_RETURN_IF_ERROR(Tolerate(host_.client.Delete(TargetOf(*object), now)));
    }
    SUBLET_RETURN_IF_ERROR(Tolerate(host_.client.Delete(
        {kSecrets, options_.host_namespace, "sublet-" + options_.name, ""}, now)));
    if (!options_.keep_volumes) {
      SUBLET_RETURN_IF_ERROR(Tolerate(host_.client.Delete({{"", "v1", "persistentvolumeclaims"},
                                                           options_.host_namespace,
                                                           "data-" + options_.name + "-0",
                                                           ""},
                                                          now)));
    }
    return Ok();
  }

  // Whether the namespace goes too: made by create, or asked for, and no other tenant in it.
  Result<bool> NamespaceGoes() {
    auto space = host_.client.Get({kNamespaces, "", options_.host_namespace, ""});
    if (!space.ok()) {
      return space.error().Is(Reason::kNotFound) ? Result<bool>(false)
                                                 : Result<bool>(std::move(space).error());
    }
    const bool created = kube::AnnotationOf(*space, "sublet.dev/created") == "true";
    SUBLET_TRY(const auto others, ListTenants(host_, options_.host_namespace));
    for (const TenantInfo& other : others) {
      if (other.name != options_.name) {
        return false;
      }
    }
    return created || options_.delete_namespace;
  }

  Result<void> RemoveNamespace() {
    return Tolerate(host_.client.Delete({kNamespaces, "", options_.host_namespace, ""}, {}));
  }

  // What is still there of the tenant; "" = nothing.
  Result<std::string> Left(bool namespace_goes) {
    if (namespace_goes) {
      auto space = host_.client.Get({kNamespaces, "", options_.host_namespace, ""});
      if (space.ok()) {
        std::string text = "namespace " + options_.host_namespace;
        for (const char* type : {"NamespaceContentRemaining", "NamespaceFinalizersRemaining"}) {
          const Json* condition = kube::FindCondition(*space, type);
          if (condition != nullptr && kube::FindString(*condition, {"status"}) == "True") {
            text += " (" + std::string(kube::FindString(*condition, {"message"})) + ")";
          }
        }
        return text;
      }
      return space.error().Is(Reason::kNotFound) ? Result<std::string>("")
                                                 : Result<std::string>(std::move(space).error());
    }
    client::ListOptions ours;
    ours.label_selector = "sublet.dev/managed-by=" + options_.name;
    for (const KnownKind& kind : kSynced) {
      auto list = host_.client.List({ResourceOf(kind), options_.host_namespace, "", ""}, ours);
      if (list.ok() && list->contains("items") && !(*list)["items"].empty()) {
        return std::to_string((*list)["items"].size()) + " " + std::string(kind.resource) +
               ", for example " + std::string(kube::NameOf((*list)["items"][0]));
      }
    }
    auto pod = host_.client.Get({kPods, options_.host_namespace, options_.name + "-0", ""});
    return pod.ok() ? "pod " + options_.name + "-0" : Result<std::string>("");
  }

  Result<void> WaitGone(bool namespace_goes) {
    auto pause = std::chrono::milliseconds(5);
    std::string left;
    while (std::chrono::steady_clock::now() < options_.deadline) {
      SUBLET_TRY(left, Left(namespace_goes));
      if (left.empty()) {
        return Ok();
      }
      std::this_thread::sleep_for(pause);
      pause =
          std::min<std::chrono::milliseconds>(pause + pause / 4, std::chrono::milliseconds(250));
    }
    return Timeout("tenant " + options_.name + " is not quite gone; still there: " + left);
  }

 private:
  const HostSession& host_;
  const RemoveOptions& options_;
};

}  // namespace

client::Target TargetOf(const Json& object) {
  const auto kind = kube::FindString(object, {"kind"});
  for (const KnownKind& row : kKinds) {
    if (row.kind == kind) {
      return {ResourceOf(row), std::string(kube::NamespaceOf(object)),
              std::string(kube::NameOf(object)), ""};
    }
  }
  SUBLET_CHECK(false);  // objects.cc makes known kinds only
  return {};
}

namespace {

// Objects of one wave do not need each other; each wave needs those before it.
int WaveOf(std::string_view kind) {
  if (kind == "Namespace" || kind == "CustomResourceDefinition") {
    return 0;
  }
  if (kind == "StatefulSet" || kind == "Deployment") {
    return 3;
  }
  return kind == "RoleBinding" || kind == "ClusterRoleBinding" ? 2 : 1;
}

Result<void> ApplyOne(const HostSession& host, const Json& object) {
  client::WriteOptions options;
  options.field_manager = "sublet-cli";
  options.force = true;
  auto applied = host.client.Apply(TargetOf(object), object, options);
  if (!applied.ok()) {
    return std::move(applied).error().Prefixed("cannot create " +
                                               std::string(kube::FindString(object, {"kind"})) +
                                               " " + std::string(kube::NameOf(object)));
  }
  return Ok();
}

// Applies the objects over a few connections at once: the host commits them together. The first
// error in the order of `objects`.
Result<void> ApplyWave(const HostSession& host, const std::vector<const Json*>& objects) {
  constexpr std::size_t kAtOnce = 4;
  std::vector<Result<void>> results(objects.size());
  std::atomic<std::size_t> next{0};
  const auto work = [&] {
    for (std::size_t i = next++; i < objects.size(); i = next++) {
      results[i] = ApplyOne(host, *objects[i]);
    }
  };
  std::vector<std::jthread> others;
  for (std::size_t i = 1; i < std::min(kAtOnce, objects.size()); ++i) {
    others.emplace_back(work);
  }
  work();
  others.clear();
  for (Result<void>& result : results) {
    SUBLET_RETURN_IF_ERROR(std::move(result));
  }
  return Ok();
}

}  // namespace

Result<void> ApplyObjects(const HostSession& host, const std::vector<Json>& objects) {
  for (int wave = 0; wave <= 3; ++wave) {
    std::vector<const Json*> part;
    for (const Json& object : objects) {
      if (WaveOf(kube::FindString(object, {"kind"})) == wave) {
        part.push_back(&object);
      }
    }
    SUBLET_RETURN_IF_ERROR(ApplyWave(host, part));
  }
  return Ok();
}

Result<void> RemoveTenant(const HostSession& host, const RemoveOptions& options,
                          const std::function<void(std::string_view)>& phase) {
  Remover remover(host, options);
  phase("control plane stopped");
  SUBLET_RETURN_IF_ERROR(remover.RemoveControlPlane());
  SUBLET_TRY(const bool namespace_goes, remover.NamespaceGoes());
  phase("workloads deleted");
  SUBLET_RETURN_IF_ERROR(remover.Sweep());
  phase("host objects deleted");
  SUBLET_RETURN_IF_ERROR(remover.RemoveImports());
  SUBLET_RETURN_IF_ERROR(remover.RemoveOwn());
  if (namespace_goes) {
    SUBLET_RETURN_IF_ERROR(remover.RemoveNamespace());
  }
  phase("nothing left");
  return remover.WaitGone(namespace_goes);
}

}  // namespace sublet::cli
