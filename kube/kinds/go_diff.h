// Objects as Kubernetes' messages show them: its internal structures printed by Go, and what differs
// between two of them. Only for messages of refused writes. Threads: any.
// Source: k8s.io/apimachinery pkg/util/diff, pkg/util/validation/field.
#pragma once

#include <string>
#include <string_view>

#include "kube/json.h"

namespace sublet::kube {

// `value` as it stands in requests, printed as the structure `type` ("PodSpec", "[]PodIP") on one
// line. A type that is not known prints as it was sent.
std::string ShownAsGo(std::string_view type, const Json& value);

// The lines in which two values of the structure `type` differ, with three lines around them, as a
// unified diff; "" when none does.
// Differs: values of more than 20,000 lines are not compared; nothing follows the message then.
std::string GoDiff(std::string_view type, const Json& old, const Json& now);

}  // namespace sublet::kube
