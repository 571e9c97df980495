#include "controllers/discovery.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "kube/status_json.h"

namespace sublet::controllers {
namespace {

using kube::Json;

const Json& ArrayAt(const Json& object, std::string_view key) {
  static const Json kEmpty = Json::array();
  const Json* found = kube::Find(object, {key});
  return found != nullptr && found->is_array() ? *found : kEmpty;
}

Result<Json> GetDocument(const client::Client& client, const std::string& path) {
  SUBLET_TRY(const std::string text, client.GetRaw(path));
  return kube::ParseJson(text, {.bytes_max = 64u << 20, .depth_max = 64});
}

// `seen` keeps a resource that a group offers in several versions from being listed twice.
Result<void> AddGroupVersion(const client::Client& client, const std::string& path,
                             const kube::GroupVersion& version, std::set<kube::GroupResource>* seen,
                             std::vector<DiscoveredResource>* out) {
  SUBLET_TRY(const Json list, GetDocument(client, path));
  for (const Json& entry : ArrayAt(list, "resources")) {
    const std::string name(kube::FindString(entry, {"name"}));
    if (name.find('/') != std::string::npos || !seen->insert({version.group, name}).second) {
      continue;
    }
    DiscoveredResource resource;
    resource.resource = {version.group, version.version, name};
    resource.kind = kube::FindString(entry, {"kind"});
    resource.namespaced = kube::FindBool(entry, {"namespaced"});
    for (const Json& verb : ArrayAt(entry, "verbs")) {
      if (verb.is_string()) {
        resource.verbs.push_back(verb.get<std::string>());
      }
    }
    out->push_back(std::move(resource));
  }
  return Ok();
}

}  // namespace

bool DiscoveredResource::Has(std::string_view verb) const {
  return std::find(verbs.begin(), verbs.end(), verb) != verbs.end();
}

Result<std::vector<DiscoveredResource>> Discover(const client::Client& client) {
  std::vector<DiscoveredResource> out;
  std::set<kube::GroupResource> seen;
  SUBLET_RETURN_IF_ERROR(AddGroupVersion(client, "/api/v1", {"", "v1"}, &seen, &out));
  SUBLET_TRY(const Json groups, GetDocument(client, "/apis"));
  for (const Json& group : ArrayAt(groups, "groups")) {
    const std::string name(kube::FindString(group, {"name"}));
    // The preferred version first; others only add resources it lacks.
    std::vector<std::string> versions = {
        std::string(kube::FindString(group, {"preferredVersion", "version"}))};
    for (const Json& version : ArrayAt(group, "versions")) {
      const std::string text(kube::FindString(version, {"version"}));
      if (text != versions[0]) {
        versions.push_back(text);
      }
    }
    for (const std::string& version : versions) {
      if (!version.empty()) {
        SUBLET_RETURN_IF_ERROR(
            AddGroupVersion(client, "/apis/" + name + "/" + version, {name, version}, &seen, &out));
      }
    }
  }
  return out;
}

}  // namespace sublet::controllers
