// NodeSyncer: the host's nodes as the tenant sees them. Allocatable is what the tenant itself may
// still use plus what it already uses: the host's allocatable minus everything that is not the
// tenant's, by NodeUsage. Labels and taints follow the host; a tenant's own taints and labels
// survive. Differs: vCluster subtracts cpu, memory and pods only, and shows a full node as empty;
// here every resource is netted and a full node shows zero. Threads: as KindSyncer.
#pragma once

#include <map>
#include <string>

#include "kube/quantity.h"
#include "syncer/kinds/mirror_syncer.h"

namespace sublet::syncer {

// The label selector of the host's nodes that the tenant may use; "" = all.
std::string NodeSelectorText(const SyncConfig& config);

class NodeSyncer final : public MirrorSyncer {
 public:
  explicit NodeSyncer(SyncContext& context);

  void Watch(Enqueue enqueue) override;

 protected:
  std::optional<kube::Json> Show(const kube::Json& host_node) const override;

 private:
  client::Informer* usages_ = nullptr;
  client::Informer* pods_ = nullptr;
};

// What a tenant may use of one node: `free` (from NodeUsage) plus `own`, the requests of its own
// pods there, never more than `allocatable`. Objects of quantities by resource name. Pure.
kube::Json TenantAllocatable(const kube::Json& allocatable, const kube::Json& free,
                             const std::map<std::string, kube::Quantity>& own);

}  // namespace sublet::syncer
