// Applying and removing a tenant's host objects. Used by create and delete, and by create's
// rollback. Threads: one.
#pragma once

#include <functional>
#include <vector>

#include "cli/host_session.h"
#include "cli/tenant/tenants.h"

namespace sublet::cli {

// The target of an object's own create, update or delete; known kinds only.
client::Target TargetOf(const kube::Json& object);

// Server-side apply of every object in order, as manager "sublet-cli". Errors: the first refusal,
// with the object named.
Result<void> ApplyObjects(const HostSession& host, const std::vector<kube::Json>& objects);

struct RemoveOptions {
  std::string name;
  std::string host_namespace;
  bool delete_namespace = false;  // also one that create did not make
  bool keep_volumes = false;
  std::int64_t grace_seconds = 0;  // for the tenant's workloads
  Deadline deadline;
};

// Removes everything of a tenant and waits until nothing is left: the control plane first, so that
// it makes nothing new, then what it synced (by label, with or without owner references), then the
// rest. `phase` is called with what is being done. Errors: Timeout naming what is still there; the
// host's.
Result<void> RemoveTenant(const HostSession& host, const RemoveOptions& options,
                          const std::function<void(std::string_view)>& phase);

}  // namespace sublet::cli
