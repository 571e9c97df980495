#include "scheduler/allocate.h"

#include <algorithm>
#include <limits>

#include "scheduler/filters.h"
#include "scheduler/kube_scores.h"
#include "scheduler/messages.h"
#include "scheduler/node_sets.h"
#include "scheduler/pod_filters.h"

namespace sublet::scheduler {

bool Allocator::OverCapacity(const Job& job, const Quota& asked, bool limits, JobFailure* failure) {
  State& state = session_.state;
  if (job.queue == kNone) {
    return false;
  }
  const Amounts request = ToAmounts(asked);
  bool over = false;
  const auto check = [&](const char* reason, auto first, auto text) {
    state.EachQueueUp(job.queue, [&](QueueId id, Queue& queue) {
      if (over) {
        return;
      }
      if (const int resource = first(queue.share, request); resource >= 0) {
        over = true;
        *failure = {reason, text(queue.share, resource), "", id, resource};
      }
    });
  };
  if (limits) {
    check("OverLimit", OverLimit,
          [&](const QueueShare& q, int r) { return LimitMessage(q, r, request[r]); });
  }
  if (!over && !job.preemptible) {
    check("NonPreemptibleOverQuota", NonPreemptibleOverQuota,
          [&](const QueueShare& q, int r) { return QuotaMessage(q, r, request); });
  }
  return over;
}

Quota Allocator::LeastAsked(const State& state, const std::vector<TaskId>& tasks) {
  Quota asked{};
  for (TaskId id : tasks) {
    const Shape& shape = *state.task(id).shape;
    Add(asked, shape.quota, 1);
    if (!state.pinned_min_memory && shape.request.gpu == GpuKind::kMemory) {
      asked[kGpu] +=
          shape.request.gpu_count * shape.request.gpu_memory_mib * kDevice / state.MaxGpuMemory();
    }
  }
  asked[kGpu] += state.count_dra ? state.ClaimGpus(tasks) : 0;
  return asked;
}

bool Allocator::Place(Statement& statement, const std::vector<NodeId>& nodes, const JobView& view,
                      bool simulate) {
  State& state = session_.state;
  Job& job = state.job(view.job);
  statement_ = &statement;
  view_ = &view;
  simulate_ = simulate;
  session_.topology_scores.clear();
  const std::vector<TaskId> tasks = Batch(state, view, simulate);
  if (session_.profile.min_sub_group && tasks.empty()) {
    return false;
  }
  const Quota asked = LeastAsked(state, tasks);
  JobFailure failure;
  if (!session_.profile.kube && OverCapacity(job, asked, true, &failure)) {
    if (!simulate) {
      job.failures.push_back(std::move(failure));
    }
    return false;
  }
  return PlaceGroup(0, nodes, tasks);
}

std::vector<int> Allocator::SetsBelow(const Job& job, int group) const {
  std::vector<int> sets = job.groups[static_cast<std::size_t>(group)].pod_sets;
  for (int child : job.groups[static_cast<std::size_t>(group)].groups) {
    const std::vector<int> below = SetsBelow(job, child);
    sets.insert(sets.end(), below.begin(), below.end());
  }
  return sets;
}

namespace {

std::vector<TaskId> TasksIn(const State& state, const std::vector<TaskId>& tasks,
                            const std::vector<int>& sets) {
  std::vector<TaskId> inside;
  for (TaskId id : tasks) {
    if (std::find(sets.begin(), sets.end(), state.task(id).pod_set) != sets.end()) {
      inside.push_back(id);
    }
  }
  return inside;
}

}  // namespace

// The pod sets below the sub group; from KAI 0.15 on those that have pods to place.
std::vector<int> Allocator::SetsOf(const Job& job, int index,
                                   const std::vector<TaskId>& tasks) const {
  std::vector<int> sets = SetsBelow(job, index);
  if (session_.profile.min_sub_group) {
    std::erase_if(sets, [&](int set) {
      return std::none_of(tasks.begin(), tasks.end(),
                          [&](TaskId id) { return session_.state.task(id).pod_set == set; });
    });
  }
  return sets;
}

// The children of the sub group in the order in which they are placed: by what they have and need,
// or, before KAI 0.15, sub groups by name and then pod sets.
std::vector<Member> Allocator::PlacingOrder(int index) const {
  const Job& job = session_.state.job(view_->job);
  const JobView whole = JobView::Whole(view_->job);
  if (session_.profile.min_sub_group) {
    return MemberOrder(job, whole, index);
  }
  const SubGroup& group = job.groups[static_cast<std::size_t>(index)];
  std::vector<int> children = group.groups;
  std::sort(children.begin(), children.end(), [&](int a, int b) {
    return job.groups[static_cast<std::size_t>(a)].name <
           job.groups[static_cast<std::size_t>(b)].name;
  });
  std::vector<Member> members;
  for (int child : children) {
    members.push_back({true, child});
  }
  for (std::size_t pod_set : PodSetOrder(job, whole, group.pod_sets)) {
    members.push_back({false, static_cast<int>(pod_set)});
  }
  return members;
}

bool Allocator::PlaceGroup(int index, const std::vector<NodeId>& nodes,
                           const std::vector<TaskId>& tasks) {
  State& state = session_.state;
  Job& job = state.job(view_->job);
  const SubGroup& group = job.groups[static_cast<std::size_t>(index)];
  if (session_.profile.min_sub_group && tasks.empty()) {
    return true;
  }
  const auto sets = NodeSets(session_, topologies_, job, group.topology, group.name,
                             SetsOf(job, index, tasks), tasks, nodes, !simulate_);
  for (const std::vector<NodeId>& set : sets) {
    const auto mark = statement_->Mark();
    bool placed = true;
    for (const Member& member : PlacingOrder(index)) {
      placed =
          placed &&
          (member.group
               ? PlaceGroup(member.index, set, TasksIn(state, tasks, SetsBelow(job, member.index)))
               : PlacePodSet(member.index, set, TasksIn(state, tasks, {member.index})));
    }
    if (placed) {
      return true;
    }
    statement_->Rollback(mark);
  }
  return false;
}

bool Allocator::PlacePodSet(int index, const std::vector<NodeId>& nodes,
                            const std::vector<TaskId>& tasks) {
  Job& job = session_.state.job(view_->job);
  const PodSet& pod_set = job.pod_sets[static_cast<std::size_t>(index)];
  const auto sets = NodeSets(session_, topologies_, job, pod_set.topology, pod_set.name, {index},
                             tasks, nodes, !simulate_);
  for (const std::vector<NodeId>& set : sets) {
    const auto mark = statement_->Mark();
    int placed = 0;
    for (TaskId id : tasks) {
      if (!PlaceTask(id, set)) {
        ReportFailure(id, set, placed);
        break;
      }
      ++placed;
    }
    if (placed == static_cast<int>(tasks.size())) {
      return true;
    }
    statement_->Rollback(mark);
  }
  return false;
}

const std::map<NodeId, double>* Allocator::TopologyScores(const Task& task) const {
  if (session_.topology_scores.empty()) {
    return nullptr;
  }
  const Job& job = session_.state.job(task.job);
  const PodSet& set = job.pod_sets[static_cast<std::size_t>(task.pod_set)];
  if (auto it = session_.topology_scores.find(set.name); it != session_.topology_scores.end()) {
    return &it->second;
  }
  for (int group = set.parent; group != kNone;
       group = job.groups[static_cast<std::size_t>(group)].parent) {
    auto it = session_.topology_scores.find(job.groups[static_cast<std::size_t>(group)].name);
    if (it != session_.topology_scores.end()) {
      return &it->second;
    }
  }
  return nullptr;
}

// Keeps only nodes where the amounts fit and gives each its score. KAI scores before it filters, so
// the range of free amounts is taken over all nodes of the set.
void Allocator::ScoreNodes(const Task& task, const std::vector<NodeId>& nodes) {
  State& state = session_.state;
  const Profile& profile = session_.profile;
  const Shape& shape = *task.shape;
  const bool gpu_task =
      shape.gpus > 0 || state.Dra(task) > 0 || shape.shared || shape.request.gpu == GpuKind::kMig;
  const int dim = gpu_task ? kGpu : kCpu;
  const PlacementOrder order = gpu_task ? profile.gpu : profile.cpu;
  double least = std::numeric_limits<double>::max();
  double most = 0;
  if (order == PlacementOrder::kBinpack) {
    for (NodeId id : nodes) {
      const NodeHot& hot = state.hot[static_cast<std::size_t>(id)];
      if ((gpu_task ? hot.gpu : hot.cpu) != 0) {
        const double free = static_cast<double>(hot.idle[dim] + hot.releasing[dim]);
        least = std::min(least, free);
        most = std::max(most, free);
      }
    }
  }
  candidates_.clear();
  for (NodeId id : nodes) {
    const NodeHot& hot = state.hot[static_cast<std::size_t>(id)];
    // The cheap part of the check first: most nodes of a full cluster end here.
    if (shape.tracked[kCpu] > hot.idle[kCpu] + hot.releasing[kCpu] ||
        (!shape.shared &&
         shape.tracked[kGpu] + state.Dra(task) > hot.idle[kGpu] + hot.releasing[kGpu]) ||
        !FitsLater(state, task, id)) {
      continue;
    }
    double score = 0;
    const bool now = FitsNow(state, task, id);
    score += profile.score_availability && now ? 100 : 0;
    score += profile.score_resource_type && !gpu_task && hot.cpu_only ? 10 : 0;
    // A pod of whole devices never shares; one without devices counts as fitting beside every
    // share.
    if (profile.score_sharing && hot.has_groups && (shape.shared || shape.tracked[kGpu] == 0)) {
      const Node& node = state.nodes[static_cast<std::size_t>(id)];
      for (const GpuGroup& group : node.groups) {
        if (group.Used() != 0 && FitsGroup(node, shape, group)) {
          score += 1000;
          break;
        }
      }
    }
    const double overall = static_cast<double>(gpu_task ? hot.gpu : hot.cpu);
    const double free = static_cast<double>(hot.idle[dim] + hot.releasing[dim]);
    if (order == PlacementOrder::kBinpack && overall != 0 && most != 0) {
      score += least == most ? 9 : 9 * (1 - (free - least) / (most - least));
    } else if (order == PlacementOrder::kSpread && overall != 0) {
      const Node& node = state.nodes[static_cast<std::size_t>(id)];
      const double count =
          gpu_task && node.gpu_count > 0 ? static_cast<double>(node.gpu_count * kDevice) : overall;
      score += free / count;
    }
    candidates_.push_back({score, hot.rank, id});
  }
  AddSpecialScores(task, nodes);
}

void Allocator::AddSpecialScores(const Task& task, const std::vector<NodeId>& nodes) {
  State& state = session_.state;
  if (const auto* scores = TopologyScores(task)) {
    std::erase_if(candidates_, [&](Candidate& candidate) {
      auto it = scores->find(candidate.node);
      if (it == scores->end()) {
        return true;
      }
      candidate.score += it->second;
      return false;
    });
  }
  if (!task.nominated_node.empty()) {
    const NodeId nominated = state.FindNode(task.nominated_node);
    for (Candidate& candidate : candidates_) {
      candidate.score += candidate.node == nominated ? 1'000'000 : 0;
    }
  }
  const Constraints& constraints = task.shape->constraints;
  if (session_.profile.kube) {
    std::vector<std::pair<NodeId, double>> scores;
    for (const Candidate& candidate : candidates_) {
      scores.emplace_back(candidate.node, 0);
    }
    KubeScores(session_, task, scores);
    for (std::size_t i = 0; i < scores.size(); ++i) {
      candidates_[i].score = scores[i].second + (candidates_[i].score >= 1'000'000 ? 1'000'000 : 0);
    }
    return;
  }
  if (!session_.profile.score_pod_affinity) {
    return;
  }
  // Differs: KAI has neither preferred node affinity nor soft spreading; both count below its own
  // scores of devices and topology, so that they only decide where KAI has no opinion.
  for (const PreferredNodeTerm& preferred : constraints.preferred) {
    for (Candidate& candidate : candidates_) {
      const NodeSpec& node = state.nodes[static_cast<std::size_t>(candidate.node)].spec;
      candidate.score += TermMatches(preferred.term, node) ? preferred.weight * 10 : 0;
    }
  }
  const auto affinity = PodAffinityScores(session_, task, nodes);
  const auto spread = SpreadCounts(session_, task, nodes);
  for (Candidate& candidate : candidates_) {
    if (auto it = affinity.find(candidate.node); it != affinity.end()) {
      candidate.score += static_cast<double>(it->second) * 10;
    }
    if (auto it = spread.find(candidate.node); it != spread.end()) {
      candidate.score -= std::min(it->second, 50.0) * 10;
    }
  }
}

bool Allocator::PlaceTask(TaskId id, const std::vector<NodeId>& nodes) {
  State& state = session_.state;
  const Task& task = state.task(id);
  session_.steps_left -= simulate_ ? 1 : 0;
  if (task.retry_at > session_.now && !simulate_) {
    session_.MayChangeAt(task.retry_at);
    return false;
  }
  if (!PreFilter(session_, task).empty()) {
    return false;
  }
  if (!simulate_ && session_.hopeless.count(task.shape->id) != 0 && Memoizable(task, nodes)) {
    return false;
  }
  ScoreNodes(task, nodes);
  std::make_heap(candidates_.begin(), candidates_.end());
  while (!candidates_.empty()) {
    std::pop_heap(candidates_.begin(), candidates_.end());
    const NodeId node = candidates_.back().node;
    candidates_.pop_back();
    if (Filter(session_, task, node).empty() && PlaceOn(id, node)) {
      return true;
    }
  }
  return false;
}

bool Allocator::PlaceOn(TaskId id, NodeId node) {
  const Task& task = session_.state.task(id);
  if (task.shape->shared) {
    const DeviceChoice choice = ChooseGroups(session_, task, node, simulate_);
    if (choice.groups.empty()) {
      return false;
    }
    if (simulate_ || choice.later) {
      statement_->Pipeline(id, node, choice.groups, true);
    } else {
      statement_->Allocate(id, node, choice.groups);
    }
    return true;
  }
  if (!simulate_ && FitsNow(session_.state, task, node)) {
    statement_->Allocate(id, node, {});
  } else {
    statement_->Pipeline(id, node, {}, simulate_);
  }
  return true;
}

// A pod whose fate depends on its shape alone: what failed on all nodes fails again while nothing
// is freed.
bool Allocator::Memoizable(const Task& task, const std::vector<NodeId>& nodes) const {
  return task.claims.empty() && task.attachments.empty() && !task.shape->pod_constraints &&
         task.nominated_node.empty() && !task.legacy_mig && session_.topology_scores.empty() &&
         session_.state.constrained_tasks == 0 && task.retry_at <= session_.now &&
         task.unschedulable_reason.empty() && nodes.size() == session_.state.NodesByName().size();
}

std::string Allocator::FailureText(const Task& task, const std::vector<NodeId>& nodes) {
  if (std::string reason = PreFilter(session_, task); !reason.empty()) {
    return reason;
  }
  if (task.retry_at > session_.now) {
    return "waiting after a rejected bind";
  }
  std::map<std::string, int> reasons;
  for (NodeId node : nodes) {
    if (!FitsLater(session_.state, task, node)) {
      for (const std::string& reason : ResourceReasons(session_, task, node)) {
        ++reasons[reason];
      }
    } else if (std::string reason = Filter(session_, task, node); !reason.empty()) {
      ++reasons[reason];
    }
  }
  return session_.profile.kube ? KubeHistogram(static_cast<int>(nodes.size()), reasons)
                               : HistogramMessage(reasons);
}

void Allocator::ReportFailure(TaskId id, const std::vector<NodeId>& nodes, int placed) {
  if (simulate_) {
    return;
  }
  State& state = session_.state;
  const Task& task = state.task(id);
  Job& job = state.job(task.job);
  const bool memo = placed == 0 && statement_->Empty() && Memoizable(task, nodes);
  const auto known = session_.hopeless.find(task.shape->id);
  const std::string cause =
      memo && known != session_.hopeless.end() ? known->second : FailureText(task, nodes);
  // What a queue's limit refuses is no matter of the shape.
  if (memo && known == session_.hopeless.end() &&
      cause.find("capacity. Reason:") == std::string::npos) {
    session_.hopeless[task.shape->id] = cause;
  }
  job.task_failures[id] = cause;
  job.failures.push_back({"PodSchedulingErrors",
                          session_.profile.kube ? cause : GangMessage(job, task, placed, cause), "",
                          kNone, -1});
}

}  // namespace sublet::scheduler
