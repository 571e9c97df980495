// Two JSON documents separated by a zero byte: the second patches the first in all three ways.
#include <cstdint>
#include <nlohmann/json.hpp>

#include "kube/json_patch.h"
#include "kube/strategic_merge_patch.h"
#include "kube/typed.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace sublet::kube;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const std::size_t cut = text.find('\0');
  if (cut == std::string_view::npos) {
    return 0;
  }
  const auto target = ParseJson(text.substr(0, cut));
  const auto patch = ParseJson(text.substr(cut + 1));
  if (!target.ok() || !patch.ok()) {
    return 0;
  }
  Json work = *target;
  (void)ApplyJsonPatch(*patch, &work).ok();
  work = *target;
  ApplyMergePatch(*patch, &work);
  if (target->is_object()) {
    work = *target;
    const auto pod = schema::FindType("", "v1", "Pod");
    (void)ApplyStrategicMergePatch(pod, *patch, &work).ok();
    (void)NormalizeTyped(pod, &work).ok();
  }
  return 0;
}
