// YAML 1.1 scalars as sigs.k8s.io/yaml reads and writes them: what "yes", 0777 or 1e3 mean, and
// which strings need quotes. Used by yaml.cc only. Threads: any.
#pragma once

#include <string>
#include <string_view>

#include "kube/json.h"

namespace sublet::kube {

// The value of a scalar. `tag` is "?" or "" for a plain one, "!" for a quoted one, or a full tag
// ("tag:yaml.org,2002:str").
Json ResolveYamlScalar(std::string_view tag, const std::string& text);

// The JSON object key for a YAML key of that value; `text` is what stood there.
std::string YamlKeyText(const Json& value, const std::string& text);

// `text` as a YAML scalar that reads back as the same string: plain when possible, a literal block
// when it has several lines (continuation lines indented by `indent`), quoted otherwise.
std::string FormatYamlString(const std::string& text, int indent);

}  // namespace sublet::kube
