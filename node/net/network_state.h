// NetworkState: follows Services, EndpointSlices, pods, namespaces and NetworkPolicies and keeps
// the node's firewall (rules.h) and the pods' Service variables in step with them. Changes are
// gathered for a few milliseconds, then one script is made and, if it differs from the loaded one,
// loaded in one transaction. A failed load is tried again after 1 s doubling to 30 s. Threads:
// handlers run on the informers' thread; "firewall" makes and loads rules.
#pragma once

#include <map>
#include <string>
#include <thread>
#include <utility>

#include "base/mutex.h"
#include "client/informer.h"
#include "node/net/rules.h"
#include "node/pod/env.h"

namespace sublet::node {

class NetworkState {
 public:
  // `base` carries names, networks and the gateway; its lists are filled here.
  NetworkState(client::InformerFactory& informers, RulesInput base);
  ~NetworkState() { Stop(); }
  NetworkState(const NetworkState&) = delete;
  NetworkState& operator=(const NetworkState&) = delete;

  // Nothing is loaded before all five informers have their first state, so that a restart of the
  // agent never takes rules away that are still right.
  void Start();
  void Stop();  // leaves the rules loaded; idempotent; joins

  // WEB_SERVICE_HOST and the like for pods of a namespace; `all` false: only the API server's.
  // Source: kubelet envvars.FromServices.
  Environment VariablesOf(const std::string& namespace_name, bool all) const
      SUBLET_EXCLUDES(mutex_);
  // Waits until the rules of everything known now are loaded (for tests and `host up`).
  bool WaitLoaded(Deadline deadline) const SUBLET_EXCLUDES(mutex_);

 private:
  using Key = std::pair<std::string, std::string>;
  // Keeps `views` in step with all objects of a resource; only the views are held in memory.
  template <typename View>
  void Follow(client::InformerOptions options, std::map<Key, View>* views,
              View (*parse)(const kube::Json&));
  void Touch();
  void Run();
  std::string Script() const SUBLET_REQUIRES(mutex_);

  client::InformerFactory& informers_;
  const RulesInput base_;
  std::vector<client::Informer*> sources_;

  mutable Mutex mutex_;
  mutable CondVar changed_;
  bool stopped_ SUBLET_GUARDED_BY(mutex_) = false;
  std::int64_t wanted_ SUBLET_GUARDED_BY(mutex_) = 1;  // raised with each change
  std::int64_t loaded_ SUBLET_GUARDED_BY(mutex_) = 0;
  std::map<Key, ServiceView> services_ SUBLET_GUARDED_BY(mutex_);
  std::map<Key, SliceView> slices_ SUBLET_GUARDED_BY(mutex_);
  std::map<Key, PodView> pods_ SUBLET_GUARDED_BY(mutex_);
  std::map<Key, RulesInput::NamespaceView> namespaces_ SUBLET_GUARDED_BY(mutex_);
  std::map<Key, PolicyView> policies_ SUBLET_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace sublet::node
