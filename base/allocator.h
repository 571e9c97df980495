// The heap of this process. The release binary is linked with jemalloc, which the control plane's
// trees of small blocks, made on one thread and freed on another, need less processor time with;
// other builds keep the C library's heap, which the sanitizers know. Threads: any.
#pragma once

namespace sublet {

// Returns what the heap holds and nobody uses to the system. Takes up to some milliseconds.
void ReturnFreeMemory();

}  // namespace sublet
