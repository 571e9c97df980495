// Reconciler: brings the world to what one object asks for. Level based: the call carries only a
// key and reads the rest from informers; it may be called any number of times, after a restart too.
#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "base/result.h"
#include "kube/names.h"

namespace sublet::client {

struct Outcome {
  std::chrono::nanoseconds again_after{0};  // 0 = nothing to do until something changes
  static Outcome Done() { return {}; }
  static Outcome After(std::chrono::nanoseconds delay) { return {delay}; }
};

// An error comes back with back-off (5 ms doubling to 1000 s). Conflict and AlreadyExists are the
// normal answers to a stale cache: the same, but quiet. NotFound from a write means the object went
// away meanwhile and counts as done when the reconciler says so itself.
using Reconcile = std::function<Result<Outcome>(const kube::ObjectKey& key)>;

}  // namespace sublet::client
