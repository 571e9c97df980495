#include "scheduler/cases.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "kube/json.h"
#include "scheduler/case_loader.h"
#include "scheduler/engine.h"

namespace sublet::scheduler {

namespace {

using kube::Json;

constexpr const char* kUsage =
    "usage: sublet scheduler cases [--profile P] [--table T] [--verbose] FILE...\n"
    "  --profile P   default, kai-0.7, kai-0.9, kai-0.13 (unless said otherwise), kai-0.17\n"
    "  --table T     the files are unit tables: division, fairshare, resource_share, queue_order, "
    "strategies,\n"
    "                reclaimable, capacity_policy, minruntime or topology_filter\n"
    "  --verbose     says what was wrong below each failing id\n"
    "Prints failing ids and last \"passed N of M\"; exit 1 unless all pass, 2 when a file cannot "
    "be read.";

// The table of tasks that lives across rounds.
struct Table {
  std::map<std::string, TaskRow> tasks;
  std::map<std::string, ClaimSpec> claims;
  std::map<std::string, std::string> failures;  // job -> text
};

struct Round {
  std::unique_ptr<Engine> engine;
  int binds = 0, evictions = 0, pipelines = 0;
};

Round RunRound(const Json& test, const Profile& profile, const Table& table, bool act,
               Table* after) {
  Round round;
  round.engine = std::make_unique<Engine>(std::vector<Profile>{profile});
  LoadCluster(test, profile, table.tasks, table.claims, round.engine.get());
  if (!act) {
    return round;
  }
  std::vector<Action> actions;
  for (const Json& name : test.at("actions")) {
    for (Action action : {Action::kAllocate, Action::kConsolidation, Action::kReclaim,
                          Action::kPreempt, Action::kStaleGang}) {
      if (name.get<std::string>() == ActionName(action)) {
        actions.push_back(action);
      }
    }
  }
  const CycleResult result = round.engine->RunOnly(kCaseNow, actions);
  for (const Decision& decision : result.decisions) {
    round.binds += decision.kind == Decision::Kind::kBind;
    round.evictions += decision.kind == Decision::Kind::kEvict;
    round.pipelines += decision.kind == Decision::Kind::kPipeline;
  }
  after->failures.clear();
  for (const GroupVerdict& verdict : result.verdicts) {
    after->failures[verdict.name] = verdict.message;
  }
  const State& state = round.engine->state();
  after->claims = state.claims;
  for (auto& [name, row] : after->tasks) {
    const Task& task = state.task(state.FindTask(name));
    row.status = task.status;
    if (task.status == Status::kFailed || task.status == Status::kSucceeded) {
      continue;  // the name of the node stays, though nothing is held there
    }
    row.node = task.node == kNone ? "" : state.nodes[static_cast<std::size_t>(task.node)].spec.name;
    row.groups.clear();
    for (int group : task.groups) {
      row.groups.push_back(state.group_names.Name(group));
    }
  }
  return round;
}

// What happens to the pods between two rounds.
void Advance(const Json& test, Table* table) {
  std::map<std::string, bool> deleted;
  for (const Json& job : test.at("jobs")) {
    for (const Json& task : job.at("tasks")) {
      deleted[task.at("name").get<std::string>()] = job.value("deleteInTest", false);
    }
  }
  for (auto& [name, row] : table->tasks) {
    if (row.status == Status::kBinding) {
      row.status = Status::kRunning;
    } else if (row.status == Status::kPipelined ||
               (row.status == Status::kReleasing && !deleted[name])) {
      row.status = Status::kPending;
      row.node.clear();
      row.groups.clear();
    }
  }
}

class Comparison {
 public:
  Comparison(const Json& test, const Round& round, const Table& table, std::string where,
             std::vector<std::string>* problems)
      : test_(test), round_(round), table_(table), where_(std::move(where)), problems_(problems) {}

  void Run() {
    const Json& expect = test_.at("expect");
    for (const auto& [name, want] : expect.at("jobs").items()) {
      const Json* job = FindJob(name);
      if (job == nullptr) {
        Problem("expects unknown job " + name);
        continue;
      }
      CheckJob(*job, want);
    }
    for (const auto& [name, want] : expect.at("tasks").items()) {
      CheckTask(name, want);
    }
    for (const auto& [name, want] : expect.at("nodes").items()) {
      CheckNode(name, want);
    }
  }

  void CheckBounds() {
    const Json& expect = test_.at("expect");
    const auto bound = [&](const char* key, int count) {
      if (expect.contains(key) && expect.at(key).is_number() && count > expect.at(key).get<int>()) {
        Problem(std::string(key) + " " + std::to_string(expect.at(key).get<int>()) + ", but " +
                std::to_string(count));
      }
    };
    bound("maxBinds", round_.binds);
    bound("maxEvictions", round_.evictions);
    bound("maxPipelines", round_.pipelines);
  }

 private:
  void Problem(std::string text) { problems_->push_back(where_ + ": " + std::move(text)); }

  const Json* FindJob(const std::string& name) const {
    for (const Json& job : test_.at("jobs")) {
      if (job.at("name").get<std::string>() == name) {
        return &job;
      }
    }
    return nullptr;
  }

  void CheckJob(const Json& job, const Json& want) {
    double gpus = 0;
    double accepted = 0;
    std::int64_t cpu = 0;
    std::int64_t memory = 0;
    for (const Json& task : job.at("tasks")) {
      const std::string name = task.at("name").get<std::string>();
      CheckTask(name, want, false);
      gpus += task.at("gpus").get<double>() * std::max(1, task.value("fractionDevices", 0));
      cpu += task.at("cpuMillis").get<std::int64_t>();
      memory += task.at("memoryBytes").get<std::int64_t>();
      const State& state = round_.engine->state();
      const Task& placed = state.task(state.FindTask(name));
      accepted += static_cast<double>(placed.accepted[kGpu]) / static_cast<double>(kDevice);
    }
    const auto same = [&](const char* key, double have) {
      if (want.contains(key) && want.at(key).is_number() &&
          std::fabs(want.at(key).get<double>() - have) > 1e-6) {
        Problem(job.at("name").get<std::string>() + ": " + key + " is " + std::to_string(have));
      }
    };
    same("gpusRequired", gpus);
    same("cpuMillisRequired", static_cast<double>(cpu));
    same("memoryBytesRequired", static_cast<double>(memory));
    same("gpusAccepted", accepted);
    if (want.contains("errorMessage") && want.at("errorMessage").is_string()) {
      const auto it = table_.failures.find(job.at("name").get<std::string>());
      if (it == table_.failures.end()) {
        Problem(job.at("name").get<std::string>() + " has no failure reason");
      }
    }
  }

  void CheckTask(const std::string& name, const Json& want, bool amounts = true) {
    const State& state = round_.engine->state();
    const TaskId id = state.FindTask(name);
    if (id == kNone) {
      Problem("expects unknown task " + name);
      return;
    }
    const Task& task = state.task(id);
    if (want.at("status").get<std::string>() != StatusName(task.status)) {
      Problem(name + " is " + StatusName(task.status) + ", expected " +
              want.at("status").get<std::string>());
    }
    const std::string node = task.node == kNone
                                 ? table_.tasks.at(name).node
                                 : state.nodes[static_cast<std::size_t>(task.node)].spec.name;
    if (want.contains("node") && want.at("node").is_string() &&
        want.at("node").get<std::string>() != node) {
      Problem(name + " is on \"" + node + "\", expected " + want.at("node").get<std::string>());
    }
    if (amounts && want.contains("gpusAccepted") && want.at("gpusAccepted").is_number()) {
      const double accepted =
          static_cast<double>(task.accepted[kGpu]) / static_cast<double>(kDevice);
      if (std::fabs(accepted - want.at("gpusAccepted").get<double>()) > 1e-6) {
        Problem(name + " got " + std::to_string(accepted) + " GPUs");
      }
    }
  }

  void CheckNode(const std::string& name, const Json& want) {
    const State& state = round_.engine->state();
    const NodeId id = state.FindNode(name);
    if (id == kNone) {
      Problem("expects unknown node " + name);
      return;
    }
    const NodeHot& hot = state.hot[static_cast<std::size_t>(id)];
    const auto same = [&](const char* key, std::int64_t have) {
      if (want.contains(key) && want.at(key).is_number() &&
          std::fabs(want.at(key).get<double>() * kDevice - static_cast<double>(have)) > 1e-6) {
        Problem(name + ": " + key + " is " + std::to_string(static_cast<double>(have) / kDevice) +
                ", expected " + std::to_string(want.at(key).get<double>()));
      }
    };
    same("idleGpus", hot.idle[kGpu]);
    same("releasingGpus", hot.releasing[kGpu]);
  }

  const Json& test_;
  const Round& round_;
  const Table& table_;
  std::string where_;
  std::vector<std::string>* problems_;
};

// Words that the format does not have: a case that is read wrongly must not pass by accident.
std::vector<std::string> UnknownWords(const Json& test) {
  std::vector<std::string> problems;
  const std::string mode = test.at("mode").get<std::string>();
  if (mode != "single" && mode != "rounds") {
    problems.push_back("unknown mode \"" + mode + "\"; known: single, rounds");
  }
  for (const Json& name : test.at("actions")) {
    const std::string action = name.get<std::string>();
    constexpr Action kAll[] = {Action::kAllocate, Action::kConsolidation, Action::kReclaim,
                               Action::kPreempt, Action::kStaleGang};
    if (std::none_of(std::begin(kAll), std::end(kAll),
                     [&](Action known) { return action == ActionName(known); })) {
      problems.push_back("unknown action \"" + action +
                         "\"; known: allocate, consolidation, reclaim, preempt, stalegangeviction");
    }
  }
  for (const Json& job : test.at("jobs")) {
    for (const Json& task : job.at("tasks")) {
      const std::string state = task.at("state").get<std::string>();
      bool known = false;
      for (int i = 0; i <= static_cast<int>(Status::kUnknown); ++i) {
        known = known || state == StatusName(static_cast<Status>(i));
      }
      if (!known) {
        problems.push_back("unknown state \"" + state + "\" of task " +
                           task.at("name").get<std::string>());
      }
    }
  }
  return problems;
}

CaseOutcome RunCase(const Json& test, const Profile& base) {
  CaseOutcome outcome;
  outcome.id = test.at("id").get<std::string>();
  outcome.problems = UnknownWords(test);
  if (!outcome.problems.empty()) {
    return outcome;
  }
  const Profile profile = ProfileOf(test, base);
  Table table;
  table.tasks = LoadTasks(test);
  table.claims = LoadClaims(test);
  const bool single = test.at("mode").get<std::string>() == "single";
  if (single) {
    Table after = table;
    const Round round = RunRound(test, profile, table, true, &after);
    Comparison check(test, round, after, "result", &outcome.problems);
    check.Run();
    check.CheckBounds();
    return outcome;
  }
  const int until = test.value("roundsUntil", 2);
  const int afterwards = test.value("roundsAfter", 5);
  for (int i = 0; i < until; ++i) {
    Table after = table;
    const Round round = RunRound(test, profile, table, true, &after);
    Comparison(test, round, after, "round " + std::to_string(i + 1), &outcome.problems)
        .CheckBounds();
    table = std::move(after);
    Advance(test, &table);
  }
  const Round still = RunRound(test, profile, table, false, nullptr);
  Comparison(test, still, table, "after " + std::to_string(until) + " rounds", &outcome.problems)
      .Run();
  for (int i = 0; i < afterwards; ++i) {
    Table after = table;
    const Round round = RunRound(test, profile, table, true, &after);
    Comparison check(test, round, after, "round " + std::to_string(until + i + 1),
                     &outcome.problems);
    check.Run();
    check.CheckBounds();
    table = std::move(after);
    Advance(test, &table);
  }
  return outcome;
}

}  // namespace

Result<std::vector<CaseOutcome>> RunCases(const std::string& text, const Profile& profile) {
  SUBLET_TRY(const Json cases, kube::ParseJson(text, kCaseLimits));
  if (!cases.is_array()) {
    return BadRequest("a case file must be a JSON array");
  }
  std::vector<CaseOutcome> outcomes;
  for (const Json& test : cases) {
    try {  // nlohmann's accessors throw where a member is missing or has another type
      outcomes.push_back(RunCase(test, profile));
    } catch (const Json::exception& error) {
      outcomes.push_back({test.is_object() ? test.value("id", "?") : "?",
                          {std::string("bad case: ") + error.what()}});
    }
  }
  return outcomes;
}

Result<std::vector<std::string>> CaseStates(const std::string& text, const Profile& profile) {
  SUBLET_TRY(const Json cases, kube::ParseJson(text, kCaseLimits));
  std::vector<std::string> lines;
  for (const Json& test : cases) {
    Table table;
    table.tasks = LoadTasks(test);
    table.claims = LoadClaims(test);
    Table after = table;
    RunRound(test, ProfileOf(test, profile), table, true, &after);
    std::string line = test.value("id", "?");
    for (const auto& [name, row] : after.tasks) {
      line += std::string(" ") + name + "=" + StatusName(row.status) + "@" + row.node;
    }
    lines.push_back(std::move(line));
  }
  return lines;
}

int RunCasesCommand(const std::vector<std::string>& args) {
  std::string profile_name = "kai-0.13";
  std::string table;
  bool verbose = false;
  std::vector<std::string> files;
  for (std::size_t i = 0; i < args.size(); ++i) {
    if ((args[i] == "--profile" || args[i] == "--table") && i + 1 < args.size()) {
      (args[i] == "--profile" ? profile_name : table) = args[i + 1];
      ++i;
    } else if (args[i] == "--verbose") {
      verbose = true;
    } else if (args[i] == "--help" || args[i] == "-h") {
      std::printf("%s\n", kUsage);
      return 0;
    } else if (args[i].compare(0, 2, "--") == 0) {
      std::fprintf(stderr, "unknown option %s\n", args[i].c_str());
      return 2;
    } else {
      files.push_back(args[i]);
    }
  }
  Result<Profile> profile = NamedProfile(profile_name);
  if (!profile.ok() || files.empty()) {
    std::fprintf(stderr, "%s\n", profile.ok() ? kUsage : profile.error().message().c_str());
    return 2;
  }
  std::size_t passed = 0;
  std::size_t all = 0;
  for (const std::string& file : files) {
    std::ifstream in(file);
    std::stringstream text;
    text << in.rdbuf();
    if (!in) {
      std::fprintf(stderr, "cannot read %s\n", file.c_str());
      return 2;
    }
    const auto outcomes =
        table.empty() ? RunCases(text.str(), *profile) : RunTable(table, text.str());
    if (!outcomes.ok()) {
      std::fprintf(stderr, "%s: %s\n", file.c_str(), outcomes.error().message().c_str());
      return 2;
    }
    for (const CaseOutcome& outcome : *outcomes) {
      ++all;
      passed += outcome.problems.empty() ? 1 : 0;
      if (!outcome.problems.empty()) {
        std::printf("%s\n", outcome.id.c_str());
        for (std::size_t i = 0; verbose && i < outcome.problems.size(); ++i) {
          std::printf("    %s\n", outcome.problems[i].c_str());
        }
      }
    }
  }
  std::printf("passed %zu of %zu\n", passed, all);
  return passed == all ? 0 : 1;
}

}  // namespace sublet::scheduler
