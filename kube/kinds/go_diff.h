// What differs between two objects as Kubernetes' messages show it. Only for messages of refused
// writes. Threads: any.
// Source: k8s.io/apimachinery pkg/util/diff.
#pragma once

#include <string>
#include <string_view>

#include "kube/kinds/go_shown.h"

namespace sublet::kube {

// The lines in which two values of the structure `type` differ, with three lines around them, as a
// unified diff; "" when none does. Takes from `cost`, which may be null.
// Differs: where printing and comparing would cost more, the first lines that differ are shown, cut
// at 200 characters, after "too large to be compared".
std::string GoDiff(std::string_view type, const Json& old, const Json& now,
                   GoTextCost* cost = nullptr);

}  // namespace sublet::kube
