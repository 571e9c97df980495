// JobOrder: which job is next. Queues form a tree of heaps; siblings are compared by
// the best job of their subtree (CompareQueues), the jobs of a leaf by JobBefore. Popping
// reorders only the path of the popped job, lazily: nothing else can have changed its place.
// Reversed, it gives victims: worst queue first, and in it the last job first.
// Threads: one.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "scheduler/session.h"

namespace sublet::scheduler {

class JobOrder {
 public:
  JobOrder(Session& session, bool victims, int depth)
      : session_(session), victims_(victims), depth_(depth) {}

  // Adds a job; one whose queue is unknown or not a leaf is left out.
  void Push(std::shared_ptr<JobView> view);
  bool Empty() const { return roots_.empty(); }
  std::shared_ptr<JobView> Pop();

 private:
  struct Level {
    QueueId queue = kNone;
    Level* parent = nullptr;
    bool reorder = false;
    std::vector<Level*> children;
    std::vector<std::shared_ptr<JobView>> jobs;  // a leaf's
    bool empty() const { return children.empty() && jobs.empty(); }
  };

  Level* Find(QueueId queue);
  bool LevelBefore(Level* left, Level* right);
  bool ViewBefore(const std::shared_ptr<JobView>& left, const std::shared_ptr<JobView>& right);
  QueueSide Side(Level* level);
  Level* Best(std::vector<Level*>& heap);
  void Shrink(Level* level);
  void Build();

  template <typename T, typename Less>
  static void Up(std::vector<T>& heap, std::size_t at, Less less);
  template <typename T, typename Less>
  static void Down(std::vector<T>& heap, std::size_t at, Less less);

  Session& session_;
  bool victims_;
  int depth_;
  bool built_ = false;
  std::vector<Level*> roots_;
  std::map<QueueId, std::unique_ptr<Level>> levels_;
  std::map<QueueId, Quota> popped_;  // what popped victims hold, per leaf
};

// The order of all pending jobs of the session's profile that are ready.
std::unique_ptr<JobOrder> PendingOrder(Session& session, Action action,
                                       const std::function<bool(const Job&)>& keep);

}  // namespace sublet::scheduler
