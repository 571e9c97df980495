// The generated tables (builtin_schema.cc) and what they list beside types: kinds and resources.
#pragma once

#include "kube/schema/schema.h"

namespace sublet::kube::schema {

struct KindRow {
  std::uint32_t group, version, kind;  // offsets into the strings
  std::uint32_t type;
};

// One resource or subresource ("pods", "pods/status") of discovery; lists are comma-separated.
struct ResourceRow {
  std::uint32_t group, version;
  std::uint32_t name, singular;
  std::uint32_t namespaced;
  std::uint32_t kind, kind_group, kind_version;  // the last two when the kind lives elsewhere
  std::uint32_t verbs, short_names, categories;
  std::uint32_t storage_version_hash;
};

extern const Tables kBuiltinTables;
extern const std::span<const KindRow> kBuiltinKinds;
extern const std::span<const ResourceRow> kBuiltinResources;

inline std::string_view BuiltinText(std::uint32_t offset) {
  return kBuiltinTables.strings + offset;
}

}  // namespace sublet::kube::schema
