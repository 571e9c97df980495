// What gpud reads from outside as text: /proc files, its admin socket's requests, UUIDs.
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "gpu/gpud/admin_server.h"
#include "gpu/gpud/identity.h"
#include "gpu/gpud/pages.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const std::string cgroup = sublet::gpu::LongestCgroup(text);
  SUBLET_CHECK(cgroup.size() <= size);
  SUBLET_CHECK(cgroup.empty() || sublet::gpu::IsWithinCgroup(cgroup, cgroup));
  SUBLET_CHECK(sublet::gpu::MountedSliceIn(text).find('/') == std::string::npos);
  const std::string_view path = sublet::gpu::AdminPath(text);
  SUBLET_CHECK(path.empty() || path.front() == '/');
  unsigned char bytes[16];
  (void)sublet::gpu::ParseDeviceUuid(text, bytes);
  return 0;
}
