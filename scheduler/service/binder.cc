#include "scheduler/service/binder.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/log.h"
#include "gpu/api/codec.h"

namespace sublet::scheduler {
namespace {

using kube::Json;

constexpr auto kSliceAnswerTime = std::chrono::seconds(30);

client::EventTarget TargetOf(const Decision& decision) {
  return {"v1", "Pod", decision.ns, decision.name, decision.pod_uid, "", ""};
}

std::string Received(const Decision& decision) {
  return decision.gpu_groups.empty() ? "Regular" : "Fraction";
}

}  // namespace

Binder::Binder(BinderOptions options, const Feed& feed, client::EventRecorder& recorder,
               std::function<void(BindResult)> on_result)
    : options_(std::move(options)),
      feed_(feed),
      recorder_(recorder),
      on_result_(std::move(on_result)),
      work_(kWorkMax) {}

Binder::~Binder() { Stop(); }

void Binder::Start() {
  for (int i = 0; i < options_.threads; ++i) {
    threads_.emplace_back([this] {
      for (;;) {
        // Wakes up now and then only while slices are waited for.
        bool waiting = false;
        {
          MutexLock lock(mutex_);
          waiting = !units_.empty();
        }
        auto work = work_.Pop(waiting ? After(std::chrono::seconds(1)) : Deadline::max());
        if (work) {
          (*work)();
        } else if (work_.closed()) {
          return;
        }
        ExpireUnits();
      }
    });
  }
}

void Binder::Stop() {
  work_.Close();
  for (std::thread& thread : threads_) {
    if (thread.joinable()) {
      thread.join();
    }
  }
  threads_.clear();
}

void Binder::Push(std::function<void()> work, const std::vector<Decision>& decisions) {
  if (!work_.Push(std::move(work))) {
    for (const Decision& decision : decisions) {
      on_result_({decision.pod_uid, decision.kind, false, "the binder has too much to do"});
    }
  }
}

void Binder::Submit(std::vector<Decision> decisions, const Engine&) {
  // Pods of one group stay together; the order of the engine is kept otherwise.
  std::map<std::string, UnitPtr> by_group;
  std::vector<UnitPtr> units;
  for (Decision& decision : decisions) {
    if (decision.kind == Decision::Kind::kPipeline) {
      continue;
    }
    if (decision.kind == Decision::Kind::kEvict) {
      Push([this, decision] { Evict(decision); }, {decision});
      continue;
    }
    Member member;
    member.needs_slice = broker_ != nullptr && feed_.HasGpuNode(decision.node) &&
                         (!decision.gpu_groups.empty() || !decision.gpu_devices.empty());
    const auto pod = feed_.FindPod(decision.pod_uid);
    const std::string group = pod == nullptr || pod->group_annotation.empty()
                                  ? "pod:" + decision.pod_uid
                                  : decision.ns + "/" + pod->group_annotation;
    member.decision = std::move(decision);
    UnitPtr& unit = by_group[group];
    if (unit == nullptr) {
      unit = std::make_shared<Unit>();
      units.push_back(unit);
    }
    unit->members.push_back(std::move(member));
  }
  for (const UnitPtr& unit : units) {
    std::vector<Decision> all;
    for (const Member& member : unit->members) {
      unit->waiting += member.needs_slice ? 1 : 0;
      all.push_back(member.decision);
    }
    if (unit->waiting == 0) {
      BindUnit(unit);
      continue;
    }
    unit->deadline = std::chrono::steady_clock::now() + kSliceAnswerTime;
    {
      MutexLock lock(mutex_);
      for (const Member& member : unit->members) {
        if (member.needs_slice) {
          units_[member.decision.pod_uid] = unit;
        }
      }
    }
    Push([this, unit] { AskSlices(unit); }, all);
  }
}

Result<gpu::GpuSliceSpec> Binder::SpecOf(const Decision& decision) const {
  const auto pod = feed_.FindPod(decision.pod_uid);
  if (pod == nullptr) {
    return sublet::Status(Reason::kNotFound, "the pod is gone");
  }
  gpu::GpuSliceSpec spec;
  spec.node = decision.node;
  spec.pod = {decision.name, decision.pod_uid};
  spec.enforce = options_.enforce ? gpu::Enforce::kOn : gpu::Enforce::kOff;
  if (pod->gpu) {
    spec.container = pod->gpu->container_name;
    spec.compute = gpu::PolicyOf(*pod->gpu);
    for (const std::string& uuid : decision.gpu_groups) {
      SUBLET_TRY(gpu::SliceDevice device,
                 gpu::AmountsOn(*pod->gpu, uuid, feed_.DeviceMemory(decision.node, uuid)));
      spec.devices.push_back(std::move(device));
    }
  } else {
    for (const std::string& uuid : decision.gpu_devices) {
      spec.devices.push_back(
          {uuid, feed_.DeviceMemory(decision.node, uuid), gpu::kShareMilliWhole});
    }
  }
  return spec;
}

void Binder::AskSlices(const UnitPtr& unit) {
  for (const Member& member : unit->members) {
    if (!member.needs_slice) {
      continue;
    }
    auto spec = SpecOf(member.decision);
    auto asked = spec.ok() ? broker_->Ask(member.decision.ns, std::move(*spec))
                           : Result<void>(std::move(spec).error());
    if (!asked.ok()) {
      FailUnit(unit, asked.error().message());
      return;
    }
  }
}

void Binder::SliceAnswered(const SliceAnswer& answer) {
  UnitPtr unit;
  bool complete = false;
  {
    MutexLock lock(mutex_);
    const auto found = units_.find(answer.pod_uid);
    if (found == units_.end()) {
      return;  // asked before a restart, or answered twice
    }
    unit = found->second;
    if (answer.granted) {
      units_.erase(found);
      complete = --unit->waiting == 0 && !unit->failed;
    }
  }
  if (!answer.granted) {
    FailUnit(unit, "the node denied its GPU slice: " + answer.reason + ": " + answer.message);
  } else if (complete) {
    BindUnit(unit);
  }
}

void Binder::FailUnit(const UnitPtr& unit, const std::string& message) {
  {
    MutexLock lock(mutex_);
    if (unit->failed) {
      return;
    }
    unit->failed = true;
    for (const Member& member : unit->members) {
      units_.erase(member.decision.pod_uid);
    }
  }
  std::vector<Decision> all;
  for (const Member& member : unit->members) {
    all.push_back(member.decision);
  }
  Push(
      [this, unit, message] {
        for (const Member& member : unit->members) {
          if (member.needs_slice) {
            (void)broker_->Release(member.decision.ns, member.decision.pod_uid);
          }
          recorder_.Event(TargetOf(member.decision), "Warning", "FailedBinding", message);
          on_result_({member.decision.pod_uid, Decision::Kind::kBind, false, message});
        }
      },
      all);
}

void Binder::ExpireUnits() {
  std::vector<UnitPtr> late;
  {
    MutexLock lock(mutex_);
    const auto now = std::chrono::steady_clock::now();
    for (const auto& [uid, unit] : units_) {
      if (unit->deadline < now && std::find(late.begin(), late.end(), unit) == late.end()) {
        late.push_back(unit);
      }
    }
  }
  for (const UnitPtr& unit : late) {
    FailUnit(unit, "the node's GPU daemon did not answer for its slice within 30 s");
  }
}

void Binder::BindUnit(const UnitPtr& unit) {
  for (const Member& member : unit->members) {
    Push([this, decision = member.decision] { Bind(decision); }, {member.decision});
  }
}

void Binder::Bind(const Decision& decision) {
  const auto begun = std::chrono::steady_clock::now();
  if (const auto reserved = ReserveClaims(decision); !reserved.ok()) {
    recorder_.Event(TargetOf(decision), "Warning", "FailedBinding", reserved.error().message());
    on_result_({decision.pod_uid, decision.kind, false, reserved.error().message()});
    return;
  }
  Json metadata = {{"name", decision.name}, {"namespace", decision.ns}, {"uid", decision.pod_uid}};
  if (!decision.gpu_groups.empty() || !decision.gpu_devices.empty()) {
    metadata["annotations"]["received-resource-type"] = Received(decision);
    if (options_.names_slice && broker_ != nullptr && feed_.HasGpuNode(decision.node)) {
      metadata["annotations"][std::string(gpu::kCdiAnnotation)] =
          gpu::CdiDeviceName(decision.pod_uid);
    }
  }
  if (decision.gpu_groups.size() == 1) {
    metadata["labels"]["runai-gpu-group"] = decision.gpu_groups.front();
  } else {
    for (const std::string& group : decision.gpu_groups) {
      metadata["labels"]["runai-gpu-group/" + group] = group;
    }
  }
  const Json binding = {{"apiVersion", "v1"},
                        {"kind", "Binding"},
                        {"metadata", std::move(metadata)},
                        {"target", {{"kind", "Node"}, {"name", decision.node}}}};
  auto bound = options_.client.Create({{"", "v1", "pods"}, decision.ns, decision.name, "binding"},
                                      binding, {.reads_answer = false});
  if (bound.ok()) {
    recorder_.Event(
        TargetOf(decision), "Normal", "Scheduled",
        "Successfully assigned " + decision.ns + "/" + decision.name + " to " + decision.node);
    const auto took = std::chrono::duration_cast<std::chrono::microseconds>(
        std::chrono::steady_clock::now() - begun);
    on_result_({decision.pod_uid, decision.kind, true, "", took.count()});
    return;
  }
  if (broker_ != nullptr && (!decision.gpu_groups.empty() || !decision.gpu_devices.empty())) {
    (void)broker_->Release(decision.ns, decision.pod_uid);
  }
  UnreserveClaims(decision, decision.claims.size());
  if (!bound.error().Is(Reason::kNotFound)) {
    recorder_.Event(TargetOf(decision), "Warning", "FailedBinding", bound.error().message());
  }
  on_result_({decision.pod_uid, decision.kind, false, bound.error().message()});
}

void Binder::Evict(const Decision& decision) {
  // The victim learns why before it ends, as with a preemption by kube-scheduler.
  const std::string now_reason =
      decision.action == "preempt" ? "PreemptionByScheduler" : "EvictionByScheduler";
  (void)options_.client.Patch({{"", "v1", "pods"}, decision.ns, decision.name, "status"},
                              client::PatchType::kStrategicMerge,
                              {{"status",
                                {{"conditions", Json::array({{{"type", "DisruptionTarget"},
                                                              {"status", "True"},
                                                              {"reason", now_reason},
                                                              {"message", decision.message}}})}}}});
  client::DeleteOptions options;
  options.uid = decision.pod_uid;
  auto deleted =
      options_.client.Delete({{"", "v1", "pods"}, decision.ns, decision.name, ""}, options);
  const bool done = deleted.ok() || deleted.error().Is(Reason::kNotFound) ||
                    deleted.error().Is(Reason::kConflict);
  if (done) {
    recorder_.Event(TargetOf(decision), "Normal", "Evict", decision.message);
  }
  on_result_({decision.pod_uid, decision.kind, done, done ? "" : deleted.error().message()});
}

}  // namespace sublet::scheduler
