// What storage tests share: a folder of their own, shorthand for operations, a clock that moves
// when told (and may be read by the writer meanwhile).
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <atomic>
#include <filesystem>
#include <string>

#include "storage/sqlite/test_hooks.h"
#include "storage/store.h"

namespace sublet::storage::testing {

// In memory where that is possible: a sync then costs nothing, and what a lost sync does is tested
// with a file layer that forgets (power_loss.h), not with the machine's disk.
class TempFolder {
 public:
  TempFolder() {
    std::string name = "/dev/shm/sublet-store-XXXXXX";
    const char* made = ::mkdtemp(name.data());
    if (made == nullptr) {
      name = (std::filesystem::temp_directory_path() / "sublet-store-XXXXXX").string();
      made = ::mkdtemp(name.data());
    }
    path_ = made;
  }
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

class AtomicClock final : public Clock {
 public:
  WallTime Now() const override { return WallTime(std::chrono::milliseconds(wall_ms_)); }
  MonotonicTime Monotonic() const override {
    return MonotonicTime(std::chrono::milliseconds(monotonic_ms_));
  }
  void Advance(std::chrono::milliseconds by) {
    wall_ms_ += by.count();
    monotonic_ms_ += by.count();
  }
  // A jump of the wall clock only.
  void Jump(std::chrono::milliseconds by) { wall_ms_ += by.count(); }

 private:
  std::atomic<std::int64_t> wall_ms_{1767225600000};
  std::atomic<std::int64_t> monotonic_ms_{1000};
};

// A value in the shape of an object: {"rv":"HOLE","v":"TEXT"}.
inline Op Put(std::string key, std::string_view text,
              std::optional<Revision> expected = std::nullopt) {
  Op op;
  op.key = std::move(key);
  op.expected = expected;
  op.bytes = R"({"rv":"","v":")" + std::string(text) + R"("})";
  op.revision_offset = 7;
  return op;
}
inline Op Delete(std::string key, std::optional<Revision> expected = std::nullopt) {
  Op op;
  op.kind = Op::Kind::kDelete;
  op.key = std::move(key);
  op.expected = expected;
  return op;
}
inline Op Check(std::string key, Revision expected) {
  Op op;
  op.kind = Op::Kind::kCheck;
  op.key = std::move(key);
  op.expected = expected;
  return op;
}
// What Put's text looks like once published.
inline std::string Shown(std::string_view text, Revision revision) {
  return R"({"rv":")" + std::to_string(revision) + R"(","v":")" + std::string(text) + R"("})";
}

inline std::unique_ptr<Store> Open(StoreOptions options, const TestHooks* hooks = nullptr) {
  auto store = OpenSqliteStoreForTest(std::move(options), hooks);
  if (!store.ok()) {
    ADD_FAILURE() << store.error().message();
    std::abort();
  }
  return std::move(*store);
}
inline std::unique_ptr<Store> Open(const std::string& directory, const TestHooks* hooks = nullptr) {
  return Open(StoreOptions{.directory = directory}, hooks);
}

// Applies one op that must succeed; returns its revision.
inline Revision Must(Store& store, Op op) {
  std::vector<Op> ops;
  ops.push_back(std::move(op));
  auto result = store.TransactSync(std::move(ops));
  EXPECT_TRUE(result.ok()) << result.error().message();
  EXPECT_TRUE(result.ok() && result->committed);
  return result.ok() ? result->revision : 0;
}

inline Result<TxnResult> Try(Store& store, Op op) {
  std::vector<Op> ops;
  ops.push_back(std::move(op));
  return store.TransactSync(std::move(ops));
}

}  // namespace sublet::storage::testing
