// When a job fails and succeeds.
#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <set>

#include "kube/kinds/validate_jobs.h"

namespace sublet::kube::validate {
namespace {

constexpr std::int64_t kRulesMax = 20;

std::int64_t Size(const Json::array_t& list) { return static_cast<std::int64_t>(list.size()); }

// One of `allowed`, whose names an absent value is told.
void RequiredChoice(const Path& path, const std::string& value,
                    std::initializer_list<std::string_view> allowed, FieldErrors* errors) {
  if (!value.empty()) {
    return OneOf(path, value, allowed, true, errors);
  }
  std::string names;
  for (const std::string_view name : allowed) {
    names.append(names.empty() ? "" : " ").append(GoQuote(name));
  }
  errors->Required(path, "valid values: [" + names + "]");
}

void ExitCodes(const Path& path, const Json& codes, const std::set<std::string>& containers,
               FieldErrors* errors) {
  const std::string op = Str(codes, "operator");
  RequiredChoice(path.Child("operator"), op, {"In", "NotIn"}, errors);
  if (const std::string name = Str(codes, "containerName");
      Has(codes, "containerName") && !containers.contains(name)) {
    errors->Invalid(path.Child("containerName"), name,
                    "must be one of the container or initContainer names in the pod template");
  }
  const Path values_path = path.Child("values");
  const auto& values = Items(codes, "values");
  if (values.empty()) {
    errors->Invalid(values_path, Get(codes, "values"), "at least one value is required");
  } else if (values.size() > 255) {
    errors->TooMany(values_path, Size(values), 255);
  }
  std::set<std::int64_t> seen;
  bool ordered = true;
  std::int64_t before = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::int64_t code = values[i].is_number_integer() ? values[i].get<std::int64_t>() : 0;
    if (op == "In" && code == 0) {
      errors->Invalid(values_path.Index(i), code, "must not be 0 for the In operator");
    }
    if (!seen.insert(code).second) {
      errors->Duplicate(values_path.Index(i), code);
    }
    ordered &= i == 0 || before <= code;
    before = code;
  }
  if (!ordered) {
    errors->Invalid(values_path, Get(codes, "values"), "must be ordered");
  }
}

void PodConditions(const Path& path, const Json::array_t& conditions, FieldErrors* errors) {
  if (Size(conditions) > kRulesMax) {
    errors->TooMany(path, Size(conditions), kRulesMax);
  }
  for (std::size_t i = 0; i < conditions.size(); ++i) {
    const Path at = path.Index(i);
    Check(at.Child("type"), Str(conditions[i], "type"), &IsQualifiedName, errors);
    RequiredChoice(at.Child("status"), Str(conditions[i], "status"), {"False", "True", "Unknown"},
                   errors);
  }
}

void FailureRule(const Path& at, const Json& rule, const Json& job_spec,
                 const std::set<std::string>& containers, FieldErrors* errors) {
  const std::string action = Str(rule, "action");
  const Path action_path = at.Child("action");
  if (action != "FailIndex") {
    RequiredChoice(action_path, action, {"Count", "FailIndex", "FailJob", "Ignore"}, errors);
  } else if (!Has(job_spec, "backoffLimitPerIndex")) {
    errors->Invalid(action_path, action, "requires the backoffLimitPerIndex to be set");
  }
  const bool codes = Has(rule, "onExitCodes");
  const auto& conditions = Items(rule, "onPodConditions");
  if (codes) {
    ExitCodes(at.Child("onExitCodes"), Get(rule, "onExitCodes"), containers, errors);
  }
  PodConditions(at.Child("onPodConditions"), conditions, errors);
  if (codes && !conditions.empty()) {
    errors->InvalidShown(at, "specifying both OnExitCodes and OnPodConditions is not supported",
                         "");
  }
  if (!codes && conditions.empty()) {
    errors->InvalidShown(at, "specifying one of OnExitCodes and OnPodConditions is required", "");
  }
}

struct Interval {
  std::int64_t first = 0;
  std::int64_t last = 0;
};

std::string ParseInterval(std::string_view text, std::int64_t completions, Interval* interval) {
  const std::size_t dash = text.find('-');
  if (dash != std::string_view::npos && text.find('-', dash + 1) != std::string_view::npos) {
    return "the fragment " + GoQuote(text) +
           " violates the requirement that an index interval can have at most two parts separated "
           "by '-'";
  }
  const auto parse = [&](std::string_view part, std::int64_t* value) -> std::string {
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), *value);
    if (error != std::errc() || end != part.data() + part.size()) {
      return "cannot convert string to integer for index: " + GoQuote(part);
    }
    return *value >= completions ? "too large index: " + GoQuote(part) : "";
  };
  if (std::string problem = parse(text.substr(0, dash), &interval->first); !problem.empty()) {
    return problem;
  }
  interval->last = interval->first;
  if (dash == std::string_view::npos) {
    return "";
  }
  if (std::string problem = parse(text.substr(dash + 1), &interval->last); !problem.empty()) {
    return problem;
  }
  if (interval->first >= interval->last) {
    return "non-increasing order, previous: " + std::to_string(interval->first) +
           ", current: " + std::to_string(interval->last);
  }
  return "";
}

void SuccessRule(const Path& at, const Json& rule, std::int64_t completions, FieldErrors* errors) {
  const bool indexed = Has(rule, "succeededIndexes");
  const bool counted = Has(rule, "succeededCount");
  if (!indexed && !counted) {
    errors->Required(at, "at least one of succeededCount or succeededIndexes must be specified");
  }
  std::int64_t total = 0;
  if (indexed) {
    const Path path = at.Child("succeededIndexes");
    const std::string text = Str(rule, "succeededIndexes");
    constexpr int kTextMax = 64 * 1024;
    if (text.size() > static_cast<std::size_t>(kTextMax)) {
      errors->TooLong(path, kTextMax);
    }
    if (const std::string problem = IndexesProblem(text, completions, &total); !problem.empty()) {
      errors->Invalid(path, text, "error parsing succeededIndexes: " + problem);
    }
  }
  if (!counted) {
    return;
  }
  const Path path = at.Child("succeededCount");
  const std::int64_t count = FindInt(rule, {"succeededCount"});
  NotNegative(path, count, errors);
  if (count > completions) {
    errors->Invalid(path, count,
                    "must be less than or equal to " + std::to_string(completions) +
                        " (the number of specified completions)");
  }
  if (indexed && count > total) {
    errors->Invalid(path, count,
                    "must be less than or equal to " + std::to_string(total) +
                        " (the number of indexes in the specified succeededIndexes field)");
  }
}

}  // namespace

std::string IndexesProblem(std::string_view text, std::int64_t completions, std::int64_t* total) {
  *total = 0;
  std::int64_t last = -1;
  std::int64_t sum = 0;
  while (!text.empty()) {
    const std::size_t comma = std::min(text.find(','), text.size());
    Interval interval;
    if (std::string problem = ParseInterval(text.substr(0, comma), completions, &interval);
        !problem.empty()) {
      return problem;
    }
    if (last >= interval.first) {
      return "non-increasing order, previous: " + std::to_string(last) +
             ", current: " + std::to_string(interval.first);
    }
    sum += interval.last - interval.first + 1;
    last = interval.last;
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  *total = sum;
  return "";
}

void PodFailurePolicy(const Path& path, const Json& job_spec, FieldErrors* errors) {
  const Path rules = path.Child("rules");
  const auto& items = Items(Get(job_spec, "podFailurePolicy"), "rules");
  if (Size(items) > kRulesMax) {
    errors->TooMany(rules, Size(items), kRulesMax);
  }
  std::set<std::string> containers;
  const Json& pod = Get(Get(job_spec, "template"), "spec");
  for (const char* list : {"containers", "initContainers"}) {
    for (const Json& container : Items(pod, list)) {
      containers.insert(Str(container, "name"));
    }
  }
  for (std::size_t i = 0; i < items.size(); ++i) {
    FailureRule(rules.Index(i), items[i], job_spec, containers, errors);
  }
}

void SuccessPolicy(const Path& path, const Json& job_spec, FieldErrors* errors) {
  const Path rules = path.Child("rules");
  const auto& items = Items(Get(job_spec, "successPolicy"), "rules");
  if (items.empty()) {
    errors->Required(rules,
                     "at least one rules must be specified when the successPolicy is specified");
  }
  if (Size(items) > kRulesMax) {
    errors->TooMany(rules, Size(items), kRulesMax);
  }
  for (std::size_t i = 0; i < items.size(); ++i) {
    SuccessRule(rules.Index(i), items[i], FindInt(job_spec, {"completions"}), errors);
  }
}

}  // namespace sublet::kube::validate
