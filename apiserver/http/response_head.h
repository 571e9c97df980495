// ResponseHead: the status line and headers of an answer as bytes. Used by
// http/connection_answer.cc. Threads: any; pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "apiserver/response.h"

namespace sublet::apiserver {

// How the body that follows is delimited, and what becomes of the connection afterwards.
struct HeadFacts {
  bool has_body = false;       // the answer has one, even if it is not sent (HEAD)
  std::size_t body_bytes = 0;  // of a body that is whole
  bool is_stream = false;
  bool chunked = false;
  bool keep_alive = true;
  bool is_upgrade = false;
  bool is_http_1_0 = false;
};

// The head with its empty line. `date` is the value of the Date header.
std::string EncodeHead(const Response& response, const HeadFacts& facts, std::string_view date);
// "Not Found" for 404; "Status" for a code without a phrase of its own.
std::string_view ReasonPhrase(int code);
void AppendNumber(std::string& out, std::uint64_t number, int base = 10);
bool HasHeader(const Response& response, std::string_view name);

}  // namespace sublet::apiserver
