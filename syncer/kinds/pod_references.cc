#include "syncer/kinds/pod_references.h"

#include <nlohmann/json.hpp>

namespace sublet::syncer {

client::Informer& PodsWithReferences(SyncContext& context) {
  client::Informer& pods = context.VirtualInformer("", "v1", "pods", "Pod");
  pods.AddIndex(kReferenceIndex, [](const client::CachedObject& pod) {
    std::vector<std::string> values;
    const auto& references = pod.As<PodReferences>();
    const std::string space = pod.key.namespace_name + "/";
    for (const std::string& name : references.config_maps) {
      values.push_back("configmaps/" + space + name);
    }
    for (const std::string& name : references.secrets) {
      values.push_back("secrets/" + space + name);
    }
    for (const std::string& name : references.claims) {
      values.push_back("persistentvolumeclaims/" + space + name);
    }
    return values;
  });
  return pods;
}

}  // namespace sublet::syncer
