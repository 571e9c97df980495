// The typed part of a cached object: metadata read once from its tree.
#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "client/informer.h"
#include "client/json_scan.h"

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

// Labels, owners, finalizers and generation.
void ReadStructured(const kube::Json& metadata, CachedObject* out) {
  out->generation = kube::FindInt(metadata, {"generation"});
  ReadLabels(metadata, out);
  const kube::Json* owners = kube::Find(metadata, {"ownerReferences"});
  if (owners != nullptr && owners->is_array()) {
    for (const kube::Json& owner : *owners) {
      out->owners.push_back(
          {.api_version = Text(owner, {"apiVersion"}),
           .kind = Text(owner, {"kind"}),
           .name = Text(owner, {"name"}),
           .uid = Text(owner, {"uid"}),
           .controller = kube::FindBool(owner, {"controller"}),
           .block_owner_deletion = kube::FindBool(owner, {"blockOwnerDeletion"})});
    }
  }
  const kube::Json* finalizers = kube::Find(metadata, {"finalizers"});
  if (finalizers != nullptr && finalizers->is_array()) {
    for (const kube::Json& finalizer : *finalizers) {
      if (finalizer.is_string()) {
        out->finalizers.push_back(finalizer.get_ref<const std::string&>());
      }
    }
  }
}

void SetRevision(CachedObject* out) {
  const char* end = out->resource_version.data() + out->resource_version.size();
  const auto parsed = std::from_chars(out->resource_version.data(), end, out->revision);
  if (parsed.ec != std::errc() || parsed.ptr != end) {
    out->revision = 0;
  }
}

// The plain text members of metadata and where they go.
std::string* TextMember(CachedObject* out, std::string_view key) {
  if (key == "name") {
    return &out->key.name;
  }
  if (key == "namespace") {
    return &out->key.namespace_name;
  }
  if (key == "uid") {
    return &out->uid;
  }
  if (key == "resourceVersion") {
    return &out->resource_version;
  }
  if (key == "creationTimestamp") {
    return &out->creation_timestamp;
  }
  return key == "deletionTimestamp" ? &out->deletion_timestamp : nullptr;
}

}  // namespace

Result<CachedObject> ScanMetadata(std::string_view json) {
  const std::string_view metadata = FindMember(json, "metadata");
  CachedObject out;
  kube::Json structured = kube::Json::object();  // the few members that are no plain text
  bool well_formed = true;
  const bool walked = ForEachMember(metadata, [&](std::string_view key, std::string_view value) {
    if (std::string* text = TextMember(&out, key)) {
      *text = StringValue(value).value_or("");
    } else if (key == "labels" || key == "ownerReferences" || key == "finalizers" ||
               key == "generation") {
      auto parsed = kube::ParseJson(value);
      well_formed = parsed.ok();
      if (parsed.ok()) {
        structured[std::string(key)] = std::move(*parsed);
      }
    }
    return well_formed;
  });
  if (!walked || !well_formed || out.key.name.empty()) {
    return BadRequest("an object without readable metadata");
  }
  SetRevision(&out);
  ReadStructured(structured, &out);
  return out;
}

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
  SetRevision(&out);
  out.creation_timestamp = Text(*metadata, {"creationTimestamp"});
  out.deletion_timestamp = Text(*metadata, {"deletionTimestamp"});
  ReadStructured(*metadata, &out);
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
  const auto found = std::lower_bound(
      labels.begin(), labels.end(), name,
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
