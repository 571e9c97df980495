// JSON values as Go's fmt prints them with %v: "map[a:1 b:[x y]]"; part of messages that clients
// see. Threads: any.
#pragma once

#include <string>

#include "kube/json.h"

namespace sublet::kube {

std::string GoPrint(const Json& value);
// "map[string]interface {}", "[]interface {}", "string", "int64", "float64", "bool", "%!s(<nil>)".
std::string GoTypeName(const Json& value);

}  // namespace sublet::kube
