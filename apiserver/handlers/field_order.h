// Problems of strict decoding in the order in which the fields stand in the request body: that is
// how Kubernetes lists them, and a JSON tree does not keep it.
// Threads: any; pure functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace sublet::apiserver {

// Sorts `problems` (`unknown field "spec.x"`, `duplicate field "spec.y[0].z"`) by where their
// fields stand in `body`, a JSON document that was parsed before. What is not found keeps its place
// at the end; a duplicate stands where it is repeated.
void SortByPosition(std::string_view body, std::vector<std::string>* problems);

}  // namespace sublet::apiserver
