// Any bytes as a protobuf body; what decodes must encode and decode again without harm.
#include <cstdint>
#include <nlohmann/json.hpp>

#include "kube/object.h"
#include "kube/protobuf.h"
#include "kube/typed.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace sublet::kube;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const auto pod = schema::FindType("", "v1", "Pod");
  for (auto decoded : {DecodeProtobuf(bytes), DecodeMessage(pod, bytes)}) {
    if (decoded.ok()) {
      const GroupVersionKind kind = KindOf(*decoded);
      const auto type = schema::FindType(kind.group, kind.version, kind.kind);
      if (NormalizeTyped(type ? type : pod, &*decoded).ok()) {
        (void)DecodeProtobuf(EncodeProtobuf(type ? type : pod, *decoded)).ok();
      }
    }
  }
  return 0;
}
