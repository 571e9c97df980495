// Any bytes as JSON and as YAML: whatever parses must survive a round trip.
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "kube/json.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace sublet::kube;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  std::vector<std::string> duplicates;
  if (const auto json = ParseJsonStrict(text, {}, &duplicates); json.ok()) {
    const auto again = ParseJson(Dump(*json));
    if (!again.ok() || Dump(*again) != Dump(*json)) {
      std::abort();
    }
  }
  if (const auto yaml = ParseYaml(text); yaml.ok()) {
    (void)ToYaml(*yaml);
  }
  return 0;
}
