// Jobs.
#include "kube/kinds/validate_jobs.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "kube/kinds/validate_common.h"
#include "kube/kinds/validate_kinds.h"
#include "kube/label_selector.h"
#include "kube/object.h"

namespace sublet::kube::validate {
namespace {

constexpr std::int64_t kIndexedMax = 100000;
constexpr std::int64_t kHighCompletionsMax = 10000;

std::string AtMost(std::int64_t max) {
  return "must be less than or equal to " + std::to_string(max);
}

void IndexedLimits(const Path& path, const Json& spec, FieldErrors* errors) {
  const std::int64_t parallelism = FindInt(spec, {"parallelism"});
  const std::int64_t completions = FindInt(spec, {"completions"});
  const bool counted = Has(spec, "completions");
  const bool limited = Has(spec, "maxFailedIndexes");
  const std::int64_t failed = FindInt(spec, {"maxFailedIndexes"});
  if (!counted) {
    errors->Required(path.Child("completions"), "when completion mode is Indexed");
  }
  if (parallelism > kIndexedMax) {
    errors->Invalid(path.Child("parallelism"), parallelism,
                    AtMost(kIndexedMax) + " when completion mode is Indexed");
  }
  if (counted && limited && failed > completions) {
    errors->Invalid(path.Child("maxFailedIndexes"), failed,
                    "must be less than or equal to completions");
  }
  if (limited && failed > kIndexedMax) {
    errors->Invalid(path.Child("maxFailedIndexes"), failed, AtMost(kIndexedMax));
  }
  if (completions <= kIndexedMax || !Has(spec, "backoffLimitPerIndex")) {
    return;
  }
  const std::string why = " when completions are above " + std::to_string(kIndexedMax) +
                          " and used with backoff limit per index";
  if (!limited) {
    errors->Required(path.Child("maxFailedIndexes"),
                     "must be specified when completions is above " + std::to_string(kIndexedMax));
  }
  if (parallelism > kHighCompletionsMax) {
    errors->Invalid(path.Child("parallelism"), parallelism, AtMost(kHighCompletionsMax) + why);
  }
  if (failed > kHighCompletionsMax) {
    errors->Invalid(path.Child("maxFailedIndexes"), failed, AtMost(kHighCompletionsMax) + why);
  }
}

void ManagedBy(const Path& path, const std::string& value, FieldErrors* errors) {
  const std::size_t slash = value.find('/');
  if (value.empty()) {
    errors->Required(path);
  } else if (slash == std::string::npos || slash == 0 || slash + 1 == value.size()) {
    errors->Invalid(path, value, "must be a domain-prefixed path (such as \"acme.io/foo\")");
  } else {
    Check(path, value.substr(0, slash), &IsDns1123Subdomain, errors);
  }
  if (value.size() > 63) {
    errors->TooLong(path, 63);
  }
}

void CompletionMode(const Path& path, const Json& spec, FieldErrors* errors) {
  const std::string mode = Str(spec, "completionMode");
  if (!mode.empty() && mode != "NonIndexed" && mode != "Indexed") {
    errors->NotSupported(path.Child("completionMode"), mode, {"NonIndexed", "Indexed"});
  }
  if (mode == "Indexed") {
    IndexedLimits(path, spec, errors);
  } else if (mode.empty() || mode == "NonIndexed") {
    for (const char* field : {"backoffLimitPerIndex", "maxFailedIndexes"}) {
      if (Has(spec, field)) {
        errors->Invalid(path.Child(field), Get(spec, field), "requires indexed completion mode");
      }
    }
  }
}

void Policies(const Path& path, const Json& spec, FieldErrors* errors) {
  const bool on_failure = Has(spec, "podFailurePolicy");
  if (on_failure) {
    PodFailurePolicy(path.Child("podFailurePolicy"), spec, errors);
  }
  if (Has(spec, "successPolicy")) {
    const Path at = path.Child("successPolicy");
    if (Str(spec, "completionMode") != "Indexed") {
      errors->Invalid(at, Get(spec, "successPolicy"), "requires indexed completion mode");
    } else {
      SuccessPolicy(at, spec, errors);
    }
  }
  const Path replacement = path.Child("podReplacementPolicy");
  const std::string policy = Str(spec, "podReplacementPolicy");
  if (on_failure) {
    OneOf(replacement, policy, {"Failed"}, false, errors);
  } else {
    OneOf(replacement, policy, {"Failed", "TerminatingOrFailed"}, false, errors);
  }
}

void Restart(const Path& path, const Json& spec, FieldErrors* errors) {
  const Path template_path = path.Child("template");
  const Path pod = template_path.Child("spec");
  const std::string restart = Str(Get(Get(spec, "template"), "spec"), "restartPolicy");
  if (restart.empty() || restart == "Always") {
    errors->Required(pod.Child("restartPolicy"), "valid values: \"OnFailure\", \"Never\"");
  } else if (restart != "OnFailure" && restart != "Never") {
    errors->NotSupported(pod.Child("restartPolicy"), restart, {"OnFailure", "Never"});
  } else if (restart != "Never" && Has(spec, "podFailurePolicy")) {
    errors->Invalid(pod.Child("restartPolicy"), restart,
                    "only \"Never\" is supported when podFailurePolicy is specified");
  }
}

void HasLabel(const Json& labels, const char* key, const std::string& value, FieldErrors* errors) {
  const Path template_path = kSpec.Child("template");
  const Path metadata = template_path.Child("metadata");
  const Path path = metadata.Child("labels");
  if (!Has(labels, key)) {
    errors->Required(path.Key(key), "must be '" + value + "'");
  } else if (Str(labels, key) != value) {
    errors->Invalid(path.Key(key), labels, "must be '" + value + "'");
  }
}

// Unless someone chose a selector, the job's own uid and name select its pods.
void GeneratedSelector(const Json& object, FieldErrors* errors) {
  const Json& spec = Get(object, "spec");
  const Json& selector = Get(spec, "selector");
  if (FindBool(spec, {"manualSelector"}) || !selector.is_object()) {
    return;
  }
  const std::string uid(UidOf(object));
  const std::string name(NameOf(object));
  const Json& labels = Get(Get(Get(spec, "template"), "metadata"), "labels");
  Json expected = Json::object();
  for (const auto& [key, value] : {std::pair("controller-uid", uid), std::pair("job-name", name),
                                   std::pair("batch.kubernetes.io/controller-uid", uid),
                                   std::pair("batch.kubernetes.io/job-name", name)}) {
    HasLabel(labels, key, value, errors);
    expected[key] = value;
  }
  const auto parsed = kube::LabelSelector::FromJson(&selector);
  if (parsed.ok() && !parsed->Matches(&expected)) {
    errors->Invalid(kSpec.Child("selector"), selector, "`selector` not auto-generated");
  }
}

void WholeSpec(const Json& spec, FieldErrors* errors) {
  JobSpec(kSpec, spec, errors);
  const Json& selector = Get(spec, "selector");
  const Path path = kSpec.Child("selector");
  if (!selector.is_object()) {
    errors->Required(path);
  } else {
    LabelSelector(path, selector, errors);
  }
  const auto parsed = kube::LabelSelector::FromJson(&selector);
  const Json& labels = Get(Get(Get(spec, "template"), "metadata"), "labels");
  if (parsed.ok() && !parsed->Matches(&labels)) {
    const Path template_path = kSpec.Child("template");
    const Path metadata = template_path.Child("metadata");
    errors->Invalid(metadata.Child("labels"), labels,
                    "`selector` does not match template `labels`");
  }
}

bool IsTrue(const Json& job, std::string_view type) {
  const Json* condition = FindCondition(job, type);
  return condition != nullptr && FindString(*condition, {"status"}) == "True";
}

// While a job is suspended and runs nothing, its pods may still be placed and sized otherwise.
void TakeFreeFields(const Json& from, Json* to) {
  const auto take = [](const Json& source, Json* target, const char* key) {
    if (Has(source, key)) {
      (*target)[key] = Get(source, key);
    } else {
      EraseMember(target, key);
    }
  };
  const Json& pod = Get(from, "spec");
  Json& target = EnsureObject(to, "spec");
  for (const char* field : {"nodeSelector", "tolerations", "schedulingGates"}) {
    take(pod, &target, field);
  }
  const Json& affinity = Get(pod, "affinity");
  if (affinity.is_object() || Has(target, "affinity")) {
    Json& mine = EnsureObject(&target, "affinity");
    take(affinity, &mine, "nodeAffinity");
    if (!affinity.is_object() && mine.empty()) {
      EraseMember(&target, "affinity");
    }
  }
  for (const char* list : {"containers", "initContainers"}) {
    const auto& theirs = Items(pod, list);
    Json* mine = Find(target, {list});
    for (std::size_t i = 0; mine != nullptr && mine->size() == theirs.size() && i < theirs.size();
         ++i) {
      if (Str((*mine)[i], "name") == Str(theirs[i], "name")) {
        take(theirs[i], &(*mine)[i], "resources");
      }
    }
  }
  Json& metadata = EnsureObject(to, "metadata");
  take(Get(from, "metadata"), &metadata, "labels");
  take(Get(from, "metadata"), &metadata, "annotations");
}

}  // namespace

void JobSpec(const Path& path, const Json& spec, FieldErrors* errors) {
  for (const char* field :
       {"parallelism", "completions", "activeDeadlineSeconds", "backoffLimit",
        "ttlSecondsAfterFinished", "backoffLimitPerIndex", "maxFailedIndexes"}) {
    NotNegative(spec, field, path, errors);
  }
  if (Has(spec, "maxFailedIndexes") && !Has(spec, "backoffLimitPerIndex")) {
    errors->Required(path.Child("backoffLimitPerIndex"), "when maxFailedIndexes is specified");
  }
  if (Has(spec, "managedBy")) {
    ManagedBy(path.Child("managedBy"), Str(spec, "managedBy"), errors);
  }
  CompletionMode(path, spec, errors);
  Policies(path, spec, errors);
  PodTemplate(path.Child("template"), Get(spec, "template"), errors);
  Restart(path, spec, errors);
}

void Job(const Json& object, FieldErrors* errors) {
  const Json& spec = Get(object, "spec");
  GeneratedSelector(object, errors);
  WholeSpec(spec, errors);
  const std::int64_t completions = FindInt(spec, {"completions"});
  if (Str(spec, "completionMode") == "Indexed" && completions > 0) {
    const std::string name(NameOf(object));
    const std::string last = name + "-" + std::to_string(completions - 1);
    if (!IsDns1123Label(last).empty()) {
      errors->Invalid(Path("metadata").Child("name"), name,
                      "will not able to create pod with invalid DNS label: " + last);
    }
  }
}

void JobUpdate(const Json& object, const Json& old, FieldErrors* errors) {
  const Json& spec = Get(object, "spec");
  const Json& before = Get(old, "spec");
  WholeSpec(spec, errors);
  if (Str(spec, "completionMode") != "Indexed") {
    Immutable(spec, before, "completions", kSpec, errors);
  } else if (Has(spec, "completions") && !SameMember(spec, before, "completions") &&
             !(Get(spec, "completions") == Get(spec, "parallelism"))) {
    errors->Invalid(kSpec.Child("completions"), Get(spec, "completions"),
                    "can only be modified in tandem with spec.parallelism");
  }
  Immutable(spec, before, "selector", kSpec, errors);
  Json old_template = Get(before, "template");
  if (FindBool(before, {"suspend"}) && IsTrue(old, "Suspended") &&
      FindInt(old, {"status", "active"}) == 0) {
    TakeFreeFields(Get(spec, "template"), &old_template);
  }
  if (Get(spec, "template") != old_template) {
    errors->Invalid(kSpec.Child("template"), Get(spec, "template"), kImmutable);
  }
  for (const char* field : {"completionMode", "podFailurePolicy", "backoffLimitPerIndex",
                            "managedBy", "successPolicy"}) {
    Immutable(spec, before, field, kSpec, errors);
  }
}

void JobStatus(const Json& object, const Json& old, FieldErrors* errors) {
  const Path path("status");
  const Json& status = Get(object, "status");
  for (const char* field : {"active", "succeeded", "failed", "ready", "terminating"}) {
    NotNegative(status, field, path, errors);
  }
  const Path conditions = path.Child("conditions");
  const auto forbid = [&](bool wrong, std::string_view text) {
    if (wrong) {
      errors->InvalidShown(conditions, text, "");
    }
  };
  const bool complete = IsTrue(object, "Complete");
  const bool failed = IsTrue(object, "Failed");
  const bool met = IsTrue(object, "SuccessCriteriaMet");
  forbid(complete && failed, "cannot set Complete=True and Failed=true conditions");
  forbid(complete && IsTrue(object, "FailureTarget"),
         "cannot set Complete=True and FailureTarget=true conditions");
  forbid(met && failed, "cannot set SuccessCriteriaMet=True and Failed=true conditions");
  forbid(met && IsTrue(object, "FailureTarget"),
         "cannot set SuccessCriteriaMet=True and FailureTarget=true conditions");
  forbid(Has(Get(object, "spec"), "successPolicy") && complete && !met,
         "cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True");
  for (const char* type : {"Failed", "Complete", "FailureTarget"}) {
    forbid(IsTrue(old, type) && !IsTrue(object, type),
           "cannot disable the terminal " + std::string(type) + "=True condition");
  }
  forbid(IsTrue(old, "SuccessCriteriaMet") && !met,
         "cannot disable the SuccessCriteriaMet=True condition");
}

}  // namespace sublet::kube::validate
