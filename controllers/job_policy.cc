#include "controllers/job_policy.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "controllers/pod_record.h"
#include "kube/json_lists.h"

namespace sublet::controllers {
namespace {

using kube::ArrayAt;
using kube::Json;

// The container whose end matches the rule, or nullptr.
const ContainerEnd* MatchExitCodes(const Json& rule, const PodRecord& pod) {
  const std::string_view name = kube::FindString(rule, {"containerName"});
  const bool in = kube::FindString(rule, {"operator"}) == "In";
  const Json& values = ArrayAt(rule, {"values"});
  for (const ContainerEnd& end : pod.ends) {
    if (end.exit_code == 0 || (!name.empty() && name != end.name)) {
      continue;
    }
    const bool listed = std::any_of(values.begin(), values.end(),
                                    [&](const Json& value) { return value == end.exit_code; });
    if (listed == in) {
      return &end;
    }
  }
  return nullptr;
}

const PodCondition* MatchConditions(const Json& patterns, const PodRecord& pod) {
  for (const PodCondition& condition : pod.conditions) {
    for (const Json& pattern : patterns) {
      if (kube::FindString(pattern, {"type"}) == condition.type &&
          kube::FindString(pattern, {"status"}, "True") == condition.status) {
        return &condition;
      }
    }
  }
  return nullptr;
}

std::optional<FailureAction> ActionOf(std::string_view text) {
  if (text == "FailJob") return FailureAction::kFailJob;
  if (text == "FailIndex") return FailureAction::kFailIndex;
  if (text == "Ignore") return FailureAction::kIgnore;
  if (text == "Count") return FailureAction::kCount;
  return std::nullopt;  // a newer server's action: the rule is skipped
}

}  // namespace

FailureVerdict JudgeFailure(const Json& job, const client::CachedObject& pod) {
  const auto& record = pod.As<PodRecord>();
  const Json& rules = ArrayAt(job, {"spec", "podFailurePolicy", "rules"});
  for (std::size_t i = 0; i < rules.size(); ++i) {
    const Json& rule = rules[i];
    const auto action = ActionOf(kube::FindString(rule, {"action"}));
    if (!action) {
      continue;
    }
    std::string what;
    if (const Json* codes = kube::Find(rule, {"onExitCodes"});
        codes != nullptr && codes->is_object()) {
      if (const ContainerEnd* end = MatchExitCodes(*codes, record)) {
        what = "Container " + end->name + " for pod " + pod.key.Text() + " failed with exit code " +
               std::to_string(end->exit_code);
      }
    } else if (const PodCondition* condition =
                   MatchConditions(ArrayAt(rule, {"onPodConditions"}), record)) {
      what = "Pod " + pod.key.Text() + " has condition " + condition->type;
    }
    if (!what.empty()) {
      return {*action, what + " matching " + std::string(kube::FindString(rule, {"action"})) +
                           " rule at index " + std::to_string(i)};
    }
  }
  return {};
}

std::optional<std::string> SuccessPolicyMet(const Json& job, const IndexSet& succeeded) {
  const Json& rules = ArrayAt(job, {"spec", "successPolicy", "rules"});
  const std::int64_t completions = kube::FindInt(job, {"spec", "completions"});
  for (std::size_t i = 0; i < rules.size(); ++i) {
    const Json& rule = rules[i];
    const std::int64_t count = kube::FindInt(rule, {"succeededCount"});
    std::int64_t met = succeeded.size();
    std::int64_t wanted = count;
    const std::string_view indexes = kube::FindString(rule, {"succeededIndexes"});
    if (!indexes.empty()) {
      const IndexSet named = IndexSet::Parse(indexes, completions);
      met = 0;
      for (std::int64_t index = 0; index < completions; ++index) {
        met += named.Has(index) && succeeded.Has(index) ? 1 : 0;
      }
      wanted = count > 0 ? count : named.size();
    }
    if (wanted > 0 && met >= wanted) {
      return "Matched rules at index " + std::to_string(i);
    }
  }
  return std::nullopt;
}

}  // namespace sublet::controllers
