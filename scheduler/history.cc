#include "scheduler/history.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

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

class HistoryReader {
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
  HistoryReader reader;
  for (const std::string_view document : Documents(text)) {
    SUBLET_TRY(const Json parsed, kube::ParseJson(document));
    const Json* object = Find(parsed, {"object"});
    const auto type = FindString(parsed, {"type"});
    SUBLET_RETURN_IF_ERROR(
        reader.Add(object != nullptr && !type.empty() ? *object : parsed, type == "DELETED"));
  }
  return reader.Finish();
}

}  // namespace sublet::scheduler
