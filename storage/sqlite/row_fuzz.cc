// Bytes from outside reach the store through its file alone. Two ways in: a row with any columns,
// and a good file with any bytes overwritten.
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

#include "base/check.h"
#include "base/log.h"
#include "storage/sqlite/row.h"
#include "storage/store.h"

namespace sublet::storage {
namespace {

class Bytes {
 public:
  Bytes(const std::uint8_t* data, std::size_t size) : data_(data), left_(size) {}
  std::int64_t Int() {
    std::int64_t value = 0;
    const std::size_t bytes = std::min<std::size_t>(left_, 1 + Byte() % 8);
    std::memcpy(&value, data_, bytes);
    Skip(bytes);
    return value;
  }
  std::uint8_t Byte() {
    if (left_ == 0) {
      return 0;
    }
    const std::uint8_t byte = *data_;
    Skip(1);
    return byte;
  }
  std::string_view Text() {
    const std::size_t bytes = std::min<std::size_t>(left_, Byte());
    const std::string_view text(reinterpret_cast<const char*>(data_), std::min(bytes, left_));
    Skip(text.size());
    return text;
  }
  bool empty() const { return left_ == 0; }

 private:
  void Skip(std::size_t bytes) {
    data_ += bytes;
    left_ -= bytes;
  }
  const std::uint8_t* data_;
  std::size_t left_;
};

void TryRow(Bytes bytes) {
  RawRow row;
  row.id = bytes.Int();
  row.key = bytes.Text();
  row.created = bytes.Int();
  row.prev = bytes.Int();
  row.flags = bytes.Int();
  row.hole = bytes.Int();
  row.expires_unix = bytes.Int();
  row.value_is_null = bytes.Byte() % 2 == 1;
  row.value = bytes.Text();
  if (!CheckRow(row).ok() || row.deleted()) {
    return;
  }
  const EntryRef entry = MakeEntry(row, nullptr);
  const ValuePtr later = AtRevision(*entry->value, entry->mod_revision() + 1);
  SUBLET_CHECK(WithoutRevision(*later) == WithoutRevision(*entry->value));
}

std::string MakeGoodFile(const std::string& folder) {
  {
    auto store = OpenSqliteStore({.directory = folder});
    SUBLET_CHECK(store.ok());
    for (int i = 0; i < 60; ++i) {
      std::vector<Op> ops(1);
      ops[0].key = "/k/" + std::to_string(i % 13);
      ops[0].kind = i % 7 == 6 ? Op::Kind::kDelete : Op::Kind::kPut;
      ops[0].bytes = "{" + std::string(static_cast<std::size_t>(i) * 9, 'x') + "}";
      ops[0].revision_offset = 1;
      SUBLET_CHECK((*store)->TransactSync(std::move(ops)).ok());
    }
  }
  std::ifstream file(folder + "/state.db", std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

// A folder that goes away with the process.
struct Folder {
  Folder() {
    char name[] = "/dev/shm/sublet-fuzz-XXXXXX";
    char other[] = "/tmp/sublet-fuzz-XXXXXX";
    const char* made = ::mkdtemp(name);
    path = made != nullptr ? made : ::mkdtemp(other);
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
  std::string path;
};

void TryFile(Bytes bytes) {
  static const Folder folder;
  static const std::string good = MakeGoodFile(folder.path);
  std::string bad = good;
  while (!bytes.empty()) {
    const auto offset = static_cast<std::uint64_t>(bytes.Int()) % bad.size();
    bad[offset] = static_cast<char>(bytes.Byte());
  }
  for (const char* name : {"/state.db-wal", "/state.db-shm"}) {
    ::unlink((folder.path + name).c_str());
  }
  std::ofstream(folder.path + "/state.db", std::ios::binary) << bad;
  auto store = OpenSqliteStore({.directory = folder.path});
  if (!store.ok()) {
    return;
  }
  (void)(*store)->List("/", "", 0, 5);
  (void)(*store)->ListHistory("/k/1", "", 0, 20);
  if (auto watch = (*store)->Watch({.prefix = "/k/", .after = 3}); watch.ok()) {
    std::vector<EventPtr> events;
    (void)(*watch)->Pull(events, 1000);
  }
  std::vector<Op> ops(1);
  ops[0].key = "/k/1";
  (void)(*store)->TransactSync(std::move(ops));
}

}  // namespace
}  // namespace sublet::storage

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  sublet::log::SetLevel(sublet::log::Level::kOff);
  if (size < 2) {
    return 0;
  }
  const sublet::storage::Bytes rest(data + 1, size - 1);
  // Files cost a thousand times more than rows.
  if (data[0] < 250) {
    sublet::storage::TryRow(rest);
  } else {
    sublet::storage::TryFile(rest);
  }
  return 0;
}
