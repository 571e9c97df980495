// The generic verbs. Each takes a Call whose resource is known and authorized, and answers it, now
// or from a commit's callback. One function per verb; a built-in kind and a custom resource take
// the same path. Threads: called on a transport or pool thread; none blocks.
#pragma once

#include "apiserver/handlers/api_context.h"

namespace sublet::apiserver {

void HandleGet(CallPtr call);
void HandleList(CallPtr call);
void HandleWatch(CallPtr call);
void HandleCreate(CallPtr call);
void HandleUpdate(CallPtr call);
void HandlePatch(CallPtr call);
void HandleDelete(CallPtr call);
void HandleDeleteCollection(CallPtr call);

}  // namespace sublet::apiserver
