// Kubernetes' own structures by name: the fields in the order and under the names by which Go
// prints them as JSON. One text, a structure after the other: "\n@PodSpec\n", then a line a field:
//   NAME IN-REQUESTS TYPE [FLAGS]
// IN-REQUESTS is a member, or "metadata/labels" for one of a member.
// TYPE is s (string), i (number), b (bool), q (quantity), t (time), x (int or string), j (any
// JSON) or the name of a structure, behind '*' (pointer), '[' (slice) and '{' (map); FLAGS are o
// (left out when empty) and z (left out when zero). Threads: any.
#pragma once

#include <string_view>

namespace sublet::kube {

extern const std::string_view kGoTypes;

}  // namespace sublet::kube
