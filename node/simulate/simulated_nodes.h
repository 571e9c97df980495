// SimulatedNodes: N nodes without containers, for scheduler and tenant tests and benchmarks. Pods
// bound to them become Running and Ready with an address of their own and the annotation
// sublet.dev/simulated; annotations (pod_facts.h) make them finish, fail or stay unready. Images
// that cannot be pulled, host ports that clash, activeDeadlineSeconds and graceful deletion are
// acted out as a kubelet does. Works against any API server, through one watch on pods and one on
// nodes.
//
// Everything is derived from the API's state, so a restart goes on where it was. Threads: the
// manager's pool writes ("reconcile-N"), "sim-leases" renews one lease per node and 25 s, spread
// by lease_schedule.h.
#pragma once

#include <memory>
#include <thread>
#include <unordered_map>

#include "client/manager.h"
#include "node/simulate/lease_schedule.h"
#include "node/simulate/node_objects.h"
#include "node/simulate/pod_status.h"

namespace sublet::node {

class SimulatedNodes {
 public:
  SimulatedNodes(client::Client client, SimulateOptions options,
                 const Clock& clock = SystemClock());
  ~SimulatedNodes();  // Stop

  // Starts everything; nodes appear in the background, WaitRegistered waits for them.
  void Start();
  // False when `deadline` passed first.
  bool WaitRegistered(Deadline deadline);
  void Stop();  // idempotent; joins

 private:
  struct Node {
    int index = 0;
    std::string uid;
    bool registered = false;
    std::unordered_map<int, std::string> slots;  // address slot -> uid
    int next_slot = 0;
    PodAdmission admission;
  };

  Result<client::Outcome> ReconcileNode(const kube::ObjectKey& key);
  Result<client::Outcome> ReconcilePod(const kube::ObjectKey& key);
  Result<client::Outcome> FinishDeletion(const client::CachedObject& object,
                                         const SimulatedPod& pod);
  void OnPod(const client::ObjectPtr& before, const client::ObjectPtr& after);
  PodPlace Place(const client::CachedObject& object, const SimulatedPod& pod,
                 const NodeOffer& offer);
  // Pods that ran before this program started keep what they have, whichever pod is looked at first.
  void AdoptRunning() SUBLET_REQUIRES(mutex_);
  void Release(const std::string& node, const std::string& uid);
  bool IsImageMissing(const SimulatedPod& pod) const;
  void RunLeases();
  void RenewLease(const std::string& name, const std::string& uid);

  const client::Client client_;
  const SimulateOptions options_;
  const Clock& clock_;
  client::InformerFactory informers_;
  client::Manager manager_;
  client::Informer& pods_;
  client::Informer& nodes_;
  client::WorkQueue& pod_queue_;
  client::WorkQueue& node_queue_;

  Mutex mutex_;
  CondVar changed_;
  std::unordered_map<std::string, Node> by_name_ SUBLET_GUARDED_BY(mutex_);
  LeaseSchedule lease_schedule_ SUBLET_GUARDED_BY(mutex_);
  int registered_ SUBLET_GUARDED_BY(mutex_) = 0;
  bool stopped_ SUBLET_GUARDED_BY(mutex_) = false;
  bool started_ SUBLET_GUARDED_BY(mutex_) = false;
  bool adopted_ SUBLET_GUARDED_BY(mutex_) = false;
  std::thread leases_;
};

// `sublet node --simulate N`: runs until SIGINT or SIGTERM, which it takes over for the process.
// Returns the exit code.
int RunSimulatedNodes(const SimulateOptions& options, const client::Client& client);

}  // namespace sublet::node
