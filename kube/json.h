// Json: the JSON value of the project (nlohmann), and the one place where outside bytes become a
// tree. This header only forward-declares the value; a .cc that looks inside includes
// <nlohmann/json.hpp> as well.
#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace sublet::kube {

using Json = nlohmann::json;

struct JsonLimits {
  std::size_t bytes_max = 3u << 20;  // Kubernetes' request limit
  std::size_t depth_max = 512;
};

// Parses one JSON document. Errors: BadRequest (malformed, too deep, bad UTF-8, trailing bytes; the
// message is the sentence Go's decoder gives, which clients know), RequestEntityTooLarge. Threads:
// any.
Result<Json> ParseJson(std::string_view text, const JsonLimits& limits = {});

// The same, and names every key that stands twice in one object, as Kubernetes' strict decoding
// does ("spec.replicas"); the last one wins.
Result<Json> ParseJsonStrict(std::string_view text, const JsonLimits& limits,
                             std::vector<std::string>* duplicate_fields);

// YAML (a superset of JSON; one document) to a tree with YAML 1.1 scalar rules as sigs.k8s.io/yaml
// reads them. Errors: BadRequest with line and column.
Result<Json> ParseYaml(std::string_view text, const JsonLimits& limits = {});
// Several documents separated by "---"; empty ones are dropped.
Result<std::vector<Json>> ParseYamlDocuments(std::string_view text, const JsonLimits& limits = {});
std::string ToYaml(const Json& value);

// Compact encoding; invalid UTF-8 inside strings is replaced.
std::string Dump(const Json& value);
// The same, appended; and one string with its quotes and escapes.
void AppendJson(const Json& value, std::string* out);
void AppendJsonString(std::string_view text, std::string* out);
std::string DumpPretty(const Json& value);  // two spaces, as kubectl -o json shows

// The member at a path of object keys, or nullptr when any step is absent or not an object.
const Json* Find(const Json& value, std::initializer_list<std::string_view> path);
Json* Find(Json& value, std::initializer_list<std::string_view> path);
// The text at `path`, or `fallback` when absent or not a string. Valid while `value` lives.
std::string_view FindString(const Json& value, std::initializer_list<std::string_view> path,
                            std::string_view fallback = "");
// The integer at `path`, or `fallback` when absent or not an integer.
std::int64_t FindInt(const Json& value, std::initializer_list<std::string_view> path,
                     std::int64_t fallback = 0);
bool FindBool(const Json& value, std::initializer_list<std::string_view> path,
              bool fallback = false);

}  // namespace sublet::kube
