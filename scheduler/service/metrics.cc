#include "scheduler/service/metrics.h"

#include <algorithm>
#include <cstdio>
#include <set>

namespace sublet::scheduler {
namespace {

std::string Number(double value) {
  char text[48];
  std::snprintf(text, sizeof(text), "%.10g", value);
  return text;
}

void Head(std::string& out, const std::string& name, const char* help, const char* type) {
  out += "# HELP " + name + " " + help + "\n# TYPE " + name + " " + type + "\n";
}

void One(std::string& out, const std::string& name, const char* help, const char* type,
         double value) {
  Head(out, name, help, type);
  out += name + " " + Number(value) + "\n";
}

double Millisecs(std::int64_t micros) { return static_cast<double>(micros) / 1000; }

Action ActionAt(std::size_t index) { return static_cast<Action>(index); }

// The victim searches are those of the actions that may evict for a waiting job.
bool Searches(Action action) {
  return action == Action::kConsolidation || action == Action::kReclaim ||
         action == Action::kPreempt;
}

}  // namespace

void SchedulerMetrics::Histogram::Observe(double milliseconds) {
  std::size_t at = 0;
  for (double bound = 5; at + 1 < counts.size() && milliseconds > bound; bound *= 2) {
    ++at;
  }
  ++counts[at];
  sum += milliseconds;
}

void SchedulerMetrics::Cycle(const CycleResult& cycle, std::int64_t micros, Millis now,
                             const Engine& engine) {
  const State& state = engine.state();
  MutexLock lock(mutex_);
  ++cycles_;
  micros_ += micros;
  micros_last_ = micros;
  open_last_ = cycle.open_micros;
  close_last_ = cycle.close_micros;
  shares_last_ = cycle.shares_micros;
  refused_ += static_cast<std::int64_t>(cycle.verdicts.size());
  for (std::size_t i = 0; i < kActions; ++i) {
    actions_[i].last = cycle.actions[i];
    ActionStats& all = actions_[i].all;
    all.considered += cycle.actions[i].considered;
    all.scheduled += cycle.actions[i].scheduled;
    all.simulated += cycle.actions[i].simulated;
    all.filtered += cycle.actions[i].filtered;
    all.exhausted += cycle.actions[i].exhausted;
  }
  for (const Decision& decision : cycle.decisions) {
    const Task& task = state.task(decision.task);
    if (decision.kind == Decision::Kind::kBind) {
      ++bound_;
      scheduled_in_.Observe(static_cast<double>(std::max<Millis>(now - task.created, 0)));
    }
    if (decision.kind != Decision::Kind::kEvict) {
      continue;
    }
    const Job* job = task.job == kNone ? nullptr : &state.job(task.job);
    const auto labels = [&](const std::string& group, const std::string& space,
                            const std::string& uid) {
      return "{podgroup=\"" + group + "\",namespace=\"" + space + "\",uid=\"" + uid +
             "\",nodepool=\"\",action=\"" + decision.action + "\"}";
    };
    std::string key =
        job == nullptr ? labels("", task.ns, "") : labels(job->name, job->ns, job->uid);
    if (evicted_.size() >= kGroupsMax && evicted_.count(key) == 0) {
      key = labels("other", "other", "other");
    }
    ++evicted_[key];
  }
}

void SchedulerMetrics::Bound(std::int64_t micros) {
  MutexLock lock(mutex_);
  bound_in_.Observe(Millisecs(micros));
}

void SchedulerMetrics::UsageRead(std::int64_t micros) {
  MutexLock lock(mutex_);
  usage_read_in_.Observe(Millisecs(micros));
}

void SchedulerMetrics::Queues(std::vector<QueueView> queues) {
  MutexLock lock(mutex_);
  queues_ = std::move(queues);
}

void SchedulerMetrics::Usage(std::map<std::string, std::array<double, 3>> shares) {
  MutexLock lock(mutex_);
  usage_ = std::move(shares);
}

void SchedulerMetrics::AppendLatencies(std::string& out) const {
  One(out, "kai_e2e_scheduling_latency_milliseconds", "Time of the last scheduling cycle", "gauge",
      Millisecs(micros_last_));
  One(out, "kai_open_session_latency_milliseconds", "Time the last cycle took to begin", "gauge",
      Millisecs(open_last_));
  One(out, "kai_close_session_latency_milliseconds", "Time the last cycle took to end", "gauge",
      Millisecs(close_last_));
  Head(out, "kai_plugin_scheduling_latency_milliseconds",
       "Time of a plugin when the last cycle began", "gauge");
  out +=
      "kai_plugin_scheduling_latency_milliseconds{plugin=\"proportion\",OnSession="
      "\"OnSessionOpen\"} " +
      Number(Millisecs(shares_last_)) + "\n";
  const auto histogram = [&out](const std::string& name, const char* help, const Histogram& h) {
    Head(out, name, help, "histogram");
    std::int64_t sum = 0;
    double bound = 5;
    for (std::size_t i = 0; i < h.counts.size(); ++i, bound *= 2) {
      sum += h.counts[i];
      out += name + "_bucket{le=\"" + (i + 1 == h.counts.size() ? "+Inf" : Number(bound)) + "\"} " +
             std::to_string(sum) + "\n";
    }
    out += name + "_sum " + Number(h.sum) + "\n" + name + "_count " + std::to_string(sum) + "\n";
  };
  histogram("kai_task_scheduling_latency_milliseconds", "From a pod's creation to its decision",
            scheduled_in_);
  histogram("kai_task_bind_latency_milliseconds", "The binding of a pod", bound_in_);
  histogram("kai_usage_query_latency_milliseconds", "Reading the usage history", usage_read_in_);
}

void SchedulerMetrics::AppendActions(std::string& out) const {
  const std::array<PerAction, kActions> actions = actions_;
  const auto family = [&](const std::string& name, const char* help, const char* type,
                          bool searches, const std::string& more, auto value) {
    Head(out, name, help, type);
    for (std::size_t i = 0; i < kActions; ++i) {
      if (!searches || Searches(ActionAt(i))) {
        out += name + "{action=\"" + ActionName(ActionAt(i)) + "\"" + more + "} " +
               Number(value(actions[i])) + "\n";
      }
    }
  };
  const auto count = [](std::int64_t value) { return static_cast<double>(value); };
  family("kai_action_scheduling_latency_milliseconds", "Time of each action in the last cycle",
         "gauge", false, "", [](const PerAction& a) { return Millisecs(a.last.micros); });
  family("kai_podgroups_scheduled_by_action", "Pod groups placed", "counter", false, "",
         [&](const PerAction& a) { return count(a.all.scheduled); });
  family("kai_podgroups_acted_on_by_action", "Pod groups tried", "counter", false, "",
         [&](const PerAction& a) { return count(a.all.considered); });
  family("kai_scenarios_simulation_by_action", "Scenarios simulated", "counter", true, "",
         [&](const PerAction& a) { return count(a.all.simulated); });
  family("kai_scenarios_filtered_by_action", "Scenarios ruled out before a simulation", "counter",
         true, "", [&](const PerAction& a) { return count(a.all.filtered); });
  family("kai_scenario_search_jobs_total", "Jobs that a victim search was made for", "counter",
         true, ",result=\"solved\",reduced_budget=\"false\"",
         [&](const PerAction& a) { return count(a.all.scheduled); });
  for (std::size_t i = 0; i < kActions; ++i) {
    if (Searches(ActionAt(i))) {
      out += std::string("kai_scenario_search_jobs_total{action=\"") + ActionName(ActionAt(i)) +
             "\",result=\"unsolved\",reduced_budget=\"false\"} " +
             std::to_string(actions[i].all.considered - actions[i].all.scheduled) + "\n";
    }
  }
  family("kai_scenario_search_action_budget_exhausted_total",
         "Victim searches that were cut off for want of steps", "counter", true, "",
         [&](const PerAction& a) { return count(a.all.exhausted); });
  family("kai_scenario_search_scenarios_total", "Scenarios of the victim searches", "counter", true,
         ",generator=\"victims\",state=\"simulated\"",
         [&](const PerAction& a) { return count(a.all.simulated); });
  for (std::size_t i = 0; i < kActions; ++i) {
    if (Searches(ActionAt(i))) {
      out += std::string("kai_scenario_search_scenarios_total{action=\"") +
             ActionName(ActionAt(i)) + "\",generator=\"victims\",state=\"filtered\"} " +
             std::to_string(actions[i].all.filtered) + "\n";
    }
  }
  std::int64_t attempts = 0;
  for (std::size_t i = 0; i < kActions; ++i) {
    attempts += Searches(ActionAt(i)) ? actions[i].all.considered : 0;
  }
  One(out, "kai_total_preemption_attempts", "Pod groups for which others might have had to go",
      "counter", count(attempts));
  Head(out, "kai_pod_group_evicted_pods_total", "Evictions decided", "counter");
  for (const auto& [labels, evicted] : evicted_) {
    out += "kai_pod_group_evicted_pods_total" + labels + " " + std::to_string(evicted) + "\n";
  }
  One(out, "sublet_scheduler_cycles_total", "Cycles run", "counter", count(cycles_));
  One(out, "sublet_scheduler_seconds_total", "Time spent deciding", "counter",
      count(micros_) / 1e6);
  One(out, "sublet_scheduler_bindings_total", "Bindings decided", "counter", count(bound_));
  One(out, "sublet_scheduler_refusals_total", "Verdicts that a pod group cannot be placed",
      "counter", count(refused_));
}

void SchedulerMetrics::AppendQueues(std::string& out) const {
  const std::vector<QueueView> queues = queues_;
  const std::map<std::string, std::array<double, 3>> usage = usage_;
  const auto family = [&](const std::string& name, const char* help, auto value) {
    Head(out, name, help, "gauge");
    for (const QueueView& queue : queues) {
      out += name + "{queue_name=\"" + queue.name + "\",queue_metadata_name=\"" + queue.name +
             "\"} " + Number(value(queue)) + "\n";
    }
  };
  constexpr double kCores = 1000;
  constexpr double kGigabyte = 1e9;
  const auto quota = [](const QueueView& q, int dim, double unit) {
    return q.share.r[dim].deserved < 0 ? -1 : q.share.r[dim].deserved / unit;
  };
  Head(out, "kai_queue_info", "Queues and their quotas", "gauge");
  for (const QueueView& q : queues) {
    out += "kai_queue_info{queue_name=\"" + q.name + "\",gpu_guaranteed_quota=\"" +
           Number(quota(q, kGpu, 1)) + "\",cpu_quota=\"" + Number(quota(q, kCpu, kCores)) +
           "\",memory_quota=\"" + Number(quota(q, kMemory, 1)) + "\"} 1\n";
  }
  family("kai_queue_fair_share_cpu_cores", "Fair share of CPU",
         [](const QueueView& q) { return q.share.r[kCpu].fair_share / kCores; });
  family("kai_queue_fair_share_memory_gb", "Fair share of memory",
         [](const QueueView& q) { return q.share.r[kMemory].fair_share / kGigabyte; });
  family("kai_queue_fair_share_gpu", "Fair share of GPUs",
         [](const QueueView& q) { return q.share.r[kGpu].fair_share; });
  family("kai_queue_deserved_gpus", "GPU quota",
         [&](const QueueView& q) { return quota(q, kGpu, 1); });
  family("kai_queue_quota_cpu_cores", "CPU quota",
         [&](const QueueView& q) { return quota(q, kCpu, kCores); });
  family("kai_queue_quota_memory_bytes", "Memory quota",
         [&](const QueueView& q) { return quota(q, kMemory, 1); });
  family("kai_queue_allocated_gpus", "GPUs allocated",
         [](const QueueView& q) { return q.share.r[kGpu].allocated; });
  family("kai_queue_allocated_cpu_cores", "CPU allocated",
         [](const QueueView& q) { return q.share.r[kCpu].allocated / kCores; });
  family("kai_queue_allocated_memory_bytes", "Memory allocated",
         [](const QueueView& q) { return q.share.r[kMemory].allocated; });
  static constexpr const char* kUsage[] = {"kai_queue_cpu_usage", "kai_queue_memory_usage",
                                           "kai_queue_gpu_usage"};
  for (std::size_t i = 0; i < 3; ++i) {
    family(kUsage[i], "Past use that the fair shares count, as a share of the cluster",
           [&](const QueueView& q) {
             const auto it = usage.find(q.name);
             return it == usage.end() ? 0.0 : it->second[i];
           });
  }
}

void SchedulerMetrics::Append(std::string& out) const {
  MutexLock lock(mutex_);
  AppendLatencies(out);
  AppendActions(out);
  AppendQueues(out);
}

}  // namespace sublet::scheduler
