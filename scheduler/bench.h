// `sublet scheduler bench`: how long decisions take on made-up clusters, from the first event in to
// the last decision out; building the cluster before is printed apart. Threads: one.
#pragma once

#include <string>
#include <vector>

namespace sublet::scheduler {

// --shape fill|gang|reclaim-one|unschedulable|many-queues|cycle --nodes N --jobs M [--profile P]
// [--repeat R]. Prints one line per shape. Returns 0, or 2 for bad arguments.
int RunBenchCommand(const std::vector<std::string>& args);

}  // namespace sublet::scheduler
