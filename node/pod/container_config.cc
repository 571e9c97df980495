#include "node/pod/container_config.h"

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>

#include "kube/json_lists.h"
#include "kube/object.h"
#include "kube/quantity.h"
#include "node/pod/payload_volume.h"

namespace sublet::node {
namespace {

using kube::Find;
using kube::FindBool;
using kube::FindInt;
using kube::FindString;
using kube::Json;
using kube::TextsOf;

// A member of the container's security context, else of the pod's.
const Json* Security(const PodPlan& plan, const ContainerPlan& container, std::string_view member) {
  if (const Json* own = Find(*container.spec, {"securityContext", member})) {
    return own;
  }
  return Find(*plan.object, {"spec", "securityContext", member});
}

std::int64_t SecurityInt(const PodPlan& plan, const ContainerPlan& container,
                         std::string_view member) {
  const Json* value = Security(plan, container, member);
  return value != nullptr && value->is_number_integer() ? value->get<std::int64_t>() : -1;
}

bool IsNumber(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(),
                                      [](unsigned char c) { return std::isdigit(c) != 0; });
}

Result<void> SetUser(const PodPlan& plan, const ContainerPlan& container,
                     const ContainerFacts& facts, ContainerSpec* spec) {
  const std::int64_t user = SecurityInt(plan, container, "runAsUser");
  const std::int64_t group = SecurityInt(plan, container, "runAsGroup");
  const std::string image_user = facts.image.user.substr(0, facts.image.user.find(':'));
  const Json* non_root = Security(plan, container, "runAsNonRoot");
  if (non_root != nullptr && non_root->is_boolean() && non_root->get<bool>()) {
    const std::string who = plan.Full();
    if (user == 0) {
      return BadRequest("container's runAsUser breaks non-root policy (pod: \"" + who +
                        "\", container: " + container.name + ")");
    }
    if (user < 0 && (image_user.empty() || image_user == "0" || image_user == "root")) {
      return BadRequest("container has runAsNonRoot and image will run as root (pod: \"" + who +
                        "\", container: " + container.name + ")");
    }
    if (user < 0 && !IsNumber(image_user)) {
      return BadRequest("container has runAsNonRoot and image has non-numeric user (" + image_user +
                        "), cannot verify user is non-root (pod: \"" + who +
                        "\", container: " + container.name + ")");
    }
  }
  if (user >= 0) {
    spec->user = std::to_string(user);
  } else {
    spec->user = facts.image.user;
  }
  if (group >= 0) {
    const std::string name = spec->user.substr(0, spec->user.find(':'));
    spec->user = (name.empty() ? "0" : name) + ":" + std::to_string(group);
  }
  if (const Json* extra = Find(*plan.object, {"spec", "securityContext", "supplementalGroups"});
      extra != nullptr && extra->is_array()) {
    for (const Json& item : *extra) {
      if (item.is_number_integer()) {
        spec->groups.push_back(std::to_string(item.get<std::int64_t>()));
      }
    }
  }
  const auto fs_group = FindInt(*plan.object, {"spec", "securityContext", "fsGroup"}, -1);
  if (fs_group >= 0) {
    spec->groups.push_back(std::to_string(fs_group));
  }
  return {};
}

Result<void> SetSecurity(const PodPlan& plan, const ContainerPlan& container,
                         const ContainerFacts& facts, ContainerSpec* spec) {
  const Json& json = *container.spec;
  spec->privileged = FindBool(json, {"securityContext", "privileged"});
  spec->read_only_root = FindBool(json, {"securityContext", "readOnlyRootFilesystem"});
  const Json* escalation = Find(json, {"securityContext", "allowPrivilegeEscalation"});
  spec->no_new_privileges =
      escalation != nullptr && escalation->is_boolean() && !escalation->get<bool>();
  spec->cap_add = TextsOf(Find(json, {"securityContext", "capabilities", "add"}));
  spec->cap_drop = TextsOf(Find(json, {"securityContext", "capabilities", "drop"}));
  if (const Json* profile = Security(plan, container, "seccompProfile");
      profile != nullptr && !spec->privileged) {
    const std::string_view type = FindString(*profile, {"type"});
    if (type == "Unconfined") {
      spec->seccomp = "unconfined";
    } else if (type == "Localhost") {
      const std::string name(FindString(*profile, {"localhostProfile"}));
      if (name.empty() || name.front() == '/' || name.find("..") != std::string::npos) {
        return BadRequest("seccomp localhostProfile must be a relative path");
      }
      spec->seccomp = facts.seccomp_folder + "/" + name;
    }
  }
  return SetUser(plan, container, facts, spec);
}

// The whole command line: `command` replaces the image's entrypoint and command, `args` its
// command.
std::vector<std::string> CommandLine(const ContainerPlan& container, const ContainerFacts& facts) {
  const std::map<std::string, std::string> values(facts.environment.begin(),
                                                  facts.environment.end());
  std::vector<std::string> command = TextsOf(Find(*container.spec, {"command"}));
  std::vector<std::string> args = TextsOf(Find(*container.spec, {"args"}));
  for (auto* list : {&command, &args}) {
    for (std::string& text : *list) {
      text = ExpandVariables(text, values);
    }
  }
  std::vector<std::string> argv = command.empty() ? facts.image.entrypoint : command;
  const auto& tail = !args.empty() ? args : command.empty() ? facts.image.command : args;
  argv.insert(argv.end(), tail.begin(), tail.end());
  return argv;
}

std::string ContainerName(const PodPlan& plan, const std::string& name, int attempt) {
  return "sublet_" + name + "_" + plan.name + "_" + plan.namespace_name + "_" + plan.uid + "_" +
         std::to_string(attempt);
}

void PutPodLabels(const PodPlan& plan, const std::string& instance, ContainerSpec* spec) {
  spec->labels[kLabelNode] = instance;
  spec->labels[kLabelPodUid] = plan.uid;
  spec->labels[kLabelPodName] = plan.name;
  spec->labels[kLabelPodNamespace] = plan.namespace_name;
}

}  // namespace

CpuMemory ResourcesOf(const ContainerPlan& container) {
  const auto amount = [&](std::string_view kind, std::string_view resource) {
    return kube::Quantity::ParseOrZero(FindString(*container.spec, {"resources", kind, resource}));
  };
  CpuMemory out;
  const std::int64_t limit_milli = amount("limits", "cpu").MilliValue();
  std::int64_t request_milli = amount("requests", "cpu").MilliValue();
  if (request_milli == 0) {
    request_milli = limit_milli;
  }
  out.cpu_shares = std::clamp<std::int64_t>(request_milli * 1024 / 1000, 2, 262144);
  if (limit_milli > 0) {
    out.cpu_quota_us = std::max<std::int64_t>(1000, limit_milli * 100);
  }
  out.memory_bytes = amount("limits", "memory").Value();
  return out;
}

int OomScoreAdjOf(const PodPlan& plan, const ContainerPlan& container,
                  std::int64_t node_memory_bytes) {
  const std::int64_t priority = FindInt(*plan.object, {"spec", "priority"});
  if (priority >= 2'000'000'000) {
    return -997;  // node-critical
  }
  const std::string qos = QosClassOf(*plan.object);
  if (qos == "Guaranteed") {
    return -997;
  }
  if (qos == "BestEffort" || node_memory_bytes <= 0) {
    return 1000;
  }
  const std::int64_t request =
      kube::Quantity::ParseOrZero(FindString(*container.spec, {"resources", "requests", "memory"}))
          .Value();
  const std::int64_t score = 1000 - 1000 * request / node_memory_bytes;
  return static_cast<int>(std::clamp<std::int64_t>(score, 3, 999));
}

int LowestOomScore() {
  constexpr int kCapSysResource = 24;
  const std::string status = ReadFile("/proc/self/status", 16384);
  const auto at = status.find("\nCapEff:");
  const auto caps =
      at == std::string::npos ? 0 : std::strtoull(status.c_str() + at + 8, nullptr, 16);
  if ((caps >> kCapSysResource & 1) != 0) {
    return -1000;
  }
  return std::atoi(ReadFile("/proc/self/oom_score_adj", 64).c_str());
}

Result<ContainerSpec> MakeContainerSpec(const PodPlan& plan, const ContainerPlan& container,
                                        const ContainerFacts& facts) {
  ContainerSpec spec;
  spec.name = ContainerName(plan, container.name, facts.attempt);
  spec.image = facts.image.id;
  spec.argv = CommandLine(container, facts);
  if (spec.argv.empty()) {
    return BadRequest("no command specified: neither the container nor its image has one");
  }
  for (const auto& [name, value] : facts.environment) {
    spec.env.push_back(name + "=" + value);
  }
  spec.working_dir = FindString(*container.spec, {"workingDir"}, facts.image.working_dir);
  spec.tty = container.tty;
  spec.stdin_open = container.stdin_open;
  spec.stdin_once = container.stdin_once;
  spec.stop_signal = container.stop_signal;
  const std::string sandbox = "container:" + facts.sandbox_id;
  spec.network_mode = plan.host_network ? "host" : sandbox;
  spec.ipc_mode = plan.host_ipc ? "host" : sandbox;
  spec.uts_mode = plan.host_network ? "" : sandbox;
  spec.pid_mode = plan.host_pid                       ? "host"
                  : plan.share_process_namespace      ? sandbox
                  : facts.target_container_id.empty() ? ""
                                                      : "container:" + facts.target_container_id;
  const CpuMemory resources = ResourcesOf(container);
  spec.cpu_shares = resources.cpu_shares;
  spec.cpu_quota_us = resources.cpu_quota_us;
  spec.cpu_period_us = resources.cpu_quota_us > 0 ? 100000 : 0;
  spec.memory_bytes = resources.memory_bytes;
  spec.oom_score_adj =
      std::max(facts.oom_score_floor, OomScoreAdjOf(plan, container, facts.node_memory_bytes));
  SUBLET_RETURN_IF_ERROR(SetSecurity(plan, container, facts, &spec));
  spec.mounts = facts.mounts;
  if (!facts.termination_file.empty()) {
    EngineMount mount;
    mount.source = facts.termination_file;
    mount.target = container.termination_path;
    spec.mounts.push_back(std::move(mount));
  }
  spec.log_path = facts.log_path;
  PutPodLabels(plan, facts.instance, &spec);
  spec.labels[kLabelKind] = "container";
  spec.labels[kLabelContainer] = container.name;
  spec.labels[kLabelAttempt] = std::to_string(facts.attempt);
  spec.labels[kLabelSandbox] = facts.sandbox_id;
  spec.labels[kLabelImage] = container.image;
  spec.labels[kLabelImageHash] = container.image_hash;
  spec.labels[kLabelLogPath] = facts.log_path;
  spec.labels[kLabelTermination] = facts.termination_file;
  return spec;
}

ContainerSpec MakeSandboxSpec(const PodPlan& plan, const SandboxFacts& facts) {
  ContainerSpec spec;
  spec.name = ContainerName(plan, "POD", facts.attempt);
  spec.image = facts.image;
  spec.argv = {"/pause"};
  spec.network_mode = plan.host_network ? "host" : "none";
  spec.ipc_mode = plan.host_ipc ? "host" : "shareable";
  spec.pid_mode = plan.host_pid && plan.share_process_namespace ? "host" : "";
  if (!plan.host_network) {
    spec.hostname = plan.hostname;
  }
  spec.runtime = facts.runtime;
  spec.cpu_shares = 2;
  spec.oom_score_adj = std::max(facts.oom_score_floor, -998);  // the sandbox is the last to go
  if (const Json* list = Find(*plan.object, {"spec", "securityContext", "sysctls"});
      list != nullptr && list->is_array()) {
    for (const Json& item : *list) {
      spec.sysctls[std::string(FindString(item, {"name"}))] = FindString(item, {"value"});
    }
  }
  PutPodLabels(plan, facts.instance, &spec);
  spec.labels[kLabelKind] = "sandbox";
  spec.labels[kLabelAttempt] = std::to_string(facts.attempt);
  spec.labels[kLabelPodIp] = facts.ip;
  spec.labels[kLabelGrace] = std::to_string(plan.grace.count());
  return spec;
}

std::string MakeResolvConf(const PodPlan& plan, const DnsConfig& dns) {
  std::vector<std::string> servers;
  std::vector<std::string> searches;
  std::vector<std::string> options;
  const std::string policy(FindString(*plan.object, {"spec", "dnsPolicy"}, "ClusterFirst"));
  const bool cluster =
      (policy == "ClusterFirst" && !plan.host_network) || policy == "ClusterFirstWithHostNet";
  if (cluster && !dns.server.empty()) {
    servers = {dns.server};
    searches = {plan.namespace_name + ".svc." + dns.domain, "svc." + dns.domain, dns.domain};
    options = {"ndots:5"};
  } else if (policy != "None") {
    std::string out = dns.host_resolv;
    if (!out.empty() && out.back() != '\n') {
      out += '\n';
    }
    return out;
  }
  const auto add = [](const std::vector<std::string>& from, std::vector<std::string>* to) {
    for (const std::string& item : from) {
      if (std::find(to->begin(), to->end(), item) == to->end()) {
        to->push_back(item);
      }
    }
  };
  add(TextsOf(Find(*plan.object, {"spec", "dnsConfig", "nameservers"})), &servers);
  add(TextsOf(Find(*plan.object, {"spec", "dnsConfig", "searches"})), &searches);
  if (const Json* list = Find(*plan.object, {"spec", "dnsConfig", "options"});
      list != nullptr && list->is_array()) {
    for (const Json& item : *list) {
      const std::string name(FindString(item, {"name"}));
      const std::string value(FindString(item, {"value"}));
      std::erase_if(options, [&](const std::string& old) {
        return old == name || old.rfind(name + ":", 0) == 0;
      });
      options.push_back(value.empty() ? name : name + ":" + value);
    }
  }
  std::string out;
  const auto line = [&](std::string_view word, const std::vector<std::string>& items) {
    if (!items.empty()) {
      out += word;
      for (const std::string& item : items) {
        out += " " + item;
      }
      out += '\n';
    }
  };
  line("search", searches);
  for (const std::string& server : servers) {
    out += "nameserver " + server + "\n";
  }
  line("options", options);
  return out;
}

std::string MakeHosts(const PodPlan& plan, const std::string& pod_ip, const DnsConfig& dns,
                      const std::string& host_hosts) {
  std::string out;
  if (plan.host_network) {
    out = "# Kubernetes-managed hosts file (host network).\n" + host_hosts;
  } else {
    out =
        "# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n"
        "::1\tlocalhost ip6-localhost ip6-loopback\nfe00::0\tip6-localnet\n"
        "fe00::0\tip6-mcastprefix\nfe00::1\tip6-allnodes\nfe00::2\tip6-allrouters\n";
    if (!pod_ip.empty()) {
      out += pod_ip;
      if (!plan.subdomain.empty()) {
        out += "\t" + plan.hostname + "." + plan.subdomain + "." + plan.namespace_name + ".svc." +
               dns.domain;
      }
      out += "\t" + plan.hostname + "\n";
    }
  }
  const Json* aliases = Find(*plan.object, {"spec", "hostAliases"});
  if (aliases != nullptr && aliases->is_array() && !aliases->empty()) {
    out += "\n# Entries added by HostAliases.\n";
    for (const Json& alias : *aliases) {
      out += FindString(alias, {"ip"});
      for (const std::string& name : TextsOf(Find(alias, {"hostnames"}))) {
        out += "\t" + name;
      }
      out += "\n";
    }
  }
  return out;
}

}  // namespace sublet::node
