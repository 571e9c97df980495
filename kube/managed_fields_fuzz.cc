// Two JSON documents separated by a zero byte: the first is stored (its managedFields are whatever
// it says), the second is applied and then written over it.
#include <cstdint>
#include <nlohmann/json.hpp>

#include "kube/managed_fields.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace sublet::kube;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const std::size_t cut = text.find('\0');
  if (cut == std::string_view::npos) {
    return 0;
  }
  const auto live = ParseJson(text.substr(0, cut));
  auto config = ParseJson(text.substr(cut + 1));
  if (!live.ok() || !config.ok() || !live->is_object() || !config->is_object()) {
    return 0;
  }
  FieldManagerContext context;
  context.gvk = {"", "v1", "Pod"};
  context.type = schema::FindType("", "v1", "Pod");
  context.has_status = true;
  (*config)["apiVersion"] = "v1";
  (*config)["kind"] = "Pod";
  (void)ApplyObject(context, &*live, *config, "kubectl", false).ok();
  (void)ApplyObject(context, &*live, *config, "other", true).ok();
  TrackUpdate(context, &*live, "x", &*config);
  return 0;
}
