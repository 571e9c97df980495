#include "dns/message.h"

#include <arpa/inet.h>

#include <algorithm>
#include <array>

namespace sublet::dns {
namespace {

constexpr std::size_t kHeader = 12;
constexpr std::uint16_t kClassIn = 1;
constexpr std::uint16_t kOpt = 41;

std::uint16_t Get16(std::string_view bytes, std::size_t at) {
  return static_cast<std::uint16_t>(static_cast<unsigned char>(bytes[at]) << 8 |
                                    static_cast<unsigned char>(bytes[at + 1]));
}

void Put16(std::string& out, unsigned value) {
  out += static_cast<char>(value >> 8 & 0xff);
  out += static_cast<char>(value & 0xff);
}

void Put32(std::string& out, std::uint32_t value) {
  Put16(out, value >> 16);
  Put16(out, value & 0xffff);
}

// Reads an uncompressed or compressed name; pointers may only go backwards, so they end.
Result<std::string> ReadName(std::string_view bytes, std::size_t* at) {
  std::string name;
  std::size_t position = *at;
  std::size_t lowest = position;
  bool jumped = false;
  for (;;) {
    if (position >= bytes.size()) {
      return BadRequest("a name runs past the end of the message");
    }
    const auto length = static_cast<unsigned char>(bytes[position]);
    if ((length & 0xc0) == 0xc0) {
      if (position + 1 >= bytes.size()) {
        return BadRequest("a name runs past the end of the message");
      }
      const std::size_t target = Get16(bytes, position) & 0x3fff;
      if (target >= lowest) {
        return BadRequest("a name points forward");
      }
      if (!jumped) {
        *at = position + 2;
        jumped = true;
      }
      lowest = position = target;
      continue;
    }
    if (length > 63) {
      return BadRequest("a label has more than 63 bytes");
    }
    if (length == 0) {
      if (!jumped) {
        *at = position + 1;
      }
      return name;
    }
    if (position + 1 + length > bytes.size() || name.size() + length + 1 > 254) {
      return BadRequest("a name is too long");
    }
    if (!name.empty()) {
      name += '.';
    }
    for (std::size_t i = 0; i < length; ++i) {
      const auto c = static_cast<unsigned char>(bytes[position + 1 + i]);
      name += static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
    }
    position += 1 + length;
  }
}

bool PutName(std::string& out, std::string_view name) {
  while (!name.empty()) {
    const auto dot = name.find('.');
    const std::string_view label = name.substr(0, dot);
    if (label.empty() || label.size() > 63) {
      return false;
    }
    out += static_cast<char>(label.size());
    out += label;
    name = dot == std::string_view::npos ? std::string_view() : name.substr(dot + 1);
  }
  out += '\0';
  return true;
}

// False when the record cannot be written (a name that is none).
bool PutRecord(std::string& out, const Record& record, std::uint32_t ttl) {
  std::string data;
  switch (record.type) {
    case Type::kA:
    case Type::kAaaa: {
      std::array<unsigned char, 16> raw{};
      const bool v4 = record.type == Type::kA;
      if (inet_pton(v4 ? AF_INET : AF_INET6, record.address.c_str(), raw.data()) != 1) {
        return false;
      }
      data.assign(reinterpret_cast<const char*>(raw.data()), v4 ? 4 : 16);
      break;
    }
    case Type::kSrv:
      Put16(data, record.priority);
      Put16(data, record.weight);
      Put16(data, record.port);
      [[fallthrough]];
    case Type::kCname:
    case Type::kPtr:
      if (!PutName(data, record.target)) {
        return false;
      }
      break;
    case Type::kSoa:
      if (!PutName(data, "ns.dns." + record.name) || !PutName(data, "hostmaster." + record.name)) {
        return false;
      }
      for (const std::uint32_t number : {1u, 7200u, 1800u, 86400u, 5u}) {
        Put32(data, number);
      }
      break;
    case Type::kAny: return false;
  }
  if (!PutName(out, record.name)) {
    return false;
  }
  Put16(out, static_cast<unsigned>(record.type));
  Put16(out, kClassIn);
  Put32(out, ttl);
  Put16(out, static_cast<unsigned>(data.size()));
  out += data;
  return true;
}

}  // namespace

Result<Question> ParseQuery(std::string_view bytes) {
  if (bytes.size() < kHeader) {
    return BadRequest("shorter than a header");
  }
  const std::uint16_t flags = Get16(bytes, 2);
  if ((flags & 0x8000) != 0 || (flags & 0x7800) != 0) {
    return BadRequest("not a standard query");
  }
  if (Get16(bytes, 4) != 1) {
    return BadRequest("not exactly one question");
  }
  Question question;
  question.id = Get16(bytes, 0);
  question.recursion_desired = (flags & 0x0100) != 0;
  std::size_t at = kHeader;
  SUBLET_TRY(question.name, ReadName(bytes, &at));
  if (at + 4 > bytes.size()) {
    return BadRequest("the question is cut off");
  }
  question.type = Get16(bytes, at);
  if (Get16(bytes, at + 2) != kClassIn) {
    return BadRequest("only class IN is served");
  }
  at += 4;
  // An OPT record may stand among the additional ones, after no answers and no authorities.
  if (Get16(bytes, 6) == 0 && Get16(bytes, 8) == 0 && Get16(bytes, 10) > 0 &&
      at + 11 <= bytes.size() && bytes[at] == '\0' && Get16(bytes, at + 1) == kOpt) {
    question.edns = true;
    question.udp_bytes_max = std::clamp<std::uint16_t>(Get16(bytes, at + 3), 512, 4096);
  }
  return question;
}

std::string BuildReply(const Question& question, const Answer& answer, std::size_t bytes_max) {
  const bool negative = answer.records.empty() && !answer.zone.empty();
  std::string out;
  unsigned flags = 0x8000 | (answer.authoritative ? 0x0400u : 0u) |
                   (question.recursion_desired ? 0x0100u : 0u) | 0x0080u |
                   static_cast<unsigned>(answer.code);
  Put16(out, question.id);
  Put16(out, flags);
  Put16(out, 1);
  out.append(6, '\0');  // counts, filled in below
  PutName(out, question.name);
  Put16(out, question.type);
  Put16(out, kClassIn);
  const std::size_t reserved = question.edns ? 11 : 0;
  unsigned answers = 0;
  unsigned authorities = 0;
  unsigned additional = 0;
  bool truncated = false;
  const auto put = [&](const Record& record, unsigned& count) {
    const std::size_t before = out.size();
    if (!PutRecord(out, record, answer.ttl_seconds) || out.size() + reserved > bytes_max) {
      truncated = truncated || out.size() + reserved > bytes_max;
      out.resize(before);
      return;
    }
    ++count;
  };
  for (const Record& record : answer.records) {
    put(record, answers);
  }
  if (negative) {
    Record soa;
    soa.name = answer.zone;
    soa.type = Type::kSoa;
    put(soa, authorities);
  }
  const bool cut = truncated;
  for (const Record& record : answer.additional) {
    put(record, additional);
  }
  if (question.edns) {
    out += '\0';
    Put16(out, kOpt);
    Put16(out, 1232);
    Put32(out, 0);
    Put16(out, 0);
    ++additional;
  }
  if (cut) {
    flags |= 0x0200;
  }
  std::string header;
  Put16(header, question.id);
  Put16(header, flags);
  Put16(header, 1);
  Put16(header, answers);
  Put16(header, authorities);
  Put16(header, additional);
  out.replace(0, kHeader, header);
  return out;
}

std::string BuildError(std::string_view query, Code code) {
  if (query.size() < kHeader || (static_cast<unsigned char>(query[2]) & 0x80) != 0) {
    return "";  // never answer an answer
  }
  std::string out(query.substr(0, 2));
  Put16(out, 0x8080 | static_cast<unsigned>(code));
  out.append(8, '\0');
  return out;
}

}  // namespace sublet::dns
