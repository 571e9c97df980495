// Prober: runs the probes of all running containers on a small pool of threads and reports when a
// result crosses its threshold. Startup probes hold the others back; a container that failed its
// liveness or startup probe is left alone until its next run.
// Source: kubelet prober/worker.go.
// Threads: "probe-N", made as needed up to `threads_max`; when all are busy a probe is late, never
// lost. Add and Remove from any thread; callbacks on a probe thread without a lock held.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "node/engine/engine.h"
#include "node/pod/handlers.h"
#include "node/pod/plan.h"

namespace sublet::node {

enum class ProbeKind : std::uint8_t { kStartup, kReadiness, kLiveness };
std::string_view ProbeName(ProbeKind kind);  // "Startup", "Readiness", "Liveness"

// Whether a probe that took `spent` leaves more than half of its period. (In the clock's own unit:
// half of one second is not zero.)
inline bool IsQuick(MonotonicTime::duration spent, std::chrono::seconds period) {
  return 2 * spent < period;
}

struct ProbeReport {
  std::string container_id;
  std::string container;
  ProbeKind kind = ProbeKind::kReadiness;
  bool success = false;
  bool crossed = false;  // the threshold is reached: the container's state changes
  std::string output;
};

class Prober {
 public:
  // Called for every failure and whenever a threshold is crossed.
  using OnReport = std::function<void(const ProbeReport& report)>;

  Prober(ContainerEngine& engine, int threads_max) : engine_(engine), threads_max_(threads_max) {}
  ~Prober() { Stop(); }
  Prober(const Prober&) = delete;
  Prober& operator=(const Prober&) = delete;

  struct Target {
    std::shared_ptr<const PodPlan> plan;
    std::string container;
    std::string container_id;
    std::string pod_ip;
    MonotonicTime started{};
    bool startup_passed = false;  // known from before a restart of the agent
    bool ready = false;
  };
  void Add(const Target& target, const OnReport& on_report);
  // No report about the container is delivered afterwards, but for one that is under way.
  void Remove(const std::string& container_id);
  void Stop();  // idempotent; joins

 private:
  struct Entry;
  void Run(int index);
  void Schedule(const std::shared_ptr<Entry>& entry, MonotonicTime at) SUBLET_REQUIRES(mutex_);
  void Probe(const std::shared_ptr<Entry>& entry);

  ContainerEngine& engine_;
  const int threads_max_;
  Canceller stopping_;
  Mutex mutex_;
  CondVar changed_;
  bool stopped_ SUBLET_GUARDED_BY(mutex_) = false;
  std::multimap<MonotonicTime, std::shared_ptr<Entry>> due_ SUBLET_GUARDED_BY(mutex_);
  std::multimap<std::string, std::shared_ptr<Entry>> entries_ SUBLET_GUARDED_BY(mutex_);
  int idle_ SUBLET_GUARDED_BY(mutex_) = 0;
  std::vector<std::thread> threads_ SUBLET_GUARDED_BY(mutex_);
};

}  // namespace sublet::node
