#include "scheduler/replay.h"

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "kube/object.h"
#include "kube/timestamp.h"
#include "scheduler/convert.h"

namespace sublet::scheduler {

namespace {

using kube::Find;
using kube::FindString;
using kube::Json;

constexpr std::size_t kPodsMax = 200'000;

Millis TimeAt(const Json& object, std::initializer_list<std::string_view> path) {
  const auto time = kube::FindTime(FindString(object, path));
  return time ? std::chrono::duration_cast<std::chrono::milliseconds>(time->time_since_epoch())
                    .count()
              : 0;
}

// How long the pod ran: until its last container ended, or until it was deleted.
Millis RunTime(const Json& pod, bool deleted) {
  const Millis start = TimeAt(pod, {"status", "startTime"});
  if (start == 0) {
    return -1;
  }
  Millis end = 0;
  bool all = false;
  if (const Json* statuses = Find(pod, {"status", "containerStatuses"});
      statuses != nullptr && statuses->is_array() && !statuses->empty()) {
    all = true;
    for (const Json& status : *statuses) {
      const Millis finished = TimeAt(status, {"state", "terminated", "finishedAt"});
      all = all && finished != 0;
      end = std::max(end, finished);
    }
  }
  if (!all) {
    end = deleted || kube::IsDeleting(pod) ? TimeAt(pod, {"metadata", "deletionTimestamp"}) : 0;
  }
  return end == 0 ? -1 : std::max<Millis>(end - start, 0);
}

class Reader {
 public:
  Result<void> Add(const Json& object, bool deleted) {
    const auto kind = FindString(object, {"kind"});
    if (kind == "List" || kind.ends_with("List")) {
      for (const Json& item : object.value("items", Json::array())) {
        SUBLET_RETURN_IF_ERROR(Add(item, deleted));
      }
      return Ok();
    }
    if (kind == "Pod") {
      HistoryPod pod;
      pod.spec = PodFromJson(object);
      pod.arrives = pod.spec.created;
      pod.runs = RunTime(object, deleted);
      queue_labels_[pod.spec.uid] = kube::LabelOf(object, "kai.scheduler/queue");
      if (pods_.size() >= kPodsMax) {
        return sublet::Status(Reason::kRequestEntityTooLarge, "more than 200000 pods");
      }
      pods_[pod.spec.uid] = std::move(pod);
    } else if (kind == "PodGroup") {
      groups_[std::string(kube::NamespaceOf(object)) + "/" + std::string(kube::NameOf(object))] =
          object;
    } else if (kind == "PriorityClass") {
      priorities_[std::string(kube::NameOf(object))] =
          static_cast<int>(kube::FindInt(object, {"value"}));
    } else if (kind == "Node") {
      nodes_[std::string(kube::NameOf(object))] = NodeFromJson(object);
    } else if (kind == "Queue") {
      queues_[std::string(kube::NameOf(object))] = QueueFromJson(object);
    } else if (kind == "Topology") {
      topologies_[std::string(kube::NameOf(object))] = TopologyFromJson(object);
    } else if (kind == "PodDisruptionBudget") {
      const DisruptionBudget budget = BudgetFromJson(object);
      budgets_[budget.Key()] = budget;
    } else {
      ++others_;
    }
    return Ok();
  }

  Result<History> Finish() {
    if (pods_.empty() || nodes_.empty()) {
      return BadRequest("the history needs nodes and pods (read " + std::to_string(nodes_.size()) +
                        " nodes, " + std::to_string(pods_.size()) + " pods, " +
                        std::to_string(others_) + " other objects)");
    }
    History out;
    const auto all = [](auto& map, auto* list) {
      for (auto& [key, value] : map) {
        list->push_back(std::move(value));
      }
    };
    all(nodes_, &out.base.nodes);
    all(queues_, &out.base.queues);
    all(topologies_, &out.base.topologies);
    all(budgets_, &out.base.budgets);
    for (const auto& [key, group] : groups_) {
      PodGroupSpec spec =
          PodGroupFromJson(group, [this](const std::string& name) -> std::optional<int> {
            const auto found = priorities_.find(name);
            return found == priorities_.end() ? std::nullopt : std::optional(found->second);
          });
      spec.last_start = spec.stale_since = spec.last_eviction = 0;
      out.base.groups.push_back(std::move(spec));
    }
    for (auto& [uid, pod] : pods_) {
      Arrive(pod.spec);
      if (!pod.spec.group.empty() && !groups_.contains(pod.spec.group)) {
        GroupFor(pod.spec, &out);
      }
      out.pods.push_back(std::move(pod));
    }
    std::sort(out.pods.begin(), out.pods.end(), [](const HistoryPod& a, const HistoryPod& b) {
      return std::tie(a.arrives, a.spec.ns, a.spec.name) <
             std::tie(b.arrives, b.spec.ns, b.spec.name);
    });
    out.begin = out.pods.front().arrives;
    return out;
  }

 private:
  // The pod as it was before anybody scheduled it.
  static void Arrive(PodSpec& pod) {
    pod.phase = Phase::kPending;
    pod.node.clear();
    pod.nominated_node.clear();
    pod.gpu_groups.clear();
    pod.gpu_devices.clear();
    pod.deleted = 0;
    if (pod.group.empty() && pod.scheduler_name != "default-scheduler" &&
        !pod.scheduler_name.empty()) {
      pod.group = pod.ns + "/pg-" + pod.name;
    }
  }

  void GroupFor(const PodSpec& pod, History* out) {
    if (!made_.insert(pod.group).second) {
      return;
    }
    PodGroupSpec group;
    group.ns = pod.ns;
    group.name = pod.group.substr(pod.ns.size() + 1);
    group.uid = group.name;
    const std::string& queue = queue_labels_[pod.uid];
    group.queue = queue.empty() ? "default-queue" : queue;
    group.scheduler_name = pod.scheduler_name;
    group.priority = pod.priority != 0 ? pod.priority : 50;
    group.created = pod.created;
    group.root.pod_sets.push_back({"default", 1, std::nullopt});
    out->base.groups.push_back(std::move(group));
  }

  std::map<std::string, HistoryPod> pods_;
  std::map<std::string, Json> groups_;
  std::map<std::string, std::string> queue_labels_;
  std::map<std::string, int> priorities_;
  std::map<std::string, NodeSpec> nodes_;
  std::map<std::string, QueueSpec> queues_;
  std::map<std::string, TopologySpec> topologies_;
  std::map<std::string, DisruptionBudget> budgets_;
  std::set<std::string> made_;
  std::size_t others_ = 0;
};

// Splits concatenated JSON objects; a document ends where its braces close.
std::vector<std::string_view> Documents(std::string_view text) {
  std::vector<std::string_view> out;
  int depth = 0;
  bool quoted = false;
  std::size_t begin = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted) {
      i += c == '\\' ? 1 : 0;
      quoted = c != '"';
    } else if (c == '"') {
      quoted = true;
    } else if (c == '{') {
      begin = depth++ == 0 ? i : begin;
    } else if (c == '}' && depth > 0 && --depth == 0) {
      out.push_back(text.substr(begin, i + 1 - begin));
    }
  }
  return out;
}

}  // namespace

Result<History> ReadHistory(const std::string& text) {
  Reader reader;
  for (const std::string_view document : Documents(text)) {
    SUBLET_TRY(const Json parsed, kube::ParseJson(document));
    const Json* object = Find(parsed, {"object"});
    const auto type = FindString(parsed, {"type"});
    SUBLET_RETURN_IF_ERROR(
        reader.Add(object != nullptr && !type.empty() ? *object : parsed, type == "DELETED"));
  }
  return reader.Finish();
}

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
    report_.fairness = squares > 0 ? sum * sum / (count * squares) : 1;
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

namespace {

Json ReportJson(const ReplayReport& report) {
  return {{"profile", report.profile},
          {"pods", report.pods},
          {"placed", report.placed},
          {"evictions", report.evictions},
          {"waitSeconds",
           {{"mean", report.wait_mean_s},
            {"p50", report.wait_p50_s},
            {"p95", report.wait_p95_s},
            {"max", report.wait_max_s}}},
          {"gpuUtilisation", report.gpu_utilisation},
          {"fairness", report.fairness},
          {"makespanSeconds", static_cast<double>(report.makespan) / 1000}};
}

std::string PlaceText(const ReplayReport& report, const std::string& pod) {
  const auto found = report.places.find(pod);
  if (found == report.places.end()) {
    return "never placed";
  }
  char wait[48];
  std::snprintf(wait, sizeof wait, " after %.3g s",
                static_cast<double>(found->second.second) / 1000);
  return found->second.first + wait;
}

std::vector<std::string> Different(const std::vector<ReplayReport>& reports) {
  std::set<std::string> names;
  for (const ReplayReport& report : reports) {
    for (const auto& [name, place] : report.places) {
      names.insert(name);
    }
  }
  std::vector<std::string> out;
  for (const std::string& name : names) {
    for (const ReplayReport& report : reports) {
      if (PlaceText(report, name) != PlaceText(reports[0], name)) {
        out.push_back(name);
        break;
      }
    }
  }
  return out;
}

void PrintReports(const std::vector<ReplayReport>& reports) {
  const auto row = [&](const char* name, const auto& text) {
    std::printf("%-18s", name);
    for (const ReplayReport& report : reports) {
      std::printf(" %20s", text(report).c_str());
    }
    std::printf("\n");
  };
  const auto number = [](double value) {
    char text[48];
    std::snprintf(text, sizeof text, "%.4g", value);
    return std::string(text);
  };
  row("PROFILE", [](const ReplayReport& r) { return r.profile; });
  row("pods placed", [](const ReplayReport& r) {
    return std::to_string(r.placed) + " of " + std::to_string(r.pods);
  });
  row("evictions", [](const ReplayReport& r) { return std::to_string(r.evictions); });
  row("wait mean (s)", [&](const ReplayReport& r) { return number(r.wait_mean_s); });
  row("wait p50 (s)", [&](const ReplayReport& r) { return number(r.wait_p50_s); });
  row("wait p95 (s)", [&](const ReplayReport& r) { return number(r.wait_p95_s); });
  row("wait max (s)", [&](const ReplayReport& r) { return number(r.wait_max_s); });
  row("GPU utilisation",
      [&](const ReplayReport& r) { return number(r.gpu_utilisation * 100) + " %"; });
  row("fairness (1=even)", [&](const ReplayReport& r) { return number(r.fairness); });
  row("makespan (s)",
      [&](const ReplayReport& r) { return number(static_cast<double>(r.makespan) / 1000); });
  const std::vector<std::string> different = Different(reports);
  std::printf("\n%zu pods differ%s\n", different.size(), different.empty() ? "" : ":");
  for (std::size_t i = 0; i < different.size() && i < 50; ++i) {
    std::printf("  %s\n", different[i].c_str());
    for (const ReplayReport& report : reports) {
      std::printf("    %-10s %s\n", report.profile.c_str(),
                  PlaceText(report, different[i]).c_str());
    }
  }
}

}  // namespace

int RunReplayCommand(const std::vector<std::string>& args) {
  std::string file;
  std::vector<Profile> profiles;
  bool json = false;
  for (std::size_t i = 0; i < args.size(); ++i) {
    const bool value = i + 1 < args.size();
    if (args[i] == "--profile" && value) {
      Result<Profile> profile = NamedProfile(args[++i]);
      if (!profile.ok()) {
        std::fprintf(stderr, "sublet scheduler replay: %s\n", profile.error().message().c_str());
        return 2;
      }
      profiles.push_back(std::move(*profile));
    } else if ((args[i] == "-o" || args[i] == "--output") && value && args[i + 1] == "json") {
      json = true;
      ++i;
    } else if (file.empty() && !args[i].starts_with("-")) {
      file = args[i];
    } else {
      file.clear();
      break;
    }
  }
  if (file.empty() || profiles.empty()) {
    std::fprintf(stderr,
                 "usage: sublet scheduler replay FILE --profile A [--profile B ...] [-o json]\n"
                 "  FILE: kubectl get "
                 "nodes,pods,queues.scheduling.run.ai,podgroups.scheduling.run.ai,priorityclasses "
                 "-A -o json\n");
    return 2;
  }
  std::ifstream in(file);
  std::stringstream text;
  text << in.rdbuf();
  const auto history = in ? ReadHistory(text.str()) : Result<History>(NotFound({"", "file"}, file));
  if (!history.ok()) {
    std::fprintf(stderr, "sublet scheduler replay: %s: %s\n", file.c_str(),
                 history.error().message().c_str());
    return 1;
  }
  std::vector<ReplayReport> reports;
  for (const Profile& profile : profiles) {
    reports.push_back(Replay(*history, profile));
  }
  if (json) {
    Json out = {{"profiles", Json::array()}, {"differences", Json::array()}};
    for (const ReplayReport& report : reports) {
      out["profiles"].push_back(ReportJson(report));
    }
    for (const std::string& name : Different(reports)) {
      Json difference = {{"pod", name}};
      for (const ReplayReport& report : reports) {
        difference[report.profile] = PlaceText(report, name);
      }
      out["differences"].push_back(std::move(difference));
    }
    std::printf("%s\n", kube::DumpPretty(out).c_str());
  } else {
    PrintReports(reports);
  }
  return 0;
}

}  // namespace sublet::scheduler
