// HTTP/1.1 requests to the kubelet API: head parsing, query decoding, answers. Blocking.
// Threads: values; a request belongs to its connection's thread.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "node/kubelet_api/duplex.h"

namespace sublet::node {

struct KubeletRequest {
  std::string method;
  std::string path;                                          // decoded, without the query
  std::vector<std::pair<std::string, std::string>> query;    // decoded, in order
  std::vector<std::pair<std::string, std::string>> headers;  // names lower-cased
  bool keep_alive = true;
  std::size_t content_length = 0;

  // The first value, or "".
  std::string_view Header(std::string_view lower_case_name) const;
  std::string_view Query(std::string_view name) const;
  std::vector<std::string> QueryAll(std::string_view name) const;
  // "true", "1" and "t" in any case, and a name without a value, count.
  bool Flag(std::string_view name) const;
  // The parts of the path between slashes.
  std::vector<std::string> PathParts() const;
};

// Parses everything before the empty line. Errors: BadRequest.
Result<KubeletRequest> ParseRequestHead(std::string_view head);
// Undoes percent encoding; '+' is a space in queries. Malformed escapes stay as they are.
std::string UrlDecode(std::string_view text, bool plus_is_space);
// Splits a comma separated header value.
std::vector<std::string> SplitList(std::string_view value);

// A whole answer. `close` adds "Connection: close".
std::string MakeResponse(int code, std::string_view content_type, std::string_view body,
                         bool close);
std::string_view ReasonPhrase(int code);

// A chunked body being written.
class ChunkedResponse {
 public:
  ChunkedResponse(Duplex& connection, std::string_view content_type);
  // False when the client has gone.
  bool Write(std::string_view data);
  void Finish();

 private:
  Duplex& connection_;
  bool failed_ = false;
};

}  // namespace sublet::node
