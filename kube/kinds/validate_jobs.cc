// Jobs.
#include "kube/kinds/validate_jobs.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "kube/kinds/go_shown.h"
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
      errors->InvalidShown(at, ShownAsGo("SuccessPolicy", Get(spec, "successPolicy")),
                           "requires indexed completion mode");
    } else {
      SuccessPolicy(at, spec, errors);
    }
  }
  if (on_failure) {
    Choice(path, spec, "podReplacementPolicy", {"Failed"}, errors);
  } else {
    Choice(path, spec, "podReplacementPolicy", {"Failed", "TerminatingOrFailed"}, errors);
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
  FieldErrors problems;
  LabelSelector(path, selector, &problems);
  const auto parsed = kube::LabelSelector::FromJson(&selector);
  const Json& labels = Get(Get(Get(spec, "template"), "metadata"), "labels");
  if (parsed.ok() && problems.empty() && !parsed->Matches(&labels)) {
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

void Take(const Json& source, const char* key, Json* target) {
  if (Has(source, key)) {
    (*target)[key] = Get(source, key);
  } else {
    EraseMember(target, key);
  }
}

// While a job is suspended and runs nothing, its pods may still be placed otherwise ...
void TakePlacement(const Json& from, Json* to) {
  const Json& pod = Get(from, "spec");
  Json& target = EnsureObject(to, "spec");
  for (const char* field : {"nodeSelector", "tolerations", "schedulingGates"}) {
    Take(pod, field, &target);
  }
  const Json& affinity = Get(pod, "affinity");
  if (affinity.is_object() || Has(target, "affinity")) {
    Json& mine = EnsureObject(&target, "affinity");
    Take(affinity, "nodeAffinity", &mine);
    if (!affinity.is_object() && mine.empty()) {
      EraseMember(&target, "affinity");
    }
  }
  Json& metadata = EnsureObject(to, "metadata");
  Take(Get(from, "metadata"), "labels", &metadata);
  Take(Get(from, "metadata"), "annotations", &metadata);
}

// ... and sized otherwise.
void TakeResources(const Json& pod, Json* to) {
  for (const char* list : {"containers", "initContainers"}) {
    const auto& theirs = Items(pod, list);
    Json* mine = Find(*to, {list});
    for (std::size_t i = 0; mine != nullptr && mine->size() == theirs.size() && i < theirs.size();
         ++i) {
      if (Str((*mine)[i], "name") == Str(theirs[i], "name")) {
        Take(theirs[i], "resources", &(*mine)[i]);
      }
    }
  }
}

void TemplateUpdate(const Json& spec, const Json& old, FieldErrors* errors) {
  const Json& before = Get(old, "spec");
  const Json& now = Get(spec, "template");
  Json then = Get(before, "template");
  const bool waits = FindBool(before, {"suspend"}) && IsTrue(old, "Suspended") &&
                     FindInt(old, {"status", "active"}) == 0;
  const Path path = kSpec.Child("template");
  if (!waits) {
    if (now != then) {
      errors->InvalidShown(path, ShownAsGo("PodTemplateSpec", now), kImmutable);
    }
    return;
  }
  TakePlacement(now, &then);
  TakeResources(Get(now, "spec"), &EnsureObject(&then, "spec"));
  if (Get(now, "spec") != Get(then, "spec")) {
    errors->InvalidShown(path.Child("spec"), ShownAsGo("PodSpec", Get(now, "spec")), kImmutable);
  }
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
  // Twice, as upstream: messages do not show it, the list of causes does.
  Job(object, errors);
  WholeSpec(spec, errors);
  if (Str(spec, "completionMode") != "Indexed") {
    Immutable(spec, before, "completions", kSpec, errors);
  } else if (Has(spec, "completions") && !SameMember(spec, before, "completions") &&
             !(Get(spec, "completions") == Get(spec, "parallelism"))) {
    errors->Invalid(kSpec.Child("completions"), Get(spec, "completions"),
                    "can only be modified in tandem with spec.parallelism");
  }
  Immutable(spec, before, "selector", kSpec, errors);
  TemplateUpdate(spec, old, errors);
  for (const auto& [field, type] :
       {std::pair{"completionMode", "*s"}, std::pair{"podFailurePolicy", "*PodFailurePolicy"},
        std::pair{"backoffLimitPerIndex", "*i"}, std::pair{"managedBy", "*s"},
        std::pair{"successPolicy", "*SuccessPolicy"}}) {
    if (!SameMember(spec, before, field)) {
      errors->InvalidShown(kSpec.Child(field), ShownAsGo(type, Get(spec, field)), kImmutable);
    }
  }
}

}  // namespace sublet::kube::validate
