// Reads the inputs of a case file into an engine (scheduler/cases.h). Members that are missing or
// have another type make nlohmann throw; the runner catches that per case. Threads: one.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "kube/json.h"
#include "scheduler/engine.h"

namespace sublet::scheduler {

inline constexpr Millis kCaseNow = 1'800'000'000'000;
inline constexpr kube::JsonLimits kCaseLimits{64u << 20, 64};

// Where a task stands between two rounds.
struct TaskRow {
  Status status = Status::kPending;
  std::string node;
  std::vector<std::string> groups;
};

std::map<std::string, TaskRow> LoadTasks(const kube::Json& test);
std::map<std::string, ClaimSpec> LoadClaims(const kube::Json& test);
// The profile with what the case says about placement and actions.
Profile ProfileOf(const kube::Json& test, const Profile& base);
NodeSpec LoadNode(const kube::Json& node);
PodGroupSpec LoadGroup(const kube::Json& job, bool started);
PodSpec LoadPod(const kube::Json& job, const kube::Json& task, const TaskRow& row);
void LoadCluster(const kube::Json& test, const Profile& profile,
                 const std::map<std::string, TaskRow>& rows,
                 const std::map<std::string, ClaimSpec>& claims, Engine* engine);

}  // namespace sublet::scheduler
