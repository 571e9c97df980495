#include "scheduler/replay.h"

#include <algorithm>
#include <memory>
#include <set>

namespace sublet::scheduler {

namespace {

class Player {
 public:
  Player(const History& history, const Profile& profile) : history_(history) {
    Profile rules = profile;
    for (const HistoryPod& pod : history.pods) {
      // The profile takes every pod that a KAI-like scheduler had; kube-scheduler's pods stay with
      // it.
      if (!rules.kube && pod.spec.scheduler_name != "default-scheduler" &&
          !pod.spec.scheduler_name.empty()) {
        names_.insert(pod.spec.scheduler_name);
      }
    }
    names_.insert(rules.scheduler_names.begin(), rules.scheduler_names.end());
    rules.scheduler_names.assign(names_.begin(), names_.end());
    std::vector<Profile> profiles{rules};
    if (!rules.kube) {
      profiles.push_back(*NamedProfile("default"));
    } else {
      kube_ = true;
    }
    engine_ = std::make_unique<Engine>(std::move(profiles));
    engine_->Apply(history.base);
    report_.profile = profile.name;
    report_.pods = history.pods.size();
    for (const NodeSpec& node : history.base.nodes) {
      devices_ += static_cast<double>(node.gpus);
    }
    for (const PodGroupSpec& group : history.base.groups) {
      queues_[group.Key()] = group.queue;
    }
    for (std::size_t i = 0; i < history.pods.size(); ++i) {
      pods_[history.pods[i].spec.uid].history = i;
    }
  }

  ReplayReport Play() {
    std::size_t next = 0;
    Millis now = history_.begin;
    Millis earliest = kNever;
    for (std::size_t cycle = 0; cycle < history_.pods.size() * 10 + 1000; ++cycle) {
      for (; next < history_.pods.size() && history_.pods[next].arrives <= now; ++next) {
        Arrive(history_.pods[next].spec);
      }
      while (!ends_.empty() && ends_.begin()->first <= now) {
        End(ends_.begin()->second, now);
        ends_.erase(ends_.begin());
      }
      const CycleResult result = engine_->Run(now);
      const bool acted = Act(result, now);
      if (acted || result.more) {
        now += acted ? 1 : 0;  // what was evicted frees its place for the next cycle
        continue;
      }
      earliest = result.earliest;
      Millis then = next < history_.pods.size() ? history_.pods[next].arrives : kNever;
      then = ends_.empty() ? then : std::min(then, ends_.begin()->first);
      // Time alone may decide; but not for ever when nothing comes of it.
      if (earliest != kNever && earliest > now && idle_timers_ < 100) {
        idle_timers_ += earliest < then ? 1 : 0;
        then = std::min(then, earliest);
      }
      if (then == kNever) {
        break;
      }
      now = std::max(then, now + 1);
    }
    Finish(now);
    return std::move(report_);
  }

 private:
  struct Row {
    std::size_t history = 0;
    Millis started = -1;  // of the present run
    bool first = true;
  };

  void Arrive(const PodSpec& pod) {
    PodSpec spec = pod;
    if (kube_) {
      spec.scheduler_name = "default-scheduler";
    }
    engine_->Apply(spec);
  }

  bool Act(const CycleResult& result, Millis now) {
    bool acted = false;
    for (const Decision& decision : result.decisions) {
      if (decision.kind == Decision::Kind::kPipeline) {
        continue;
      }
      acted = true;
      Row& row = pods_[decision.pod_uid];
      const HistoryPod& pod = history_.pods[row.history];
      PodSpec spec = *engine_->ExportPod(decision.pod_uid);
      if (decision.kind == Decision::Kind::kBind) {
        spec.phase = Phase::kRunning;
        spec.node = decision.node;
        spec.gpu_groups = decision.gpu_groups;
        spec.gpu_devices = decision.gpu_devices;
        engine_->Apply(spec);
        row.started = now;
        idle_timers_ = 0;
        if (row.first) {
          row.first = false;
          report_.places[spec.ns + "/" + spec.name] = {decision.node, now - pod.arrives};
        }
        if (pod.runs >= 0) {
          ends_.emplace(now + pod.runs, decision.pod_uid);
        }
      } else {
        ++report_.evictions;
        Account(decision.pod_uid, now);
        std::erase_if(ends_, [&](const auto& end) { return end.second == decision.pod_uid; });
        engine_->DeletePod(decision.pod_uid);
        Arrive(pod.spec);
      }
    }
    return acted;
  }

  void End(const std::string& uid, Millis now) {
    Account(uid, now);
    engine_->DeletePod(uid);
  }

  // Counts the GPU time of the run that ends now.
  void Account(const std::string& uid, Millis now) {
    Row& row = pods_[uid];
    if (row.started >= 0) {
      used_[row.history] += static_cast<double>(now - row.started);
      row.started = -1;
    }
  }

  static double GpusOf(const Request& request) {
    return static_cast<double>(request.gpu_count) *
           (request.gpu == GpuKind::kFraction ? request.portion : 1.0);
  }

  void Finish(Millis end) {
    for (auto& [uid, row] : pods_) {
      Account(uid, end);
    }
    report_.makespan = end - history_.begin;
    report_.placed = report_.places.size();
    CountWaits();
    CountUse(end);
  }

  void CountWaits() {
    std::vector<Millis> waits;
    for (const auto& [name, place] : report_.places) {
      waits.push_back(place.second);
    }
    std::sort(waits.begin(), waits.end());
    if (!waits.empty()) {
      double sum = 0;
      for (Millis wait : waits) {
        sum += static_cast<double>(wait);
      }
      report_.wait_mean_s = sum / static_cast<double>(waits.size()) / 1000;
      report_.wait_p50_s = static_cast<double>(waits[waits.size() / 2]) / 1000;
      report_.wait_p95_s = static_cast<double>(waits[waits.size() * 95 / 100]) / 1000;
      report_.wait_max_s = static_cast<double>(waits.back()) / 1000;
    }
  }

  void CountUse(Millis end) {
    std::map<std::string, std::pair<double, double>> queues;  // used, asked
    double used = 0;
    for (std::size_t i = 0; i < history_.pods.size(); ++i) {
      const HistoryPod& pod = history_.pods[i];
      const double gpus = GpusOf(pod.spec.request);
      const double time = used_.count(i) != 0 ? used_.at(i) : 0;
      used += gpus * time;
      auto& queue = queues[queues_[pod.spec.group]];
      queue.first += gpus * time;
      const auto left = static_cast<double>(std::max<Millis>(end - pod.arrives, 0));
      queue.second += gpus * (pod.runs >= 0 ? std::min(left, static_cast<double>(pod.runs)) : left);
    }
    if (devices_ > 0 && report_.makespan > 0) {
      report_.gpu_utilisation = used / (devices_ * static_cast<double>(report_.makespan));
    }
    report_.fairness = Fairness(queues);
  }

  // Jain's index over used per asked.
  static double Fairness(const std::map<std::string, std::pair<double, double>>& queues) {
    double sum = 0;
    double squares = 0;
    int count = 0;
    for (const auto& [name, queue] : queues) {
      if (queue.second > 0) {
        const double share = queue.first / queue.second;
        sum += share;
        squares += share * share;
        ++count;
      }
    }
    return squares > 0 ? sum * sum / (count * squares) : 1;
  }

  const History& history_;
  std::set<std::string> names_;
  bool kube_ = false;
  std::unique_ptr<Engine> engine_;
  ReplayReport report_;
  double devices_ = 0;
  int idle_timers_ = 0;
  std::map<std::string, Row> pods_;            // by uid
  std::map<std::size_t, double> used_;         // run time by pod, milliseconds
  std::map<std::string, std::string> queues_;  // by group
  std::multimap<Millis, std::string> ends_;
};

}  // namespace

ReplayReport Replay(const History& history, const Profile& profile) {
  return Player(history, profile).Play();
}

}  // namespace sublet::scheduler
