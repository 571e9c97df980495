// IdleMemory: what only the start or a busy time needed is given back to the system, because an
// idle control plane is what a host has many of. Threads: one (the one that waits for signals).
#pragma once

namespace sublet::server {

class IdleMemory {
 public:
  // Called from time to time. When the process did next to nothing since the last call, but
  // something since memory was given back, unmaps the pages of code and constants (they are the
  // executable's own and come back by themselves when they are used) and returns free heap memory.
  // The first call does so in any case. Takes some milliseconds then, else microseconds. True: it
  // did.
  bool Check();

 private:
  bool given_ = false;
  double used_before_ = 0;  // seconds of processor time at the last call
  double used_given_ = 0;   // and when memory was last given back
};

}  // namespace sublet::server
