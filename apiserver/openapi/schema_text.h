// Schema definitions of OpenAPI documents as text, straight from the schema tables: no tree of the
// document ever exists. Threads: a SchemaText belongs to one thread. Source: k8s.io/kube-openapi;
// the published api/openapi-spec of Kubernetes, without its prose: only metadata, which every kind
// has, is described, in words of our own.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "apiserver/registry/catalog.h"
#include "kube/names.h"
#include "kube/schema/schema.h"

namespace sublet::apiserver {

enum class SpecVersion : std::uint8_t { kV2, kV3 };

// Takes one path or one definition: its name and its JSON. Documents are made of such pieces, so
// that no form of one is ever held twice.
using SpecSink = std::function<void(std::string_view name, std::string_view json)>;

class SchemaText {
 public:
  // `catalog` names the groups whose DeleteOptions are listed; it must outlive this.
  SchemaText(SpecVersion version, const Catalog& catalog);

  // {"$ref":"..."} of a definition, by name.
  std::string Ref(std::string_view name) const;
  // The name of a built-in type's definition; the definition will be part of Definitions(). "" when
  // there is no such type.
  std::string Need(const kube::GroupVersionKind& kind);

  // Gives each definition needed so far, and what those refer to, to `sink`.
  void EmitDefinitions(const SpecSink& sink);

 private:
  void AppendDefinition(kube::schema::Type type, std::string& out);
  void AppendKinds(kube::schema::Type type, std::string& out) const;
  void AppendProperty(const kube::schema::Field& field, std::string_view description,
                      std::string& out);
  void AppendType(kube::schema::Type type, std::string_view default_text, std::string& out);
  void NeedType(kube::schema::Type type);
  bool IsNamed(kube::schema::Type type) const;

  const SpecVersion version_;
  const Catalog& catalog_;
  std::map<std::string, kube::schema::Type> needed_;  // by definition name
  std::vector<kube::schema::Type> unread_;            // whose references are not followed yet
};

// "com.example.stable.v1.CronTab" for a custom kind.
std::string CustomDefinitionName(const kube::GroupVersionKind& kind);

}  // namespace sublet::apiserver
