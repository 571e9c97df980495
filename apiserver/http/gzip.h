// Gzip: compresses response bodies at level 1, as Kubernetes does for bodies over 128 KiB, and
// remembers the compressed form of the collections that are listed again and again.
// Threads: any; compressing blocks about 6 ms per MiB.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "apiserver/response.h"
#include "base/mutex.h"

namespace sublet::apiserver {

inline constexpr std::size_t kGzipBytesMin = 128 * 1024;

// The compressed form of `body`, in pieces of at most 64 KiB.
Body Gzip(const Body& body);

// The same, remembering. The first piece of a list holds its revision and differs from answer to
// answer; the rest are the buffers that storage published. When the rest are the very same buffers
// as before, so is their compressed form: the first piece goes before it as it stands (a stored
// block).
//
// Invariants:
//  1. An entry holds the buffers it was made of, so that equal addresses mean equal bytes.
//  2. Entries together hold at most kBytesMax, compressed and not; the least recently used goes
//     first.
//  3. Only a body that was seen before is kept: what is asked for once costs a number.
class GzipCache {
 public:
  static constexpr std::size_t kBytesMax = 4u << 20;

  Body Compress(const Body& body);
  std::size_t hits() const;

 private:
  using Pieces = std::vector<Body::Piece>;
  struct Entry {
    Pieces pieces;  // of the body, without its first
    std::uint64_t hash = 0;
    std::size_t plain_bytes = 0;
    std::uint32_t checksum = 0;  // of the plain bytes
    std::vector<std::shared_ptr<const std::string>> deflated;
    std::size_t deflated_bytes = 0;

    std::size_t Held() const { return plain_bytes + deflated_bytes; }
  };
  using EntryPtr = std::shared_ptr<const Entry>;

  EntryPtr Find(const Body& body, std::uint64_t hash, bool* seen) SUBLET_REQUIRES(mutex_);
  void Keep(EntryPtr entry) SUBLET_REQUIRES(mutex_);
  static EntryPtr Make(const Body& body, std::uint64_t hash);
  static Body Join(std::string_view first, const Entry& entry);

  mutable Mutex mutex_;
  std::list<EntryPtr> entries_ SUBLET_GUARDED_BY(mutex_);  // most recently used first
  std::size_t held_ SUBLET_GUARDED_BY(mutex_) = 0;
  std::uint64_t seen_[16] SUBLET_GUARDED_BY(mutex_) = {};
  std::size_t hits_ SUBLET_GUARDED_BY(mutex_) = 0;
};

}  // namespace sublet::apiserver
