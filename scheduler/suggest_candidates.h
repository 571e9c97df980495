// Changes that might let a waiting pod run, made from what the engine knows of it: what is missing,
// in the way, too large, or held by others. scheduler/suggest.cc tries them. Threads: one.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "scheduler/simulation.h"

namespace sublet::scheduler {

// Ways to the same end: when one of a family works, the rest of it has nothing to add. kAlone is none.
enum class Family : std::uint8_t { kAlone, kQueueAmounts, kSmallerRequest, kMoreNodes };

struct Candidate {
  std::string change;
  std::function<void(Snapshot&)> apply;
  Family family = Family::kAlone;
};

// The likely and cheap ones first; none for a pod that `profiles` do not schedule. `snapshot` is what
// each `apply` gets a copy of, `pod` is one of it.
std::vector<Candidate> MakeCandidates(const std::vector<Profile>& profiles,
                                      const Snapshot& snapshot, const PodSpec& pod, Millis now);

}  // namespace sublet::scheduler
