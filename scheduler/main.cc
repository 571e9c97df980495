// sublet-scheduler: the scheduler's commands that need no cluster, as a program of their own.
#include <cstdio>

#include "scheduler/bench.h"
#include "scheduler/cases.h"

int main(int argc, char** argv) {
  const std::vector<std::string> args(argv + 1, argv + argc);
  const std::vector<std::string> rest(args.begin() + (args.empty() ? 0 : 1), args.end());
  if (!args.empty() && args[0] == "cases") {
    return sublet::scheduler::RunCasesCommand(rest);
  }
  if (!args.empty() && args[0] == "bench") {
    return sublet::scheduler::RunBenchCommand(rest);
  }
  std::fprintf(stderr, "usage: sublet-scheduler cases FILE... | bench --shape S --nodes N --jobs M\n");
  return 2;
}
