#include "scheduler/case_tables.h"

#include <map>
#include <nlohmann/json.hpp>

#include "scheduler/case_loader.h"
#include "scheduler/cases.h"

namespace sublet::scheduler {

using kube::Json;

namespace {

using TableFunction = void (*)(const Json&, CaseRow&);
const std::map<std::string, TableFunction>& Tables() {
  static const std::map<std::string, TableFunction> kTables{
      {"division", DivisionRow},
      {"fairshare", FairShareRow},
      {"resource_share", ShareArithmeticRow},
      {"queue_order", QueueOrderRow},
      {"strategies", StrategiesRow},
      {"reclaimable", ReclaimRow},
      {"capacity_policy", QueueCapacityRow},
      {"minruntime", MinRuntimeRow},
      {"topology_filter", TopologyRow},
  };
  return kTables;
}

}  // namespace

Result<std::vector<CaseOutcome>> RunTable(const std::string& table, const std::string& text) {
  const auto it = Tables().find(table);
  if (it == Tables().end()) {
    return sublet::Status(Reason::kInvalid, "unknown table " + table);
  }
  SUBLET_TRY(const Json rows, kube::ParseJson(text, kCaseLimits));
  if (!rows.is_array()) {
    return BadRequest("a table must be a JSON array");
  }
  std::vector<CaseOutcome> outcomes;
  for (const Json& row : rows) {
    CaseOutcome outcome;
    outcome.id = row.is_object() ? row.value("id", "?") : "?";
    try {  // nlohmann's accessors throw where a member is missing or has another type
      CaseRow out(&outcome.problems);
      it->second(row, out);
    } catch (const Json::exception& error) {
      outcome.problems.push_back(std::string("bad row: ") + error.what());
    }
    outcomes.push_back(std::move(outcome));
  }
  return outcomes;
}

}  // namespace sublet::scheduler
