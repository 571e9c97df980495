#include "scheduler/service/status_writer.h"

#include <nlohmann/json.hpp>

#include "base/log.h"
#include "kube/timestamp.h"

namespace sublet::scheduler {
namespace {

using kube::Json;

constexpr auto kQueuesEvery = std::chrono::milliseconds(500);
constexpr auto kQuietFor = std::chrono::seconds(1);

std::string Decimal(double value) {
  char text[48];
  std::snprintf(text, sizeof(text), "%.6g", value);
  return text;
}

Json Resources(const Amounts& amounts) {
  return {{"cpu", Decimal(amounts[0]) + "m"},
          {"memory", std::to_string(static_cast<std::int64_t>(amounts[1]))},
          {"nvidia.com/gpu", Decimal(amounts[2])}};
}

}  // namespace

StatusWriter::StatusWriter(client::Client client, const Feed& feed, client::EventRecorder& recorder,
                           const Clock& clock)
    : client_(std::move(client)), feed_(feed), recorder_(recorder), clock_(clock) {}

StatusWriter::~StatusWriter() { Stop(); }

void StatusWriter::Start() {
  thread_ = std::thread([this] { Run(); });
}

void StatusWriter::Stop() {
  {
    MutexLock lock(mutex_);
    stopped_ = true;
  }
  wake_.NotifyAll();
  if (thread_.joinable()) {
    thread_.join();
  }
}

void StatusWriter::Put(const std::string& key, Write write) {
  {
    MutexLock lock(mutex_);
    waiting_[key] = std::move(write);
  }
  wake_.NotifyOne();
}

void StatusWriter::Run() {
  for (;;) {
    Write write;
    {
      MutexLock lock(mutex_);
      while (waiting_.empty() && !stopped_) {
        wake_.Wait(mutex_);
      }
      if (stopped_) {
        return;
      }
      const auto first = waiting_.begin();
      write = std::move(first->second);
      waiting_.erase(first);
    }
    write();
  }
}

void StatusWriter::PodUnschedulable(const std::string& uid, const std::string& message, bool kube) {
  const auto pod = feed_.FindPodObject(uid);
  if (pod == nullptr) {
    return;
  }
  const auto& record = pod->As<PodRecord>();
  std::string& told = told_[uid];
  if (told == message || (told.empty() && record.condition_message == message)) {
    told = message;
    return;
  }
  told = message;
  const client::EventTarget target{"v1", "Pod", pod->key.namespace_name, pod->key.name, pod->uid,
                                   "",   ""};
  recorder_.As(record.scheduler_name)
      .Event(target, "Warning", kube ? "FailedScheduling" : "Unschedulable", message);
  Put("pod/" + uid, [this, key = pod->key, uid, message] {
    const Json condition = {{"type", "PodScheduled"},
                            {"status", "False"},
                            {"reason", "Unschedulable"},
                            {"message", message},
                            {"lastTransitionTime", kube::FormatTime(clock_.Now())}};
    auto written = client_.Patch(
        {{"", "v1", "pods"}, key.namespace_name, key.name, "status"},
        client::PatchType::kStrategicMerge,
        {{"metadata", {{"uid", uid}}}, {"status", {{"conditions", Json::array({condition})}}}});
    if (!written.ok() && !written.error().Is(Reason::kNotFound) &&
        !written.error().Is(Reason::kConflict)) {
      log::Warn(
          "cannot write why a pod waits",
          {{"namespace", key.namespace_name}, {"name", key.name}, {"error", written.error()}});
    }
  });
}

void StatusWriter::PodNominated(const Decision& decision) {
  const auto pod = feed_.FindPod(decision.pod_uid);
  if (pod == nullptr || pod->spec.nominated_node == decision.node) {
    return;
  }
  Put("nominated/" + decision.pod_uid, [this, decision] {
    (void)client_.Patch({{"", "v1", "pods"}, decision.ns, decision.name, "status"},
                        client::PatchType::kMerge,
                        {{"status", {{"nominatedNodeName", decision.node}}}});
  });
}

void StatusWriter::QueueStatus(const QueueView& view) {
  Amounts requested{};
  for (std::size_t i = 0; i < view.share.r.size(); ++i) {
    requested[i] = view.share.r[i].request;
  }
  Json status = {{"allocated", Resources(view.share.Allocated())},
                 {"allocatedNonPreemptible", Resources(view.share.AllocatedNonPreemptible())},
                 {"requested", Resources(requested)}};
  if (!view.children.empty()) {
    status["childQueues"] = view.children;
  }
  const std::string text = status.dump();
  if (queue_told_[view.name] == text) {
    return;
  }
  queue_told_[view.name] = text;
  Put("queue/" + view.name, [this, name = view.name, status = std::move(status)] {
    (void)client_.Patch({{"scheduling.run.ai", "v2", "queues"}, "", name, "status"},
                        client::PatchType::kMerge, {{"status", status}}, {.reads_answer = false});
  });
}

// UnschedulableOnNodePool, as KAI's scheduler writes it.
void StatusWriter::GroupVerdictStatus(const GroupVerdict& verdict, const Engine& engine) {
  const TaskId any = verdict.pods.empty() ? kNone : engine.state().FindTask(verdict.pods[0].uid);
  const Job* job = any == kNone || engine.state().task(any).job == kNone
                       ? nullptr
                       : &engine.state().job(engine.state().task(any).job);
  if (job == nullptr || !job->from_spec ||
      groups_told_[verdict.group].condition == verdict.message) {
    return;
  }
  groups_told_[verdict.group].condition = verdict.message;
  Json reasons = Json::array();
  for (const JobFailure& failure : verdict.failures) {
    reasons.push_back({{"reason", failure.reason.empty() ? "PodSchedulingErrors" : failure.reason},
                       {"message", failure.detail.empty() ? failure.message : failure.detail}});
  }
  Json condition = {
      {"type", "UnschedulableOnNodePool"},
      {"nodePool", "default"},
      {"status", "True"},
      {"reason", reasons.empty() ? "PodSchedulingErrors" : reasons[0]["reason"].get<std::string>()},
      {"message", verdict.message},
      {"transitionID", std::to_string(++transitions_)},
      {"lastTransitionTime", kube::FormatTime(clock_.Now())},
      {"reasons", std::move(reasons)}};
  Put("group/" + verdict.group,
      [this, ns = verdict.ns, name = verdict.name, condition = std::move(condition)] {
        (void)client_.Patch({{"scheduling.run.ai", "v2alpha2", "podgroups"}, ns, name, "status"},
                            client::PatchType::kMerge,
                            {{"status", {{"schedulingConditions", Json::array({condition})}}}});
      });
}

void StatusWriter::GroupPlaced(const std::string& key) {
  const auto told = groups_told_.find(key);
  if (told == groups_told_.end() || told->second.condition.empty()) {
    return;
  }
  told->second.condition.clear();
  const auto slash = key.find('/');
  Put("group/" + key, [this, ns = key.substr(0, slash), name = key.substr(slash + 1)] {
    (void)client_.Patch({{"scheduling.run.ai", "v2alpha2", "podgroups"}, ns, name, "status"},
                        client::PatchType::kMerge,
                        {{"status", {{"schedulingConditions", nullptr}}}});
  });
}

// resourcesStatus of groups whose pods changed. Returns whether some are left for the next time.
bool StatusWriter::GroupAmounts(const Engine& engine) {
  constexpr std::size_t kWritesMax = 500;
  const auto& jobs = engine.state().jobs;
  amounts_told_.resize(jobs.size());
  if (groups_told_.size() > 2 * jobs.size() + 1000) {
    groups_told_.clear();  // of groups that are long gone; what stands is written once more
  }
  std::size_t writes = 0;
  for (std::size_t i = 0; i < jobs.size() && writes < kWritesMax; ++i) {
    const Job* job = jobs[i].get();
    // Names are looked at only where something moved: there may be a hundred thousand groups.
    const std::pair<const Job*, std::uint64_t> now{job, job == nullptr ? 0 : job->version};
    if (amounts_told_[i] == now) {
      continue;
    }
    amounts_told_[i] = now;
    if (job == nullptr || !job->from_spec) {
      continue;
    }
    GroupTold& told = groups_told_[job->key];
    Amounts allocated{};
    Amounts requested{};
    for (const PodSet& set : job->pod_sets) {
      for (TaskId id : set.tasks) {
        const Task& task = engine.state().task(id);
        const Quota& counted = task.counted;
        for (std::size_t dim = 0; dim < counted.size(); ++dim) {
          const double amount = static_cast<double>(counted[dim]) / (dim == kGpu ? kDevice : 1);
          requested[dim] += amount;
          allocated[dim] += CountsForQuota(task.status) ? amount : 0;
        }
      }
    }
    const Json status = {
        {"allocated", Resources(allocated)},
        {"allocatedNonPreemptible", Resources(job->preemptible ? Amounts{} : allocated)},
        {"requested", Resources(requested)}};
    const std::string text = status.dump();
    if (told.amounts == text) {
      continue;
    }
    told.amounts = text;
    ++writes;
    Put("amounts/" + job->key, [this, ns = job->ns, name = job->name, status] {
      (void)client_.Patch({{"scheduling.run.ai", "v2alpha2", "podgroups"}, ns, name, "status"},
                          client::PatchType::kMerge, {{"status", {{"resourcesStatus", status}}}},
                          {.reads_answer = false});
    });
  }
  return writes >= kWritesMax;
}

MonotonicTime StatusWriter::Report(const CycleResult& result, Engine& engine) {
  for (const GroupVerdict& verdict : result.verdicts) {
    for (const GroupVerdict::Pod& pod : verdict.pods) {
      const auto record = feed_.FindPod(pod.uid);
      if (record == nullptr) {
        continue;
      }
      const int profile = engine.ProfileFor(record->scheduler_name);
      const bool kube = profile >= 0 && engine.profiles()[static_cast<std::size_t>(profile)].kube;
      PodUnschedulable(pod.uid, pod.message.empty() ? verdict.message : pod.message, kube);
    }
    if (feed_.HasQueues()) {
      GroupVerdictStatus(verdict, engine);
    }
  }
  for (const Decision& decision : result.decisions) {
    if (decision.kind == Decision::Kind::kPipeline) {
      PodNominated(decision);
    } else {
      last_acted_ = clock_.Monotonic();
    }
    if (decision.kind == Decision::Kind::kBind) {
      told_.erase(decision.pod_uid);
      if (const auto pod = engine.ExportPod(decision.pod_uid); pod && !pod->group.empty()) {
        GroupPlaced(pod->group);
      }
    }
  }
  if (told_.size() > 100000) {
    told_.clear();  // pods that are long gone; the condition itself is compared again
  }
  if (!feed_.HasQueues()) {
    return MonotonicTime::max();
  }
  if (clock_.Monotonic() < queues_next_) {
    return queues_next_;  // this cycle may have moved something
  }
  queues_next_ = clock_.Monotonic() + kQueuesEvery;
  queues_ = engine.Queues();
  for (const QueueView& view : queues_) {
    QueueStatus(view);
  }
  // Writing the groups' amounts in the middle of a burst would only slow it down.
  const bool quiet = clock_.Monotonic() - last_acted_ > kQuietFor;
  return !quiet || GroupAmounts(engine) ? queues_next_ : MonotonicTime::max();
}

}  // namespace sublet::scheduler
