// Podman's own form of a container to be created.
// Source: libpod API v4, SpecGenerator.
#include <nlohmann/json.hpp>

#include "node/engine/docker_json.h"

namespace sublet::node {
namespace {

using kube::Json;

// "container:ID", "host", "none", "shareable" as a libpod namespace.
void SetNamespace(Json* body, const char* key, const std::string& mode) {
  if (mode.empty()) {
    return;
  }
  const auto colon = mode.find(':');
  if (colon == std::string::npos) {
    (*body)[key] = {{"nsmode", mode}};
  } else {
    (*body)[key] = {{"nsmode", mode.substr(0, colon)}, {"value", mode.substr(colon + 1)}};
  }
}

Json Resources(const ContainerSpec& spec) {
  Json out = Json::object();
  if (spec.memory_bytes != 0) {
    out["memory"] = {{"limit", spec.memory_bytes}, {"swap", spec.memory_bytes}};
  }
  if (spec.memory_reservation_bytes != 0) {
    out["memory"]["reservation"] = spec.memory_reservation_bytes;
  }
  if (spec.cpu_shares != 0) {
    out["cpu"]["shares"] = spec.cpu_shares;
  }
  if (spec.cpu_quota_us != 0) {
    out["cpu"]["quota"] = spec.cpu_quota_us;
    out["cpu"]["period"] = spec.cpu_period_us;
  }
  if (spec.pids_limit != 0) {
    out["pids"] = {{"limit", spec.pids_limit}};
  }
  return out;
}

Json LibpodMounts(const ContainerSpec& spec) {
  Json list = Json::array();
  for (const EngineMount& mount : spec.mounts) {
    Json options = {"rbind", mount.read_only ? "ro" : "rw"};
    options.push_back(mount.propagation.empty() ? "rprivate" : mount.propagation);
    list.push_back({{"type", "bind"},
                    {"source", mount.source},
                    {"destination", mount.target},
                    {"options", std::move(options)}});
  }
  for (const auto& [target, options] : spec.tmpfs) {
    list.push_back({{"type", "tmpfs"},
                    {"source", "tmpfs"},
                    {"destination", target},
                    {"options", Json::array({options})}});
  }
  return list;
}

}  // namespace

Json LibpodCreateBody(const ContainerSpec& spec) {
  Json body = {{"name", spec.name}, {"image", spec.image}, {"labels", spec.labels}};
  Json env = Json::object();
  for (const std::string& variable : spec.env) {
    const auto equals = variable.find('=');
    env[variable.substr(0, equals)] =
        equals == std::string::npos ? "" : variable.substr(equals + 1);
  }
  body["env"] = std::move(env);
  if (!spec.argv.empty()) {
    body["entrypoint"] = Json::array({spec.argv[0]});
    body["command"] = std::vector<std::string>(spec.argv.begin() + 1, spec.argv.end());
  }
  body["work_dir"] = spec.working_dir;
  body["user"] = spec.user;
  body["groups"] = spec.groups;
  body["hostname"] = spec.hostname;
  body["terminal"] = spec.tty;
  body["stdin"] = spec.stdin_open;
  SetNamespace(&body, "netns", spec.network_mode);
  SetNamespace(&body, "ipcns", spec.ipc_mode);
  SetNamespace(&body, "pidns", spec.pid_mode);
  SetNamespace(&body, "utsns", spec.uts_mode);
  body["cgroup_parent"] = spec.cgroup_parent;
  body["resource_limits"] = Resources(spec);
  if (spec.oom_score_adj) {
    body["oom_score_adj"] = *spec.oom_score_adj;
  }
  if (spec.shm_size_bytes != 0) {
    body["shm_size"] = spec.shm_size_bytes;
  }
  body["privileged"] = spec.privileged;
  body["read_only_filesystem"] = spec.read_only_root;
  body["no_new_privileges"] = spec.no_new_privileges;
  body["cap_add"] = spec.cap_add;
  body["cap_drop"] = spec.cap_drop;
  if (!spec.seccomp.empty()) {
    body["seccomp_profile_path"] = spec.seccomp;
  }
  body["sysctl"] = spec.sysctls;
  body["mounts"] = LibpodMounts(spec);
  Json devices = Json::array();
  for (const EngineDevice& device : spec.devices) {
    devices.push_back(
        {{"path", device.host_path + ":" + device.container_path + ":" + device.permissions}});
  }
  body["devices"] = std::move(devices);
  body["log_configuration"] = {{"driver", "k8s-file"}, {"path", spec.log_path}, {"size", 10 << 20}};
  if (!spec.runtime.empty()) {
    body["oci_runtime"] = spec.runtime;
  }
  body["restart_policy"] = "no";
  body["use_image_hosts"] = true;
  body["use_image_resolve_conf"] = true;
  return body;
}

}  // namespace sublet::node
