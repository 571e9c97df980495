// What a job's controller may say in its status. Rules about a field count only when the write changes
// it, so that other writes go on for a job that a rule has overtaken.
// Source: k8s.io/kubernetes pkg/apis/batch/validation, pkg/registry/batch/job.
#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "kube/kinds/go_shown.h"
#include "kube/kinds/validate_common.h"
#include "kube/kinds/validate_kinds.h"
#include "kube/kinds/validate_status.h"
#include "kube/object.h"
#include "kube/timestamp.h"

namespace sublet::kube::validate {
namespace {

bool IsSet(const Json& job, std::string_view type, std::string_view status = "True") {
  const Json* condition = FindCondition(job, type);
  return condition != nullptr && FindString(*condition, {"status"}) == status;
}

bool IsFinished(const Json& job) { return IsSet(job, "Complete") || IsSet(job, "Failed"); }

// What a write changes, and what it makes.
struct Change {
  const Json& job;
  const Json& old;
  const Json& status;
  const Json& old_status;
  FieldErrors* errors;

  bool Member(const char* key) const { return Get(status, key) != Get(old_status, key); }
  bool Condition(const char* type) const { return IsSet(job, type) != IsSet(old, type); }
  bool Finished() const { return IsFinished(job) != IsFinished(old); }
  std::int64_t Int(const char* key) const { return FindInt(status, {key}); }
  std::int64_t OldInt(const char* key) const { return FindInt(old_status, {key}); }

  void Conditions(bool wrong, const std::string& text) const {
    if (wrong) {
      errors->Add({"FieldValueInvalid", "Invalid value: " + text, "status.conditions"});
    }
  }
  void Invalid(bool wrong, const char* key, std::string_view text) const {
    if (wrong) {
      errors->Invalid(kStatus.Child(key), Get(status, key), text);
    }
  }
};

struct IndexRange {
  std::int64_t from = 0;
  std::int64_t to = 0;
};

// "1" or "3-5" of a list of indexes; what is wrong, else.
std::optional<std::string> ParseIndexRange(std::string_view text, std::int64_t completions,
                                           IndexRange* interval) {
  const auto number = [&](std::string_view part, std::int64_t* out) -> std::optional<std::string> {
    const std::string_view digits = part.starts_with('+') ? part.substr(1) : part;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), *out);
    if (error != std::errc() || end != digits.data() + digits.size() || digits.empty()) {
      return "cannot convert string to integer for index: " + GoQuote(part);
    }
    if (*out >= completions) {
      return "too large index: " + GoQuote(part);
    }
    return std::nullopt;
  };
  const std::size_t dash = text.find('-');
  if (dash != std::string_view::npos && text.find('-', dash + 1) != std::string_view::npos) {
    return "the fragment " + GoQuote(text) +
           " violates the requirement that an index interval can have at most two parts separated "
           "by '-'";
  }
  if (auto problem = number(text.substr(0, dash), &interval->from)) {
    return problem;
  }
  interval->to = interval->from;
  if (dash == std::string_view::npos) {
    return std::nullopt;
  }
  if (auto problem = number(text.substr(dash + 1), &interval->to)) {
    return problem;
  }
  if (interval->from >= interval->to) {
    return "non-increasing order, previous: " + std::to_string(interval->from) +
           ", current: " + std::to_string(interval->to);
  }
  return std::nullopt;
}

// The readable intervals of a list; `problem` is the first thing that is wrong.
std::vector<IndexRange> ParseIndexes(std::string_view text, std::int64_t completions,
                                     std::optional<std::string>* problem) {
  std::vector<IndexRange> found;
  while (!text.empty()) {
    const std::size_t comma = text.find(',');
    IndexRange interval;
    const auto wrong = ParseIndexRange(text.substr(0, comma), completions, &interval);
    if (!*problem && wrong) {
      *problem = wrong;
    } else if (!*problem && !found.empty() && found.back().to >= interval.from) {
      *problem = "non-increasing order, previous: " + std::to_string(found.back().to) +
                 ", current: " + std::to_string(interval.from);
    }
    if (!wrong) {
      found.push_back(interval);
    }
    if (comma == std::string_view::npos) {
      break;
    }
    text.remove_prefix(comma + 1);
    if (text.empty() && !*problem) {
      *problem = "cannot convert string to integer for index: \"\"";
    }
  }
  return found;
}

// The first index that two ascending lists share.
std::optional<std::int64_t> Overlap(const std::vector<IndexRange>& a,
                                    const std::vector<IndexRange>& b) {
  for (std::size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    if (a[i].from <= b[j].to && b[j].from <= a[i].to) {
      return std::max(a[i].from, b[j].from);
    }
    (a[i].from <= b[j].from ? i : j) += 1;
  }
  return std::nullopt;
}

void UncountedPods(const Change& change) {
  const Path path = kStatus.Child("uncountedTerminatedPods");
  std::set<std::string> seen;
  for (const char* list : {"succeeded", "failed"}) {
    const Path names = path.Child(list);
    std::size_t index = 0;
    for (const Json& uid : Items(Get(change.status, "uncountedTerminatedPods"), list)) {
      const Path at = names.Index(index++);
      if (uid == "") {
        change.errors->Invalid(at, uid, "must not be empty");
      } else if (!seen.insert(uid.get<std::string>()).second) {
        change.errors->Duplicate(at, uid);
      }
    }
  }
}

void Outcome(const Change& change) {
  const bool complete = IsSet(change.job, "Complete");
  const bool failed = IsSet(change.job, "Failed");
  const Json& done = Get(change.status, "completionTime");
  const Json& started = Get(change.status, "startTime");
  const bool complete_changed = change.Condition("Complete");
  change.Conditions((complete_changed || change.Condition("Failed")) && complete && failed,
                    "cannot set Complete=True and Failed=true conditions");
  change.Conditions((complete_changed || change.Condition("FailureTarget")) && complete &&
                        IsSet(change.job, "FailureTarget"),
                    "cannot set Complete=True and FailureTarget=true conditions");
  const bool time_changed = change.Member("completionTime");
  change.Invalid((complete_changed || time_changed) && !done.is_null() && !complete,
                 "completionTime",
                 "cannot set completionTime when there is no Complete=True condition");
  if ((complete_changed || time_changed) && done.is_null() && complete) {
    change.errors->Required(kStatus.Child("completionTime"),
                            "completionTime is required for Complete jobs");
  }
  if ((change.Member("startTime") || time_changed) && done.is_string() && started.is_string()) {
    const auto end = ParseTime(done.get<std::string>());
    const auto begin = ParseTime(started.get<std::string>());
    change.Invalid(end.ok() && begin.ok() && *end < *begin, "completionTime",
                   "must be equal to or after `startTime`");
  }
  change.Conditions((change.Condition("Failed") || change.Member("failedIndexes")) && failed &&
                        !IsSet(change.job, "FailureTarget"),
                    "cannot set Failed=True condition without the FailureTarget=true condition");
  change.Conditions(
      (complete_changed || change.Condition("SuccessCriteriaMet")) && complete &&
          !IsSet(change.job, "SuccessCriteriaMet"),
      "cannot set Complete=True condition without the SuccessCriteriaMet=true condition");
}

void Ending(const Change& change) {
  const bool finished = IsFinished(change.job);
  const Json& spec = Get(change.job, "spec");
  change.Invalid(
      (change.Finished() || change.Member("active")) && change.Int("active") > 0 && finished,
      "active", "active>0 is invalid for finished job");
  const bool nothing_to_do = FindBool(spec, {"suspend"}) && Get(spec, "completions") == Json(0);
  if ((change.Finished() || change.Member("startTime")) && !nothing_to_do && finished &&
      !Has(change.status, "startTime")) {
    change.errors->Required(kStatus.Child("startTime"), "startTime is required for finished job");
  }
  const Json& uncounted = Get(change.status, "uncountedTerminatedPods");
  const bool some = !Items(uncounted, "succeeded").empty() || !Items(uncounted, "failed").empty();
  if ((change.Finished() || change.Member("uncountedTerminatedPods")) && finished && some) {
    change.errors->InvalidShown(kStatus.Child("uncountedTerminatedPods"),
                                ShownAsGo("UncountedTerminatedPods", uncounted),
                                "must be empty for finished job");
  }
}

void Indexes(const Change& change) {
  const Json& spec = Get(change.job, "spec");
  const std::int64_t completions = FindInt(spec, {"completions"});
  const bool counted = Has(spec, "completions");
  const bool completed_changed = change.Member("completedIndexes");
  const bool failed_changed = change.Member("failedIndexes");
  std::optional<std::string> completed_problem;
  std::optional<std::string> failed_problem;
  const auto completed =
      ParseIndexes(Str(change.status, "completedIndexes"), completions, &completed_problem);
  const auto failed =
      ParseIndexes(Str(change.status, "failedIndexes"), completions, &failed_problem);
  change.Invalid(completed_changed && counted && completed_problem.has_value(), "completedIndexes",
                 "error parsing completedIndexes: " + completed_problem.value_or(""));
  change.Invalid(
      failed_changed && counted && Has(spec, "backoffLimitPerIndex") && failed_problem.has_value(),
      "failedIndexes", "error parsing failedIndexes: " + failed_problem.value_or(""));
  change.Invalid(completed_changed && !Str(change.status, "completedIndexes").empty() &&
                     Str(spec, "completionMode") != "Indexed",
                 "completedIndexes",
                 "cannot set non-empty completedIndexes when non-indexed completion mode");
  change.Invalid(
      failed_changed && !Has(spec, "backoffLimitPerIndex") && Has(change.status, "failedIndexes"),
      "failedIndexes", "cannot set non-null failedIndexes when backoffLimitPerIndex is null");
  if ((completed_changed || failed_changed) && counted && Has(change.status, "failedIndexes")) {
    if (const auto both = Overlap(completed, failed)) {
      change.Invalid(
          true, "failedIndexes",
          "failedIndexes and completedIndexes overlap at index: " + std::to_string(*both));
    }
  }
}

void Criteria(const Change& change) {
  const bool met = IsSet(change.job, "SuccessCriteriaMet");
  change.Invalid((change.Finished() || change.Member("terminating")) &&
                     change.Int("terminating") > 0 && IsFinished(change.job),
                 "terminating", "terminating>0 is invalid for finished job");
  change.Invalid((change.Member("ready") || change.Member("active")) &&
                     change.Int("ready") > change.Int("active"),
                 "ready", "cannot set more ready pods than active");
  change.Conditions(met && IsSet(change.job, "Failed"),
                    "cannot set SuccessCriteriaMet=True and Failed=true conditions");
  change.Conditions(met && IsSet(change.job, "FailureTarget"),
                    "cannot set SuccessCriteriaMet=True and FailureTarget=true conditions");
  change.Conditions(
      Has(Get(change.job, "spec"), "successPolicy") && IsSet(change.job, "Complete") && !met,
      "cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True");
}

// What may never be taken back.
void Transitions(const Change& change) {
  const Json& spec = Get(change.job, "spec");
  for (const char* type : {"Failed", "Complete", "FailureTarget"}) {
    change.Conditions(IsSet(change.old, type) && !IsSet(change.job, type),
                      "cannot disable the terminal " + std::string(type) + "=True condition");
  }
  const auto falls = [&](const char* key, std::string_view text) {
    if (change.Int(key) < change.OldInt(key)) {
      change.errors->Invalid(kStatus.Child(key), change.Int(key), text);
    }
  };
  falls("failed", "cannot decrease the failed counter");
  if (Str(spec, "completionMode") != "Indexed" ||
      Get(spec, "completions") != Get(spec, "parallelism")) {
    falls("succeeded", "cannot decrease the succeeded counter");
  }
  change.Invalid(Has(change.status, "completionTime") && Has(change.old_status, "completionTime") &&
                     change.Member("completionTime"),
                 "completionTime", kImmutable);
  const bool resuming = IsSet(change.old, "Suspended") && IsSet(change.job, "Suspended", "False");
  change.Invalid(Has(change.old_status, "startTime") && change.Member("startTime") && !resuming &&
                     !FindBool(spec, {"suspend"}),
                 "startTime", "field is immutable for unsuspended job once set");
  const bool met = IsSet(change.job, "SuccessCriteriaMet");
  const bool was_met = IsSet(change.old, "SuccessCriteriaMet");
  change.Conditions(was_met && !met, "cannot disable the SuccessCriteriaMet=True condition");
  change.Conditions(
      IsSet(change.old, "Complete") && !was_met && met,
      "cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions");
}

}  // namespace

void JobStatus(const Json& object, const Json& old, FieldErrors* errors) {
  const Change change{object, old, Get(object, "status"), Get(old, "status"), errors};
  for (const char* field : {"active", "succeeded", "failed", "ready", "terminating"}) {
    NotNegative(change.status, field, kStatus, errors);
  }
  UncountedPods(change);
  Outcome(change);
  Ending(change);
  Indexes(change);
  Criteria(change);
  Transitions(change);
}

}  // namespace sublet::kube::validate
