// Values files come from users: no bytes may crash the parser.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "config/tenant_config.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  (void)sublet::config::ParseTenantConfig(text, "fuzz");
  (void)sublet::config::SetValue("a: 1\n", text);
  return 0;
}
