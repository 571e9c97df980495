// Fuzzes the path and query decoders: whatever comes in, what comes out stays within it.
#include <cstdlib>

#include "apiserver/request.h"

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  using namespace sublet::apiserver;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const auto question = input.find('?');
  const auto raw_path = input.substr(0, question);
  const Query query = ParseQuery(question == std::string_view::npos ? std::string_view()
                                                                    : input.substr(question + 1));
  const std::string path = DecodePath(raw_path);
  if (path.size() > raw_path.size()) {
    std::abort();
  }
  for (const char* method : {"GET", "POST", "DELETE"}) {
    const RequestInfo info = ParseRequestInfo(method, path, query);
    if (info.is_resource &&
        (info.version.empty() && info.resource.empty() && info.prefix.empty())) {
      std::abort();
    }
    if (info.rest.size() > path.size() || (!info.name.empty() && info.resource.find('/') == 0)) {
      std::abort();
    }
  }
  return 0;
}
