// What only the start needed, given back to the system once the control plane has settled. An idle
// control plane is what a host has many of. Threads: any; takes some milliseconds.
#pragma once

namespace sublet::server {

// Unmaps the pages of code and constants that were touched so far (they are the file's own and come
// back by themselves when they are used) and returns free heap memory.
void GiveBackStartMemory();

}  // namespace sublet::server
