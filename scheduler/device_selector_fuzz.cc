// CEL expressions come from whoever may write claims: no text may crash the parser or a match.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "scheduler/device_selector.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace sublet::scheduler;
  const auto selector =
      DeviceSelector::Parse(std::string_view(reinterpret_cast<const char*>(data), size));
  if (selector.ok()) {
    SliceDevice device;
    device.name = "d";
    device.attributes["d/model"] = {DeviceAttribute::Kind::kText, "a", 0};
    device.attributes["d/index"] = {DeviceAttribute::Kind::kNumber, "", 3};
    device.capacity["d/memory"] = "80Gi";
    (void)(*selector)->Matches("d", device);
  }
  return 0;
}
