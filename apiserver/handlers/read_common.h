// What get, list and watch share: the rules of resourceVersion.
// Threads: any; pure functions of the store's state.
#pragma once

#include "apiserver/handlers/options.h"
#include "base/status.h"
#include "storage/store.h"

namespace sublet::apiserver {

// The answer to a read at a revision this server has not reached.
// Differs: upstream waits up to 3 s for its cache to catch up; here one process holds the only
// counter, so a revision that does not exist yet came from elsewhere and waiting cannot help.
Status TooLargeResourceVersion(storage::Revision asked, storage::Revision current);

// Errors: Timeout (TooLargeResourceVersion) when `revision` lies in the future.
Result<void> CheckNotInFuture(const storage::Store& store, storage::Revision revision);

}  // namespace sublet::apiserver
