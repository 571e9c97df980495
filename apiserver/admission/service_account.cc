// ServiceAccount: a pod runs as an account that exists, and gets its token, the root certificate
// and its namespace as files. Source: k8s.io/kubernetes plugin/pkg/admission/serviceaccount.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "apiserver/admission/registry.h"
#include "apiserver/registry/builtin.h"
#include "kube/name_generator.h"
#include "kube/object.h"

namespace sublet::apiserver {
namespace {

using kube::Json;

constexpr std::string_view kVolumePrefix = "kube-api-access-";
constexpr std::string_view kMountPath = "/var/run/secrets/kubernetes.io/serviceaccount";
constexpr std::string_view kMirror = "kubernetes.io/config.mirror";
// The account "default" of a namespace is made by a controller right after the namespace; a pod
// that comes in between waits this long for it.
constexpr auto kDefaultAccountWait = std::chrono::milliseconds(1000);

Json TokenVolume(const std::string& name) {
  return {{"name", name},
          {"projected",
           {{"defaultMode", 420},
            {"sources",
             {{{"serviceAccountToken", {{"expirationSeconds", 3607}, {"path", "token"}}}},
              {{"configMap",
                {{"name", "kube-root-ca.crt"},
                 {"items", Json::array({{{"key", "ca.crt"}, {"path", "ca.crt"}}})}}}},
              {{"downwardAPI",
                {{"items", Json::array({{{"path", "namespace"},
                                         {"fieldRef",
                                          {{"apiVersion", "v1"},
                                           {"fieldPath", "metadata.namespace"}}}}})}}}}}}}}};
}

bool HasMount(const Json& container) {
  const Json* mounts = kube::Find(container, {"volumeMounts"});
  return mounts != nullptr && mounts->is_array() &&
         std::any_of(mounts->begin(), mounts->end(), [](const Json& mount) {
           return kube::FindString(mount, {"mountPath"}) == kMountPath;
         });
}

void MountToken(Json& pod) {
  Json& spec = pod["spec"];
  std::string volume;
  if (const Json* volumes = kube::Find(spec, {"volumes"});
      volumes != nullptr && volumes->is_array()) {
    for (const auto& item : *volumes) {
      if (kube::FindString(item, {"name"}).starts_with(kVolumePrefix)) {
        volume = kube::FindString(item, {"name"});
        break;
      }
    }
  }
  const bool has_volume = !volume.empty();
  if (!has_volume) {
    volume = kube::GenerateName(kVolumePrefix);
  }
  bool needed = false;
  for (const char* list : {"initContainers", "containers"}) {
    Json* containers = kube::Find(spec, {list});
    if (containers == nullptr || !containers->is_array()) {
      continue;
    }
    for (auto& container : *containers) {
      if (!HasMount(container)) {
        kube::EnsureArray(&container, "volumeMounts")
            .push_back(
                {{"name", volume}, {"mountPath", std::string(kMountPath)}, {"readOnly", true}});
        needed = true;
      }
    }
  }
  if (needed && !has_volume) {
    kube::EnsureArray(&spec, "volumes").push_back(TokenVolume(volume));
  }
}

bool ShouldMount(const Json& pod, const Json& account) {
  for (const auto* place : {kube::Find(pod, {"spec", "automountServiceAccountToken"}),
                            kube::Find(account, {"automountServiceAccountToken"})}) {
    if (place != nullptr && place->is_boolean()) {
      return place->get<bool>();
    }
  }
  return true;
}

void CopyPullSecrets(Json& pod, const Json& account) {
  const Json* own = kube::Find(pod, {"spec", "imagePullSecrets"});
  const Json* secrets = kube::Find(account, {"imagePullSecrets"});
  const bool has_own = own != nullptr && own->is_array() && !own->empty();
  if (has_own || secrets == nullptr || !secrets->is_array() || secrets->empty()) {
    return;
  }
  pod["spec"]["imagePullSecrets"] = *secrets;
}

std::string AccountKey(const AdmissionRequest& request, std::string_view name) {
  return StoragePrefix({"", "serviceaccounts"}) + request.namespace_name + "/" + std::string(name);
}

std::string AccountName(const Json& pod) {
  const auto name = kube::FindString(pod, {"spec", "serviceAccountName"});
  return name.empty() ? "default" : std::string(name);
}

std::optional<Json> FindAccount(const AdmissionEnvironment& environment,
                                const AdmissionRequest& request, const std::string& name) {
  if (auto found = ReadObject(environment, "", "serviceaccounts", request.namespace_name, name)) {
    return found;
  }
  if (name != "default") {
    return std::nullopt;
  }
  const auto deadline = std::min(request.deadline, After(kDefaultAccountWait));
  while (std::chrono::steady_clock::now() < deadline) {
    const auto revision = environment.store->CurrentRevision();
    if (auto found = ReadObject(environment, "", "serviceaccounts", request.namespace_name, name)) {
      return found;
    }
    environment.store->WaitForRevision(revision + 1, deadline);
  }
  return std::nullopt;
}

Status NoAccount(const AdmissionRequest& request, const std::string& name) {
  return AdmissionForbidden(request, "error looking up service account " + request.namespace_name +
                                         "/" + name + ": serviceaccount \"" + name +
                                         "\" not found");
}

Result<void> AdmitMirror(const AdmissionRequest& request, const Json& pod) {
  if (!kube::FindString(pod, {"spec", "serviceAccountName"}).empty()) {
    return AdmissionForbidden(request, "a mirror pod may not reference service accounts");
  }
  return Ok();
}

Result<void> Admit(const AdmissionEnvironment& environment, AdmissionRequest& request) {
  if (!IsMain(request, "", "pods")) {
    return Ok();
  }
  Json& pod = *request.object;
  if (!kube::AnnotationOf(pod, kMirror).empty()) {
    return AdmitMirror(request, pod);
  }
  const std::string name = AccountName(pod);
  const auto account = FindAccount(environment, request, name);
  if (!account) {
    return NoAccount(request, name);
  }
  Json& spec = kube::EnsureObject(&pod, "spec");
  spec["serviceAccountName"] = name;
  spec["serviceAccount"] = name;
  if (ShouldMount(pod, *account)) {
    MountToken(pod);
  }
  CopyPullSecrets(pod, *account);
  return Ok();
}

}  // namespace

AdmissionPlugin ServiceAccount(const AdmissionEnvironment& environment) {
  AdmissionPlugin plugin;
  plugin.name = "ServiceAccount";
  plugin.operations = Operations({Operation::kCreate});
  plugin.mutate = [environment](AdmissionRequest& request) { return Admit(environment, request); };
  plugin.may_block = [environment](const AdmissionRequest& request) {
    return IsMain(request, "", "pods") && AccountName(*request.object) == "default" &&
           !environment.store->Get(AccountKey(request, "default"));
  };
  return plugin;
}

}  // namespace sublet::apiserver
