// What was tried in a cycle without success, by kind of job (KAI's scheduling signatures).
// Threads: one.
#pragma once

#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "scheduler/job_view.h"
#include "scheduler/session.h"

namespace sublet::scheduler {

// The smallest failed batch per kind of job: a job that is not easier is not tried.
class FailedSignatures {
 public:
  bool Hopeless(const Session& session, const JobView& view, QueueId queue) const;
  void Remember(const Session& session, const JobView& view, QueueId queue);

 private:
  struct Failed {
    int pending = 0;
    Quota request{};
  };
  // The kinds of the pending pods' shapes and the topology asked for; equal keys mean equal
  // constraints.
  using Signature = std::tuple<QueueId, int, bool, std::vector<int>, std::vector<std::string>>;
  static Signature Key(const State& state, const JobView& view, QueueId queue);
  static bool Easier(int pending, const Quota& request, const Failed& failed);
  std::map<Signature, Failed> smallest_;
};

}  // namespace sublet::scheduler
