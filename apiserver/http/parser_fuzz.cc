// Fuzzes the HTTP request parser: any split of any bytes must give the same outcome.
#include <cstdlib>

#include "apiserver/http/parser.h"

namespace {

using sublet::apiserver::ParserLimits;
using sublet::apiserver::RequestParser;

struct Outcome {
  RequestParser::State state = RequestParser::State::kNeedMore;
  std::string text;
};

Outcome Run(std::string_view input, std::size_t step) {
  ParserLimits limits;
  limits.head_bytes_max = 512;
  limits.body_bytes_max = 512;
  RequestParser parser(limits);
  std::string pending;
  Outcome outcome;
  while (!input.empty()) {
    const std::size_t size = std::min(step, input.size());
    pending.append(input.substr(0, size));
    input.remove_prefix(size);
    for (;;) {
      std::size_t consumed = 0;
      outcome.state = parser.Parse(pending, &consumed);
      if (consumed > pending.size()) {
        std::abort();
      }
      pending.erase(0, consumed);
      if (outcome.state == RequestParser::State::kSendContinue) {
        continue;
      }
      if (outcome.state == RequestParser::State::kDone) {
        const auto request = parser.Take();
        outcome.text += request.method + " " + request.raw_path + " " + request.body + "\n";
        continue;
      }
      break;
    }
    if (outcome.state == RequestParser::State::kError) {
      break;
    }
  }
  return outcome;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const Outcome whole = Run(input, size == 0 ? 1 : size);
  const Outcome bytewise = Run(input, 1);
  if (whole.text != bytewise.text || whole.state != bytewise.state) {
    std::abort();
  }
  return 0;
}
