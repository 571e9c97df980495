#include "node/kubelet_api/spdy.h"

#include <zlib.h>

#include <algorithm>

#include "node/kubelet_api/spdy_dictionary.h"

namespace sublet::node {
namespace {

constexpr std::size_t kFrameBytesMax = 16u << 20;
constexpr std::size_t kHeaderBytesMax = 64u << 10;
enum ControlType {
  kSynStreamType = 1,
  kSynReplyType = 2,
  kResetType = 3,
  kSettingsType = 4,
  kPingType = 6,
  kGoAwayType = 7,
  kHeadersType = 8,
  kWindowUpdateType = 9
};
constexpr int kFlagFin = 1;

std::uint32_t Word(std::string_view bytes, std::size_t at) {
  std::uint32_t value = 0;
  for (std::size_t i = 0; i < 4; ++i) {
    value = value << 8 | static_cast<unsigned char>(bytes[at + i]);
  }
  return value;
}

void PutWord(std::string* out, std::uint32_t value) {
  for (int shift = 24; shift >= 0; shift -= 8) {
    *out += static_cast<char>(value >> shift & 255);
  }
}

std::string Control(int type, int flags, std::string_view payload) {
  std::string out("\x80\x03", 2);
  out += static_cast<char>(0);
  out += static_cast<char>(type);
  PutWord(&out,
          static_cast<std::uint32_t>(flags) << 24 | static_cast<std::uint32_t>(payload.size()));
  out += payload;
  return out;
}

std::string Lower(std::string text) {
  for (char& c : text) {
    c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  }
  return text;
}

// Number of pairs, then length-prefixed names and values.
Result<SpdyHeaders> ParsePairs(std::string_view text) {
  SpdyHeaders headers;
  std::size_t at = 0;
  const auto word = [&]() -> std::optional<std::uint32_t> {
    if (text.size() - at < 4) {
      return std::nullopt;
    }
    at += 4;
    return Word(text, at - 4);
  };
  const auto take = [&]() -> std::optional<std::string> {
    const auto size = word();
    if (!size || text.size() - at < *size) {
      return std::nullopt;
    }
    at += *size;
    return std::string(text.substr(at - *size, *size));
  };
  const auto count = word();
  if (!count || *count > 1000) {
    return BadRequest("malformed SPDY header block");
  }
  for (std::uint32_t i = 0; i < *count; ++i) {
    auto name = take();
    auto value = name ? take() : std::nullopt;
    if (!value) {
      return BadRequest("malformed SPDY header block");
    }
    headers[Lower(std::move(*name))] = value->substr(0, value->find('\0'));
  }
  return headers;
}

}  // namespace

SpdyReader::SpdyReader() : inflate_(std::make_unique<z_stream_s>()) {
  SUBLET_CHECK(::inflateInit(inflate_.get()) == Z_OK);
}
SpdyReader::~SpdyReader() { ::inflateEnd(inflate_.get()); }

Result<SpdyHeaders> SpdyReader::Inflate(std::string_view block) {
  std::string text;
  inflate_->next_in = reinterpret_cast<Bytef*>(const_cast<char*>(block.data()));
  inflate_->avail_in = static_cast<uInt>(block.size());
  while (inflate_->avail_in > 0) {
    char chunk[4096];
    inflate_->next_out = reinterpret_cast<Bytef*>(chunk);
    inflate_->avail_out = sizeof(chunk);
    const uInt before = inflate_->avail_in;
    int result = ::inflate(inflate_.get(), Z_SYNC_FLUSH);
    if (result == Z_NEED_DICT) {
      result = ::inflateSetDictionary(inflate_.get(),
                                      reinterpret_cast<const Bytef*>(SpdyDictionary().data()),
                                      static_cast<uInt>(SpdyDictionary().size()));
      if (result != Z_OK) {
        return BadRequest("SPDY header block with an unknown dictionary");
      }
      continue;
    }
    const std::size_t made = sizeof(chunk) - inflate_->avail_out;
    text.append(chunk, made);
    if ((result != Z_OK && result != Z_BUF_ERROR) || text.size() > kHeaderBytesMax ||
        (made == 0 && inflate_->avail_in == before)) {
      return BadRequest("malformed SPDY header block");
    }
  }
  return ParsePairs(text);
}

Result<std::optional<SpdyFrame>> SpdyReader::Next() {
  if (buffer_.size() < 8) {
    return std::optional<SpdyFrame>();
  }
  const std::uint32_t first = Word(buffer_, 0);
  const std::uint32_t second = Word(buffer_, 4);
  const std::size_t size = second & 0xffffff;
  const int flags = static_cast<int>(second >> 24);
  if (size > kFrameBytesMax) {
    return Status(Reason::kRequestEntityTooLarge, "SPDY frame too large");
  }
  if (buffer_.size() < 8 + size) {
    return std::optional<SpdyFrame>();
  }
  const std::string payload = buffer_.substr(8, size);
  buffer_.erase(0, 8 + size);
  SpdyFrame frame;
  frame.fin = (flags & kFlagFin) != 0;
  if ((first & 0x80000000u) == 0) {
    frame.kind = SpdyFrame::Kind::kData;
    frame.stream = first;
    frame.data = payload;
    return std::optional<SpdyFrame>(std::move(frame));
  }
  if ((first >> 16 & 0x7fff) != 3) {
    return BadRequest("not SPDY version 3");
  }
  const int type = static_cast<int>(first & 0xffff);
  static constexpr std::pair<int, SpdyFrame::Kind> kKinds[] = {
      {kSynStreamType, SpdyFrame::Kind::kSynStream},
      {kSynReplyType, SpdyFrame::Kind::kSynReply},
      {kResetType, SpdyFrame::Kind::kReset},
      {kSettingsType, SpdyFrame::Kind::kSettings},
      {kPingType, SpdyFrame::Kind::kPing},
      {kGoAwayType, SpdyFrame::Kind::kGoAway},
      {kHeadersType, SpdyFrame::Kind::kHeaders},
      {kWindowUpdateType, SpdyFrame::Kind::kWindowUpdate}};
  for (const auto& [number, kind] : kKinds) {
    frame.kind = number == type ? kind : frame.kind;
  }
  if (frame.kind == SpdyFrame::Kind::kOther || frame.kind == SpdyFrame::Kind::kSettings) {
    return std::optional<SpdyFrame>(std::move(frame));
  }
  if (payload.size() < 4) {
    return BadRequest("SPDY control frame too short");
  }
  frame.stream =
      frame.kind == SpdyFrame::Kind::kPing ? Word(payload, 0) : Word(payload, 0) & 0x7fffffff;
  const std::size_t head = frame.kind == SpdyFrame::Kind::kSynStream ? 10 : 4;
  const bool has_headers = frame.kind == SpdyFrame::Kind::kSynStream ||
                           frame.kind == SpdyFrame::Kind::kSynReply ||
                           frame.kind == SpdyFrame::Kind::kHeaders;
  if (has_headers) {
    if (payload.size() < head) {
      return BadRequest("SPDY control frame too short");
    }
    // Every block must pass through the decompressor, or its state would be lost.
    SUBLET_TRY(frame.headers, Inflate(std::string_view(payload).substr(head)));
  }
  return std::optional<SpdyFrame>(std::move(frame));
}

SpdyWriter::SpdyWriter() : deflate_(std::make_unique<z_stream_s>()) {
  SUBLET_CHECK(::deflateInit(deflate_.get(), Z_BEST_SPEED) == Z_OK);
  SUBLET_CHECK(::deflateSetDictionary(deflate_.get(),
                                      reinterpret_cast<const Bytef*>(SpdyDictionary().data()),
                                      static_cast<uInt>(SpdyDictionary().size())) == Z_OK);
}
SpdyWriter::~SpdyWriter() { ::deflateEnd(deflate_.get()); }

std::string SpdyWriter::Deflate(const SpdyHeaders& headers) {
  std::string text;
  PutWord(&text, static_cast<std::uint32_t>(headers.size()));
  for (const auto& [name, value] : headers) {
    for (const std::string* item : {&name, &value}) {
      PutWord(&text, static_cast<std::uint32_t>(item->size()));
      text += *item;
    }
  }
  std::string out;
  deflate_->next_in = reinterpret_cast<Bytef*>(text.data());
  deflate_->avail_in = static_cast<uInt>(text.size());
  do {
    char chunk[4096];
    deflate_->next_out = reinterpret_cast<Bytef*>(chunk);
    deflate_->avail_out = sizeof(chunk);
    ::deflate(deflate_.get(), Z_SYNC_FLUSH);
    out.append(chunk, sizeof(chunk) - deflate_->avail_out);
  } while (deflate_->avail_out == 0);
  return out;
}

std::string SpdyWriter::SynReply(std::uint32_t stream, const SpdyHeaders& headers) {
  std::string payload;
  PutWord(&payload, stream);
  return Control(kSynReplyType, 0, payload + Deflate(headers));
}

std::string SpdyWriter::SynStream(std::uint32_t stream, const SpdyHeaders& headers, bool fin) {
  std::string payload;
  PutWord(&payload, stream);
  PutWord(&payload, 0);
  payload += std::string(2, '\0');
  return Control(kSynStreamType, fin ? kFlagFin : 0, payload + Deflate(headers));
}

std::string SpdyWriter::Data(std::uint32_t stream, std::string_view data, bool fin) {
  std::string out;
  PutWord(&out, stream & 0x7fffffff);
  PutWord(&out, (fin ? 1u << 24 : 0u) | static_cast<std::uint32_t>(data.size()));
  out += data;
  return out;
}

std::string SpdyWriter::Reset(std::uint32_t stream, std::uint32_t status) {
  std::string payload;
  PutWord(&payload, stream);
  PutWord(&payload, status);
  return Control(kResetType, 0, payload);
}

std::string SpdyWriter::Ping(std::uint32_t number) {
  std::string payload;
  PutWord(&payload, number);
  return Control(kPingType, 0, payload);
}

std::string SpdyWriter::GoAway(std::uint32_t last_stream) {
  std::string payload;
  PutWord(&payload, last_stream);
  PutWord(&payload, 0);
  return Control(kGoAwayType, 0, payload);
}

}  // namespace sublet::node
