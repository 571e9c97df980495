#include "scheduler/job_order.h"

#include <algorithm>

#include "base/check.h"

namespace sublet::scheduler {

template <typename T, typename Less>
void JobOrder::Up(std::vector<T>& heap, std::size_t at, Less less) {
  while (at > 0) {
    const std::size_t parent = (at - 1) / 2;
    if (!less(heap[at], heap[parent])) {
      return;
    }
    std::swap(heap[at], heap[parent]);
    at = parent;
  }
}

template <typename T, typename Less>
void JobOrder::Down(std::vector<T>& heap, std::size_t at, Less less) {
  for (;;) {
    std::size_t best = 2 * at + 1;
    if (best >= heap.size()) {
      return;
    }
    if (best + 1 < heap.size() && less(heap[best + 1], heap[best])) {
      ++best;
    }
    if (!less(heap[best], heap[at])) {
      return;
    }
    std::swap(heap[best], heap[at]);
    at = best;
  }
}

bool JobOrder::ViewBefore(const std::shared_ptr<JobView>& left,
                          const std::shared_ptr<JobView>& right) {
  const bool elastic = session_.profile.elastic_order;
  return victims_ ? JobBefore(session_.state, *right, *left, elastic)
                  : JobBefore(session_.state, *left, *right, elastic);
}

QueueSide JobOrder::Side(Level* level) {
  const State& state = session_.state;
  Level* leaf = level;
  while (!leaf->children.empty()) {
    leaf = leaf->children.front();
  }
  QueueSide side;
  side.queue = &state.queue(level->queue).share;
  SUBLET_CHECK(!leaf->jobs.empty());
  const JobView& best = *leaf->jobs.front();
  if (!victims_) {
    side.job = ToAmounts(BatchRequest(state, best));
    return side;
  }
  Quota held = best.part ? best.held : state.job(best.job).held;
  if (auto it = popped_.find(leaf->queue); it != popped_.end()) {
    Add(held, it->second, 1);
  }
  side.victims = ToAmounts(held);
  return side;
}

bool JobOrder::LevelBefore(Level* left, Level* right) {
  const int order = CompareQueues(Side(left), Side(right), session_.total);
  return victims_ ? order > 0 : order < 0;
}

JobOrder::Level* JobOrder::Find(QueueId queue) {
  auto it = levels_.find(queue);
  return it == levels_.end() ? nullptr : it->second.get();
}

void JobOrder::Push(std::shared_ptr<JobView> view) {
  State& state = session_.state;
  // Without queues there is one leaf, which is never compared with another.
  const QueueId queue = session_.profile.kube ? kNone : state.job(view->job).queue;
  if (!session_.profile.kube) {
    if (queue == kNone || !state.IsLeaf(queue) ||
        (state.queue(queue).parent == kNone && !state.queue(queue).spec.parent.empty())) {
      return;  // no such queue, no leaf, or its parent does not exist
    }
  }
  Level* leaf = Find(queue);
  const bool fresh = leaf == nullptr;
  if (fresh) {
    leaf = levels_.emplace(queue, std::make_unique<Level>()).first->second.get();
    leaf->queue = queue;
  }
  leaf->jobs.push_back(std::move(view));
  if (built_) {
    Up(leaf->jobs, leaf->jobs.size() - 1,
       [this](const auto& a, const auto& b) { return ViewBefore(a, b); });
  }
  // New levels are linked once they have a job to be compared by.
  Level* child = leaf;
  bool added = fresh;
  while (added) {
    const QueueId above = child->queue == kNone ? kNone : state.queue(child->queue).parent;
    if (above == kNone) {
      roots_.push_back(child);
      break;
    }
    Level* parent_level = Find(above);
    added = parent_level == nullptr;
    if (added) {
      parent_level = levels_.emplace(above, std::make_unique<Level>()).first->second.get();
      parent_level->queue = above;
    }
    child->parent = parent_level;
    parent_level->children.push_back(child);
    child = parent_level;
  }
  // The new job may have moved its whole path ahead of its siblings; only the top of each heap is
  // looked at again, so paths are sifted up here.
  for (Level* at = leaf; built_ && at != nullptr; at = at->parent) {
    std::vector<Level*>& heap = at->parent != nullptr ? at->parent->children : roots_;
    Up(heap, static_cast<std::size_t>(std::find(heap.begin(), heap.end(), at) - heap.begin()),
       [this](Level* a, Level* b) { return LevelBefore(a, b); });
    at->reorder = true;
  }
}

// Makes the heaps of what was pushed so far. Comparisons of queues are not always transitive, so
// heaps are built from the names' order: the order of the pushes must not show.
void JobOrder::Build() {
  built_ = true;
  const auto view_less = [this](const auto& a, const auto& b) { return ViewBefore(a, b); };
  const auto build = [this](const auto& self, std::vector<Level*>& heap) -> void {
    std::sort(heap.begin(), heap.end(), [this](Level* a, Level* b) {
      return a->queue != kNone && b->queue != kNone &&
             session_.state.queue(a->queue).spec.name < session_.state.queue(b->queue).spec.name;
    });
    for (Level* level : heap) {
      self(self, level->children);
    }
    for (std::size_t i = heap.size() / 2; i-- > 0;) {
      Down(heap, i, [this](Level* a, Level* b) { return LevelBefore(a, b); });
    }
  };
  for (auto& [queue, level] : levels_) {
    auto& jobs = level->jobs;
    if (depth_ >= 0 && static_cast<int>(jobs.size()) > depth_) {
      std::sort(jobs.begin(), jobs.end(), view_less);
      jobs.resize(static_cast<std::size_t>(std::max(depth_, 1)));
    }
    for (std::size_t i = jobs.size() / 2; i-- > 0;) {
      Down(jobs, i, view_less);
    }
  }
  build(build, roots_);
}

JobOrder::Level* JobOrder::Best(std::vector<Level*>& heap) {
  while (heap.front()->reorder) {
    heap.front()->reorder = false;
    Down(heap, 0, [this](Level* a, Level* b) { return LevelBefore(a, b); });
  }
  return heap.front();
}

void JobOrder::Shrink(Level* level) {
  if (!level->empty()) {
    for (Level* at = level; at != nullptr; at = at->parent) {
      at->reorder = true;
    }
    return;
  }
  Level* parent = level->parent;
  std::vector<Level*>& heap = parent != nullptr ? parent->children : roots_;
  const auto at =
      static_cast<std::size_t>(std::find(heap.begin(), heap.end(), level) - heap.begin());
  const auto less = [this](Level* a, Level* b) { return LevelBefore(a, b); };
  std::swap(heap[at], heap.back());
  heap.pop_back();
  if (at < heap.size()) {
    Down(heap, at, less);
  }
  levels_.erase(level->queue);
  if (parent != nullptr) {
    Shrink(parent);
  }
}

std::shared_ptr<JobView> JobOrder::Pop() {
  if (!built_) {
    Build();
  }
  Level* level = Best(roots_);
  while (!level->children.empty()) {
    level = Best(level->children);
  }
  std::shared_ptr<JobView> view = level->jobs.front();
  std::swap(level->jobs.front(), level->jobs.back());
  level->jobs.pop_back();
  Down(level->jobs, 0, [this](const auto& a, const auto& b) { return ViewBefore(a, b); });
  if (victims_) {
    Add(popped_[level->queue], view->part ? view->held : session_.state.job(view->job).held, 1);
  }
  Shrink(level);
  return view;
}

std::unique_ptr<JobOrder> PendingOrder(Session& session, Action action,
                                       const std::function<bool(const Job&)>& keep) {
  const auto depth = session.profile.queue_depth.find(ActionName(action));
  auto order = std::make_unique<JobOrder>(
      session, false, depth == session.profile.queue_depth.end() ? -1 : depth->second);
  for (JobId id : session.state.pending_jobs) {
    const Job& job = session.state.job(id);
    if (session.Mine(job) && ReadyForScheduling(job) && !session.Unchanged(job, action) &&
        (!keep || keep(job))) {
      order->Push(std::make_shared<JobView>(JobView::Whole(id)));
    }
  }
  return order;
}

}  // namespace sublet::scheduler
