// The paths of OpenAPI documents as text: one operation per verb of a resource, with the query
// parameters clients look for (kubectl decides by PATCH's fieldValidation whether the server
// validates).
// Threads: any; pure functions.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "apiserver/openapi/schema_text.h"
#include "apiserver/registry/resource.h"

namespace sublet::apiserver {

// What the paths of one resource refer to; definition names.
struct PathSchemas {
  std::string object;
  std::string list;
  std::string delete_options;
  std::string status;
  std::string patch;
  // Of subresources whose bodies are another kind, by subresource name.
  std::map<std::string, std::string> subresources;
};

// Gives each path item of `resource` to `sink`.
void EmitPaths(const Resource& resource, const PathSchemas& schemas, const SchemaText& text,
               SpecVersion version, const SpecSink& sink);

}  // namespace sublet::apiserver
