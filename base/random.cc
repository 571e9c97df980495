#include "base/random.h"

#include <sys/random.h>

#include <array>
#include <cstring>

#include "base/check.h"

namespace sublet {
namespace {

// One system call serves 32 UUIDs: a create must not cost a getrandom of its own.
struct Pool {
  std::array<unsigned char, 512> bytes;
  std::size_t used = sizeof(bytes);
};

void Fetch(void* data, std::size_t bytes) {
  auto* out = static_cast<unsigned char*>(data);
  while (bytes > 0) {
    const ssize_t got = getrandom(out, bytes, 0);
    if (got < 0) {
      SUBLET_CHECK(errno == EINTR);
      continue;
    }
    out += got;
    bytes -= static_cast<std::size_t>(got);
  }
}

}  // namespace

void FillRandom(void* data, std::size_t bytes) {
  thread_local Pool pool;
  if (bytes > pool.bytes.size()) {
    Fetch(data, bytes);
    return;
  }
  if (pool.used + bytes > pool.bytes.size()) {
    Fetch(pool.bytes.data(), pool.bytes.size());
    pool.used = 0;
  }
  std::memcpy(data, pool.bytes.data() + pool.used, bytes);
  std::memset(pool.bytes.data() + pool.used, 0, bytes);
  pool.used += bytes;
}

std::uint64_t RandomUint64() {
  std::uint64_t value = 0;
  FillRandom(&value, sizeof(value));
  return value;
}

std::string RandomUuid() {
  std::array<unsigned char, 16> raw{};
  FillRandom(raw.data(), raw.size());
  raw[6] = static_cast<unsigned char>((raw[6] & 0x0f) | 0x40);
  raw[8] = static_cast<unsigned char>((raw[8] & 0x3f) | 0x80);
  static constexpr char kHex[] = "0123456789abcdef";
  std::string text;
  text.reserve(36);
  for (std::size_t i = 0; i < raw.size(); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) {
      text += '-';
    }
    text += kHex[raw[i] >> 4];
    text += kHex[raw[i] & 15];
  }
  return text;
}

}  // namespace sublet
