#include "node/pod/prober.h"

#include <pthread.h>

namespace sublet::node {

// One probe of one run of a container. `due`, `removed` and the counters are guarded by the
// Prober's mutex; only one thread works on an entry at a time because it is not in due_ meanwhile.
struct Prober::Entry {
  Target target;
  OnReport on_report;
  ProbeKind kind = ProbeKind::kReadiness;
  ProbePlan plan;
  const ContainerPlan* container = nullptr;  // inside target.plan
  bool removed = false;
  bool held = false;  // waits for the startup probe, or failed for good
  int successes = 0;
  int failures = 0;
  bool last_success = false;           // the state that was reported last
  bool ever = false;                   // it has succeeded once
  std::chrono::milliseconds soon{20};  // how long after a failure before that it is asked again
};

std::string_view ProbeName(ProbeKind kind) {
  return kind == ProbeKind::kStartup     ? "Startup"
         : kind == ProbeKind::kReadiness ? "Readiness"
                                         : "Liveness";
}

void Prober::Schedule(const std::shared_ptr<Entry>& entry, MonotonicTime at) {
  due_.emplace(at, entry);
  if (idle_ == 0 && static_cast<int>(threads_.size()) < threads_max_) {
    const int index = static_cast<int>(threads_.size());
    threads_.emplace_back([this, index] { Run(index); });
  }
  changed_.NotifyOne();
}

void Prober::Add(const Target& target, const OnReport& on_report) {
  const ContainerPlan* container = target.plan->Find(target.container);
  if (container == nullptr) {
    return;
  }
  MutexLock lock(mutex_);
  if (stopped_) {
    return;
  }
  const bool has_startup = container->startup.has_value() && !target.startup_passed;
  const auto add = [&](ProbeKind kind, const std::optional<ProbePlan>& plan)
                       SUBLET_REQUIRES(mutex_) {
                         if (!plan) {
                           return;
                         }
                         auto entry = std::make_shared<Entry>();
                         entry->target = target;
                         entry->on_report = on_report;
                         entry->kind = kind;
                         entry->plan = *plan;
                         entry->container = container;
                         // A running container is alive until the opposite is shown, and not ready
                         // likewise.
                         entry->last_success = kind == ProbeKind::kLiveness ||
                                               (kind == ProbeKind::kReadiness && target.ready);
                         entry->ever = entry->last_success;
                         entries_.emplace(target.container_id, entry);
                         entry->held = has_startup && kind != ProbeKind::kStartup;
                         if (!entry->held) {
                           Schedule(entry, target.started + plan->initial_delay);
                         }
                       };
  if (has_startup) {
    add(ProbeKind::kStartup, container->startup);
  }
  add(ProbeKind::kReadiness, container->readiness);
  add(ProbeKind::kLiveness, container->liveness);
}

void Prober::Remove(const std::string& container_id) {
  MutexLock lock(mutex_);
  const auto [begin, end] = entries_.equal_range(container_id);
  for (auto it = begin; it != end; ++it) {
    it->second->removed = true;
  }
  entries_.erase(begin, end);
  std::erase_if(due_, [](const auto& item) { return item.second->removed; });
}

void Prober::Stop() {
  std::vector<std::thread> threads;
  {
    MutexLock lock(mutex_);
    stopped_ = true;
    due_.clear();
    threads.swap(threads_);
  }
  stopping_.Cancel();
  changed_.NotifyAll();
  for (std::thread& thread : threads) {
    thread.join();
  }
}

void Prober::Run(int index) {
  ::pthread_setname_np(::pthread_self(), ("probe-" + std::to_string(index)).c_str());
  for (;;) {
    std::shared_ptr<Entry> entry;
    {
      MutexLock lock(mutex_);
      while (entry == nullptr) {
        if (stopped_) {
          return;
        }
        ++idle_;
        if (due_.empty()) {
          changed_.Wait(mutex_);
        } else if (due_.begin()->first > std::chrono::steady_clock::now()) {
          changed_.WaitUntil(mutex_, due_.begin()->first);
        }
        --idle_;
        if (!stopped_ && !due_.empty() && due_.begin()->first <= std::chrono::steady_clock::now()) {
          entry = due_.begin()->second;
          due_.erase(due_.begin());
          if (!due_.empty()) {
            changed_.NotifyOne();  // someone else watches over the next one
          }
        }
      }
    }
    Probe(entry);
  }
}

void Prober::Probe(const std::shared_ptr<Entry>& entry) {
  const MonotonicTime began = std::chrono::steady_clock::now();
  HandlerTarget target;
  target.container_id = entry->target.container_id;
  target.pod_ip = entry->target.pod_ip;
  const HandlerOutcome outcome = RunHandler(engine_, entry->plan.handler, *entry->container, target,
                                            entry->plan.timeout, &stopping_);
  ProbeReport report;
  report.container_id = entry->target.container_id;
  report.container = entry->target.container;
  report.kind = entry->kind;
  report.success = outcome.success;
  report.output = outcome.output;
  {
    MutexLock lock(mutex_);
    if (entry->removed || stopped_) {
      return;
    }
    if (outcome.errored) {
      Schedule(entry, began + entry->plan.period);
      return;
    }
    const bool quick = IsQuick(std::chrono::steady_clock::now() - began, entry->plan.period);
    if (entry->kind != ProbeKind::kLiveness && !outcome.success && !entry->ever && quick &&
        entry->soon < entry->plan.period && entry->plan.handler.kind != HandlerPlan::Kind::kExec) {
      // Differs: a kubelet waits a whole period after the first failure. What has only just been
      // started is asked again soon, then less and less often; these failures do not count, so
      // failureThreshold still means periods. Not by exec, which costs the engine a process each
      // time.
      Schedule(entry, began + entry->soon);
      entry->soon = entry->soon * 3 / 2;
      return;
    }
    entry->ever = entry->ever || outcome.success;
    entry->successes = outcome.success ? entry->successes + 1 : 0;
    entry->failures = outcome.success ? 0 : entry->failures + 1;
    const bool over = outcome.success ? entry->successes >= entry->plan.success_threshold
                                      : entry->failures >= entry->plan.failure_threshold;
    const bool first_failed_start = entry->kind == ProbeKind::kStartup && !outcome.success && over;
    report.crossed = over && (outcome.success != entry->last_success || first_failed_start);
    if (report.crossed) {
      entry->last_success = outcome.success;
    }
    const bool ends = report.crossed && entry->kind != ProbeKind::kReadiness &&
                      (entry->kind == ProbeKind::kStartup || !outcome.success);
    if (!ends) {
      Schedule(entry, began + entry->plan.period);
    } else if (outcome.success) {  // started: the other probes begin now
      const auto [begin, end] = entries_.equal_range(report.container_id);
      for (auto it = begin; it != end; ++it) {
        if (it->second->held) {
          it->second->held = false;
          Schedule(it->second,
                   std::max(began, it->second->target.started + it->second->plan.initial_delay));
        }
      }
    }
  }
  if (report.crossed || !report.success) {
    entry->on_report(report);
  }
}

}  // namespace sublet::node
