#include "scheduler/service/status_writer.h"

#include <nlohmann/json.hpp>

#include "base/log.h"
#include "kube/timestamp.h"

namespace sublet::scheduler {
namespace {

using kube::Json;

constexpr auto kQueuesEvery = std::chrono::milliseconds(500);

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

StatusWriter::StatusWriter(client::Client client, const Feed& feed,
                           client::EventRecorder& recorder, const Clock& clock)
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

void StatusWriter::PodUnschedulable(const std::string& uid, const std::string& message,
                                    bool kube) {
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
  const client::EventTarget target{"v1",     "Pod", pod->key.namespace_name, pod->key.name,
                                   pod->uid, "",    ""};
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
      log::Warn("cannot write why a pod waits",
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
                        client::PatchType::kMerge, {{"status", status}});
  });
}

void StatusWriter::Report(const CycleResult& result, Engine& engine) {
  for (const GroupVerdict& verdict : result.verdicts) {
    for (const GroupVerdict::Pod& pod : verdict.pods) {
      const auto record = feed_.FindPod(pod.uid);
      if (record == nullptr) {
        continue;
      }
      const int profile = engine.ProfileFor(record->scheduler_name);
      const bool kube =
          profile >= 0 && engine.profiles()[static_cast<std::size_t>(profile)].kube;
      PodUnschedulable(pod.uid, pod.message.empty() ? verdict.message : pod.message, kube);
    }
  }
  for (const Decision& decision : result.decisions) {
    if (decision.kind == Decision::Kind::kPipeline) {
      PodNominated(decision);
    } else if (decision.kind == Decision::Kind::kBind) {
      told_.erase(decision.pod_uid);
    }
  }
  if (told_.size() > 100000) {
    told_.clear();  // pods that are long gone; the condition itself is compared again
  }
  if (feed_.HasQueues() && clock_.Monotonic() >= queues_next_) {
    queues_next_ = clock_.Monotonic() + kQueuesEvery;
    for (const QueueView& view : engine.Queues()) {
      QueueStatus(view);
    }
  }
}

}  // namespace sublet::scheduler
