#include "controllers/cron_job_controller.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "controllers/cron_schedule.h"
#include "controllers/job_sync.h"
#include "controllers/pod_control.h"
#include "kube/object.h"
#include "kube/timestamp.h"

namespace sublet::controllers {
namespace {

using client::ObjectPtr;
using client::Outcome;
using kube::Json;

constexpr int kMissedMax = 100;
constexpr char kScheduledAt[] = "batch.kubernetes.io/cronjob-scheduled-timestamp";

// The latest time of the schedule that has come, and how many were missed before it.
struct Due {
  std::optional<WallTime> time;
  int missed = 0;
};

class CronJobController final : public Controller {
 public:
  explicit CronJobController(const Context& context)
      : clock_(context.clock),
        crons_(context, kCronJobs),
        jobs_(context, kJobs),
        events_(context.events.As("cronjob-controller")),
        queue_(context.manager.Add(
            {.name = "cronjob",
             .reconcile = [this](const kube::ObjectKey& key) { return Reconcile(key); },
             .workers_max = 2,
             .needs = {&crons_.informer(), &jobs_.informer()}})) {
    AddOwnerIndexes(jobs_);
    RouteSelf(crons_, queue_);
    jobs_.informer().AddHandler([this](const ObjectPtr& before, const ObjectPtr& after) {
      for (const ObjectPtr& job : {before, after}) {
        if (job && job->controller() != nullptr && job->controller()->kind == "CronJob") {
          queue_.Add({job->key.namespace_name, job->controller()->name});
        }
      }
    });
  }

 private:
  struct Owned {
    ObjectPtr object;
    Json value;
  };

  Result<Outcome> Reconcile(const kube::ObjectKey& key) {
    const ObjectPtr cached = crons_.Find(key);
    if (!cached) {
      return Outcome::Done();
    }
    SUBLET_TRY(Json cron, cached->Parse());
    const Json before = cron;
    SUBLET_TRY(std::vector<Owned> jobs, JobsOf(*cached));
    SUBLET_RETURN_IF_ERROR(CleanUp(cron, &jobs));
    UpdateActive(&cron, jobs);
    Outcome outcome = Outcome::Done();
    if (!cached->deleting()) {
      SUBLET_TRY(outcome, Schedule(&cron, jobs));
    }
    if (cron.value("status", Json()) != before.value("status", Json())) {
      auto written = crons_.UpdateStatus(cron);
      if (!written.ok() && !written.error().Is(Reason::kNotFound)) {
        return std::move(written).error();
      }
    }
    return outcome;
  }

  Result<std::vector<Owned>> JobsOf(const client::CachedObject& cron) const {
    std::vector<Owned> out;
    for (const ObjectPtr& job : jobs_.informer().ByIndex(client::kControllerIndex, cron.uid)) {
      SUBLET_TRY(Json value, job->Parse());
      out.push_back({job, std::move(value)});
    }
    std::stable_sort(out.begin(), out.end(), [](const Owned& a, const Owned& b) {
      return kube::FindString(a.value, {"status", "startTime"}) <
             kube::FindString(b.value, {"status", "startTime"});
    });
    return out;
  }

  // Deletes finished Jobs beyond the history limits, oldest first.
  Result<void> CleanUp(const Json& cron, std::vector<Owned>* jobs) {
    for (const auto& [type, field] : {std::pair("Complete", "successfulJobsHistoryLimit"),
                                      std::pair("Failed", "failedJobsHistoryLimit")}) {
      const Json* limit = kube::Find(cron, {"spec", field});
      if (limit == nullptr || !limit->is_number_integer()) {
        continue;
      }
      std::vector<ObjectPtr> finished;
      for (const Owned& job : *jobs) {
        if (FinishedCondition(job.value) == type && !job.object->deleting()) {
          finished.push_back(job.object);
        }
      }
      const auto surplus = static_cast<std::int64_t>(finished.size()) - limit->get<std::int64_t>();
      for (std::int64_t i = 0; i < surplus; ++i) {
        const ObjectPtr job = finished[static_cast<std::size_t>(i)];
        SUBLET_RETURN_IF_ERROR(DeleteJob(cron, *job));
        std::erase_if(*jobs, [&](const Owned& entry) { return entry.object == job; });
      }
    }
    return Ok();
  }

  Result<void> DeleteJob(const Json& cron, const client::CachedObject& job) {
    auto deleted = jobs_.Delete(job.key, job.uid, {.propagation_policy = "Background"});
    if (deleted.ok()) {
      events_.Event(client::EventTargetOf(cron), "Normal", "SuccessfulDelete",
                    "Deleted job " + job.key.name);
    }
    return deleted;
  }

  void UpdateActive(Json* cron, const std::vector<Owned>& jobs) {
    Json& status = kube::EnsureObject(cron, "status");
    const Json listed = status.value("active", Json::array());
    Json active = Json::array();
    for (const Owned& job : jobs) {
      const bool was = std::any_of(listed.begin(), listed.end(), [&](const Json& entry) {
        return kube::FindString(entry, {"uid"}) == job.object->uid;
      });
      const std::string_view end = FinishedCondition(job.value);
      if (end.empty()) {
        active.push_back(ReferenceTo(job.value));
        continue;
      }
      if (was) {
        events_.Event(
            client::EventTargetOf(*cron), "Normal", "SawCompletedJob",
            "Saw completed job: " + job.object->key.name + ", condition: " + std::string(end));
      }
      if (const std::string_view time = kube::FindString(job.value, {"status", "completionTime"});
          end == "Complete" && time > kube::FindString(status, {"lastSuccessfulTime"})) {
        status["lastSuccessfulTime"] = time;
      }
    }
    if (active.empty()) {
      status.erase("active");
    } else {
      status["active"] = std::move(active);
    }
  }

  static Json ReferenceTo(const Json& job) {
    return {{"apiVersion", "batch/v1"},
            {"kind", "Job"},
            {"namespace", kube::NamespaceOf(job)},
            {"name", kube::NameOf(job)},
            {"uid", kube::UidOf(job)},
            {"resourceVersion", kube::ResourceVersionOf(job)}};
  }

  Result<Outcome> Schedule(Json* cron, const std::vector<Owned>& jobs) {
    const client::EventTarget about = client::EventTargetOf(*cron);
    if (kube::FindBool(*cron, {"spec", "suspend"})) {
      return Outcome::Done();
    }
    TimeZone zone;
    if (const std::string name(kube::FindString(*cron, {"spec", "timeZone"})); !name.empty()) {
      auto loaded = TimeZone::Load(name);
      if (!loaded.ok()) {
        events_.Event(about, "Warning", "UnknownTimeZone",
                      "invalid timeZone: \"" + name + "\": unknown time zone " + name);
        return Outcome::Done();
      }
      zone = std::move(*loaded);
    }
    const std::string_view text = kube::FindString(*cron, {"spec", "schedule"});
    const auto schedule = CronSchedule::Parse(text);
    if (!schedule.ok()) {
      events_.Event(
          about, "Warning", "UnparseableSchedule",
          "unparseable schedule: \"" + std::string(text) + "\" : " + schedule.error().message());
      return Outcome::Done();
    }
    const WallTime now = clock_.Now();
    const Due due = LatestDue(*cron, *schedule, zone, now);
    const auto next = schedule->Next(now, zone);
    const Outcome later = next ? Outcome::After(std::max<std::chrono::nanoseconds>(
                                     *next - now, std::chrono::milliseconds(1)))
                               : Outcome::Done();
    if (!due.time) {
      return later;
    }
    if (due.missed > kMissedMax) {
      events_.Event(about, "Warning", "TooManyMissedTimes",
                    "too many missed start times: " + std::to_string(due.missed) +
                        ". Set or decrease .spec.startingDeadlineSeconds or check clock skew");
    }
    SUBLET_RETURN_IF_ERROR(Start(cron, jobs, *due.time, now));
    return later;
  }

  Due LatestDue(const Json& cron, const CronSchedule& schedule, const TimeZone& zone,
                WallTime now) const {
    WallTime from =
        kube::FindTime(kube::FindString(cron, {"status", "lastScheduleTime"}))
            .value_or(kube::FindTime(kube::FindString(cron, {"metadata", "creationTimestamp"}))
                          .value_or(now));
    if (const Json* deadline = kube::Find(cron, {"spec", "startingDeadlineSeconds"});
        deadline != nullptr && deadline->is_number_integer()) {
      from = std::max<WallTime>(from, now - std::chrono::seconds(deadline->get<std::int64_t>()));
    }
    Due out;
    auto next = schedule.Next(from, zone);
    // After a long stop most missed times are skipped by halving what is left; the last one counts.
    while (next && *next <= now) {
      out.time = next;
      ++out.missed;
      if (out.missed > kMissedMax) {
        const WallTime half = *next + (now - *next) / 2;
        const auto jump = schedule.Next(half, zone);
        if (jump && *jump <= now && *jump > *next) {
          next = jump;
          continue;
        }
      }
      next = schedule.Next(*next, zone);
    }
    return out;
  }

  Result<void> Start(Json* cron, const std::vector<Owned>& jobs, WallTime scheduled, WallTime now) {
    const client::EventTarget about = client::EventTargetOf(*cron);
    const auto minutes =
        std::chrono::duration_cast<std::chrono::minutes>(scheduled.time_since_epoch()).count();
    const std::string name = std::string(kube::NameOf(*cron)) + "-" + std::to_string(minutes);
    Json& status = kube::EnsureObject(cron, "status");
    const std::string scheduled_text = kube::FormatTime(scheduled);
    if (kube::FindString(status, {"lastScheduleTime"}) == scheduled_text) {
      return Ok();
    }
    // Made already, by a try that ended before the status was written: it does not stand in its own
    // way.
    if (std::any_of(jobs.begin(), jobs.end(),
                    [&](const Owned& job) { return job.object->key.name == name; })) {
      status["lastScheduleTime"] = scheduled_text;
      return Ok();
    }
    if (const Json* deadline = kube::Find(*cron, {"spec", "startingDeadlineSeconds"});
        deadline != nullptr && deadline->is_number_integer() &&
        scheduled + std::chrono::seconds(deadline->get<std::int64_t>()) < now) {
      events_.Event(about, "Warning", "MissSchedule",
                    "Missed scheduled time to start a job: " + scheduled_text);
      return Ok();
    }
    const std::string_view policy = kube::FindString(*cron, {"spec", "concurrencyPolicy"}, "Allow");
    const bool busy = status.contains("active") && !status["active"].empty();
    if (policy == "Forbid" && busy) {
      events_.Event(about, "Normal", "JobAlreadyActive",
                    "Not starting job because prior execution is running and concurrency policy is "
                    "Forbid");
      return Ok();
    }
    if (policy == "Replace" && busy) {
      for (const Owned& job : jobs) {
        if (FinishedCondition(job.value).empty()) {
          SUBLET_RETURN_IF_ERROR(DeleteJob(*cron, *job.object));
        }
      }
      status.erase("active");
    }
    auto created =
        jobs_.Create(std::string(kube::NamespaceOf(*cron)), JobFor(*cron, name, scheduled));
    if (created.ok()) {
      events_.Event(about, "Normal", "SuccessfulCreate", "Created job " + name);
      kube::EnsureArray(&status, "active").push_back(ReferenceTo(*created));
    } else if (!created.error().Is(Reason::kAlreadyExists)) {
      events_.Event(about, "Warning", "FailedCreate",
                    "Error creating job: " + created.error().message());
      return std::move(created).error();
    }
    status["lastScheduleTime"] = scheduled_text;
    return Ok();
  }

  static Json JobFor(const Json& cron, const std::string& name, WallTime scheduled) {
    const Json* given = kube::Find(cron, {"spec", "jobTemplate"});
    Json job = given != nullptr ? *given : Json::object();
    Json metadata = {{"name", name}, {"namespace", kube::NamespaceOf(cron)}};
    for (const char* key : {"labels", "annotations"}) {
      if (const Json* value = kube::Find(job, {"metadata", key})) {
        metadata[key] = *value;
      }
    }
    job["metadata"] = std::move(metadata);
    kube::SetAnnotation(&job, kScheduledAt, kube::FormatTime(scheduled));
    kube::SetOwner(&job, kube::ControllerReference(cron));
    return job;
  }

  const Clock& clock_;
  const Collection crons_;
  const Collection jobs_;
  const client::EventRecorder::Source events_;
  client::WorkQueue& queue_;
};

}  // namespace

std::unique_ptr<Controller> MakeCronJobController(const Context& context) {
  return std::make_unique<CronJobController>(context);
}

}  // namespace sublet::controllers
