#include "gpu/api/types.h"

namespace sublet::gpu {

std::string_view ComputeModeName(ComputeMode mode) {
  return mode == ComputeMode::kFair ? "fair" : "strict";
}

std::string_view EnforceName(Enforce enforce) { return enforce == Enforce::kOn ? "on" : "off"; }

std::string_view SlicePhaseName(SlicePhase phase) {
  switch (phase) {
    case SlicePhase::kPending: return "Pending";
    case SlicePhase::kGranted: return "Granted";
    case SlicePhase::kDenied: return "Denied";
  }
  return "Pending";
}

}  // namespace sublet::gpu
