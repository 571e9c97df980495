// Everything handlers parse from a request before they know who wrote it well: continue tokens,
// Accept headers, query options, JSON paths of definitions.
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "apiserver/crd/json_path.h"
#include "apiserver/handlers/continue_token.h"
#include "apiserver/handlers/negotiate.h"
#include "apiserver/handlers/options.h"
#include "kube/json.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace sublet::apiserver;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto token = DecodeContinue(text); token.ok()) {
    // What was accepted survives the way back.
    const auto again = DecodeContinue(EncodeContinue(*token));
    if (!again.ok() || again->start != token->start || again->revision != token->revision) {
      __builtin_trap();
    }
  }
  (void)ParseAccept(text);
  Request request;
  request.query = ParseQuery(text);
  request.headers = {{"accept", std::string(text)}, {"user-agent", std::string(text)}};
  (void)NegotiateOutput(request, {}).ok();
  (void)ParseListOptions(request.query).ok();
  (void)ParseWriteOptions(request, "PatchOptions", true).ok();
  (void)ParseDeleteOptions(request, nullptr).ok();
  if (const auto path = JsonPath::Parse(text); path.ok()) {
    const sublet::kube::Json value = {{"a", {{{"b", 1}}, 2}}, {"b", "x"}};
    (void)path->Find(value);
  }
  return 0;
}
