// The ordered list of synced kinds. Adding a kind is its files plus one line here.
#pragma once

#include <memory>
#include <vector>

#include "syncer/kinds/service_syncer.h"

namespace sublet::syncer {

struct Kinds {
  std::vector<std::unique_ptr<KindSyncer>> all;
  // Also asked by the tenant's POST of a Service; owned by `all`; null when services are not
  // synced.
  ServiceSyncer* services = nullptr;
};

// The kinds that the context's configuration enables.
Kinds MakeKinds(SyncContext& context);

}  // namespace sublet::syncer
