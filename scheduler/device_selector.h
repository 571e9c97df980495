// DeviceSelector: the part of CEL that device classes and claims use to choose devices, compiled
// once when the object changes. Known: device.driver, device.attributes[DOMAIN].NAME,
// device.capacity[DOMAIN].NAME, text, numbers, booleans, lists, quantity(), == != < <= > >= in && ||
// !, has(), startsWith, endsWith, contains, lowerAscii, compareTo, isGreaterThan, isLessThan.
// Anything else is an error that says what is not known, so that a claim which uses it is refused
// with a reason and never matched wrongly. Source: Kubernetes' DRA documentation (CEL variables of
// a DeviceRequest). Threads: pure, any.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"
#include "scheduler/model.h"

namespace sublet::scheduler {

class DeviceSelector {
 public:
  // Errors: BadRequest (too long, too deep, no such syntax, something that is not known).
  static Result<std::shared_ptr<const DeviceSelector>> Parse(std::string_view expression);
  virtual ~DeviceSelector() = default;
  // Differs: an attribute that the device does not have makes the device unfit; in Kubernetes it
  // ends the whole attempt with an error, and one odd device keeps every pod waiting.
  virtual bool Matches(const std::string& driver, const SliceDevice& device) const = 0;
};

}  // namespace sublet::scheduler
