// Resource: what the server knows about one kind it serves in one version: names, scope, verbs,
// subresources and where its objects are stored. Built-in kinds and CRDs make the same data, so
// that every handler takes one path.
// Threads: immutable once it stands in a Catalog; shared by all threads.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "kube/kinds/kind.h"
#include "kube/names.h"

namespace sublet::apiserver {

// The storage side of a resource, shared by all its served versions.
struct StoredType {
  kube::GroupResource name;
  std::string storage_version;  // "v1": the version the bytes are written in
  std::string kind;             // as written into the bytes
  std::string storage_group;    // group of the written apiVersion
  bool namespaced = true;
  std::string prefix;  // "/registry/core/pods/"
  // Field selector paths beyond metadata.name and metadata.namespace: "spec.nodeName".
  std::vector<std::string> fields;
  // How a selectable value is read; the built-in kind's, or null for custom resources.
  std::shared_ptr<const kube::Strategy> strategy;
  std::int64_t ttl_seconds = 0;  // Events
  bool short_history = false;    // Events, Leases
  std::uint32_t schema_id = 0;   // custom resources: counts the schemas of the definition
  bool is_custom = false;        // defined by a CustomResourceDefinition

  std::string Key(std::string_view namespace_name, std::string_view object_name) const;
  // The prefix of a namespace's objects, or of all when namespace_name is "".
  std::string CollectionPrefix(std::string_view namespace_name) const;
  std::string StoredApiVersion() const {
    return storage_group.empty() ? storage_version : storage_group + "/" + storage_version;
  }
};

struct Resource {
  explicit Resource(kube::KindPtr of) : kind(std::move(of)) {}

  kube::KindPtr kind;                      // names, schema, rules
  std::shared_ptr<const StoredType> type;  // null: never stored (reviews)
  bool graceful_delete = false;            // pods
  bool returns_deleted_object = false;     // DELETE answers with the object, not with a Status
  // Sent with every answer when the version is deprecated; "" otherwise.
  std::string deprecation_warning;
  // A custom resource whose schema has defaults: bytes written under another schema are defaulted
  // again when they are read.
  bool defaults_on_read = false;
  bool terminating = false;  // its definition is being deleted: nothing new may be created
  std::string crd;           // name of the CustomResourceDefinition; "" for built-in kinds
  std::string schema_hash;   // tells versions of a custom schema apart, for OpenAPI's hashes

  const std::string& group() const { return kind->gvk.group; }
  const std::string& version() const { return kind->gvk.version; }
  const std::string& plural() const { return kind->resource; }
  const std::string& kind_name() const { return kind->gvk.kind; }
  bool namespaced() const { return kind->namespaced; }
  std::string ApiVersion() const { return kind->gvk.ApiVersion(); }
  // For base/status.h's texts; valid while this lives.
  sublet::ResourceName Name() const { return kind->resource_name(); }
  bool Is(std::string_view a_group, std::string_view a_plural) const {
    return kind->gvk.group == a_group && kind->resource == a_plural;
  }
};
using ResourcePtr = std::shared_ptr<const Resource>;

// "/registry/core/pods/ns/name" to its parts. namespace_name "" for cluster scope.
struct KeyParts {
  std::string_view namespace_name;
  std::string_view name;
};
// `prefix_bytes` is the length of the type's prefix.
KeyParts SplitKey(std::string_view key, std::size_t prefix_bytes, bool namespaced);

}  // namespace sublet::apiserver
