// Ledger: who holds how much of this node's devices. gpud is its only writer; a grant is one
// decision about all devices of a slice, so two tenants can never together hold more than a device
// has.
//
// Invariants, after every call: for each device the sum of granted bytes ≤ its memory and the sum
// of shares ≤ 1000, unless Restore brought back more than there is (a device shrank): then nothing
// more is granted on it. Every grant and release raises the device's generation. Pure: no clock, no
// I/O. Threads: one at a time (gpud's slice thread).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "gpu/api/types.h"

namespace sublet::gpu {

struct Denial {
  std::string reason;   // kDenied...
  std::string message;  // with the amounts
};
using Grant = std::vector<GrantedDevice>;

class Ledger {
 public:
  struct Device {
    std::int64_t memory_bytes = 0;
    std::int64_t used_bytes = 0;
    std::int32_t used_milli = 0;
    std::int64_t generation = 0;
    bool is_healthy = true;
    std::string health_message;

    std::int64_t free_bytes() const {
      return used_bytes < memory_bytes ? memory_bytes - used_bytes : 0;
    }
    std::int32_t free_milli() const {
      return used_milli < kShareMilliWhole ? kShareMilliWhole - used_milli : 0;
    }
  };

  // Adds a device or changes its size and health. `generation_min` continues the count of an
  // earlier gpud; it never goes back. Raises the generation when something a reader can see
  // changed.
  void SetDevice(const std::string& uuid, std::int64_t memory_bytes, bool is_healthy,
                 std::string health_message, std::int64_t generation_min = 0);

  // Grants all of `devices` to `slice` ("namespace/name") or none. The same slice again gets the
  // same answer. Shapes: ValidateSliceSpec's.
  std::variant<Grant, Denial> TryGrant(const std::string& slice,
                                       const std::vector<SliceDevice>& devices);

  // Takes back a grant that an earlier gpud wrote into the slice's status. Unknown devices are
  // ignored.
  void Restore(const std::string& slice, const Grant& grant);

  // Frees what the slice holds. False: it holds nothing.
  bool Release(const std::string& slice);

  // nullptr: none.
  const Grant* Find(const std::string& slice) const;
  const Device* FindDevice(std::string_view uuid) const;
  const std::map<std::string, Device, std::less<>>& devices() const { return devices_; }
  const std::map<std::string, Grant>& grants() const { return grants_; }

 private:
  std::map<std::string, Device, std::less<>> devices_;
  std::map<std::string, Grant> grants_;
};

}  // namespace sublet::gpu
