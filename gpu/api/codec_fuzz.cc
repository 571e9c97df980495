// Any JSON reads as a slice, a node and annotations without harm, and what a slice says survives.
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "base/check.h"
#include "gpu/api/codec.h"
#include "gpu/api/guard.h"
#include "gpu/api/request.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  std::map<std::string, std::string, std::less<>> annotations;
  const std::size_t middle = text.find('\n');
  annotations["gpu-fraction"] = std::string(text.substr(0, middle));
  annotations["gpu-fraction-num-devices"] =
      middle == text.npos ? "1" : std::string(text.substr(middle + 1));
  (void)sublet::gpu::ParseGpuRequest(annotations);
  auto parsed = sublet::kube::ParseJson(text);
  if (!parsed.ok()) {
    return 0;
  }
  (void)sublet::gpu::CheckGpuRequest(*parsed, nullptr);
  (void)sublet::gpu::GuardPod(*parsed, sublet::gpu::Enforce::kOn);
  (void)sublet::gpu::GuardSlicePod(*parsed);
  (void)sublet::gpu::NodeFromJson(*parsed);
  const auto slice = sublet::gpu::SliceFromJson(*parsed);
  if (slice.ok()) {
    const auto again = sublet::gpu::SliceFromJson(sublet::gpu::SliceToJson(*slice));
    SUBLET_CHECK(again.ok() && again->spec == slice->spec);
  }
  return 0;
}
