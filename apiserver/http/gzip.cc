#include "apiserver/http/gzip.h"

#include <zlib.h>

#include <algorithm>
#include <span>

#include "base/check.h"

namespace sublet::apiserver {
namespace {

constexpr std::size_t kPieceBytes = 64 * 1024;
constexpr int kGzipFrame = 15 + 16;  // the largest window, gzip framing
constexpr int kNoFrame = -15;
constexpr std::size_t kStoredBytesMax = 65535;
// Magic, deflate, no flags, no time, level 1, unknown system: as zlib writes it at this level.
constexpr std::string_view kHeader("\x1f\x8b\x08\x00\x00\x00\x00\x00\x04\xff", 10);

using Texts = std::vector<std::shared_ptr<const std::string>>;

Texts Deflate(std::span<const Body::Piece> input, int frame) {
  z_stream stream{};
  SUBLET_CHECK(deflateInit2(&stream, 1, Z_DEFLATED, frame, 8, Z_DEFAULT_STRATEGY) == Z_OK);
  Texts out;
  std::string piece(kPieceBytes, '\0');
  const auto reset_output = [&] {
    stream.next_out = reinterpret_cast<Bytef*>(piece.data());
    stream.avail_out = static_cast<uInt>(piece.size());
  };
  const auto run = [&](int flush) {
    for (;;) {
      deflate(&stream, flush);
      if (stream.avail_out > 0) {
        return;
      }
      out.push_back(std::make_shared<const std::string>(std::move(piece)));
      piece.assign(kPieceBytes, '\0');
      reset_output();
    }
  };
  reset_output();
  for (const Body::Piece& one : input) {
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(one.bytes.data()));
    stream.avail_in = static_cast<uInt>(one.bytes.size());
    run(Z_NO_FLUSH);
  }
  run(Z_FINISH);
  piece.resize(piece.size() - stream.avail_out);
  piece.shrink_to_fit();
  out.push_back(std::make_shared<const std::string>(std::move(piece)));
  deflateEnd(&stream);
  return out;
}

std::uint32_t Checksum(std::uint32_t before, std::string_view text) {
  return static_cast<std::uint32_t>(
      crc32(before, reinterpret_cast<const Bytef*>(text.data()), static_cast<uInt>(text.size())));
}

void AppendLittleEndian(std::string& out, std::uint32_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) {
    out += static_cast<char>(value >> (8 * i));
  }
}

// Of the addresses and lengths of all pieces but the first.
std::uint64_t HashOf(const std::vector<Body::Piece>& pieces) {
  std::uint64_t hash = 0x9e3779b97f4a7c15u;
  const auto mix = [&hash](std::uint64_t value) {
    hash = (hash ^ value) * 0xff51afd7ed558ccdu;
    hash ^= hash >> 32;
  };
  for (std::size_t i = 1; i < pieces.size(); ++i) {
    mix(reinterpret_cast<std::uintptr_t>(pieces[i].bytes.data()));
    mix(pieces[i].bytes.size());
  }
  return hash | 1;  // 0 = none
}

}  // namespace

Body Gzip(const Body& body) {
  Body out;
  for (auto& text : Deflate(body.pieces(), kGzipFrame)) {
    const std::string_view view = *text;
    out.AppendShared(std::move(text), view);
  }
  return out;
}

Body GzipCache::Compress(const Body& body) {
  const auto& pieces = body.pieces();
  if (pieces.size() < 2 || pieces.front().bytes.size() > kStoredBytesMax ||
      body.size() > kBytesMax / 2) {
    return Gzip(body);
  }
  const std::uint64_t hash = HashOf(pieces);
  EntryPtr entry;
  bool seen = false;
  {
    MutexLock lock(mutex_);
    entry = Find(body, hash, &seen);
  }
  if (entry == nullptr) {
    if (!seen) {
      return Gzip(body);
    }
    entry = Make(body, hash);
    MutexLock lock(mutex_);
    Keep(entry);
  }
  return Join(pieces.front().bytes, *entry);
}

std::size_t GzipCache::hits() const {
  MutexLock lock(mutex_);
  return hits_;
}

GzipCache::EntryPtr GzipCache::Find(const Body& body, std::uint64_t hash, bool* seen) {
  const auto same = [](const Body::Piece& a, const Body::Piece& b) {
    return a.bytes.data() == b.bytes.data() && a.bytes.size() == b.bytes.size();
  };
  for (auto at = entries_.begin(); at != entries_.end(); ++at) {
    const Entry& entry = **at;
    if (entry.hash == hash && std::equal(entry.pieces.begin(), entry.pieces.end(),
                                         body.pieces().begin() + 1, body.pieces().end(), same)) {
      entries_.splice(entries_.begin(), entries_, at);
      ++hits_;
      return entries_.front();
    }
  }
  std::uint64_t& slot = seen_[(hash >> 8) % std::size(seen_)];
  *seen = slot == hash;
  slot = hash;
  return nullptr;
}

void GzipCache::Keep(EntryPtr entry) {
  held_ += entry->Held();
  entries_.push_front(std::move(entry));
  while (held_ > kBytesMax) {
    held_ -= entries_.back()->Held();
    entries_.pop_back();
  }
}

GzipCache::EntryPtr GzipCache::Make(const Body& body, std::uint64_t hash) {
  auto entry = std::make_shared<Entry>();
  entry->hash = hash;
  entry->pieces.assign(body.pieces().begin() + 1, body.pieces().end());
  for (const Body::Piece& piece : entry->pieces) {
    entry->plain_bytes += piece.bytes.size();
    entry->checksum = Checksum(entry->checksum, piece.bytes);
  }
  entry->deflated = Deflate(entry->pieces, kNoFrame);
  for (const auto& text : entry->deflated) {
    entry->deflated_bytes += text->size();
  }
  return entry;
}

Body GzipCache::Join(std::string_view first, const Entry& entry) {
  const auto length = static_cast<std::uint32_t>(first.size());
  std::string head(kHeader);
  head += '\0';  // not the last block, stored
  AppendLittleEndian(head, length, 2);
  AppendLittleEndian(head, ~length, 2);
  head.append(first);
  std::string tail;
  AppendLittleEndian(
      tail,
      static_cast<std::uint32_t>(crc32_combine(Checksum(0, first), entry.checksum,
                                               static_cast<z_off_t>(entry.plain_bytes))),
      4);
  AppendLittleEndian(tail, static_cast<std::uint32_t>(first.size() + entry.plain_bytes), 4);
  Body out;
  out.Append(std::move(head));
  for (const auto& text : entry.deflated) {
    out.AppendShared(text, *text);
  }
  out.Append(std::move(tail));
  return out;
}

}  // namespace sublet::apiserver
