// The protobuf wire format: reading and writing tags, varints and length-delimited pieces.
// Threads: any.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace sublet::kube::wire {

enum Type : std::uint32_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

// One field as it stands on the wire: `number` for kVarint and fixed, `bytes` for kBytes.
struct Item {
  std::uint32_t field = 0;
  Type type = kVarint;
  std::uint64_t number = 0;
  std::string_view bytes;
};

// Walks the fields of one message. Next() returns false at the end or at a mistake; failed() tells.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : left_(bytes) {}

  bool Next(Item* item) {
    if (left_.empty()) {
      return false;
    }
    std::uint64_t tag = 0;
    if (!Varint(&tag) || (tag >> 3) == 0 || (tag >> 3) > 0x1fffffff) {
      return Fail();
    }
    item->field = static_cast<std::uint32_t>(tag >> 3);
    item->type = static_cast<Type>(tag & 7);
    switch (item->type) {
      case kVarint: return Varint(&item->number) || Fail();
      case kFixed64: return Fixed(8, &item->number) || Fail();
      case kFixed32: return Fixed(4, &item->number) || Fail();
      case kBytes: {
        std::uint64_t size = 0;
        if (!Varint(&size) || size > left_.size()) {
          return Fail();
        }
        item->bytes = left_.substr(0, size);
        left_.remove_prefix(size);
        return true;
      }
    }
    return Fail();
  }

  bool Varint(std::uint64_t* value) {
    *value = 0;
    for (int shift = 0; shift < 64 && !left_.empty(); shift += 7) {
      const auto byte = static_cast<unsigned char>(left_.front());
      left_.remove_prefix(1);
      *value |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
      if ((byte & 0x80) == 0) {
        return true;
      }
    }
    return false;
  }

  bool failed() const { return failed_; }
  bool empty() const { return left_.empty(); }

 private:
  bool Fixed(std::size_t width, std::uint64_t* value) {
    if (left_.size() < width) {
      return false;
    }
    *value = 0;
    std::memcpy(value, left_.data(), width);  // little-endian hosts only, as x86-64 and arm64 are
    left_.remove_prefix(width);
    return true;
  }
  bool Fail() {
    failed_ = true;
    return false;
  }

  std::string_view left_;
  bool failed_ = false;
};

inline void PutVarint(std::uint64_t value, std::string* out) {
  while (value >= 0x80) {
    out->push_back(static_cast<char>(value | 0x80));
    value >>= 7;
  }
  out->push_back(static_cast<char>(value));
}
inline void PutNumber(int field, std::uint64_t value, std::string* out) {
  PutVarint(static_cast<std::uint64_t>(field) << 3 | kVarint, out);
  PutVarint(value, out);
}
inline void PutBytes(int field, std::string_view bytes, std::string* out) {
  PutVarint(static_cast<std::uint64_t>(field) << 3 | kBytes, out);
  PutVarint(bytes.size(), out);
  out->append(bytes);
}
inline void PutDouble(int field, double value, std::string* out) {
  PutVarint(static_cast<std::uint64_t>(field) << 3 | kFixed64, out);
  const auto bits = std::bit_cast<std::uint64_t>(value);
  out->append(reinterpret_cast<const char*>(&bits), sizeof(bits));
}

}  // namespace sublet::kube::wire
