#include "scheduler/suggest_candidates.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "scheduler/messages.h"

namespace sublet::scheduler {

namespace {

std::string Text(double value) {
  char text[48];
  std::snprintf(text, sizeof text, "%.10g", value);
  return text;
}

class Maker {
 public:
  Maker(const std::vector<Profile>& profiles, const Snapshot& snapshot, const PodSpec& pod,
        Millis now)
      : snapshot_(snapshot), pod_(pod), engine_(profiles) {
    engine_.Apply(snapshot);
    engine_.Run(now);
    explanation_ = engine_.Explain(pod.uid, now);
    for (const PodGroupSpec& group : snapshot.groups) {
      if (group.Key() == pod.group) {
        group_ = &group;
      }
    }
    for (const PodSpec& other : snapshot.pods) {
      gang_ += other.group == pod.group && other.node.empty() ? 1 : 0;
      members_ += other.group == pod.group ? 1 : 0;
    }
    gang_ = std::max<std::size_t>(pod.group.empty() ? 1 : gang_, 1);
  }

  std::vector<Candidate> Make() {
    if (!explanation_) {
      return {};
    }
    MissingPods();
    MissingQueue();
    QueueLimits();
    QueueQuotas();
    Constraints();
    SmallerRequest();
    Priority();
    OthersLeave();
    MoreNodes();
    return std::move(list_);
  }

 private:
  // What the whole batch asks for, in the units of quotas.
  double Asked(int dim) const {
    double amount = static_cast<double>(explanation_->request[static_cast<std::size_t>(dim)]) *
                    static_cast<double>(gang_);
    return dim == kGpu ? amount / kDevice : amount;
  }

  void Add(std::string change, std::function<void(Snapshot&)> apply,
           Family family = Family::kAlone) {
    list_.push_back({std::move(change), std::move(apply), family});
  }

  void MissingPods() {
    if (group_ == nullptr) {
      return;
    }
    std::size_t least = 0;
    for (const PodSetSpec& set : group_->root.pod_sets) {
      least += static_cast<std::size_t>(std::max(set.min_available, 0));
    }
    if (!group_->root.groups.empty() || members_ >= least) {
      return;
    }
    const std::size_t missing = least - members_;
    Add("create the " + std::to_string(missing) + " pods that its gang is waiting for",
        [pod = pod_, missing](Snapshot& to) {
          for (std::size_t i = 0; i < missing && i < 10'000; ++i) {
            PodSpec copy = pod;
            copy.uid += "~" + std::to_string(i);
            copy.name += "~" + std::to_string(i);
            to.pods.push_back(std::move(copy));
          }
        });
  }

  void MissingQueue() {
    if (group_ == nullptr || !explanation_->queues.empty()) {
      return;
    }
    Add("create queue \"" + explanation_->queue + "\"", [name = explanation_->queue](Snapshot& to) {
      QueueSpec queue;
      queue.name = name;
      queue.cpu.quota = queue.memory.quota = queue.gpu.quota = kUnlimited;
      to.queues.push_back(std::move(queue));
    });
  }

  // Raises `member` of every queue from the pod's to the root that is below what is held and asked.
  void Raise(const char* word, double QueueQuota::*member) {
    static constexpr const char* kNames[] = {"CPU", "memory", "GPU"};
    static constexpr const char* kUnits[] = {"m", " bytes", ""};
    std::string change;
    std::vector<std::tuple<std::string, int, double>> raised;
    for (const QueueView& view : explanation_->queues) {
      for (int dim = 0; dim < kShareDims; ++dim) {
        const ResourceShare& share = view.share.r[static_cast<std::size_t>(dim)];
        const double now = member == &QueueQuota::limit ? share.limit : share.deserved;
        const double wanted = share.allocated + Asked(dim);
        if (now == kUnlimited || Asked(dim) <= 0 || wanted <= now) {
          continue;
        }
        const double target = std::ceil(wanted * 100) / 100;
        raised.emplace_back(view.name, dim, target);
        change += (change.empty() ? "raise the " : " and the ") + std::string(kNames[dim]) + " " +
                  word + " of queue " + view.name + " from " + Text(now) + kUnits[dim] + " to " +
                  Text(target) + kUnits[dim];
      }
    }
    if (raised.empty()) {
      return;
    }
    Add(
        change,
        [raised, member](Snapshot& to) {
          for (QueueSpec& queue : to.queues) {
            for (const auto& [name, dim, target] : raised) {
              if (queue.name == name) {
                QueueQuota* const amounts[] = {&queue.cpu, &queue.memory, &queue.gpu};
                amounts[dim]->*member = target;
              }
            }
          }
        },
        Family::kQueueAmounts);
  }
  void QueueLimits() { Raise("limit", &QueueQuota::limit); }
  void QueueQuotas() {
    Raise("quota", &QueueQuota::quota);
    if (list_.size() >= 2 &&
        list_[list_.size() - 2].change.find(" limit of ") != std::string::npos) {
      const Candidate limit = list_[list_.size() - 2];
      const Candidate quota = list_.back();
      Add(
          limit.change + ", and " + quota.change,
          [limit, quota](Snapshot& to) {
            limit.apply(to);
            quota.apply(to);
          },
          Family::kQueueAmounts);
    }
  }

  // Applies `edit` to every waiting pod of the gang.
  void EditPods(std::string change, std::function<void(PodSpec&)> edit,
                Family family = Family::kAlone) {
    Add(
        std::move(change),
        [uid = pod_.uid, group = pod_.group, edit = std::move(edit)](Snapshot& to) {
          for (PodSpec& pod : to.pods) {
            if (pod.uid == uid || (!group.empty() && pod.group == group && pod.node.empty())) {
              edit(pod);
            }
          }
        },
        family);
  }

  // Counts of GPUs below the one that is asked for, largest first: what the emptiest node has free,
  // what each queue's limit leaves, and halves.
  std::set<std::int64_t, std::greater<>> SmallerCounts() const {
    const std::int64_t asked = pod_.request.gpu_count;
    std::set<std::int64_t, std::greater<>> counts;
    for (const Explanation::NodeRow& row : explanation_->nodes) {
      counts.insert(row.idle[kGpu] / kDevice);
    }
    for (const QueueView& view : explanation_->queues) {
      const ResourceShare& share = view.share.r[kGpu];
      if (share.limit != kUnlimited) {
        counts.insert(static_cast<std::int64_t>((share.limit - share.allocated) /
                                                static_cast<double>(gang_)));
      }
    }
    for (std::int64_t half = asked / 2; half >= 1; half /= 2) {
      counts.insert(half);
    }
    std::erase_if(counts, [&](std::int64_t count) { return count < 1 || count >= asked; });
    return counts;
  }

  void Constraints() {
    if (!pod_.constraints.node_selector.empty() || pod_.constraints.has_affinity) {
      EditPods("drop its node selector and node affinity", [](PodSpec& pod) {
        pod.constraints.node_selector.clear();
        pod.constraints.has_affinity = false;
        pod.constraints.required.clear();
      });
    }
    if (!pod_.constraints.affinity.empty() || !pod_.constraints.anti_affinity.empty() ||
        !pod_.constraints.spread.empty()) {
      EditPods("drop its pod affinity, anti-affinity and spread constraints", [](PodSpec& pod) {
        pod.constraints.affinity.clear();
        pod.constraints.anti_affinity.clear();
        pod.constraints.spread.clear();
      });
    }
    if (!pod_.constraints.ports.empty()) {
      EditPods("drop its host ports", [](PodSpec& pod) { pod.constraints.ports.clear(); });
    }
    std::string taints;
    for (const NodeSpec& node : snapshot_.nodes) {
      for (const Taint& taint : node.taints) {
        const std::string one =
            taint.key + (taint.value.empty() ? "" : "=" + taint.value) + ":" + taint.effect;
        if (taint.effect != "PreferNoSchedule" &&
            taint.key.compare(0, 19, "node.kubernetes.io/") != 0 &&
            taints.find(one) == std::string::npos && taints.size() < 200) {
          taints += (taints.empty() ? "" : ", ") + one;
        }
      }
    }
    if (!taints.empty()) {
      EditPods("let it tolerate " + taints, [](PodSpec& pod) {
        pod.constraints.tolerations.push_back({"", true, "", ""});
      });
    }
    if (group_ != nullptr && group_->root.topology && !group_->root.topology->required.empty()) {
      Add("make its required topology level \"" + group_->root.topology->required +
              "\" a preferred one",
          [key = pod_.group](Snapshot& to) {
            for (PodGroupSpec& group : to.groups) {
              if (group.Key() == key) {
                group.root.topology->preferred = std::move(group.root.topology->required);
                group.root.topology->required.clear();
              }
            }
          });
    }
  }

  void SmallerRequest() {
    const Request& request = pod_.request;
    if (request.gpu == GpuKind::kWhole && request.gpu_count > 0) {
      for (const std::int64_t count : SmallerCounts()) {
        EditPods(
            "ask for " + std::to_string(count) + (count == 1 ? " GPU" : " GPUs") + " instead of " +
                std::to_string(request.gpu_count),
            [count](PodSpec& pod) { pod.request.gpu_count = count; }, Family::kSmallerRequest);
      }
      if (request.gpu_count == 1) {
        EditPods("ask for half a GPU (gpu-fraction 0.5)", [](PodSpec& pod) {
          pod.request.gpu = GpuKind::kFraction;
          pod.request.portion = 0.5;
        });
      }
    } else if (request.gpu == GpuKind::kFraction) {
      EditPods("ask for half the fraction (gpu-fraction " + Text(request.portion / 2) + ")",
               [](PodSpec& pod) { pod.request.portion /= 2; });
    }
    if (request.cpu > 0 && request.gpu_count == 0) {
      EditPods("ask for " + std::to_string(request.cpu / 2) + "m CPU and half the memory",
               [](PodSpec& pod) {
                 pod.request.cpu /= 2;
                 pod.request.memory /= 2;
               });
    }
  }

  void Priority() {
    if (group_ == nullptr) {
      return;
    }
    if (group_->preemptibility == "non-preemptible" ||
        (group_->preemptibility.empty() && group_->priority >= 100)) {
      Add("make it preemptible (label kai.scheduler/preemptibility: preemptible)",
          [key = pod_.group](Snapshot& to) {
            for (PodGroupSpec& group : to.groups) {
              if (group.Key() == key) {
                group.preemptibility = "preemptible";
              }
            }
          });
    }
    int highest = group_->priority;
    for (const PodGroupSpec& other : snapshot_.groups) {
      highest = other.queue == group_->queue ? std::max(highest, other.priority) : highest;
    }
    // A preemptible victim has less than 100.
    const int wanted = std::min(highest + 1, 125);
    if (wanted > group_->priority) {
      Add("raise its priority from " + std::to_string(group_->priority) + " to " +
              std::to_string(wanted),
          [key = pod_.group, wanted](Snapshot& to) {
            for (PodGroupSpec& group : to.groups) {
              if (group.Key() == key) {
                group.preemptibility = group.preemptibility.empty() && group.priority < 100
                                           ? "preemptible"
                                           : group.preemptibility;
                group.priority = wanted;
              }
            }
          });
    }
  }

  // The pods of lowest priority of one node leave, until there is as much as the pod asks for.
  void OthersLeave() {
    std::map<std::string, int> priorities;
    for (const PodGroupSpec& group : snapshot_.groups) {
      priorities[group.Key()] = group.priority;
    }
    const auto priority = [&](const PodSpec& pod) {
      const auto found = priorities.find(pod.group);
      return found == priorities.end() ? pod.priority : found->second;
    };
    std::map<std::string, std::vector<const PodSpec*>> on;
    for (const PodSpec& pod : snapshot_.pods) {
      if (!pod.node.empty() &&
          (pod_.request.gpu_count == 0 || pod.request.gpu_count > 0)) {  // who frees nothing stays
        on[pod.node].push_back(&pod);
      }
    }
    std::vector<std::vector<const PodSpec*>> sets;
    for (auto& [node, pods] : on) {
      std::stable_sort(pods.begin(), pods.end(), [&](const PodSpec* a, const PodSpec* b) {
        return priority(*a) < priority(*b);
      });
      std::int64_t wanted = std::max<std::int64_t>(pod_.request.gpu_count, 1);
      for (const Explanation::NodeRow& row : explanation_->nodes) {
        wanted -= row.node == node && pod_.request.gpu_count > 0 ? row.idle[kGpu] / kDevice : 0;
      }
      std::vector<const PodSpec*> leave;
      for (const PodSpec* pod : pods) {
        if (wanted <= 0) {
          break;
        }
        leave.push_back(pod);
        wanted -= pod_.request.gpu_count > 0 ? pod->request.gpu_count : 1;
      }
      if (wanted <= 0 && !leave.empty() && leave.size() <= 8) {
        sets.push_back(std::move(leave));
      }
    }
    std::stable_sort(sets.begin(), sets.end(),
                     [](const auto& a, const auto& b) { return a.size() < b.size(); });
    for (std::size_t i = 0; i < sets.size() && i < 2; ++i) {
      std::string names;
      std::vector<std::string> uids;
      for (const PodSpec* pod : sets[i]) {
        names += (names.empty() ? "" : ", ") + pod->ns + "/" + pod->name;
        uids.push_back(pod->uid);
      }
      Add("let " + names + " end (node " + sets[i][0]->node + ")", [uids](Snapshot& to) {
        std::erase_if(to.pods, [&](const PodSpec& pod) {
          return std::find(uids.begin(), uids.end(), pod.uid) != uids.end();
        });
      });
    }
  }

  void MoreNodes() {
    const NodeSpec* model = nullptr;
    for (const NodeSpec& node : snapshot_.nodes) {
      const auto size = [](const NodeSpec& n) { return std::make_tuple(n.gpus, n.cpu, n.memory); };
      if (node.ready && !node.unschedulable && (model == nullptr || size(node) > size(*model))) {
        model = &node;
      }
    }
    if (model == nullptr) {
      return;
    }
    for (int count : {1, 4}) {
      Add(
          "add " + std::to_string(count) + (count == 1 ? " node like " : " nodes like ") +
              model->name,
          [node = *model, count](Snapshot& to) {
            for (int i = 0; i < count; ++i) {
              NodeSpec copy = node;
              copy.name += "~new" + std::to_string(i);
              copy.taints.clear();
              for (GpuDevice& device : copy.devices) {
                device.uuid += "~new" + std::to_string(i);
                device.free_bytes = device.memory_bytes;
              }
              to.nodes.push_back(std::move(copy));
            }
          },
          Family::kMoreNodes);
    }
  }

  const Snapshot& snapshot_;
  const PodSpec& pod_;
  Engine engine_;
  std::optional<Explanation> explanation_;
  const PodGroupSpec* group_ = nullptr;
  std::size_t gang_ = 0, members_ = 0;
  std::vector<Candidate> list_;
};

}  // namespace

std::vector<Candidate> MakeCandidates(const std::vector<Profile>& profiles,
                                      const Snapshot& snapshot, const PodSpec& pod, Millis now) {
  return Maker(profiles, snapshot, pod, now).Make();
}

}  // namespace sublet::scheduler
