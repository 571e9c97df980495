// A history is a file from outside: reading it, and playing what was read, must not crash.
#include <cstddef>
#include <cstdint>
#include <string>

#include "scheduler/replay.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto history =
      sublet::scheduler::ReadHistory(std::string(reinterpret_cast<const char*>(data), size));
  if (history.ok() && history->pods.size() <= 20 && history->base.nodes.size() <= 20) {
    (void)sublet::scheduler::Replay(*history, *sublet::scheduler::NamedProfile("kai-0.13"));
  }
  return 0;
}
