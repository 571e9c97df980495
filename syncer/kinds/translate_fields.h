// Helpers shared by the translators: copying by allow-list, a pod's node, the name of a referenced object.
// Private to syncer/kinds.
#pragma once

#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "kube/json.h"
#include "syncer/names.h"

namespace sublet::syncer {

// Copies the named members of `from` that are there.
inline void CopyFields(const kube::Json& from, kube::Json& to,
                       std::initializer_list<std::string_view> names) {
  for (const std::string_view name : names) {
    if (const auto found = from.find(name); found != from.end()) {
      to[std::string(name)] = *found;
    }
  }
}

// The node of a pod; "" while it has none. Valid while `pod` lives.
inline std::string_view NodeNameOf(const kube::Json& pod) {
  return kube::FindString(pod, {"spec", "nodeName"});
}

// Replaces the string member `field` of `object`, when there, by its host name.
inline void TranslateName(kube::Json& object, std::string_view field, const Tenant& tenant,
                          std::string_view virtual_namespace) {
  if (const auto found = object.find(field); found != object.end() && found->is_string() &&
                                             !found->get_ref<const std::string&>().empty()) {
    *found = HostName(tenant, found->get_ref<const std::string&>(), virtual_namespace);
  }
}

}  // namespace sublet::syncer
