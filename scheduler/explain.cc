// What the engine tells about itself: its queues, and why a pod waits.
#include <algorithm>
#include <set>

#include "scheduler/engine.h"
#include "scheduler/filters.h"
#include "scheduler/messages.h"

namespace sublet::scheduler {

namespace {

// What each node lacks for the task; "" where it fits.
std::vector<Explanation::NodeRow> NodeRows(Session& session, const Task& task) {
  State& state = session.state;
  std::vector<Explanation::NodeRow> rows;
  for (NodeId node : state.NodesByName()) {
    const NodeHot& hot = state.hot[static_cast<std::size_t>(node)];
    Explanation::NodeRow row{state.nodes[static_cast<std::size_t>(node)].spec.name, "", hot.idle,
                             hot.releasing};
    if (!FitsLater(state, task, node)) {
      for (const std::string& reason : ResourceReasons(session, task, node)) {
        row.reason += (row.reason.empty() ? "" : "; ") + reason;
      }
    } else {
      row.reason = Filter(session, task, node);
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

// The pods that hold GPUs.
std::vector<Explanation::Holder> Holders(State& state) {
  std::vector<Explanation::Holder> holders;
  for (NodeId node : state.NodesByName()) {
    const Node& at = state.nodes[static_cast<std::size_t>(node)];
    for (TaskId holder : std::set<TaskId>(at.tasks.begin(), at.tasks.end())) {
      const Task& held = state.task(holder);
      if (held.accepted[kGpu] <= 0 || held.job == kNone ||
          holders.size() >= Explanation::kHoldersMax) {
        continue;
      }
      const Job& of = state.job(held.job);
      holders.push_back({at.spec.name, held.ns, held.name, of.queue_name, held.accepted[kGpu],
                         of.priority, of.preemptible});
    }
  }
  return holders;
}

// The reason that outweighs the others; "" when none is known.
std::string Dominant(const Task& task, const Job& job, const Profile& profile) {
  if (!profile.kube && !job.from_spec) {
    return task.group_key.empty() ? "the pod belongs to no PodGroup yet"
                                  : "PodGroup " + task.group_key + " does not exist";
  }
  if (!profile.kube && job.queue == kNone) {
    return "queue \"" + job.queue_name + "\" does not exist";
  }
  if (job.gave_up) {
    return "its PodGroup has schedulingBackoff 1: one attempt failed, and it is not tried again "
           "before the PodGroup changes" +
           (job.failures.empty() ? "" : ". The attempt: " + job.failures.back().message);
  }
  if (!ReadyForScheduling(job)) {
    return "the gang is waiting for pods that are not created yet";
  }
  if (!task.unschedulable_reason.empty()) {
    return task.unschedulable_reason;
  }
  if (!job.failures.empty()) {
    return job.failures.back().message;
  }
  return "";
}

}  // namespace

QueueView Engine::ViewOf(QueueId id) const {
  const Queue& queue = state_.queue(id);
  QueueView view;
  view.name = queue.spec.name;
  view.parent = queue.spec.parent;
  view.share = queue.share;
  for (QueueId child : queue.children) {
    view.children.push_back(state_.queue(child).spec.name);
  }
  return view;
}

std::vector<QueueView> Engine::Queues() {
  for (const Profile& profile : profiles_) {
    if (!profile.kube) {
      state_.RefreshShares(profile.k);
      break;
    }
  }
  std::vector<std::pair<QueueId, int>> open;
  std::vector<std::pair<std::string, QueueId>> roots;
  for (std::size_t i = 0; i < state_.queues.size(); ++i) {
    if (state_.queues[i].present && state_.queues[i].parent == kNone) {
      roots.emplace_back(state_.queues[i].spec.name, static_cast<QueueId>(i));
    }
  }
  std::sort(roots.rbegin(), roots.rend());
  for (const auto& [name, id] : roots) {
    open.emplace_back(id, 0);
  }
  std::vector<QueueView> views;
  while (!open.empty()) {
    const auto [id, depth] = open.back();
    open.pop_back();
    views.push_back(ViewOf(id));
    views.back().depth = depth;
    const auto& children = state_.queue(id).children;  // by name
    for (auto it = children.rbegin(); it != children.rend(); ++it) {
      open.emplace_back(*it, depth + 1);
    }
  }
  return views;
}

std::optional<Explanation> Engine::Explain(const std::string& uid, Millis now) {
  const TaskId id = state_.FindTask(uid);
  if (id == kNone) {
    return std::nullopt;
  }
  const Task& task = state_.task(id);
  Explanation out;
  out.pod = task.ns + "/" + task.name;
  out.status = StatusName(task.status);
  out.node = task.node == kNone ? "" : state_.nodes[static_cast<std::size_t>(task.node)].spec.name;
  out.request = task.shape->quota;
  out.earliest = task.retry_at > now ? task.retry_at : earliest_;
  if (task.job == kNone) {
    out.dominant = "no profile schedules scheduler name \"" + task.scheduler_name + "\"";
    return out;
  }
  const Job& job = state_.job(task.job);
  const Profile& profile = profiles_[static_cast<std::size_t>(std::max(job.profile, 0))];
  out.group = job.key;
  out.queue = job.queue_name;
  out.failures = job.failures;
  for (QueueId at = job.queue; at != kNone; at = state_.queue(at).parent) {
    out.queues.push_back(ViewOf(at));
  }
  for (const AttemptNote& note : notes_) {
    if (note.job == task.job) {
      out.attempts.push_back(note);
    }
  }
  Session session(state_, profile, job.profile, now);
  out.nodes = NodeRows(session, task);
  out.holders = Holders(state_);
  out.dominant = Dominant(task, job, profile);
  return out;
}

}  // namespace sublet::scheduler
