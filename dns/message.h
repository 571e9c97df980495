// DNS messages: one question in, one answer out. As much of RFC 1035 as a cluster nameserver needs;
// EDNS is accepted and answered without options.
// Threads: any; pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace sublet::dns {

enum class Type : std::uint16_t {
  kA = 1,
  kCname = 5,
  kSoa = 6,
  kPtr = 12,
  kAaaa = 28,
  kSrv = 33,
  kAny = 255,
};

enum class Code : std::uint8_t { kOk = 0, kFormat = 1, kFailed = 2, kNoName = 3, kRefused = 5 };

struct Question {
  std::uint16_t id = 0;
  bool recursion_desired = false;
  std::string name;  // lower case, without the final dot; at most 253 characters
  std::uint16_t type = 0;
  bool edns = false;
  std::uint16_t udp_bytes_max = 512;  // what the asker can take
};

// Reads a query with exactly one question of class IN.
// Errors: BadRequest (malformed; compression loops, names over 255 bytes, no or several questions).
Result<Question> ParseQuery(std::string_view bytes);

struct Record {
  std::string name;  // owner
  Type type = Type::kA;
  std::string address;         // A, AAAA: text form
  std::string target;          // CNAME, PTR, SRV
  std::uint16_t port = 0;      // SRV
  std::uint16_t priority = 0;  // SRV
  std::uint16_t weight = 100;  // SRV
};

struct Answer {
  Code code = Code::kOk;
  bool authoritative = true;
  std::vector<Record> records;
  std::vector<Record> additional;
  // The zone whose SOA goes with a negative answer; "" = none.
  std::string zone;
  std::uint32_t ttl_seconds = 5;
};

// The reply to `question`. Over UDP it is cut to the asker's size with the truncated bit set; pass
// `bytes_max` 65535 for TCP.
std::string BuildReply(const Question& question, const Answer& answer, std::size_t bytes_max);
// A bare reply for bytes that did not parse; "" when not even an id is there.
std::string BuildError(std::string_view query, Code code);

}  // namespace sublet::dns
