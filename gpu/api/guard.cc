#include "gpu/api/guard.h"

#include <array>
#include <map>
#include <nlohmann/json.hpp>

#include "gpu/api/request.h"
#include "kube/object.h"

namespace sublet::gpu {
namespace {

using kube::FindBool;
using kube::FindString;
using kube::Json;

constexpr std::string_view kVisibleDevices = "NVIDIA_VISIBLE_DEVICES";
constexpr std::string_view kGroupLabel = "runai-gpu-group";
constexpr std::array<std::string_view, 5> kEnvRefused = {"NVIDIA_DRIVER_CAPABILITIES",
                                                         "CUDA_VISIBLE_DEVICES", "LD_PRELOAD",
                                                         "LD_LIBRARY_PATH", "LD_AUDIT"};
constexpr std::array<std::string_view, 5> kCapabilitiesRefused = {"SYS_ADMIN", "SYS_PTRACE",
                                                                  "SYS_RAWIO", "MKNOD", "ALL"};
// Where the slice's files are mounted; a volume at, above or below would hide or replace them.
constexpr std::array<std::string_view, 8> kPathsRefused = {
    "/run/sublet",           "/var/run/sublet",    "/etc/ld.so.preload",
    "/etc/ld.so.conf",       "/etc/ld.so.cache",   "/usr/lib/x86_64-linux-gnu",
    "/lib/x86_64-linux-gnu", "/usr/bin/nvidia-smi"};
constexpr std::array<std::string_view, 6> kHostPathsRefused = {
    "/dev", "/proc", "/run/sublet", "/var/run/sublet", "/var/lib/sublet", "/sys"};

// "/a//b/../c/" → "/a/c": mounts are compared as the kernel would see them.
std::string Clean(std::string_view path) {
  std::vector<std::string_view> parts;
  while (!path.empty()) {
    const std::size_t end = path.find('/');
    const std::string_view part = path.substr(0, end);
    path.remove_prefix(end == path.npos ? path.size() : end + 1);
    if (part == "..") {
      if (!parts.empty()) {
        parts.pop_back();
      }
    } else if (!part.empty() && part != ".") {
      parts.push_back(part);
    }
  }
  std::string clean;
  for (const std::string_view part : parts) {
    clean += "/" + std::string(part);
  }
  return clean.empty() ? "/" : clean;
}

bool IsAtOrBelow(std::string_view path, std::string_view parent) {
  return path == parent || parent == "/" ||
         (path.starts_with(parent) && path[parent.size()] == '/');
}

const Json& ListAt(const Json& value, std::initializer_list<std::string_view> path) {
  static const Json none = Json::array();
  const Json* list = kube::Find(value, path);
  return list != nullptr && list->is_array() ? *list : none;
}

bool IsGpuResource(std::string_view name) {
  return name == "nvidia.com/gpu" || name.starts_with("nvidia.com/mig-");
}

// The resource of a container's limits or requests that is a GPU and not zero: its path, or "".
std::string GpuResourceOf(const Json& container) {
  for (const char* kind : {"limits", "requests"}) {
    const Json* amounts = kube::Find(container, {"resources", kind});
    if (amounts == nullptr || !amounts->is_object()) {
      continue;
    }
    for (const auto& [name, amount] : amounts->items()) {
      if (IsGpuResource(name) && amount != "0" && amount != 0) {
        return std::string("resources.") + kind + "[" + name + "]";
      }
    }
  }
  return "";
}

class Guard {
 public:
  void VisibleDevices(const Json& container, const std::string& at) {
    const Json& env = ListAt(container, {"env"});
    for (std::size_t i = 0; i < env.size(); ++i) {
      if (FindString(env[i], {"name"}) == kVisibleDevices) {
        Env(env[i], at + ".env[" + std::to_string(i) + "].name");
      }
    }
  }

  void Annotations(const Json& pod) {
    const Json* notes = kube::AnnotationsOf(pod);
    if (notes == nullptr || !notes->is_object()) {
      return;
    }
    for (const auto& [key, value] : notes->items()) {
      if (key.starts_with("cdi.k8s.io/")) {
        Refuse("metadata.annotations[" + key + "]", "the slice decides which devices are injected");
      }
    }
  }

  void Container(const Json& container, const std::string& at) {
    const Json& env = ListAt(container, {"env"});
    for (std::size_t i = 0; i < env.size(); ++i) {
      Env(env[i], at + ".env[" + std::to_string(i) + "].name");
    }
    // envFrom can carry any name: what it brings is not known here.
    if (!ListAt(container, {"envFrom"}).empty()) {
      for (std::size_t i = 0; i < ListAt(container, {"envFrom"}).size(); ++i) {
        const std::string_view prefix = FindString(ListAt(container, {"envFrom"})[i], {"prefix"});
        if (prefix.starts_with("LD_") || prefix.starts_with("NVIDIA_") ||
            prefix.starts_with("CUDA_") || prefix.starts_with("SUBLET_")) {
          Refuse(at + ".envFrom[" + std::to_string(i) + "].prefix",
                 "a prefix that makes variables of the driver or the loader");
        }
      }
    }
    if (FindBool(container, {"securityContext", "privileged"})) {
      Refuse(at + ".securityContext.privileged", "a privileged container sees every device");
    }
    const Json& added = ListAt(container, {"securityContext", "capabilities", "add"});
    for (std::size_t i = 0; i < added.size(); ++i) {
      for (const std::string_view refused : kCapabilitiesRefused) {
        if (added[i].is_string() &&
            (added[i] == refused || added[i] == "CAP_" + std::string(refused))) {
          Refuse(at + ".securityContext.capabilities.add[" + std::to_string(i) + "]",
                 "this capability leads past the slice");
        }
      }
    }
    const Json& mounts = ListAt(container, {"volumeMounts"});
    for (std::size_t i = 0; i < mounts.size(); ++i) {
      const std::string path = Clean(FindString(mounts[i], {"mountPath"}));
      for (const std::string_view refused : kPathsRefused) {
        if (IsAtOrBelow(path, refused) || IsAtOrBelow(refused, path)) {
          Refuse(at + ".volumeMounts[" + std::to_string(i) + "].mountPath",
                 "covers the slice's own files");
          break;
        }
      }
    }
  }

  void Volumes(const Json& pod) {
    const Json& volumes = ListAt(pod, {"spec", "volumes"});
    for (std::size_t i = 0; i < volumes.size(); ++i) {
      if (kube::Find(volumes[i], {"hostPath"}) == nullptr) {
        continue;
      }
      const std::string path = Clean(FindString(volumes[i], {"hostPath", "path"}));
      for (const std::string_view refused : kHostPathsRefused) {
        if (IsAtOrBelow(path, refused) || IsAtOrBelow(refused, path)) {
          Refuse("spec.volumes[" + std::to_string(i) + "].hostPath.path",
                 "leads to devices or to the slices of others");
          break;
        }
      }
    }
    for (const char* name : {"hostPID", "hostIPC"}) {
      if (FindBool(pod, {"spec", name})) {
        Refuse(std::string("spec.") + name, "a slice is known by its own namespaces");
      }
    }
  }

  std::vector<StatusCause>& causes() { return causes_; }

 private:
  void Env(const Json& variable, std::string at) {
    const std::string_view name = FindString(variable, {"name"});
    if (name == kVisibleDevices) {
      const std::string_view value = FindString(variable, {"value"});
      if (kube::Find(variable, {"valueFrom"}) != nullptr || (value != "void" && value != "none")) {
        Refuse(std::move(at), "the slice decides which devices are visible");
      }
      return;
    }
    for (const std::string_view refused : kEnvRefused) {
      if (name == refused) {
        Refuse(std::move(at), "this variable could lead past the slice");
        return;
      }
    }
    if (name.starts_with("CUDA_MPS_") || name.starts_with("SUBLET_")) {
      Refuse(std::move(at), "this variable could lead past the slice");
    }
  }

  void Refuse(std::string field, std::string_view why) {
    causes_.push_back({"FieldValueForbidden", "Forbidden: " + std::string(why), std::move(field)});
  }

  std::vector<StatusCause> causes_;
};

// Calls visit(container, "spec.containers[i]") for every container of the pod.
template <typename Visit>
void ForEachContainer(const Json& pod, Visit visit) {
  for (const char* kind : {"containers", "initContainers", "ephemeralContainers"}) {
    const Json& containers = ListAt(pod, {"spec", kind});
    for (std::size_t i = 0; i < containers.size(); ++i) {
      visit(containers[i], std::string("spec.") + kind + "[" + std::to_string(i) + "]");
    }
  }
}

Result<void> Answer(const Json& pod, std::vector<StatusCause> causes, std::string_view what) {
  if (causes.empty()) {
    return Ok();
  }
  const std::string name(
      FindString(pod, {"metadata", "name"}, FindString(pod, {"metadata", "generateName"})));
  std::string text = "pods \"" + name + "\" is forbidden: " + std::string(what) + ": " +
                     causes[0].field + ": " + causes[0].message;
  if (causes.size() > 1) {
    text += " (and " + std::to_string(causes.size() - 1) + " more)";
  }
  StatusDetails details{.name = name, .kind = "pods", .causes = std::move(causes)};
  return Status(Reason::kForbidden, std::move(text)).With(std::move(details));
}

bool HasContainer(const Json& pod, std::string_view name) {
  bool found = false;
  ForEachContainer(pod, [&](const Json& container, const std::string&) {
    found = found || FindString(container, {"name"}) == name;
  });
  return found;
}

std::map<std::string, std::string, std::less<>> AnnotationMap(const Json& pod) {
  std::map<std::string, std::string, std::less<>> map;
  if (const Json* notes = kube::AnnotationsOf(pod); notes != nullptr && notes->is_object()) {
    for (const auto& [key, value] : notes->items()) {
      if (value.is_string()) {
        map[key] = value.get_ref<const std::string&>();
      }
    }
  }
  return map;
}

std::string AnnotationField(std::string_view key) {
  return "metadata.annotations[" + std::string(key) + "]";
}

// As GpuResourceOf, but of any vendor: a part of a GPU stands beside none of them.
std::string WholeDevicesOf(const Json& container) {
  for (const char* kind : {"limits", "requests"}) {
    if (const Json* amount = kube::Find(container, {"resources", kind, "amd.com/gpu"});
        amount != nullptr && *amount != "0" && *amount != 0) {
      return std::string("resources.") + kind + "[amd.com/gpu]";
    }
  }
  return GpuResourceOf(container);
}

// Who has no node chooses no device; who has one keeps to what it was granted for.
void CheckPlacement(const Json& pod, const Json* old, std::vector<StatusCause>* causes) {
  const Json* labels = kube::LabelsOf(pod);
  if (labels != nullptr && labels->is_object() && FindString(pod, {"spec", "nodeName"}).empty()) {
    for (const auto& [key, value] : labels->items()) {
      if (key == kGroupLabel || key.starts_with(std::string(kGroupLabel) + "/")) {
        causes->push_back({"FieldValueForbidden", "Forbidden: the scheduler chooses the device",
                           "metadata.labels[" + key + "]"});
      }
    }
  }
  if (old == nullptr || FindString(*old, {"spec", "nodeName"}).empty()) {
    return;
  }
  for (const std::string_view key :
       {kFractionAnnotation, kMemoryAnnotation, kNumDevicesAnnotation, kContainerAnnotation}) {
    if (kube::AnnotationOf(pod, key) != kube::AnnotationOf(*old, key)) {
      causes->push_back({"FieldValueForbidden",
                         "Forbidden: the GPU request of a pod that has a node cannot be changed",
                         AnnotationField(key)});
    }
  }
}

}  // namespace

GpuUse UseOf(const Json& pod) {
  if (const Json* notes = kube::AnnotationsOf(pod);
      notes != nullptr && notes->is_object() &&
      (notes->contains(kFractionAnnotation) || notes->contains(kMemoryAnnotation))) {
    return GpuUse::kShared;
  }
  bool whole = false;
  ForEachContainer(pod, [&](const Json& container, const std::string&) {
    whole = whole || !GpuResourceOf(container).empty();
  });
  return whole ? GpuUse::kWhole : GpuUse::kNone;
}

std::string DeviceContainersOf(const Json& pod) {
  const GpuUse use = UseOf(pod);
  if (use == GpuUse::kShared) {
    const std::string_view named = kube::AnnotationOf(pod, kContainerAnnotation);
    const Json& containers = ListAt(pod, {"spec", "containers"});
    return !named.empty()       ? std::string(named)
           : containers.empty() ? ""
                                : std::string(FindString(containers[0], {"name"}));
  }
  std::string names;
  ForEachContainer(pod, [&](const Json& container, const std::string&) {
    if (use == GpuUse::kWhole && !GpuResourceOf(container).empty()) {
      names += (names.empty() ? "" : ",") + std::string(FindString(container, {"name"}));
    }
  });
  return names;
}

bool SeesDevices(const Json& pod, std::string_view container) {
  std::string list(kube::AnnotationOf(pod, kContainersAnnotation));
  if (list.empty()) {
    list = DeviceContainersOf(pod);
  }
  return list.empty() ||
         ("," + list + ",").find("," + std::string(container) + ",") != std::string::npos;
}

Result<void> CheckGpuRequest(const Json& pod, const Json* old) {
  std::vector<StatusCause> causes;
  const auto request = ParseGpuRequest(AnnotationMap(pod));
  if (!request.ok()) {
    causes = request.error().details().causes;
  } else if (*request && !(*request)->container_name.empty() &&
             !HasContainer(pod, (*request)->container_name)) {
    causes.push_back({"FieldValueNotFound", "Not found: \"" + (*request)->container_name + "\"",
                      AnnotationField(kContainerAnnotation)});
  }
  const bool is_shared = UseOf(pod) == GpuUse::kShared;
  const bool has_fraction = !kube::AnnotationOf(pod, kFractionAnnotation).empty();
  if (is_shared) {
    ForEachContainer(pod, [&](const Json& container, const std::string& at) {
      if (const std::string resource = WholeDevicesOf(container); !resource.empty()) {
        causes.push_back({"FieldValueForbidden",
                          has_fraction ? "Forbidden: cannot have both a GPU fraction and a whole "
                                         "GPU request or limit"
                                       : "Forbidden: cannot request both GPU and GPU memory",
                          at + "." + resource});
      }
    });
  }
  if (!has_fraction && kube::AnnotationOf(pod, kMpsAnnotation) == "true") {
    causes.push_back({"FieldValueForbidden", "Forbidden: MPS is only supported with a GPU fraction",
                      AnnotationField(kMpsAnnotation)});
  }
  CheckPlacement(pod, old, &causes);
  if (causes.empty()) {
    return Ok();
  }
  return Invalid("", "Pod", FindString(pod, {"metadata", "name"}), std::move(causes));
}

Result<void> GuardSlicePod(const Json& pod) {
  Guard guard;
  ForEachContainer(
      pod, [&](const Json& container, const std::string& at) { guard.Container(container, at); });
  guard.Volumes(pod);
  guard.Annotations(pod);
  return Answer(pod, std::move(guard.causes()), "may not share a GPU");
}

Result<void> GuardVisibleDevices(const Json& pod) {
  Guard guard;
  ForEachContainer(pod, [&](const Json& container, const std::string& at) {
    guard.VisibleDevices(container, at);
  });
  return Answer(pod, std::move(guard.causes()), "may not choose GPUs");
}

Result<void> GuardPod(const Json& pod, Enforce enforce) {
  return enforce == Enforce::kOn && UseOf(pod) == GpuUse::kShared ? GuardSlicePod(pod)
                                                                  : GuardVisibleDevices(pod);
}

}  // namespace sublet::gpu
