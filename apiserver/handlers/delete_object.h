// The deletion of one object: preconditions, grace, finalizers and deletion policies, in
// Kubernetes' exact order; shared by DELETE, deletecollection and eviction. Source:
// k8s.io/apiserver registry/rest/delete.go, registry/generic/registry/store.go.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "apiserver/handlers/api_context.h"
#include "apiserver/handlers/options.h"
#include "base/result.h"
#include "kube/json.h"
#include "storage/store.h"

namespace sublet::apiserver {

// What became of it.
struct DeleteOutcome {
  bool removed = false;     // gone from storage (or would be, for a dry run)
  storage::ValuePtr value;  // the object as it is now, or as it was last; null for a dry run
  // The object as it is answered when it is not `value`: dry runs, pods that are gone.
  std::shared_ptr<const kube::Json> tree;
  std::string uid;
};

struct DeleteJob {
  CallPtr call;
  std::string name;
  std::string namespace_name;
  DeleteOptions options;
  // Runs once, on any thread (mostly the writer's). Errors: NotFound, Conflict (precondition),
  // Forbidden (admission), Invalid, what storage says.
  std::function<void(Result<DeleteOutcome>)> done;
  // Warnings of admission; several deletions of one call may run at once, so they are kept apart.
  std::vector<std::string> warnings;
  int attempt = 0;
};

// Threads: any; does not block.
void RunDelete(std::shared_ptr<DeleteJob> job);

}  // namespace sublet::apiserver
