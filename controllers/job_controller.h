// Jobs: pods that run to completion, with completions, parallelism, indexes, back-off, failure and
// success policies, suspension; and the deletion of finished Jobs after their time to live.
// Source: kube-controller-manager pkg/controller/job, ttlafterfinished.
#pragma once

#include <memory>

#include "controllers/context.h"

namespace sublet::controllers {

std::unique_ptr<Controller> MakeJobController(const Context& context);
std::unique_ptr<Controller> MakeTtlAfterFinishedController(const Context& context);

}  // namespace sublet::controllers
