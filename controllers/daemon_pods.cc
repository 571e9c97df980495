#include "controllers/daemon_pods.h"

#include <nlohmann/json.hpp>

#include "controllers/pod_control.h"
#include "controllers/stateful_pods.h"
#include "kube/node_fit.h"
#include "kube/object.h"

namespace sublet::controllers {
namespace {

using kube::Json;

Json Toleration(const char* key, const char* effect) {
  return {{"key", key}, {"operator", "Exists"}, {"effect", effect}};
}

// What every daemon pod tolerates, so that it is not evicted from a node in trouble.
Json Tolerations(const Json& spec) {
  Json out = Json::array();
  if (const Json* given = kube::Find(spec, {"tolerations"});
      given != nullptr && given->is_array()) {
    out = *given;
  }
  const auto add = [&out](Json toleration) {
    for (const Json& present : out) {
      if (present == toleration) {
        return;
      }
    }
    out.push_back(std::move(toleration));
  };
  add(Toleration("node.kubernetes.io/not-ready", "NoExecute"));
  add(Toleration("node.kubernetes.io/unreachable", "NoExecute"));
  add(Toleration("node.kubernetes.io/disk-pressure", "NoSchedule"));
  add(Toleration("node.kubernetes.io/memory-pressure", "NoSchedule"));
  add(Toleration("node.kubernetes.io/pid-pressure", "NoSchedule"));
  add(Toleration("node.kubernetes.io/unschedulable", "NoSchedule"));
  if (kube::FindBool(spec, {"hostNetwork"})) {
    add(Toleration("node.kubernetes.io/network-unavailable", "NoSchedule"));
  }
  return out;
}

const Json& TemplateSpec(const Json& daemon_set) {
  static const Json kEmpty = Json::object();
  const Json* spec = kube::Find(daemon_set, {"spec", "template", "spec"});
  return spec != nullptr ? *spec : kEmpty;
}

}  // namespace

DaemonFit FitDaemon(const Json& daemon_set, const Json& node,
                    const client::CachedObject& cached_node) {
  const Json& spec = TemplateSpec(daemon_set);
  const std::string_view wanted = kube::FindString(spec, {"nodeName"});
  if (!wanted.empty() && wanted != cached_node.key.name) {
    return {};
  }
  if (!kube::MatchesNodeAffinity(spec, cached_node.key.name, cached_node.labels)) {
    return {};
  }
  DaemonFit out{true, true};
  const Json tolerations = Tolerations(spec);
  for (const kube::Taint& taint : kube::TaintsOf(node)) {
    if (kube::AnyTolerates(tolerations, taint)) {
      continue;
    }
    if (taint.effect == "NoExecute") {
      return {};
    }
    if (taint.effect == "NoSchedule") {
      out.should_run = false;  // who is there stays
    }
  }
  return out;
}

Json DaemonPod(const Json& daemon_set, const std::string& node, const std::string& revision) {
  Json pod = PodFromTemplate(daemon_set["spec"]["template"], daemon_set);
  kube::SetLabel(&pod, kRevisionHashLabel, revision);
  if (const std::string_view generation =
          kube::AnnotationOf(daemon_set, "deprecated.daemonset.template.generation");
      !generation.empty()) {
    kube::SetLabel(&pod, "pod-template-generation", generation);
  }
  Json& spec = pod["spec"];
  spec["tolerations"] = Tolerations(spec);
  const Json term = {{"matchFields", Json::array({{{"key", "metadata.name"},
                                                   {"operator", "In"},
                                                   {"values", Json::array({node})}}})}};
  // The set's own terms were checked by FitDaemon; the scheduler has to look for this node only.
  spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] = {
      {"nodeSelectorTerms", Json::array({term})}};
  return pod;
}

std::string DaemonNodeOf(const Json& pod) {
  if (const std::string_view node = kube::FindString(pod, {"spec", "nodeName"}); !node.empty()) {
    return std::string(node);
  }
  const Json* terms =
      kube::Find(pod, {"spec", "affinity", "nodeAffinity",
                       "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms"});
  for (const Json& term : terms != nullptr && terms->is_array() ? *terms : Json::array()) {
    const Json* fields = kube::Find(term, {"matchFields"});
    for (const Json& field : fields != nullptr && fields->is_array() ? *fields : Json::array()) {
      const Json* values = kube::Find(field, {"values"});
      if (kube::FindString(field, {"key"}) == "metadata.name" && values != nullptr &&
          values->is_array() && values->size() == 1 && values->front().is_string()) {
        return values->front().get<std::string>();
      }
    }
  }
  return "";
}

}  // namespace sublet::controllers
