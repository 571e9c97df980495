// Cron jobs.
#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "kube/kinds/validate_common.h"
#include "kube/kinds/validate_jobs.h"
#include "kube/kinds/validate_kinds.h"
#include "kube/object.h"

namespace sublet::kube::validate {
namespace {

// "invalid" parts of a five-field cron schedule, in the words of the parser behind Kubernetes.
std::string ScheduleProblem(const std::string& schedule) {
  if (schedule.starts_with('@')) {
    static constexpr std::string_view kNames[] = {"@yearly", "@annually", "@monthly", "@weekly",
                                                  "@daily",  "@midnight", "@hourly"};
    const bool known =
        std::find(std::begin(kNames), std::end(kNames), schedule) != std::end(kNames) ||
        schedule.starts_with("@every ");
    return known ? "" : "unrecognized descriptor: " + schedule;
  }
  std::vector<std::string> fields;
  for (std::size_t i = 0; i < schedule.size();) {
    const std::size_t start = schedule.find_first_not_of(" \t", i);
    if (start == std::string::npos) {
      break;
    }
    i = std::min(schedule.find_first_of(" \t", start), schedule.size());
    fields.push_back(schedule.substr(start, i - start));
  }
  if (fields.size() != 5) {
    return "expected exactly 5 fields, found " + std::to_string(fields.size()) + ": [" +
           Join(fields, " ") + "]";
  }
  static constexpr struct {
    int min;
    int max;
  } kBounds[] = {{0, 59}, {0, 23}, {1, 31}, {1, 12}, {0, 6}};
  for (std::size_t f = 0; f < 5; ++f) {
    for (std::size_t i = 0; i < fields[f].size();) {
      const std::size_t end = std::min(fields[f].find_first_of(",-/", i), fields[f].size());
      const std::string part = fields[f].substr(i, end - i);
      const bool step = i > 0 && fields[f][i - 1] == '/';
      i = end + 1;
      int number = 0;
      const auto [last, error] = std::from_chars(part.data(), part.data() + part.size(), number);
      if (error != std::errc() || last != part.data() + part.size()) {
        const bool word =
            part == "*" || part == "?" ||
            (f >= 3 && part.size() == 3 && std::all_of(part.begin(), part.end(), [](char c) {
               return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
             }));
        if (!word) {
          return "failed to parse int from " + part + ": strconv.Atoi: parsing " + GoQuote(part) +
                 ": invalid syntax";
        }
      } else if (!step && number > kBounds[f].max) {
        return "end of range (" + std::to_string(number) + ") above maximum (" +
               std::to_string(kBounds[f].max) + "): " + fields[f];
      } else if (!step && number < kBounds[f].min) {
        return "beginning of range (" + std::to_string(number) + ") below minimum (" +
               std::to_string(kBounds[f].min) + "): " + fields[f];
      }
    }
  }
  return "";
}

// "Area/City" and the like; the names themselves are the controller's business.
bool LooksLikeTimeZone(const std::string& zone) {
  for (std::size_t start = 0; start <= zone.size();) {
    const std::size_t end = std::min(zone.find('/', start), zone.size());
    const std::string part = zone.substr(start, end - start);
    start = end + 1;
    const bool plain = std::all_of(part.begin(), part.end(), [](char c) {
      return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
             c == '.' || c == '-' || c == '_' || c == '+';
    });
    if (part.empty() || part.size() > 14 || part == "." || part == ".." || part[0] == '-' ||
        !plain) {
      return false;
    }
  }
  static constexpr std::string_view kAreas[] = {"Africa/", "America/",  "Antarctica/", "Arctic/",
                                                "Asia/",   "Atlantic/", "Australia/",  "Brazil/",
                                                "Canada/", "Chile/",    "Etc/",        "Europe/",
                                                "Indian/", "Mexico/",   "Pacific/",    "US/"};
  const bool area = std::any_of(std::begin(kAreas), std::end(kAreas), [&](std::string_view prefix) {
    return zone.starts_with(prefix) && zone.size() > prefix.size();
  });
  return area || zone.find('/') == std::string::npos;
}

}  // namespace

void CronJob(const Json& object, FieldErrors* errors) {
  const Json& spec = Get(object, "spec");
  const std::string schedule = Str(spec, "schedule");
  const Path schedule_path = kSpec.Child("schedule");
  if (schedule.empty()) {
    errors->Required(schedule_path);
  } else if (schedule.find("TZ") != std::string::npos) {
    errors->Invalid(schedule_path, schedule,
                    "cannot use TZ or CRON_TZ in schedule, use timeZone field instead");
  } else if (const std::string problem = ScheduleProblem(schedule); !problem.empty()) {
    errors->Invalid(schedule_path, schedule, problem);
  }
  NotNegative(spec, "startingDeadlineSeconds", kSpec, errors);
  if (Has(spec, "timeZone")) {
    const std::string zone = Str(spec, "timeZone");
    if (zone.empty()) {
      errors->Invalid(kSpec.Child("timeZone"), zone, "timeZone must be nil or non-empty string");
    } else if (!LooksLikeTimeZone(zone)) {
      errors->Invalid(kSpec.Child("timeZone"), zone, "unknown time zone " + zone);
    }
  }
  OneOf(kSpec.Child("concurrencyPolicy"), Str(spec, "concurrencyPolicy"),
        {"Allow", "Forbid", "Replace"}, true, errors);
  const Path job_template = kSpec.Child("jobTemplate");
  const Path job_spec = job_template.Child("spec");
  const Json& job = Get(Get(spec, "jobTemplate"), "spec");
  JobSpec(job_spec, job, errors);
  if (Has(job, "selector")) {
    errors->Invalid(job_spec.Child("selector"), Get(job, "selector"),
                    "`selector` will be auto-generated");
  }
  if (FindBool(job, {"manualSelector"})) {
    errors->NotSupported(job_spec.Child("manualSelector"), true, {"nil", "false"});
  }
  NotNegative(spec, "successfulJobsHistoryLimit", kSpec, errors);
  NotNegative(spec, "failedJobsHistoryLimit", kSpec, errors);
  // Eleven characters are kept for the suffix of the jobs.
  if (NameOf(object).size() > 52) {
    errors->Invalid(Path("metadata").Child("name"), std::string(NameOf(object)),
                    "must be no more than 52 characters");
  }
}

void CronJobUpdate(const Json& object, const Json&, FieldErrors* errors) {
  FieldErrors all;
  CronJob(object, &all);
  for (const StatusCause& cause : all.causes()) {
    if (cause.field != "metadata.name") {  // an old name may stay
      errors->Add(cause);
    }
  }
}

}  // namespace sublet::kube::validate
