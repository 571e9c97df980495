// Cluster: a whole control plane in a temporary folder, scheduler included, with simulated nodes,
// so that controllers are tried on the real pipeline. Threads: one test thread; the parts have
// their own.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "client/client.h"
#include "node/simulate/simulated_nodes.h"
#include "server/control_plane.h"

namespace sublet::controllers::testing {

class Cluster {
 public:
  explicit Cluster(node::SimulateOptions options = {.nodes = 2});
  ~Cluster();

  const client::Client& client() const { return client_; }
  const std::string& name_space() const { return namespace_; }

  // Writes that must succeed. `path` is "apps/v1/deployments" or "v1/pods", in the test's namespace
  // unless `name_space` says otherwise ("-" = cluster scope).
  kube::Json Create(const std::string& path, const kube::Json& object,
                    const std::string& name_space = "");
  kube::Json Patch(const std::string& path, const std::string& name, const kube::Json& patch,
                   const std::string& subresource = "");
  void Delete(const std::string& path, const std::string& name,
              const std::string& policy = "Background");
  kube::Json Get(const std::string& path, const std::string& name);  // null when absent
  kube::Json List(const std::string& path, const std::string& label_selector = "");

  // Waits until `condition` holds for the list of items; false after 20 s. Woken by the watch, not
  // by the clock.
  bool Await(const std::string& path, const std::function<bool(const kube::Json& items)>& condition,
             const std::string& label_selector = "");
  // The same for one object (null while it is absent).
  bool AwaitOne(const std::string& path, const std::string& name,
                const std::function<bool(const kube::Json& object)>& condition);
  // The last list or object a wait looked at, for the failure message.
  const std::string& last() const { return last_; }

 private:
  client::Target TargetOf(const std::string& path, const std::string& name = "",
                          const std::string& name_space = "") const;

  std::string folder_;
  std::unique_ptr<server::ControlPlane> plane_;
  client::Client client_;
  std::string namespace_ = "test";
  std::unique_ptr<node::SimulatedNodes> nodes_;
  std::string last_;
};

// Small objects for tests.
kube::Json PodTemplate(const std::string& app, const std::string& image = "busybox");
kube::Json Deployment(const std::string& name, int replicas);

}  // namespace sublet::controllers::testing
