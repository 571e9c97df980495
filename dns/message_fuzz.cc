// Anybody who reaches the port sends these bytes.
#include <cstddef>
#include <cstdint>

#include "dns/message.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const auto question = sublet::dns::ParseQuery(bytes);
  if (question.ok()) {
    sublet::dns::Answer answer;
    answer.zone = "cluster.local";
    (void)sublet::dns::BuildReply(*question, answer, question->udp_bytes_max);
  } else {
    (void)sublet::dns::BuildError(bytes, sublet::dns::Code::kFormat);
  }
  return 0;
}
