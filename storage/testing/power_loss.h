// PowerLoss: a file layer that remembers which writes a sync has made durable, and can write out
// what a disk might hold if the power failed now: everything synced, and of the rest any part:
// whole writes dropped, sectors torn, later ones kept where earlier ones are lost. Database and log
// only: the rollback journal exists for a moment while the file is made, before an image is of use.
// Threads: any; a mutex protects it.
#pragma once

#include <map>
#include <random>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "storage/sqlite/test_hooks.h"

namespace sublet::storage::testing {

class PowerLoss final : public FileObserver {
 public:
  enum class Unsynced : std::uint8_t { kDropped, kSomeKept, kTorn };

  int OnWrite(FileKind kind, const char* path, const void* data, int bytes,
              std::int64_t offset) override;
  int OnTruncate(FileKind kind, const char* path, std::int64_t bytes) override;
  int OnSync(FileKind kind, const char* path) override;

  // When set: called before each change of a file, on the thread that makes it, without the lock.
  std::function<void(const char* point)> before_change;

  // Writes the files as a crash now could leave them into the existing folder `directory`.
  void WriteImage(const std::string& directory, Unsynced unsynced, std::mt19937_64& random);

 private:
  struct Change {
    std::int64_t offset = 0;
    std::string data;
    bool truncates = false;  // to `offset`
  };
  struct File {
    std::string durable;
    std::vector<Change> pending;
  };
  static void Apply(std::string& content, const Change& change);

  Mutex mutex_;
  std::map<std::string, File> files_ SUBLET_GUARDED_BY(mutex_);  // by file name
};

}  // namespace sublet::storage::testing
