// Simulation: decisions played out on a copy of an engine, to answer "what if" without touching
// anything: bound pods run, evicted ones are gone and come back as pending. Used by whatif, by
// explain (is the proposed change enough?) and by replay. Threads: one at a time; independent of
// the engine it was copied from.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "scheduler/engine.h"

namespace sublet::scheduler {

// What became of one pod.
struct SimulatedPlace {
  std::string uid, ns, name;
  std::string node;                  // "" = it waits
  std::vector<std::string> devices;  // ids of shared or whole devices, when the node names them
  std::string message;               // why it waits
};

struct SimulatedEviction {
  std::string uid, ns, name, node;
  std::string action, message;
  std::string back_on;  // where it runs in the end; "" = it waits
};

struct SimulationResult {
  std::vector<SimulatedPlace>
      placed;  // newly bound pods that run in the end, in the order of binding
  std::vector<SimulatedPlace> waiting;  // pods with a verdict that wait in the end
  std::vector<SimulatedEviction> evicted;
  int cycles = 0;
  bool settled = false;  // false: still deciding after the last cycle
};

class Simulation {
 public:
  Simulation(const std::vector<Profile>& profiles, const Snapshot& snapshot);

  Engine& engine() { return *engine_; }
  // Runs cycles, one second apart from `now`, until none acts, at most `cycles_max`.
  SimulationResult Settle(Millis now, int cycles_max = 20);
  // Plays out one cycle's decisions. Returns whether any acted.
  bool PlayOut(const CycleResult& result);

 private:
  std::unique_ptr<Engine> engine_;
};

// A change that would let a waiting pod run.
struct Suggestion {
  std::string change;   // for people: "raise the GPU limit of queue small from 1 to 2"
  std::string outcome;  // "it runs on node n1", "it runs on node n1 after 2 pods left"
  bool verified = false;
};

// Changes to the cluster of `snapshot` that would place the pod `uid`; each was tried on a copy,
// and only those that worked are returned, those that evict nobody first. Empty: the pod is placed
// already without a change, or nothing that was tried helps. Bound: at most 12 copies; clusters of
// more than 20,000 pods get 4.
std::vector<Suggestion> Suggest(const std::vector<Profile>& profiles, const Snapshot& snapshot,
                                const std::string& uid, Millis now);

}  // namespace sublet::scheduler
