// CronJobs: a Job at every time of the schedule, with concurrency policies, missed starts and
// history. Source: kube-controller-manager pkg/controller/cronjob (v2).
#pragma once

#include <memory>

#include "controllers/context.h"

namespace sublet::controllers {

std::unique_ptr<Controller> MakeCronJobController(const Context& context);

}  // namespace sublet::controllers
