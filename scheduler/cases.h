// The case runner: clusters, jobs and expected results as data, and the unit tables of the queue
// arithmetic. Format: the project's case files (scheduler/testdata/README.md).
// Threads: one.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "scheduler/profile.h"

namespace sublet::scheduler {

struct CaseOutcome {
  std::string id;
  std::vector<std::string> problems;  // empty = passed
};

// Runs every case of `text` (a JSON array) under `profile`.
// Errors: BadRequest when the text is no array of cases.
Result<std::vector<CaseOutcome>> RunCases(const std::string& text, const Profile& profile);
// Where every task of every case ends up ("id task status node", sorted), for comparing profiles.
Result<std::vector<std::string>> CaseStates(const std::string& text, const Profile& profile);
// Runs the rows of a unit table: division, fairshare, resource_share, queue_order, strategies,
// reclaimable, capacity_policy, minruntime, topology_filter.
// Errors: Invalid for an unknown table, BadRequest for bad text.
Result<std::vector<CaseOutcome>> RunTable(const std::string& table, const std::string& text);

// `sublet scheduler cases [--profile P] [--table T] [--verbose] FILE...`: prints the ids that
// failed, then "passed N of M". Returns 0 when all pass, 1 when not, 2 for bad arguments.
int RunCasesCommand(const std::vector<std::string>& args);

}  // namespace sublet::scheduler
