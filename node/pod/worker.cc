#include "node/pod/worker.h"

#include <pthread.h>

#include <nlohmann/json.hpp>

#include "base/log.h"
#include "node/pod/status.h"
#include "node/pod/worker_job.h"

namespace sublet::node {
namespace {

constexpr std::size_t kInboxMax = 1024;
constexpr seconds kRetryEngine{1};

}  // namespace

// Outlives the worker where callbacks still hold it.
struct PodWorker::Inbox {
  Mutex mutex;
  CondVar changed;
  std::deque<std::function<void()>> tasks SUBLET_GUARDED_BY(mutex);
  bool wake SUBLET_GUARDED_BY(mutex) = false;
  bool stop SUBLET_GUARDED_BY(mutex) = false;
  bool closed SUBLET_GUARDED_BY(mutex) = false;

  void Post(std::function<void()> task, bool may_drop) {
    {
      MutexLock lock(mutex);
      if (closed || (may_drop && tasks.size() >= kInboxMax)) {
        return;
      }
      tasks.push_back(std::move(task));
    }
    changed.NotifyOne();
  }
};

PodWorker::PodWorker(PodServices& services, std::shared_ptr<const PodPlan> plan, PodRecord record)
    : services_(services),
      inbox_(std::make_shared<Inbox>()),
      plan_(std::move(plan)),
      record_(std::move(record)),
      status_(new kube::Json(kube::Json::object())) {
  if (const kube::Json* status = kube::Find(*plan_->object, {"status"})) {
    *status_ = *status;
  }
  PublishSnapshot(false);
}

PodWorker::~PodWorker() {
  Stop();
  delete status_;
}

void PodWorker::Start() {
  thread_ = std::thread([this] {
    ::pthread_setname_np(::pthread_self(), ("pod-" + plan_->name).substr(0, 15).c_str());
    Run();
  });
}

void PodWorker::Stop() {
  {
    MutexLock lock(inbox_->mutex);
    inbox_->stop = true;
  }
  inbox_->changed.NotifyOne();
  if (thread_.joinable()) {
    thread_.join();
  }
}

void PodWorker::Post(std::function<void()> task) { inbox_->Post(std::move(task), false); }

void PodWorker::Update(std::shared_ptr<const PodPlan> plan) {
  Post([this, plan = std::move(plan)] {
    const std::shared_ptr<const PodPlan> before = plan_;
    plan_ = plan;
    UpdateResources(*before, *plan_);
    if (plan_->deleting && !before->deleting) {
      record_.torn_down = false;  // what an ended pod left behind for its logs goes now
    }
    // The downward API shows labels and annotations.
    volumes_dirty_ = volumes_dirty_ || (before->object != plan_->object && record_.volumes_ready);
    if (plan_->deleting && record_.termination_started) {
      for (const auto& [name, control] : stops_) {
        control->Shorten(*record_.termination_started + plan_->deletion_grace);
      }
    }
  });
}

void PodWorker::NoteRemovedFromApi() {
  Post([this] {
    record_.torn_down = record_.torn_down && record_.removed_from_api;
    record_.removed_from_api = true;
  });
}

void PodWorker::NoteObjectsChanged() {
  Post([this] {
    volumes_dirty_ = true;
    if (!record_.volumes_ready) {
      record_.volumes_retry_at = {};  // it may be what was missing
    }
  });
}

void PodWorker::GiveVerdict(Failure verdict) {
  Post([this, verdict = std::move(verdict)] {
    if (!record_.verdict) {
      record_.verdict = verdict;
    }
  });
}

std::shared_ptr<const PodSnapshot> PodWorker::Snapshot() const {
  MutexLock lock(mutex_);
  return snapshot_;
}

void PodWorker::Emit(const std::string& container, bool warning, const std::string& reason,
                     const std::string& message) {
  services_.agent.Emit(*plan_, container, warning, reason, message);
}

void PodWorker::PublishSnapshot(bool status_too) {
  auto snapshot = std::make_shared<PodSnapshot>();
  snapshot->plan = plan_;
  snapshot->record = record_;
  if (status_too) {
    StatusContext context;
    context.host_ips = services_.config.host_ips;
    context.runtime_name = services_.config.runtime_name;
    context.now = services_.clock.Now();
    kube::Json fresh = MakePodStatus(*plan_, record_, *status_, context);
    if (fresh != *status_) {
      *status_ = std::move(fresh);
      services_.agent.PublishStatus(plan_, *status_);
    }
  }
  snapshot->status = std::make_shared<const kube::Json>(*status_);
  MutexLock lock(mutex_);
  snapshot_ = std::move(snapshot);
}

void PodWorker::Run() {
  Recover();
  bool stop = false;
  while (!stop && !gone_) {
    std::deque<std::function<void()>> tasks;
    {
      MutexLock lock(inbox_->mutex);
      tasks.swap(inbox_->tasks);
      stop = inbox_->stop;
    }
    for (const auto& task : tasks) {
      task();
    }
    if (stop) {
      break;
    }
    ReapJobs(false);
    CheckTimers();
    Act();
    // A pod that has gone from the API has no status any more.
    PublishSnapshot(!record_.removed_from_api);
    if (record_.torn_down && IsTerminating(*plan_, record_) &&
        (plan_->deleting || record_.removed_from_api)) {
      if (!record_.removed_from_api) {
        services_.agent.Finalize(plan_);
      }
      gone_ = true;
    }
    const auto next = NextWake(decided_at_);
    MutexLock lock(inbox_->mutex);
    while (inbox_->tasks.empty() && !inbox_->stop && !gone_) {
      if (!next) {
        inbox_->changed.Wait(inbox_->mutex);
      } else if (!inbox_->changed.WaitUntil(inbox_->mutex, *next)) {
        break;
      }
    }
  }
  {
    MutexLock lock(inbox_->mutex);
    inbox_->closed = true;
  }
  for (const auto& [name, state] : record_.containers) {
    if (state.current) {
      services_.prober.Remove(state.current->id);
      services_.exits.Forget(state.current->id);
    }
  }
  if (record_.sandbox) {
    services_.exits.Forget(record_.sandbox->id);
  }
  ReapJobs(true);
  done_.store(true);
  if (gone_) {
    services_.agent.WorkerDone(plan_->uid);
  }
}

// What was found in the engine: watch what runs, look again at what is needed.
void PodWorker::Recover() {
  if (const auto text = kube::FindString(*status_, {"startTime"}); !text.empty()) {
    record_.start_time = kube::FindTime(text);
  }
  if (!record_.start_time) {
    record_.start_time = services_.clock.Now();
  }
  const auto phase = kube::FindString(*status_, {"phase"});
  record_.finished_before = phase == "Succeeded" || phase == "Failed";
  if (record_.sandbox && record_.sandbox->phase == ContainerPhase::kRunning) {
    WatchRun(record_.sandbox->id, record_.sandbox->pid);
    if (!record_.sandbox->ip.empty() && !services_.network.IsAttached(plan_->uid)) {
      // The link was removed under a running sandbox: it is made again with the same address.
      if (auto ip = ParseIpv4(record_.sandbox->ip); ip.ok()) {
        if (auto attached = services_.network.Attach(plan_->uid, record_.sandbox->pid, *ip);
            !attached.ok()) {
          log::Warn("cannot reconnect a pod",
                    {{"pod", plan_->Text()}, {"error", attached.error()}});
        }
      }
    }
  }
  for (auto& [name, state] : record_.containers) {
    if (state.IsRunning()) {
      // What the probes had found out stands until they say otherwise.
      for (const char* list_name : {"initContainerStatuses", "containerStatuses"}) {
        const kube::Json* list = kube::Find(*status_, {list_name});
        for (std::size_t i = 0; list != nullptr && i < list->size(); ++i) {
          if (kube::FindString((*list)[i], {"name"}) == name) {
            state.startup_passed = kube::FindBool((*list)[i], {"started"});
            state.ready = kube::FindBool((*list)[i], {"ready"});
          }
        }
      }
      WatchRun(state.current->id, state.current->pid);
      NoteRunning(name);
    } else if (state.HasEnded() && state.current->reason.empty()) {
      pending_ends_[state.current->id] = false;
    }
  }
}

void PodWorker::WatchRun(const std::string& container_id, int pid) {
  auto watched = services_.exits.Watch(
      container_id, pid, [inbox = inbox_, this](const std::string& id, bool out_of_memory) {
        inbox->Post([this, id, out_of_memory] { NoteEnded(id, out_of_memory); }, false);
      });
  if (!watched.ok()) {
    log::Error("cannot watch a container's process",
               {{"pod", plan_->Text()}, {"error", watched.error()}});
  }
}

void PodWorker::CheckTimers() {
  const MonotonicTime now = services_.clock.Monotonic();
  if (!pending_ends_.empty() && now >= pending_ends_at_) {
    const auto pending = std::move(pending_ends_);
    pending_ends_.clear();
    for (const auto& [id, out_of_memory] : pending) {
      NoteEnded(id, out_of_memory);
    }
  }
  if (token_renew_at_ && services_.clock.Now() >= *token_renew_at_) {
    token_renew_at_.reset();
    volumes_dirty_ = true;
  }
  if (volumes_dirty_ && record_.volumes_ready && !record_.is_volume_job && !record_.torn_down &&
      !IsTerminating(*plan_, record_) && now >= record_.volumes_retry_at) {
    SetUpVolumes(true);
  }
  for (auto it = image_backoff_notes_.begin(); it != image_backoff_notes_.end();) {
    if (now < it->second) {
      ++it;
      continue;
    }
    ContainerRecord& state = record_.containers[it->first];
    const ContainerPlan* container = plan_->Find(it->first);
    if (container != nullptr && state.waiting && state.waiting->reason == "ErrImagePull") {
      state.waiting =
          Failure{"ImagePullBackOff", "Back-off pulling image \"" + container->image +
                                          "\": ErrImagePull: " + state.waiting->message};
      Emit(it->first, false, "BackOff", "Back-off pulling image \"" + container->image + "\"");
      Emit(it->first, true, "Failed", "Error: ImagePullBackOff");
    }
    it = image_backoff_notes_.erase(it);
  }
}

std::optional<MonotonicTime> PodWorker::NextWake(std::optional<MonotonicTime> decided) const {
  const auto sooner = [&](MonotonicTime at) {
    if (!decided || at < *decided) {
      decided = at;
    }
  };
  if (!pending_ends_.empty()) {
    sooner(pending_ends_at_);
  }
  if (token_renew_at_ && !record_.torn_down) {
    sooner(services_.clock.Monotonic() + (*token_renew_at_ - services_.clock.Now()));
  }
  if (volumes_dirty_ && record_.volumes_ready && !record_.is_volume_job && !record_.torn_down &&
      !IsTerminating(*plan_, record_)) {
    sooner(record_.volumes_retry_at);
  }
  for (const auto& [name, at] : image_backoff_notes_) {
    sooner(at);
  }
  return decided;
}

void PodWorker::Act() {
  if (IsTerminating(*plan_, record_) && !was_terminating_) {
    was_terminating_ = true;
    record_.termination_started = services_.clock.Monotonic();
    // Nothing new starts: pulls and the like are given up.
    for (const auto& job : jobs_) {
      if (job->ends_with_pod) {
        job->cancel.Cancel();
      }
    }
    for (const auto& [name, control] : stops_) {
      control->Shorten(*record_.termination_started + plan_->deletion_grace);
    }
  }
  // Each action changes the record, so that the next decision differs; a pod has few steps to take
  // at once.
  for (int round = 0; round < 4; ++round) {
    Now now;
    now.wall = services_.clock.Now();
    now.monotonic = services_.clock.Monotonic();
    const Decision decision = Decide(*plan_, record_, now);
    decided_at_ = decision.again_at;
    if (decision.actions.empty()) {
      return;
    }
    for (const Action& action : decision.actions) {
      Carry(action);
    }
  }
}

void PodWorker::Carry(const Action& action) {
  switch (action.kind) {
    case Action::Kind::kSetUpVolumes: SetUpVolumes(false); break;
    case Action::Kind::kCreateSandbox: StartSandbox(); break;
    case Action::Kind::kStopSandbox: StopSandbox(); break;
    case Action::Kind::kStartContainer:
      if (const ContainerPlan* container = plan_->Find(action.container)) {
        StartOne(*container);
      }
      break;
    case Action::Kind::kStopContainer: StopOne(action); break;
    case Action::Kind::kGiveVerdict:
      record_.verdict = Failure{action.reason, action.message};
      Emit("", false, action.reason, action.message);
      break;
    case Action::Kind::kTearDown: TearDown(); break;
  }
}

void PodWorker::UpdateResources(const PodPlan& before, const PodPlan& after) {
  for (const ContainerPlan* container : after.All()) {
    const ContainerPlan* old = before.Find(container->name);
    const auto it = record_.containers.find(container->name);
    if (old == nullptr || it == record_.containers.end() || !it->second.IsRunning()) {
      continue;
    }
    const CpuMemory was = ResourcesOf(*old);
    const CpuMemory is = ResourcesOf(*container);
    ResourceUpdate update;
    update.memory_bytes = was.memory_bytes != is.memory_bytes ? is.memory_bytes : 0;
    update.cpu_shares = was.cpu_shares != is.cpu_shares ? is.cpu_shares : 0;
    if (was.cpu_quota_us != is.cpu_quota_us) {
      update.cpu_quota_us = is.cpu_quota_us == 0 ? -1 : is.cpu_quota_us;
      update.cpu_period_us = 100000;
    }
    if (update.memory_bytes == 0 && update.cpu_shares == 0 && update.cpu_quota_us == 0) {
      continue;
    }
    if (auto updated = services_.engine.UpdateResources(it->second.current->id, update);
        !updated.ok()) {
      Emit(container->name, true, "ResizeError", updated.error().message());
    }
  }
}

PodWorker::Job& PodWorker::RunJob(std::function<std::function<void()>(Job&)> work) {
  jobs_.push_back(std::make_unique<Job>());
  Job& job = *jobs_.back();
  job.thread = std::thread([this, &job, work = std::move(work)] {
    ::pthread_setname_np(::pthread_self(), "job");
    std::function<void()> apply = work(job);
    inbox_->Post(
        [&job, apply = std::move(apply)] {
          job.done = true;
          apply();
        },
        false);
  });
  return job;
}

void PodWorker::ReapJobs(bool all) {
  for (const auto& job : jobs_) {
    if (all) {
      job->cancel.Cancel();
    }
  }
  for (auto it = jobs_.begin(); it != jobs_.end();) {
    if (all || (*it)->done) {
      (*it)->thread.join();
      it = jobs_.erase(it);
    } else {
      ++it;
    }
  }
}

void PodWorker::NoteEnded(const std::string& container_id, bool out_of_memory) {
  if (record_.sandbox && record_.sandbox->id == container_id) {
    if (record_.sandbox->phase != ContainerPhase::kExited) {
      record_.sandbox->phase = ContainerPhase::kExited;
      record_.sandbox->pid = 0;
      if (!IsTerminating(*plan_, record_) && !HasFinished(*plan_, record_)) {
        Emit("", false, "SandboxChanged", "Pod sandbox changed, it will be killed and re-created.");
      }
    }
    return;
  }
  for (auto& [name, state] : record_.containers) {
    if (!state.current || state.current->id != container_id) {
      continue;
    }
    const bool known = state.current->phase == ContainerPhase::kExited;
    if (known && !state.current->reason.empty()) {
      return;
    }
    services_.prober.Remove(container_id);
    auto ended = InspectEnded(services_, plan_->Find(name), *state.current, out_of_memory);
    if (!ended.ok()) {
      // The engine is being restarted; the container's end is not forgotten.
      pending_ends_[container_id] = out_of_memory;
      pending_ends_at_ = services_.clock.Monotonic() + kRetryEngine;
      return;
    }
    state.current = std::move(ended).value();
    state.ready = false;
    state.startup_passed = false;
    state.kill_reason.reset();
    state.kill_grace.reset();
    const ContainerPlan* container = plan_->Find(name);
    if (container != nullptr && !IsTerminating(*plan_, record_) &&
        ShouldRestart(*container, *state.current) && RestartAt(state) > services_.clock.Now()) {
      Emit(name, true, "BackOff",
           "Back-off restarting failed container " + name + " in pod " + plan_->Full());
    }
    return;
  }
}

void PodWorker::NoteRunning(const std::string& name) {
  ContainerRecord& state = record_.containers[name];
  const ContainerPlan* container = plan_->Find(name);
  if (container == nullptr || !state.IsRunning()) {
    return;
  }
  state.startup_passed = state.startup_passed || !container->startup;
  state.ready = state.ready || !container->readiness;
  Prober::Target target;
  target.plan = plan_;
  target.container = name;
  target.container_id = state.current->id;
  target.pod_ip = plan_->host_network && !services_.config.host_ips.empty()
                      ? services_.config.host_ips[0]
                  : record_.sandbox ? record_.sandbox->ip
                                    : "";
  target.started = services_.clock.Monotonic();
  target.startup_passed = state.startup_passed;
  target.ready = state.ready && container->readiness.has_value();
  services_.prober.Add(target, [inbox = inbox_, this](const ProbeReport& report) {
    inbox->Post([this, report] { NoteProbe(report); }, true);
  });
}

void PodWorker::NoteProbe(const ProbeReport& report) {
  const auto it = record_.containers.find(report.container);
  const ContainerPlan* container = plan_->Find(report.container);
  if (it == record_.containers.end() || container == nullptr || !it->second.IsRunning() ||
      it->second.current->id != report.container_id) {
    return;
  }
  ContainerRecord& state = it->second;
  const std::string name(ProbeName(report.kind));
  if (!report.success) {
    Emit(report.container, true, "Unhealthy", name + " probe failed: " + report.output);
  }
  if (!report.crossed) {
    return;
  }
  if (report.kind == ProbeKind::kReadiness) {
    state.ready = report.success;
  } else if (report.success) {
    state.startup_passed = true;
  } else {
    const auto& probe =
        report.kind == ProbeKind::kStartup ? container->startup : container->liveness;
    std::string lower = name;
    lower[0] = static_cast<char>(lower[0] - 'A' + 'a');
    state.kill_reason =
        "Container " + report.container + " failed " + lower + " probe, will be restarted";
    state.kill_grace = probe ? probe->termination_grace : std::nullopt;
  }
}

}  // namespace sublet::node
