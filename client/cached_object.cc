// The typed part of a cached object: metadata read once from its tree.
#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "client/informer.h"

namespace sublet::client {
namespace {

std::string Text(const kube::Json& object, std::initializer_list<std::string_view> path) {
  return std::string(kube::FindString(object, path));
}

void ReadLabels(const kube::Json& metadata, CachedObject* out) {
  const kube::Json* labels = kube::Find(metadata, {"labels"});
  if (labels == nullptr || !labels->is_object()) {
    return;
  }
  for (const auto& [key, value] : labels->items()) {
    if (value.is_string()) {
      out->labels.emplace_back(key, value.get_ref<const std::string&>());
    }
  }
  std::sort(out->labels.begin(), out->labels.end());
}

}  // namespace

Result<CachedObject> ReadMetadata(const kube::Json& object) {
  const kube::Json* metadata = kube::Find(object, {"metadata"});
  if (metadata == nullptr || !metadata->is_object()) {
    return BadRequest("an object without metadata");
  }
  CachedObject out;
  out.key.namespace_name = Text(*metadata, {"namespace"});
  out.key.name = Text(*metadata, {"name"});
  if (out.key.name.empty()) {
    return BadRequest("an object without a name");
  }
  out.uid = Text(*metadata, {"uid"});
  out.resource_version = Text(*metadata, {"resourceVersion"});
  const char* end = out.resource_version.data() + out.resource_version.size();
  const auto parsed = std::from_chars(out.resource_version.data(), end, out.revision);
  if (parsed.ec != std::errc() || parsed.ptr != end) {
    out.revision = 0;
  }
  out.generation = kube::FindInt(*metadata, {"generation"});
  out.creation_timestamp = Text(*metadata, {"creationTimestamp"});
  out.deletion_timestamp = Text(*metadata, {"deletionTimestamp"});
  ReadLabels(*metadata, &out);
  out.owners = kube::OwnersOf(object);
  if (const kube::Json* list = kube::Find(*metadata, {"finalizers"}); list && list->is_array()) {
    for (const kube::Json& finalizer : *list) {
      if (finalizer.is_string()) {
        out.finalizers.push_back(finalizer.get_ref<const std::string&>());
      }
    }
  }
  return out;
}

const kube::OwnerReference* CachedObject::controller() const {
  for (const kube::OwnerReference& owner : owners) {
    if (owner.controller) {
      return &owner;
    }
  }
  return nullptr;
}

std::string_view CachedObject::Label(std::string_view name) const {
  const auto found =
      std::lower_bound(labels.begin(), labels.end(), name,
                       [](const auto& label, std::string_view wanted) { return label.first < wanted; });
  return found != labels.end() && found->first == name ? std::string_view(found->second) : "";
}

Result<kube::Json> CachedObject::Parse() const {
  if (!bytes) {
    return InternalError("the cache keeps no bytes of " + key.Text());
  }
  return kube::ParseJson(json, {.bytes_max = 1u << 30, .depth_max = 512});
}

std::vector<std::string> IndexByController(const CachedObject& object) {
  const kube::OwnerReference* owner = object.controller();
  return owner != nullptr ? std::vector<std::string>{owner->uid} : std::vector<std::string>{};
}

std::vector<std::string> IndexByLabel(const CachedObject& object) {
  std::vector<std::string> values;
  values.reserve(object.labels.size());
  for (const auto& [key, value] : object.labels) {
    values.push_back(key + "=" + value);
  }
  return values;
}

}  // namespace sublet::client
