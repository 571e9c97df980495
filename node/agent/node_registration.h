// NodeRegistration: creates the Node, keeps its status and lease fresh, and says when the engine is
// away. One lease write per 10 s (the node is lost after 40 s without); the status is written when
// it changes and every five minutes. Source: kubelet nodestatus, nodelease. Threads: one ("node").
#pragma once

#include <functional>
#include <string>
#include <thread>

#include "base/mutex.h"
#include "client/client.h"
#include "node/agent/node_status.h"

namespace sublet::node {

class NodeRegistration {
 public:
  // `facts` lacks machine and engine state, which are read here.
  NodeRegistration(client::Client client, ContainerEngine& engine, NodeFacts facts,
                   std::string root, const Clock& clock)
      : client_(std::move(client)),
        engine_(engine),
        facts_(std::move(facts)),
        root_(std::move(root)),
        clock_(clock) {}
  ~NodeRegistration() { Stop(); }
  NodeRegistration(const NodeRegistration&) = delete;
  NodeRegistration& operator=(const NodeRegistration&) = delete;

  // Creates or updates the Node once, so that a caller knows it is there. Errors: the client's.
  Result<void> Register();
  void Start();
  void Stop();  // idempotent; joins

 private:
  void Run();
  Result<void> WriteStatus(bool always);
  Result<void> RenewLease();
  void LookAtEngine();

  const client::Client client_;
  ContainerEngine& engine_;
  NodeFacts facts_;
  const std::string root_;
  const Clock& clock_;
  std::string node_uid_;
  kube::Json* last_status_ = nullptr;  // owned, may be null
  MonotonicTime status_written_{};
  Mutex mutex_;
  CondVar changed_;
  bool stopped_ SUBLET_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace sublet::node
