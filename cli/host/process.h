// Background processes of the embedded host: started in a session of their own with a log file,
// known again later by pid and start time, so that a recycled pid is never signalled. Threads: one.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"

namespace sublet::cli {

struct Process {
  std::string name;
  std::int64_t pid = 0;
  std::uint64_t start_ticks = 0;  // /proc/PID/stat field 22
};

// This executable, to start it again; "sublet" when the kernel does not say.
std::string OwnPath();

// Starts `command` (argv[0] is looked up in PATH) with extra environment ("K=V").
// Errors: InternalError (cannot start, cannot write the log).
Result<Process> StartProcess(const std::string& name, const std::vector<std::string>& command,
                             const std::vector<std::string>& environment,
                             const std::string& log_file);
bool IsAlive(const Process& process);
// SIGTERM, then SIGKILL at the deadline; returns when it is gone.
void StopProcess(const Process& process, Deadline deadline);
// Runs to the end; false when it could not be started or ended with another code than 0.
bool RunProcess(const std::vector<std::string>& command,
                const std::vector<std::string>& environment, const std::string& log_file);
// The last lines of a file, for error messages.
std::string Tail(const std::string& file, std::size_t lines);

// Prints the last `lines` lines of `file`, and with `follow` whatever is appended until the file is
// removed or replaced. A file that became shorter is read from its beginning. False when it cannot
// be read.
bool PrintLog(const std::string& file, std::size_t lines, bool follow);

}  // namespace sublet::cli
