#include "scheduler/service/service.h"

#include <future>
#include <nlohmann/json.hpp>

#include "base/log.h"
#include "scheduler/service/what_if.h"
#include "scheduler/simulation.h"

namespace sublet::scheduler {
namespace {

using kube::Json;

constexpr std::size_t kQuestionsMax = 64;
constexpr std::string_view kComponent = "sublet-scheduler";
constexpr Millis kUsageCounted = 1'000;  // at most one count a second
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
  feed.storage_classes_known = options_.storage_classes_known;
  if (broker_ != nullptr) {
    feed.own_bytes = [this](const std::string& uuid, std::int64_t generation) {
      return broker_->OwnBytes(uuid, generation);
    };
    feed.devices_of = [this](const std::string& ns, const std::string& uid) {
      return broker_->DevicesOf(ns, uid);
    };
  }
  feed_ = std::make_unique<Feed>(informers_, feed, [this] { wakeup_.Wake(); });
  BinderOptions binder{options_.client, 4, options_.enforce,
                       options_.slices && options_.slices->tenant.empty()};
  binder_ =
      std::make_unique<Binder>(std::move(binder), *feed_, recorder_, [this](BindResult result) {
        {
          MutexLock lock(mutex_);
          results_.push_back(std::move(result));
        }
        wakeup_.Wake();
      });
  binder_->UseSlices(broker_.get());
  engine_.MeasureWith([this] { return MicrosSince(MonotonicTime{}); });
  for (const Profile& profile : options_.profiles) {
    if (profile.usage.on && !usage_) {
      usage_.emplace(profile.usage);
      usage_told_every_ = profile.usage.fetch;
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
        options_.client, informers_, manager_, recorder_,
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

std::int64_t SchedulerService::MicrosSince(MonotonicTime begun) const {
  return std::chrono::duration_cast<std::chrono::microseconds>(clock_.Monotonic() - begun).count();
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
  wakeup_.Wake();
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
  bool stopped = false;
  wakeup_.Take([&] {
    {
      MutexLock lock(mutex_);
      stopped = stopped_;  // news like any other: said before, it is not said again
      results.swap(results_);
      questions.swap(questions_);
    }
    feed_->ApplyTo(engine_);
  });
  if (stopped) {
    return;
  }
  const Millis now = NowMillis();
  for (const BindResult& result : results) {
    if (result.kind == Decision::Kind::kBind && result.done) {
      metrics_.Bound(result.micros);
    }
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
  metrics_.Cycle(cycle, MicrosSince(begun), now, engine_);
  const MonotonicTime status_due = status_->Report(cycle, engine_);
  metrics_.Queues(status_->queues());
  binder_->Submit(cycle.decisions, engine_);
  for (const Question& question : questions) {
    question(engine_);
  }
  const Deadline usage_due = KeepUsage(now);
  if (cycle.more) {
    return;
  }
  (void)wakeup_.WaitUntil(std::min(
      std::min<Deadline>(status_due, usage_due),
      cycle.earliest == kNever
          ? Deadline::max()
          : After(std::chrono::milliseconds(std::max<Millis>(cycle.earliest - NowMillis(), 1)))));
}

void SchedulerService::ReadUsage() {
  if (!usage_) {
    return;
  }
  const MonotonicTime begun = clock_.Monotonic();
  const auto kept =
      options_.client.Get({{"", "v1", "configmaps"}, kUsageNamespace, kUsageName, ""});
  metrics_.UsageRead(MicrosSince(begun));
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
  if (now - usage_told_ >= usage_told_every_ || now < usage_told_) {
    usage_told_ = now;
    engine_.SetUsage(usage_->Shares());
    metrics_.Usage(usage_->Shares());
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
  return After(
      std::chrono::milliseconds(std::max<Millis>(usage_told_ + usage_told_every_ - now, 1)));
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
  wakeup_.Wake();
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
