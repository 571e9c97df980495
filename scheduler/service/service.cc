#include "scheduler/service/service.h"

#include <future>
#include <nlohmann/json.hpp>

#include "base/log.h"
#include "base/metrics.h"
#include "scheduler/service/what_if.h"
#include "scheduler/simulation.h"

namespace sublet::scheduler {
namespace {

using kube::Json;

constexpr std::size_t kQuestionsMax = 64;
constexpr std::string_view kComponent = "sublet-scheduler";
constexpr Millis kUsageCounted = 1'000;  // at most one count a second
constexpr Millis kUsageTold = 60'000;    // KAI's fetchInterval
constexpr const char* kUsageNamespace = "kube-system";
constexpr const char* kUsageName = "sublet-queue-usage";

Json ShareJson(const QueueShare& share) {
  static constexpr const char* kNames[] = {"cpu", "memory", "gpu"};
  Json out = Json::object();
  for (std::size_t i = 0; i < share.r.size() && i < 3; ++i) {
    const ResourceShare& r = share.r[i];
    out[kNames[i]] = {{"quota", r.deserved},
                      {"limit", r.limit},
                      {"weight", r.weight},
                      {"fairShare", r.fair_share},
                      {"requested", r.request},
                      {"allocated", r.allocated},
                      {"allocatedNonPreemptible", r.allocated_np}};
  }
  return out;
}

Json QueueJson(const QueueView& view) {
  return {{"name", view.name},
          {"parent", view.parent},
          {"depth", view.depth},
          {"children", view.children},
          {"resources", ShareJson(view.share)}};
}

Json ExplanationJson(const Explanation& explanation, Millis now) {
  Json out = {{"pod", explanation.pod},     {"podGroup", explanation.group},
              {"queue", explanation.queue}, {"status", explanation.status},
              {"node", explanation.node},   {"dominant", explanation.dominant},
              {"failures", Json::array()},  {"nodes", Json::array()},
              {"queues", Json::array()},    {"attempts", Json::array()},
              {"holders", Json::array()},   {"suggestions", Json::array()}};
  for (const JobFailure& failure : explanation.failures) {
    out["failures"].push_back(
        {{"reason", failure.reason}, {"message", failure.message}, {"detail", failure.detail}});
  }
  for (const auto& row : explanation.nodes) {
    out["nodes"].push_back({{"node", row.node},
                            {"reason", row.reason},
                            {"idle",
                             {{"cpu", row.idle[kCpu]},
                              {"memory", row.idle[kMemory]},
                              {"gpu", static_cast<double>(row.idle[kGpu]) / kDevice}}},
                            {"releasingGpus", static_cast<double>(row.releasing[kGpu]) / kDevice}});
  }
  for (const auto& holder : explanation.holders) {
    out["holders"].push_back({{"node", holder.node},
                              {"pod", holder.ns + "/" + holder.name},
                              {"queue", holder.queue},
                              {"gpus", static_cast<double>(holder.gpu_milli) / kDevice},
                              {"priority", holder.priority},
                              {"preemptible", holder.preemptible}});
  }
  for (const QueueView& view : explanation.queues) {
    out["queues"].push_back(QueueJson(view));
  }
  for (const AttemptNote& note : explanation.attempts) {
    out["attempts"].push_back({{"action", note.action}, {"result", note.outcome}});
  }
  if (explanation.earliest != kNever) {
    out["retryInMilliseconds"] = std::max<Millis>(explanation.earliest - now, 0);
  }
  return out;
}

}  // namespace

SchedulerService::SchedulerService(SchedulerServiceOptions options, const Clock& clock)
    : options_(std::move(options)),
      clock_(clock),
      engine_(options_.profiles),
      recorder_(options_.client, std::string(kComponent), "", clock),
      informers_(options_.client),
      manager_(informers_, clock, 2) {
  if (options_.slices) {
    broker_ = std::make_unique<SliceBroker>(
        *options_.slices, [this](const SliceAnswer& answer) { binder_->SliceAnswered(answer); });
  }
  FeedOptions feed;
  feed.kai = options_.kai;
  feed.gpu_nodes = options_.gpu_nodes;
  if (broker_ != nullptr) {
    feed.own_bytes = [this](const std::string& uuid, std::int64_t generation) {
      return broker_->OwnBytes(uuid, generation);
    };
    feed.devices_of = [this](const std::string& ns, const std::string& uid) {
      return broker_->DevicesOf(ns, uid);
    };
  }
  feed_ = std::make_unique<Feed>(informers_, feed, [this] { Wake(); });
  BinderOptions binder{options_.client, 4, options_.enforce,
                       options_.slices && options_.slices->tenant.empty()};
  binder_ =
      std::make_unique<Binder>(std::move(binder), *feed_, recorder_, [this](BindResult result) {
        {
          MutexLock lock(mutex_);
          results_.push_back(std::move(result));
        }
        Wake();
      });
  binder_->UseSlices(broker_.get());
  for (const Profile& profile : options_.profiles) {
    if (profile.usage_half_life > 0 && !usage_) {
      usage_.emplace(profile.usage_half_life);
    }
  }
  status_ = std::make_unique<StatusWriter>(options_.client, *feed_, recorder_, clock);
  if (options_.kai) {
    const auto profile_of = [this](const std::string& name) -> const Profile* {
      for (const Profile& profile : options_.profiles) {
        for (const std::string& own : profile.scheduler_names) {
          if (own == name) {
            return &profile;
          }
        }
      }
      return nullptr;
    };
    grouper_ = std::make_unique<PodGrouper>(
        options_.client, informers_, manager_,
        [profile_of](const std::string& name) {
          const Profile* profile = profile_of(name);
          return profile != nullptr && !profile->kube;
        },
        [profile_of](const std::string& name) {
          const Profile* profile = profile_of(name);
          return profile != nullptr && profile->name != "kai-0.17";
        });
  }
}

SchedulerService::~SchedulerService() { Stop(); }

Millis SchedulerService::NowMillis() const {
  return std::chrono::duration_cast<std::chrono::milliseconds>(clock_.Now().time_since_epoch())
      .count();
}

void SchedulerService::Wake() {
  {
    MutexLock lock(mutex_);
    woken_ = true;
  }
  wake_.NotifyOne();
}

void SchedulerService::Start() {
  if (broker_ != nullptr) {
    broker_->Start();
  }
  binder_->Start();
  status_->Start();
  manager_.Start();
  thread_ = std::thread([this] { Run(); });
}

void SchedulerService::Stop() {
  {
    MutexLock lock(mutex_);
    if (stopped_) {
      return;
    }
    stopped_ = true;
  }
  wake_.NotifyAll();
  if (thread_.joinable()) {
    thread_.join();
  }
  manager_.Stop();
  binder_->Stop();
  status_->Stop();
  if (broker_ != nullptr) {
    broker_->Stop();
  }
  recorder_.Stop();
}

void SchedulerService::Run() {
  // Deciding before the whole state is known would bind where others already are.
  const auto synced = [this] {
    const auto deadline = After(std::chrono::milliseconds(200));
    return informers_.WaitSynced(deadline) && (broker_ == nullptr || broker_->WaitSynced(deadline));
  };
  while (!synced()) {
    MutexLock lock(mutex_);
    if (stopped_) {
      return;
    }
  }
  ReadUsage();
  for (;;) {
    Cycle();
    MutexLock lock(mutex_);
    if (stopped_) {
      return;
    }
  }
}

void SchedulerService::Cycle() {
  std::vector<BindResult> results;
  std::vector<Question> questions;
  {
    MutexLock lock(mutex_);
    results.swap(results_);
    questions.swap(questions_);
    // Before the feed is emptied: what comes while its changes are applied is not in this cycle and
    // has to wake the next.
    woken_ = false;
  }
  feed_->ApplyTo(engine_);
  const Millis now = NowMillis();
  for (const BindResult& result : results) {
    if (result.done) {
      continue;  // the pod's own event says it
    }
    if (result.kind == Decision::Kind::kBind) {
      engine_.BindFailed(result.pod_uid, now);
    } else {
      engine_.EvictFailed(result.pod_uid);
    }
  }
  const MonotonicTime begun = clock_.Monotonic();
  const CycleResult cycle = engine_.Run(now);
  Count(cycle,
        std::chrono::duration_cast<std::chrono::microseconds>(clock_.Monotonic() - begun).count());
  const MonotonicTime status_due = status_->Report(cycle, engine_);
  binder_->Submit(cycle.decisions, engine_);
  for (const Question& question : questions) {
    question(engine_);
  }
  const Deadline usage_due = KeepUsage(now);
  MutexLock lock(mutex_);
  if (cycle.more) {
    return;
  }
  const Deadline until = std::min(
      std::min<Deadline>(status_due, usage_due),
      cycle.earliest == kNever
          ? Deadline::max()
          : After(std::chrono::milliseconds(std::max<Millis>(cycle.earliest - NowMillis(), 1))));
  while (!woken_ && !stopped_ && questions_.empty() && results_.empty()) {
    if (until == Deadline::max()) {
      wake_.Wait(mutex_);
    } else if (!wake_.WaitUntil(mutex_, until)) {
      break;
    }
  }
}

void SchedulerService::ReadUsage() {
  if (!usage_) {
    return;
  }
  const auto kept =
      options_.client.Get({{"", "v1", "configmaps"}, kUsageNamespace, kUsageName, ""});
  if (kept.ok() && usage_->Decode(std::string(kube::FindString(*kept, {"data", "usage.json"})))) {
    engine_.SetUsage(usage_->Shares());
  } else if (kept.ok() || !kept.error().Is(Reason::kNotFound)) {
    log::Warn("the usage history was not read and begins anew", {{"object", kUsageName}});
  }
}

Deadline SchedulerService::KeepUsage(Millis now) {
  if (!usage_) {
    return Deadline::max();
  }
  if (now - usage_counted_ >= kUsageCounted || now < usage_counted_) {
    usage_counted_ = now;
    const Amounts total = ToAmounts(engine_.state().total);
    usage_->Advance(now, engine_.Queues(), {total[0], total[1], total[2]});
  }
  if (now - usage_told_ >= kUsageTold || now < usage_told_) {
    usage_told_ = now;
    engine_.SetUsage(usage_->Shares());
    const Json map = {{"apiVersion", "v1"},
                      {"kind", "ConfigMap"},
                      {"metadata", {{"name", kUsageName}, {"namespace", kUsageNamespace}}},
                      {"data", {{"usage.json", usage_->Encode()}}}};
    const client::Target path{{"", "v1", "configmaps"}, kUsageNamespace, kUsageName, ""};
    auto kept = options_.client.Patch(path, client::PatchType::kMerge, {{"data", map.at("data")}});
    if (!kept.ok() && kept.error().Is(Reason::kNotFound)) {
      kept = options_.client.Create({{"", "v1", "configmaps"}, kUsageNamespace, "", ""}, map);
    }
    if (!kept.ok()) {
      log::Warn("the usage history was not kept", {{"error", kept.error()}});
    }
  }
  return After(std::chrono::milliseconds(std::max<Millis>(usage_told_ + kUsageTold - now, 1)));
}

bool SchedulerService::Ask(Question question) {
  // Shared: the answer may come after we stopped waiting.
  const auto answered = std::make_shared<std::promise<void>>();
  {
    MutexLock lock(mutex_);
    if (stopped_ || questions_.size() >= kQuestionsMax) {
      return false;
    }
    questions_.push_back([question = std::move(question), answered](Engine& engine) {
      question(engine);
      answered->set_value();
    });
  }
  wake_.NotifyOne();
  return answered->get_future().wait_for(std::chrono::seconds(30)) == std::future_status::ready;
}

Result<Json> SchedulerService::Explain(const std::string& ns, const std::string& name) {
  const auto pod = feed_->pods().Get({ns, name});
  if (pod == nullptr) {
    return NotFound({"", "pods"}, name);
  }
  struct Found {
    std::optional<Explanation> explanation;
    Snapshot snapshot;
  };
  auto shared = std::make_shared<Found>();
  const Millis now = NowMillis();
  if (!Ask([shared, uid = pod->uid, now](Engine& engine) {
        shared->explanation = engine.Explain(uid, now);
        if (shared->explanation && shared->explanation->node.empty()) {
          shared->snapshot = engine.Export();
        }
      })) {
    return ServiceUnavailable("the scheduler does not answer");
  }
  if (!shared->explanation) {
    return NotFound({"", "pods"}, name);
  }
  Json out = ExplanationJson(*shared->explanation, now);
  // On this thread: the copies that are tried cost the scheduler nothing.
  for (const Suggestion& suggestion : Suggest(options_.profiles, shared->snapshot, pod->uid, now)) {
    out["suggestions"].push_back({{"change", suggestion.change},
                                  {"outcome", suggestion.outcome},
                                  {"verified", suggestion.verified}});
  }
  return out;
}

Result<Json> SchedulerService::WhatIf(const std::vector<Json>& objects) {
  auto shared = std::make_shared<Snapshot>();
  if (!Ask([shared](Engine& engine) { *shared = engine.Export(); })) {
    return ServiceUnavailable("the scheduler does not answer");
  }
  const WhatIfContext context{options_.profiles,
                              [this](const std::string& name) { return feed_->PriorityOf(name); }};
  return scheduler::WhatIf(context, std::move(*shared), objects, NowMillis());
}

void SchedulerService::Count(const CycleResult& cycle, std::int64_t micros) {
  MutexLock lock(mutex_);
  ++counts_.cycles;
  counts_.micros += micros;
  counts_.micros_last = micros;
  counts_.steps += cycle.steps;
  counts_.refused += static_cast<std::int64_t>(cycle.verdicts.size());
  for (const Decision& decision : cycle.decisions) {
    counts_.bound += decision.kind == Decision::Kind::kBind ? 1 : 0;
    counts_.promised += decision.kind == Decision::Kind::kPipeline ? 1 : 0;
    if (decision.kind == Decision::Kind::kEvict) {
      ++counts_.evicted[decision.action];
    }
  }
  queue_views_ = status_->queues();
}

void SchedulerService::AppendMetrics(std::string& out) {
  Counts counts;
  std::vector<QueueView> queues;
  {
    MutexLock lock(mutex_);
    counts = counts_;
    queues = queue_views_;
  }
  Metrics::AppendSample(out, "kai_e2e_scheduling_latency_milliseconds",
                        "Time of the last scheduling cycle", "gauge",
                        static_cast<double>(counts.micros_last) / 1000);
  Metrics::AppendSample(out, "kai_scheduling_cycles_total", "Cycles run", "counter",
                        static_cast<double>(counts.cycles));
  Metrics::AppendSample(out, "kai_scheduling_seconds_total", "Time spent deciding", "counter",
                        static_cast<double>(counts.micros) / 1e6);
  Metrics::AppendSample(out, "kai_scenarios_simulation_by_action", "Steps of the victim searches",
                        "counter", static_cast<double>(counts.steps));
  Metrics::AppendSample(out, "kai_podgroups_unschedulable_total",
                        "Verdicts that a pod group cannot be placed", "counter",
                        static_cast<double>(counts.refused));
  Metrics::AppendSample(out, "kai_pods_bound_total", "Bindings decided", "counter",
                        static_cast<double>(counts.bound));
  // One family: its name and type are said once.
  std::string evicted;
  for (const auto& [action, count] : counts.evicted) {
    evicted += "kai_pod_group_evicted_pods_total{action=\"" + action + "\"} " +
               std::to_string(count) + "\n";
  }
  if (!evicted.empty()) {
    out +=
        "# HELP kai_pod_group_evicted_pods_total Evictions decided\n# TYPE "
        "kai_pod_group_evicted_pods_total counter\n" +
        evicted;
  }
  const auto family = [&](const char* name, const char* help,
                          const std::function<double(const QueueShare&)>& value) {
    if (!queues.empty()) {
      out += std::string("# HELP ") + name + " " + help + "\n# TYPE " + name + " gauge\n";
    }
    for (const QueueView& queue : queues) {
      char number[48];
      std::snprintf(number, sizeof(number), "%.10g", value(queue.share));
      out += std::string(name) + "{queue_name=\"" + queue.name + "\"} " + number + "\n";
    }
  };
  constexpr double kCores = 1000;
  constexpr double kGigabyte = 1e9;
  family("kai_queue_fair_share_cpu_cores", "Fair share of CPU",
         [](const QueueShare& s) { return s.r[kCpu].fair_share / kCores; });
  family("kai_queue_fair_share_memory_gb", "Fair share of memory",
         [](const QueueShare& s) { return s.r[kMemory].fair_share / kGigabyte; });
  family("kai_queue_fair_share_gpu", "Fair share of GPUs",
         [](const QueueShare& s) { return s.r[kGpu].fair_share; });
  family("kai_queue_deserved_gpus", "GPU quota",
         [](const QueueShare& s) { return s.r[kGpu].deserved; });
  family("kai_queue_quota_cpu_cores", "CPU quota", [](const QueueShare& s) {
    return s.r[kCpu].deserved < 0 ? -1 : s.r[kCpu].deserved / kCores;
  });
  family("kai_queue_quota_memory_bytes", "Memory quota",
         [](const QueueShare& s) { return s.r[kMemory].deserved; });
  family("kai_queue_allocated_gpus", "GPUs allocated",
         [](const QueueShare& s) { return s.r[kGpu].allocated; });
  family("kai_queue_allocated_cpu_cores", "CPU allocated",
         [](const QueueShare& s) { return s.r[kCpu].allocated / kCores; });
  family("kai_queue_allocated_memory_bytes", "Memory allocated",
         [](const QueueShare& s) { return s.r[kMemory].allocated; });
}

Result<Json> SchedulerService::Queues() {
  auto shared = std::make_shared<Json>(Json::array());
  if (!Ask([shared](Engine& engine) {
        for (const QueueView& view : engine.Queues()) {
          shared->push_back(QueueJson(view));
        }
      })) {
    return ServiceUnavailable("the scheduler does not answer");
  }
  return *shared;
}

}  // namespace sublet::scheduler
