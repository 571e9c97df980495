// YAML that tells what it read twice: for requests that ask for strict field validation.
// Threads: any.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "kube/json.h"

namespace sublet::kube {

// As ParseYaml (kube/json.h); keys that stand twice in one mapping are told in `duplicates` ("line
// 7: key \"a\" already set in map"), the last one wins.
Result<Json> ParseYamlStrict(std::string_view text, const JsonLimits& limits,
                             std::vector<std::string>* duplicates);

}  // namespace sublet::kube
