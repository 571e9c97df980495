// Any bytes, in two pieces cut at the place the first byte names.
#include "client/http_response_parser.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) {
    return 0;
  }
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  const std::size_t cut = text.empty() ? 0 : data[0] % (text.size() + 1);
  sublet::client::HttpResponseParser parser(true);
  std::string body;
  const auto first = parser.Feed(text.substr(0, cut), &body);
  if (first.ok() && *first == cut) {
    static_cast<void>(parser.Feed(text.substr(cut), &body).ok());
  }
  static_cast<void>(parser.FeedEnd().ok());
  return 0;
}
