// Vfs: SQLite's file layer with a counter of fdatasync calls and a place where tests see and fail
// each change. Forwards everything to the platform's own layer.
// Lifetime: outlives the connections opened through it. Threads: any.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "storage/sqlite/test_hooks.h"

struct sqlite3_vfs;

namespace sublet::storage {

class Vfs {
 public:
  // `observer` may be null; it must outlive the object.
  explicit Vfs(FileObserver* observer);
  ~Vfs();
  Vfs(const Vfs&) = delete;
  Vfs& operator=(const Vfs&) = delete;

  // What sqlite3_open_v2 takes as its last argument.
  const char* name() const { return name_.c_str(); }
  std::int64_t syncs() const { return syncs_.load(std::memory_order_relaxed); }

 private:
  friend struct VfsGlue;
  FileObserver* const observer_;
  const std::string name_;
  std::atomic<std::int64_t> syncs_{0};
  sqlite3_vfs* base_ = nullptr;
  std::unique_ptr<sqlite3_vfs> vfs_;
};

}  // namespace sublet::storage
