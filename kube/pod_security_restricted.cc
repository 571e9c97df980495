#include <nlohmann/json.hpp>

#include "kube/pod_security_checks.h"

namespace sublet::kube::pod_security {

void AllowPrivilegeEscalation(const Input& in, Out& out) {
  if (IsWindows(in.spec)) {
    return;
  }
  Names bad;
  EachContainer(in.spec, [&bad](const std::string& name, const Json& container) {
    const Json* value = Present(container, {"securityContext", "allowPrivilegeEscalation"});
    if (value == nullptr || *value != false) {
      bad.push_back(name);
    }
  });
  if (!bad.empty()) {
    out.push_back({"allowPrivilegeEscalation != false",
                   Containers(bad) + " must set securityContext.allowPrivilegeEscalation=false"});
  }
}

void CapabilitiesRestricted(const Input& in, Out& out) {
  if (IsWindows(in.spec)) {
    return;
  }
  Names missing, adding;
  std::set<std::string> forbidden;
  EachContainer(in.spec, [&](const std::string& name, const Json& container) {
    const Json* drop = Present(container, {"securityContext", "capabilities", "drop"});
    bool all = false;
    if (drop != nullptr && drop->is_array()) {
      for (const Json& capability : *drop) {
        all = all || capability == "ALL";
      }
    }
    if (!all) {
      missing.push_back(name);
    }
    const Json* add = Present(container, {"securityContext", "capabilities", "add"});
    bool is_bad = false;
    if (add != nullptr && add->is_array()) {
      for (const Json& capability : *add) {
        if (capability.is_string() && capability != "NET_BIND_SERVICE") {
          forbidden.insert(capability.get<std::string>());
          is_bad = true;
        }
      }
    }
    if (is_bad) {
      adding.push_back(name);
    }
  });
  Names details;
  if (!missing.empty()) {
    details.push_back(Containers(missing) +
                      " must set securityContext.capabilities.drop=[\"ALL\"]");
  }
  if (!adding.empty()) {
    details.push_back(Containers(adding) + " must not include " + JoinQuoted(forbidden) +
                      " in securityContext.capabilities.add");
  }
  if (!details.empty()) {
    out.push_back({"unrestricted capabilities", Join(details, "; ")});
  }
}

void RestrictedVolumes(const Input& in, Out& out) {
  static const std::set<std::string> kAllowed = {"configMap", "csi",       "downwardAPI",
                                                 "emptyDir",  "ephemeral", "persistentVolumeClaim",
                                                 "projected", "secret",    "image"};
  Names bad;
  std::set<std::string> types;
  if (const Json* volumes = Present(in.spec, {"volumes"}); volumes != nullptr) {
    for (const Json& volume : *volumes) {
      bool allowed = false;
      std::string type = "unknown";
      for (const auto& [key, value] : volume.items()) {
        if (key != "name" && !value.is_null()) {
          type = key;
          allowed = allowed || kAllowed.contains(key);
        }
      }
      if (!allowed) {
        bad.emplace_back(FindString(volume, {"name"}));
        types.insert(type);
      }
    }
  }
  if (!bad.empty()) {
    out.push_back({"restricted volume types",
                   Plural("volume", "volumes", bad.size()) + " " + JoinQuoted(bad) + " " +
                       Plural("uses", "use", bad.size()) + " " +
                       Plural("restricted volume type", "restricted volume types", types.size()) +
                       " " + JoinQuoted(types)});
  }
}

void RunAsNonRoot(const Input& in, Out& out) {
  const Json* pod_value = Present(in.spec, {"securityContext", "runAsNonRoot"});
  const bool pod_set = pod_value != nullptr && *pod_value == true;
  Names setters, explicit_bad, implicit_bad;
  if (pod_value != nullptr && *pod_value == false) {
    setters.emplace_back("pod");
  }
  EachContainer(in.spec, [&](const std::string& name, const Json& container) {
    const Json* value = Present(container, {"securityContext", "runAsNonRoot"});
    if (value == nullptr) {
      if (!pod_set) {
        implicit_bad.push_back(name);
      }
    } else if (*value == false) {
      explicit_bad.push_back(name);
    }
  });
  if (!explicit_bad.empty()) {
    setters.push_back(Containers(explicit_bad));
  }
  if (!setters.empty()) {
    out.push_back({"runAsNonRoot != true",
                   Join(setters, " and ") + " must not set securityContext.runAsNonRoot=false"});
  } else if (!implicit_bad.empty()) {
    out.push_back({"runAsNonRoot != true", "pod or " + Containers(implicit_bad) +
                                               " must set securityContext.runAsNonRoot=true"});
  }
}

void RunAsUser(const Input& in, Out& out) {
  Names setters, bad;
  const Json* pod_value = Present(in.spec, {"securityContext", "runAsUser"});
  if (pod_value != nullptr && *pod_value == 0) {
    setters.emplace_back("pod");
  }
  EachContainer(in.spec, [&bad](const std::string& name, const Json& container) {
    const Json* value = Present(container, {"securityContext", "runAsUser"});
    if (value != nullptr && *value == 0) {
      bad.push_back(name);
    }
  });
  if (!bad.empty()) {
    setters.push_back(Containers(bad));
  }
  if (!setters.empty()) {
    out.push_back({"runAsUser=0", Join(setters, " and ") + " must not set runAsUser=0"});
  }
}

void SeccompRestricted(const Input& in, Out& out) {
  if (IsWindows(in.spec) || SeccompExplicit(in, out)) {
    return;
  }
  const bool pod_set =
      ValidSeccomp(FindString(in.spec, {"securityContext", "seccompProfile", "type"}));
  Names bad;
  EachContainer(in.spec, [&](const std::string& name, const Json& container) {
    const auto type = FindString(container, {"securityContext", "seccompProfile", "type"});
    if (type.empty() && !pod_set) {
      bad.push_back(name);
    }
  });
  if (!bad.empty()) {
    out.push_back({"seccompProfile",
                   "pod or " + Containers(bad) +
                       " must set securityContext.seccompProfile.type to \"RuntimeDefault\" or "
                       "\"Localhost\""});
  }
}

}  // namespace sublet::kube::pod_security
