// The grammar of label selector texts. Used by label_selector.cc only. Threads: any.
#pragma once

#include <string_view>
#include <vector>

#include "base/result.h"
#include "kube/label_selector.h"

namespace sublet::kube {

// Errors: BadRequest with Kubernetes' text.
Result<std::vector<LabelRequirement>> ParseLabelRequirements(std::string_view text);

// Sorts the values, and checks key, number of values and each value.
// Errors: BadRequest with Kubernetes' text ("key: Invalid value: ...").
Result<void> CheckLabelRequirement(LabelRequirement* requirement);

}  // namespace sublet::kube
