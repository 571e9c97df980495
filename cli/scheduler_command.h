// `sublet scheduler explain|queues|cases|bench`: why a pod waits, who holds what, and the engine's
// own test and benchmark runners.
#pragma once

namespace sublet::cli {
int RunScheduler(int argc, char** argv);
}  // namespace sublet::cli
