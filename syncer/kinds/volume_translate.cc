#include "syncer/kinds/volume_translate.h"

#include <array>

#include "kube/object.h"
#include "syncer/kinds/translate_fields.h"

namespace sublet::syncer {
namespace {

using kube::Json;

// {optional, items, name|secretName} of configMap and secret sources.
Json NamedSource(const Json& source, std::string_view name_field, const Json& pod,
                 const PodContext& context) {
  Json out = Json::object();
  CopyFields(source, out, {"name", "secretName", "items", "optional", "defaultMode"});
  TranslateName(out, name_field, context.tenant, kube::NamespaceOf(pod));
  return out;
}

Json DownwardItems(const Json& source, const Json& pod, const PodContext& context,
                   DownwardApi& downward) {
  Json out = Json::object();
  CopyFields(source, out, {"defaultMode", "items"});
  if (out.contains("items") && out["items"].is_array()) {
    for (Json& item : out["items"]) {
      if (item.contains("fieldRef")) {
        TranslateFieldRef(item["fieldRef"], pod, context, downward);
      }
    }
  }
  return out;
}

// A serviceAccountToken source becomes one item of the token Secret. Differs: vCluster stores a
// token of ten years in a pod annotation; ours lives as long as asked, is refreshed by the syncer
// and never stands in the Pod.
Json TokenItem(const Json& source, const Json& pod, const PodContext& context, HostPod& out) {
  if (out.token_secret.empty()) {
    const std::string name(kube::FindString(pod, {"metadata", "name"}));
    out.token_secret = HostName(context.tenant, name + "-sa-token", kube::NamespaceOf(pod));
  }
  PodToken token;
  token.key = "token-" + std::to_string(out.tokens.size());
  if (const auto audience = kube::FindString(source, {"audience"}); !audience.empty()) {
    token.audiences.emplace_back(audience);
  }
  token.expiration_seconds = kube::FindInt(source, {"expirationSeconds"}, 3600);
  Json item = {{"key", token.key}, {"path", kube::FindString(source, {"path"}, "token")}};
  out.tokens.push_back(std::move(token));
  return {{"name", out.token_secret}, {"items", Json::array({std::move(item)})}};
}

Json Projected(const Json& source, const Json& pod, const PodContext& context,
               DownwardApi& downward, HostPod& out) {
  Json result = Json::object();
  CopyFields(source, result, {"defaultMode"});
  Json& sources = result["sources"] = Json::array();
  const auto given = source.find("sources");
  if (given == source.end() || !given->is_array()) {
    return result;
  }
  for (const Json& part : *given) {
    Json copy = Json::object();
    if (part.contains("configMap")) {
      copy["configMap"] = NamedSource(part["configMap"], "name", pod, context);
    } else if (part.contains("secret")) {
      copy["secret"] = NamedSource(part["secret"], "name", pod, context);
    } else if (part.contains("downwardAPI")) {
      copy["downwardAPI"] = DownwardItems(part["downwardAPI"], pod, context, downward);
    } else if (part.contains("serviceAccountToken")) {
      copy["secret"] = TokenItem(part["serviceAccountToken"], pod, context, out);
    } else {
      continue;
    }
    sources.push_back(std::move(copy));
  }
  return result;
}

// A generic ephemeral volume: the tenant's controller makes the claim POD-VOLUME, which is synced.
Json EphemeralClaim(const Json& volume, const Json& pod, const PodContext& context) {
  const std::string claim = std::string(kube::FindString(pod, {"metadata", "name"})) + "-" +
                            std::string(kube::FindString(volume, {"name"}));
  return {{"claimName", HostName(context.tenant, claim, kube::NamespaceOf(pod))}};
}

// Network volumes whose only reference is a Secret. Differs: vCluster copies rbd and cephfs, too:
// without a Secret they name, or default to, a credential in a file of the node. Kubernetes 1.31
// dropped both.
struct SecretVolume {
  std::string_view kind;
  std::string_view reference;  // member {name}
  std::vector<std::string_view> fields;
};

const std::array<SecretVolume, 2>& SecretVolumes() {
  static const std::array<SecretVolume, 2> kVolumes = {
      {{"csi", "nodePublishSecretRef", {"driver", "readOnly", "fsType", "volumeAttributes"}},
       {"iscsi",
        "secretRef",
        {"targetPortal", "iqn", "lun", "iscsiInterface", "fsType", "readOnly", "portals",
         "chapAuthDiscovery", "chapAuthSession", "initiatorName"}}}};
  return kVolumes;
}

}  // namespace

Result<Json> TranslateVolume(const Json& volume, const Json& pod, const PodContext& context,
                             DownwardApi& downward, HostPod& out) {
  Json result = Json::object();
  CopyFields(volume, result, {"name"});
  if (volume.contains("configMap")) {
    result["configMap"] = NamedSource(volume["configMap"], "name", pod, context);
  } else if (volume.contains("secret")) {
    result["secret"] = NamedSource(volume["secret"], "secretName", pod, context);
  } else if (volume.contains("projected")) {
    result["projected"] = Projected(volume["projected"], pod, context, downward, out);
  } else if (volume.contains("downwardAPI")) {
    result["downwardAPI"] = DownwardItems(volume["downwardAPI"], pod, context, downward);
  } else if (volume.contains("persistentVolumeClaim")) {
    Json& claim = result["persistentVolumeClaim"] = Json::object();
    CopyFields(volume["persistentVolumeClaim"], claim, {"claimName", "readOnly"});
    TranslateName(claim, "claimName", context.tenant, kube::NamespaceOf(pod));
  } else if (volume.contains("ephemeral")) {
    result["persistentVolumeClaim"] = EphemeralClaim(volume, pod, context);
  } else if (volume.contains("emptyDir")) {
    Json& directory = result["emptyDir"] = Json::object();
    CopyFields(volume["emptyDir"], directory, {"medium", "sizeLimit"});
  } else if (volume.contains("nfs")) {
    CopyFields(volume, result, {"nfs"});
  } else if (volume.contains("image")) {
    CopyFields(volume, result, {"image"});
  } else {
    for (const SecretVolume& kind : SecretVolumes()) {
      if (const auto found = volume.find(kind.kind); found != volume.end()) {
        Json& copy = result[std::string(kind.kind)] = Json::object();
        for (const std::string_view field : kind.fields) {
          CopyFields(*found, copy, {field});
        }
        if (found->contains(kind.reference)) {
          copy[std::string(kind.reference)] =
              NamedSource((*found)[std::string(kind.reference)], "name", pod, context);
        }
        return result;
      }
    }
    std::string kind = "unknown";
    for (const auto& [key, value] : volume.items()) {
      if (key != "name") {
        kind = key;
      }
    }
    return Forbidden({"", "pods"}, kube::FindString(pod, {"metadata", "name"}),
                     "volume \"" + std::string(kube::FindString(volume, {"name"})) +
                         "\" is of kind " + kind +
                         ", which does not reach the host; use a PersistentVolumeClaim");
  }
  return result;
}

}  // namespace sublet::syncer
