// sublet-scheduler-cases: RunCasesCommand as a program of its own.
#include "scheduler/cases.h"

int main(int argc, char** argv) {
  return sublet::scheduler::RunCasesCommand(std::vector<std::string>(argv + 1, argv + argc));
}
