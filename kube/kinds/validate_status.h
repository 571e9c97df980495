// What the checks of statuses share. Threads: any.
#pragma once

#include "kube/kinds/validate_common.h"

namespace sublet::kube::validate {

inline const Path kStatus("status");

}  // namespace sublet::kube::validate
