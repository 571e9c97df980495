#include "syncer/kinds/container_translate.h"

#include <algorithm>
#include <set>

#include "syncer/kinds/translate_fields.h"

namespace sublet::syncer {
namespace {

using kube::Json;

// One `metadata.labels['KEY']` or `metadata.annotations['KEY']` path; key "" when it is another.
std::string KeyOf(std::string_view path, std::string_view map) {
  const std::string start = std::string(map) + "['";
  if (!path.starts_with(start) || !path.ends_with("']")) {
    return "";
  }
  return std::string(path.substr(start.size(), path.size() - start.size() - 2));
}

std::string AnnotationPath(std::string_view key) {
  return "metadata.annotations['" + std::string(key) + "']";
}

// A value that does not travel by itself gets an annotation of its own.
std::string Carry(const Json& pod, std::string_view map, const std::string& key,
                  DownwardApi& downward) {
  const std::string carrier =
      std::string(kPrefix) + std::string(map).substr(0, map.size() - 1) + "-" + Hash10(key);
  downward.annotations[carrier] = std::string(kube::FindString(pod, {"metadata", map, key}));
  return AnnotationPath(carrier);
}

void AppendVariable(Json& list, std::set<std::string>& seen, const std::string& name,
                    const std::string& value) {
  if (seen.insert(name).second) {
    list.push_back({{"name", name}, {"value", value}});
  }
}

std::string VariableName(std::string_view service) {
  std::string name(service);
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) {
    return c == '-' ? '_' : static_cast<char>(std::toupper(c));
  });
  return name;
}

// Docker-link style variables of one Service: NAME_SERVICE_HOST, NAME_PORT_80_TCP, ...
void AppendService(Json& list, std::set<std::string>& seen, std::string_view name,
                   const std::string& address, const Json& ports) {
  if (address.empty() || address == "None" || !ports.is_array() || ports.empty()) {
    return;
  }
  const std::string base = VariableName(name);
  const auto number = [](const Json& port) {
    return std::to_string(kube::FindInt(port, {"port"}));
  };
  AppendVariable(list, seen, base + "_SERVICE_HOST", address);
  AppendVariable(list, seen, base + "_SERVICE_PORT", number(ports[0]));
  for (const Json& port : ports) {
    const auto port_name = kube::FindString(port, {"name"});
    if (!port_name.empty()) {
      AppendVariable(list, seen, base + "_SERVICE_PORT_" + VariableName(port_name), number(port));
    }
  }
  for (std::size_t i = 0; i < ports.size(); ++i) {
    std::string protocol(kube::FindString(ports[i], {"protocol"}, "TCP"));
    std::string lower = protocol;
    std::transform(lower.begin(), lower.end(), lower.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    const std::string url = lower + "://" + address + ":" + number(ports[i]);
    const std::string full = base + "_PORT_" + number(ports[i]) + "_" + protocol;
    if (i == 0) {
      AppendVariable(list, seen, base + "_PORT", url);
    }
    AppendVariable(list, seen, full, url);
    AppendVariable(list, seen, full + "_PROTO", lower);
    AppendVariable(list, seen, full + "_PORT", number(ports[i]));
    AppendVariable(list, seen, full + "_ADDR", address);
  }
}

// The variables the kubelet would add for the tenant's own Services; the user's come later and win.
Json ServiceVariables(const Json& pod, const Json& container, const PodContext& context) {
  Json list = Json::array();
  std::set<std::string> seen;
  if (const auto env = container.find("env"); env != container.end() && env->is_array()) {
    for (const Json& variable : *env) {
      seen.insert(std::string(kube::FindString(variable, {"name"})));
    }
  }
  AppendService(list, seen, "kubernetes", context.api_address,
                Json::array({{{"name", "https"}, {"port", 443}, {"protocol", "TCP"}}}));
  if (kube::FindBool(pod, {"spec", "enableServiceLinks"}, true)) {
    for (const Json* service : context.services) {
      const Json* ports = kube::Find(*service, {"spec", "ports"});
      if (kube::FindString(*service, {"metadata", "name"}) != "kubernetes" && ports != nullptr) {
        AppendService(list, seen, kube::FindString(*service, {"metadata", "name"}),
                      std::string(kube::FindString(*service, {"spec", "clusterIP"})), *ports);
      }
    }
  }
  return list;
}

Json TranslateEnv(const Json& pod, const Json& container, const PodContext& context,
                  DownwardApi& downward) {
  Json out = ServiceVariables(pod, container, context);
  const auto env = container.find("env");
  if (env == container.end() || !env->is_array()) {
    return out;
  }
  const std::string space(kube::FindString(pod, {"metadata", "namespace"}));
  for (const Json& variable : *env) {
    Json copy = Json::object();
    CopyFields(variable, copy, {"name", "value"});
    if (const Json* source = kube::Find(variable, {"valueFrom"}); source != nullptr) {
      Json& from = copy["valueFrom"] = Json::object();
      CopyFields(*source, from,
                 {"fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef"});
      if (from.contains("fieldRef")) {
        TranslateFieldRef(from["fieldRef"], pod, context, downward);
      }
      for (const char* reference : {"configMapKeyRef", "secretKeyRef"}) {
        if (from.contains(reference)) {
          TranslateName(from[reference], "name", context.tenant, space);
        }
      }
    }
    out.push_back(std::move(copy));
  }
  return out;
}

Json TranslateEnvFrom(const Json& sources, const Tenant& tenant, std::string_view space) {
  Json out = Json::array();
  for (const Json& source : sources) {
    Json copy = Json::object();
    CopyFields(source, copy, {"prefix", "configMapRef", "secretRef"});
    for (const char* reference : {"configMapRef", "secretRef"}) {
      if (copy.contains(reference)) {
        TranslateName(copy[reference], "name", tenant, space);
      }
    }
    out.push_back(std::move(copy));
  }
  return out;
}

// Said last and in env, so that no image and no envFrom says otherwise.
void HideGpus(Json& env) {
  for (auto it = env.begin(); it != env.end();) {
    it =
        kube::FindString(*it, {"name"}) == "NVIDIA_VISIBLE_DEVICES" ? env.erase(it) : std::next(it);
  }
  env.push_back({{"name", "NVIDIA_VISIBLE_DEVICES"}, {"value", "void"}});
}

// GPUs are granted as slices: the host must not count the same device a second time.
void DropGpuResources(Json& resources) {
  for (const char* list : {"requests", "limits"}) {
    const auto found = resources.find(list);
    if (found != resources.end() && found->is_object()) {
      for (auto it = found->begin(); it != found->end();) {
        const bool is_gpu = it.key() == "nvidia.com/gpu" || it.key().starts_with("nvidia.com/mig-");
        it = is_gpu ? found->erase(it) : std::next(it);
      }
    }
  }
}

}  // namespace

void TranslateFieldRef(Json& field_ref, const Json& pod, const PodContext& context,
                       DownwardApi& downward) {
  const std::string path(kube::FindString(field_ref, {"fieldPath"}));
  std::string to;
  if (path == "metadata.name") {
    to = AnnotationPath(kPodNameAnnotation);
  } else if (path == "metadata.namespace") {
    to = AnnotationPath(kPodNamespaceAnnotation);
  } else if (path == "metadata.uid") {
    to = AnnotationPath(kPodUidAnnotation);
  } else if (path == "spec.serviceAccountName") {
    to = AnnotationPath(kPodServiceAccountAnnotation);
  } else if (path == "metadata.labels") {
    to = AnnotationPath(kPodLabelsAnnotation);
  } else if (const std::string label = KeyOf(path, "metadata.labels"); !label.empty()) {
    to = MayTravel(label, context.policy->extra_keys)
             ? "metadata.labels['" + HostLabelKey(context.tenant, label) + "']"
             : Carry(pod, "labels", label, downward);
  } else if (const std::string note = KeyOf(path, "metadata.annotations"); !note.empty()) {
    to = MayTravel(note, context.policy->extra_keys) ? path
                                                     : Carry(pod, "annotations", note, downward);
  }
  if (!to.empty()) {
    field_ref["fieldPath"] = to;
  }
}

Json DownwardAnnotations(const Json& pod) {
  Json out = Json::object();
  out[std::string(kPodNameAnnotation)] = kube::FindString(pod, {"metadata", "name"});
  out[std::string(kPodNamespaceAnnotation)] = kube::FindString(pod, {"metadata", "namespace"});
  out[std::string(kPodUidAnnotation)] = kube::FindString(pod, {"metadata", "uid"});
  out[std::string(kPodServiceAccountAnnotation)] =
      kube::FindString(pod, {"spec", "serviceAccountName"}, "default");
  std::string lines;
  if (const Json* labels = kube::Find(pod, {"metadata", "labels"});
      labels != nullptr && labels->is_object()) {
    for (const auto& [key, value] : labels->items()) {
      lines += (lines.empty() ? "" : "\n") + key + "=" + kube::Dump(value);
    }
  }
  out[std::string(kPodLabelsAnnotation)] = lines;
  return out;
}

Json TranslateContainer(const Json& container, const Json& pod, const PodContext& context,
                        DownwardApi& downward) {
  Json out = Json::object();
  CopyFields(container, out,
             {"name",
              "image",
              "command",
              "args",
              "workingDir",
              "ports",
              "resources",
              "resizePolicy",
              "restartPolicy",
              "restartPolicyRules",
              "volumeMounts",
              "volumeDevices",
              "livenessProbe",
              "readinessProbe",
              "startupProbe",
              "lifecycle",
              "terminationMessagePath",
              "terminationMessagePolicy",
              "imagePullPolicy",
              "securityContext",
              "stdin",
              "stdinOnce",
              "tty",
              "targetContainerName"});
  const std::string space(kube::FindString(pod, {"metadata", "namespace"}));
  const std::string image(kube::FindString(container, {"image"}));
  if (const auto mapped = context.policy->translate_images.find(image);
      mapped != context.policy->translate_images.end()) {
    out["image"] = mapped->second;
  }
  if (!context.gpu_slice.empty() && out.contains("resources")) {
    DropGpuResources(out["resources"]);
  }
  Json env = TranslateEnv(pod, container, context, downward);
  if (context.hide_gpus) {
    HideGpus(env);
  }
  if (!env.empty()) {
    out["env"] = std::move(env);
  }
  if (const auto sources = container.find("envFrom");
      sources != container.end() && sources->is_array()) {
    out["envFrom"] = TranslateEnvFrom(*sources, context.tenant, space);
  }
  return out;
}

}  // namespace sublet::syncer
