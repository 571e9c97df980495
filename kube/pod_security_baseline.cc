#include <nlohmann/json.hpp>

#include "kube/pod_security_checks.h"

namespace sublet::kube::pod_security {

std::string JoinQuoted(const Names& names) {
  std::string text;
  for (const std::string& name : names) {
    text += (text.empty() ? "\"" : ", \"") + name + "\"";
  }
  return text;
}

std::string JoinQuoted(const std::set<std::string>& names) {
  return JoinQuoted(Names(names.begin(), names.end()));
}

std::string Plural(std::string_view one, std::string_view many, std::size_t count) {
  return std::string(count == 1 ? one : many);
}

std::string Containers(const Names& names) {
  return Plural("container", "containers", names.size()) + " " + JoinQuoted(names);
}

void EachContainer(const Json& spec,
                   const std::function<void(const std::string& name, const Json&)>& visit) {
  for (const char* list : {"initContainers", "containers", "ephemeralContainers"}) {
    const Json* containers = Find(spec, {list});
    if (containers == nullptr || !containers->is_array()) {
      continue;
    }
    for (const Json& container : *containers) {
      if (container.is_object()) {
        visit(std::string(FindString(container, {"name"})), container);
      }
    }
  }
}

const Json* Present(const Json& value, std::initializer_list<std::string_view> path) {
  const Json* found = Find(value, path);
  return found == nullptr || found->is_null() ? nullptr : found;
}

bool IsWindows(const Json& spec) { return FindString(spec, {"os", "name"}) == "windows"; }

namespace {

bool AllowedAppArmor(std::string_view type) {
  return type.empty() || type == "RuntimeDefault" || type == "Localhost";
}

}  // namespace

void AppArmor(const Input& in, Out& out) {
  Names setters, bad_containers, annotations;
  std::set<std::string> values;
  const auto pod_type = FindString(in.spec, {"securityContext", "appArmorProfile", "type"});
  if (!AllowedAppArmor(pod_type)) {
    setters.emplace_back("pod");
    values.emplace(pod_type);
  }
  EachContainer(in.spec, [&](const std::string& name, const Json& container) {
    const auto type = FindString(container, {"securityContext", "appArmorProfile", "type"});
    if (!AllowedAppArmor(type)) {
      bad_containers.push_back(name);
      values.emplace(type);
    }
  });
  if (!bad_containers.empty()) {
    setters.push_back(Containers(bad_containers));
  }
  static constexpr std::string_view kPrefix = "container.apparmor.security.beta.kubernetes.io/";
  if (const Json* notes = Present(in.metadata, {"annotations"}); notes != nullptr) {
    for (const auto& [key, value] : notes->items()) {
      const std::string text = value.is_string() ? value.get<std::string>() : "";
      if (key.starts_with(kPrefix) && !text.empty() && text != "runtime/default" &&
          !text.starts_with("localhost/")) {
        annotations.push_back(key + "=\"" + text + "\"");
        values.insert(annotations.back());
      }
    }
  }
  if (!annotations.empty()) {
    setters.push_back(Plural("annotation", "annotations", annotations.size()));
  }
  if (!setters.empty()) {
    out.push_back(
        {Plural("forbidden AppArmor profile", "forbidden AppArmor profiles", values.size()),
         Join(setters, " and ") + " must not set AppArmor profile type to " + JoinQuoted(values)});
  }
}

void CapabilitiesBaseline(const Input& in, Out& out) {
  static const std::set<std::string> kAllowed = {
      "AUDIT_WRITE",      "CHOWN",   "DAC_OVERRIDE", "FOWNER",  "FSETID", "KILL",      "MKNOD",
      "NET_BIND_SERVICE", "SETFCAP", "SETGID",       "SETPCAP", "SETUID", "SYS_CHROOT"};
  Names bad;
  std::set<std::string> forbidden;
  EachContainer(in.spec, [&](const std::string& name, const Json& container) {
    const Json* added = Present(container, {"securityContext", "capabilities", "add"});
    if (added == nullptr || !added->is_array()) {
      return;
    }
    bool is_bad = false;
    for (const Json& capability : *added) {
      if (capability.is_string() && !kAllowed.contains(capability.get<std::string>())) {
        forbidden.insert(capability.get<std::string>());
        is_bad = true;
      }
    }
    if (is_bad) {
      bad.push_back(name);
    }
  });
  if (!bad.empty()) {
    out.push_back({"non-default capabilities", Containers(bad) + " must not include " +
                                                   JoinQuoted(forbidden) +
                                                   " in securityContext.capabilities.add"});
  }
}

void HostNamespaces(const Input& in, Out& out) {
  Names set;
  for (const char* field : {"hostNetwork", "hostPID", "hostIPC"}) {
    if (FindBool(in.spec, {field})) {
      set.push_back(std::string(field) + "=true");
    }
  }
  if (!set.empty()) {
    out.push_back({"host namespaces", Join(set, ", ")});
  }
}

void HostPathVolumes(const Input& in, Out& out) {
  Names bad;
  if (const Json* volumes = Present(in.spec, {"volumes"}); volumes != nullptr) {
    for (const Json& volume : *volumes) {
      if (Present(volume, {"hostPath"}) != nullptr) {
        bad.emplace_back(FindString(volume, {"name"}));
      }
    }
  }
  if (!bad.empty()) {
    out.push_back(
        {"hostPath volumes", Plural("volume", "volumes", bad.size()) + " " + JoinQuoted(bad)});
  }
}

void HostPorts(const Input& in, Out& out) {
  Names bad;
  std::set<std::string> ports;
  EachContainer(in.spec, [&](const std::string& name, const Json& container) {
    bool is_bad = false;
    if (const Json* list = Present(container, {"ports"}); list != nullptr && list->is_array()) {
      for (const Json& port : *list) {
        if (const auto number = FindInt(port, {"hostPort"}); number != 0) {
          ports.insert(std::to_string(number));
          is_bad = true;
        }
      }
    }
    if (is_bad) {
      bad.push_back(name);
    }
  });
  if (!bad.empty()) {
    out.push_back({"hostPort", Containers(bad) + " " + Plural("uses", "use", bad.size()) + " " +
                                   Plural("hostPort", "hostPorts", ports.size()) + " " +
                                   Join(Names(ports.begin(), ports.end()), ", ")});
  }
}

void HostProbes(const Input& in, Out& out) {
  std::set<std::string> bad, hosts;
  EachContainer(in.spec, [&](const std::string& name, const Json& container) {
    const auto look = [&](std::initializer_list<std::string_view> path) {
      const Json* handler = Present(container, path);
      for (const char* kind : {"httpGet", "tcpSocket"}) {
        if (handler == nullptr) {
          continue;
        }
        if (const auto host = FindString(*handler, {kind, "host"}); !host.empty()) {
          bad.insert(name);
          hosts.emplace(host);
        }
      }
    };
    look({"livenessProbe"});
    look({"readinessProbe"});
    look({"startupProbe"});
    look({"lifecycle", "postStart"});
    look({"lifecycle", "preStop"});
  });
  if (!bad.empty()) {
    out.push_back({"probe or lifecycle host",
                   Plural("container", "containers", bad.size()) + " " + JoinQuoted(bad) + " " +
                       Plural("uses", "use", bad.size()) + " " +
                       Plural("probe or lifecycle host", "probe or lifecycle hosts", hosts.size()) +
                       " " + JoinQuoted(hosts)});
  }
}

void Privileged(const Input& in, Out& out) {
  Names bad;
  EachContainer(in.spec, [&bad](const std::string& name, const Json& container) {
    if (FindBool(container, {"securityContext", "privileged"})) {
      bad.push_back(name);
    }
  });
  if (!bad.empty()) {
    out.push_back(
        {"privileged", Containers(bad) + " must not set securityContext.privileged=true"});
  }
}

void ProcMount(const Input& in, Out& out) {
  Names bad;
  std::set<std::string> types;
  EachContainer(in.spec, [&](const std::string& name, const Json& container) {
    const auto type = FindString(container, {"securityContext", "procMount"});
    if (!type.empty() && type != "Default") {
      bad.push_back(name);
      types.emplace(type);
    }
  });
  if (!bad.empty()) {
    out.push_back({"procMount", Containers(bad) + " must not set securityContext.procMount to " +
                                    JoinQuoted(types)});
  }
}

void SeLinux(const Input& in, Out& out) {
  static const std::set<std::string> kAllowed = {"", "container_t", "container_init_t",
                                                 "container_kvm_t", "container_engine_t"};
  Names setters, bad;
  std::set<std::string> types;
  bool user = false;
  bool role = false;
  const auto look = [&](const Json& owner) {
    const Json* options = Present(owner, {"securityContext", "seLinuxOptions"});
    if (options == nullptr) {
      return false;
    }
    const std::string type(FindString(*options, {"type"}));
    const bool bad_type = !kAllowed.contains(type);
    if (bad_type) {
      types.insert(type);
    }
    const bool has_user = !FindString(*options, {"user"}).empty();
    const bool has_role = !FindString(*options, {"role"}).empty();
    user = user || has_user;
    role = role || has_role;
    return bad_type || has_user || has_role;
  };
  if (look(in.spec)) {
    setters.emplace_back("pod");
  }
  EachContainer(in.spec, [&](const std::string& name, const Json& container) {
    if (look(container)) {
      bad.push_back(name);
    }
  });
  if (!bad.empty()) {
    setters.push_back(Containers(bad));
  }
  if (setters.empty()) {
    return;
  }
  Names what;
  if (!types.empty()) {
    what.push_back(Plural("type", "types", types.size()) + " " + JoinQuoted(types));
  }
  if (user) {
    what.emplace_back("user may not be set");
  }
  if (role) {
    what.emplace_back("role may not be set");
  }
  out.push_back(
      {"seLinuxOptions", Join(setters, " and ") +
                             " set forbidden securityContext.seLinuxOptions: " + Join(what, "; ")});
}

bool ValidSeccomp(std::string_view type) { return type == "RuntimeDefault" || type == "Localhost"; }

bool SeccompExplicit(const Input& in, Out& out) {
  Names setters, bad;
  std::set<std::string> values;
  const auto pod_type = FindString(in.spec, {"securityContext", "seccompProfile", "type"});
  if (!pod_type.empty() && !ValidSeccomp(pod_type)) {
    setters.emplace_back("pod");
    values.emplace(pod_type);
  }
  EachContainer(in.spec, [&](const std::string& name, const Json& container) {
    const auto type = FindString(container, {"securityContext", "seccompProfile", "type"});
    if (!type.empty() && !ValidSeccomp(type)) {
      bad.push_back(name);
      values.emplace(type);
    }
  });
  if (!bad.empty()) {
    setters.push_back(Containers(bad));
  }
  if (setters.empty()) {
    return false;
  }
  out.push_back({"seccompProfile", Join(setters, " and ") +
                                       " must not set securityContext.seccompProfile.type to " +
                                       JoinQuoted(values)});
  return true;
}

void SeccompBaseline(const Input& in, Out& out) { SeccompExplicit(in, out); }

void Sysctls(const Input& in, Out& out) {
  static const std::set<std::string> kAllowed = {"kernel.shm_rmid_forced",
                                                 "net.ipv4.ip_local_port_range",
                                                 "net.ipv4.tcp_syncookies",
                                                 "net.ipv4.ping_group_range",
                                                 "net.ipv4.ip_unprivileged_port_start",
                                                 "net.ipv4.ip_local_reserved_ports",
                                                 "net.ipv4.tcp_keepalive_time",
                                                 "net.ipv4.tcp_fin_timeout",
                                                 "net.ipv4.tcp_keepalive_intvl",
                                                 "net.ipv4.tcp_keepalive_probes",
                                                 "net.ipv4.tcp_rmem",
                                                 "net.ipv4.tcp_wmem"};
  Names bad;
  if (const Json* list = Present(in.spec, {"securityContext", "sysctls"}); list != nullptr) {
    for (const Json& sysctl : *list) {
      const std::string name(FindString(sysctl, {"name"}));
      if (!kAllowed.contains(name)) {
        bad.push_back(name);
      }
    }
  }
  if (!bad.empty()) {
    out.push_back({"forbidden sysctls", Join(bad, ", ")});
  }
}

void WindowsHostProcess(const Input& in, Out& out) {
  Names setters, bad;
  if (FindBool(in.spec, {"securityContext", "windowsOptions", "hostProcess"})) {
    setters.emplace_back("pod");
  }
  EachContainer(in.spec, [&bad](const std::string& name, const Json& container) {
    if (FindBool(container, {"securityContext", "windowsOptions", "hostProcess"})) {
      bad.push_back(name);
    }
  });
  if (!bad.empty()) {
    setters.push_back(Containers(bad));
  }
  if (!setters.empty()) {
    out.push_back(
        {"hostProcess",
         Join(setters, " and ") + " must not set securityContext.windowsOptions.hostProcess=true"});
  }
}

}  // namespace sublet::kube::pod_security
