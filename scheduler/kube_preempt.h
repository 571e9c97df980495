// Preemption of the `default` profile: a pod that fits nowhere takes the node where the least is
// lost. Source: kube-scheduler's DefaultPreemption. Differs: pods of other schedulers are never
// victims, because their queues and gangs would not be asked. Threads: one.
#pragma once

#include "scheduler/session.h"

namespace sublet::scheduler {

void RunKubePreempt(Session& session);

}  // namespace sublet::scheduler
