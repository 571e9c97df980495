#include "node/pod/cdi.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "base/log.h"
#include "kube/json_lists.h"
#include "node/pod/payload_volume.h"

namespace sublet::node {
namespace {

using kube::Find;
using kube::FindInt;
using kube::FindString;
using kube::Json;

constexpr std::size_t kSpecBytesMax = 1u << 20;
constexpr std::size_t kSpecFilesMax = 1000;

void AddMounts(const Json& list, CdiEdits* out) {
  for (const Json& item : list) {
    EngineMount mount;
    mount.source = FindString(item, {"hostPath"});
    mount.target = FindString(item, {"containerPath"});
    for (const std::string& option : kube::TextsOf(Find(item, {"options"}))) {
      mount.read_only = mount.read_only || option == "ro";
      if (option == "rslave" || option == "rshared") {
        mount.propagation = option;
      }
    }
    out->mounts.push_back(std::move(mount));
  }
}

void AddDevices(const Json& list, CdiEdits* out) {
  for (const Json& item : list) {
    EngineDevice device;
    device.container_path = FindString(item, {"path"});
    device.host_path = FindString(item, {"hostPath"}, device.container_path);
    device.permissions = FindString(item, {"permissions"}, "rwm");
    out->devices.push_back(std::move(device));
  }
}

void AddHooks(const Json& list, CdiEdits* out) {
  for (const Json& item : list) {
    CdiHook hook;
    hook.hook_name = FindString(item, {"hookName"});
    hook.path = FindString(item, {"path"});
    hook.args = kube::TextsOf(Find(item, {"args"}));
    hook.env = kube::TextsOf(Find(item, {"env"}));
    hook.timeout_seconds = static_cast<int>(FindInt(item, {"timeout"}));
    out->hooks.push_back(std::move(hook));
  }
}

void AddEdits(const Json* edits, CdiEdits* out) {
  if (edits == nullptr || !edits->is_object()) {
    return;
  }
  for (std::string& variable : kube::TextsOf(Find(*edits, {"env"}))) {
    out->env.push_back(std::move(variable));
  }
  static const Json kNone = Json::array();
  const auto list = [&](std::string_view member) -> const Json& {
    const Json* found = Find(*edits, {member});
    return found != nullptr && found->is_array() ? *found : kNone;
  };
  AddMounts(list("mounts"), out);
  AddDevices(list("deviceNodes"), out);
  AddHooks(list("hooks"), out);
  for (const Json& group : list("additionalGids")) {
    if (group.is_number_integer()) {
      out->groups.push_back(std::to_string(group.get<std::int64_t>()));
    }
  }
}

// All well-formed specifications of one kind, those of later folders last.
std::vector<Json> LoadSpecs(const std::vector<std::string>& folders) {
  std::vector<Json> specs;
  for (const std::string& folder : folders) {
    std::error_code error;
    std::vector<std::string> paths;
    for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
      const std::string extension = entry.path().extension().string();
      if (extension == ".json" || extension == ".yaml" || extension == ".yml") {
        paths.push_back(entry.path().string());
      }
    }
    std::sort(paths.begin(), paths.end());
    paths.resize(std::min(paths.size(), kSpecFilesMax));
    for (const std::string& path : paths) {
      auto spec = ParseCdiSpec(ReadFile(path, kSpecBytesMax),
                               std::string_view(path).substr(path.size() - 5) != ".json");
      if (spec.ok()) {
        specs.push_back(std::move(spec).value());
      } else {
        log::Warn("CDI specification left out", {{"path", path}, {"error", spec.error()}});
      }
    }
  }
  return specs;
}

bool IsQualified(std::string_view device) {
  const auto slash = device.find('/');
  const auto equals = device.find('=');
  return slash != std::string_view::npos && equals != std::string_view::npos && slash > 0 &&
         equals > slash + 1 && equals + 1 < device.size();
}

}  // namespace

Result<std::vector<std::string>> CdiDevicesOf(const Json* annotations) {
  std::vector<std::string> devices;
  if (annotations == nullptr || !annotations->is_object()) {
    return devices;
  }
  for (const auto& [key, value] : annotations->items()) {
    if (key.rfind("cdi.k8s.io/", 0) != 0 || !value.is_string()) {
      continue;
    }
    std::string_view rest = value.get_ref<const std::string&>();
    while (!rest.empty()) {
      const auto comma = rest.find(',');
      const std::string_view device = rest.substr(0, comma);
      if (!IsQualified(device)) {
        return BadRequest("invalid CDI device name \"" + std::string(device) + "\" in annotation " +
                          key);
      }
      devices.emplace_back(device);
      rest = comma == std::string_view::npos ? std::string_view() : rest.substr(comma + 1);
    }
  }
  return devices;
}

Result<Json> ParseCdiSpec(std::string_view text, bool is_yaml) {
  SUBLET_TRY(Json spec, is_yaml ? kube::ParseYaml(text) : kube::ParseJson(text));
  if (FindString(spec, {"cdiVersion"}).empty()) {
    return BadRequest("no cdiVersion");
  }
  const std::string_view kind = FindString(spec, {"kind"});
  if (kind.find('/') == std::string_view::npos) {
    return BadRequest("kind is not vendor/class");
  }
  const Json* devices = Find(spec, {"devices"});
  if (devices == nullptr || !devices->is_array()) {
    return BadRequest("no devices");
  }
  return spec;
}

Result<CdiEdits> ResolveCdi(const std::vector<std::string>& folders,
                            const std::vector<std::string>& devices) {
  CdiEdits edits;
  if (devices.empty()) {
    return edits;
  }
  const std::vector<Json> specs = LoadSpecs(folders);
  std::vector<const Json*> applied;  // specs whose own edits are in already
  for (const std::string& qualified : devices) {
    const auto equals = qualified.find('=');
    const std::string kind = qualified.substr(0, equals);
    const std::string name = qualified.substr(equals + 1);
    const Json* found = nullptr;
    const Json* owner = nullptr;
    for (const Json& spec : specs) {
      if (FindString(spec, {"kind"}) != kind) {
        continue;
      }
      for (const Json& device : *Find(spec, {"devices"})) {
        if (FindString(device, {"name"}) == name) {
          found = &device;
          owner = &spec;
        }
      }
    }
    if (found == nullptr) {
      return Status(Reason::kNotFound, "unresolvable CDI devices " + qualified);
    }
    if (std::find(applied.begin(), applied.end(), owner) == applied.end()) {
      applied.push_back(owner);
      AddEdits(Find(*owner, {"containerEdits"}), &edits);
    }
    AddEdits(Find(*found, {"containerEdits"}), &edits);
  }
  return edits;
}

void ApplyCdi(const CdiEdits& edits, ContainerSpec* spec) {
  for (const std::string& variable : edits.env) {
    // A variable of the device replaces the container's own of that name.
    const std::string prefix = variable.substr(0, variable.find('=') + 1);
    std::erase_if(spec->env, [&](const std::string& old) { return old.rfind(prefix, 0) == 0; });
    spec->env.push_back(variable);
  }
  for (const EngineMount& mount : edits.mounts) {
    std::erase_if(spec->mounts, [&](const EngineMount& old) { return old.target == mount.target; });
    spec->mounts.push_back(mount);
  }
  spec->devices.insert(spec->devices.end(), edits.devices.begin(), edits.devices.end());
  spec->groups.insert(spec->groups.end(), edits.groups.begin(), edits.groups.end());
}

}  // namespace sublet::node
