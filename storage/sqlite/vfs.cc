#include "storage/sqlite/vfs.h"

#include <sqlite3.h>

#include <cstring>
#include <new>

#include "base/check.h"

namespace sublet::storage {

// The file object SQLite sees; the platform's own follows it in memory.
struct WrappedFile {
  sqlite3_file base;
  Vfs* owner;
  const char* path;  // SQLite keeps it alive while the file is open
  FileKind kind;
};

// C callbacks. SQLite passes back the objects we gave it.
struct VfsGlue {
  static WrappedFile& Self(sqlite3_file* file) { return *reinterpret_cast<WrappedFile*>(file); }
  static sqlite3_file* Real(sqlite3_file* file) {
    return reinterpret_cast<sqlite3_file*>(reinterpret_cast<WrappedFile*>(file) + 1);
  }
  static const sqlite3_io_methods* Methods(sqlite3_file* file) { return Real(file)->pMethods; }

  static int Close(sqlite3_file* f) { return Methods(f)->xClose(Real(f)); }
  static int Read(sqlite3_file* f, void* data, int bytes, sqlite3_int64 offset) {
    return Methods(f)->xRead(Real(f), data, bytes, offset);
  }
  static int Write(sqlite3_file* f, const void* data, int bytes, sqlite3_int64 offset) {
    const WrappedFile& self = Self(f);
    if (self.owner->observer_ != nullptr) {
      const int rc = self.owner->observer_->OnWrite(self.kind, self.path, data, bytes, offset);
      if (rc != SQLITE_OK) {
        return rc;
      }
    }
    return Methods(f)->xWrite(Real(f), data, bytes, offset);
  }
  static int Truncate(sqlite3_file* f, sqlite3_int64 bytes) {
    const WrappedFile& self = Self(f);
    if (self.owner->observer_ != nullptr) {
      const int rc = self.owner->observer_->OnTruncate(self.kind, self.path, bytes);
      if (rc != SQLITE_OK) {
        return rc;
      }
    }
    return Methods(f)->xTruncate(Real(f), bytes);
  }
  static int Sync(sqlite3_file* f, int flags) {
    const WrappedFile& self = Self(f);
    self.owner->syncs_.fetch_add(1, std::memory_order_relaxed);
    if (self.owner->observer_ != nullptr) {
      const int rc = self.owner->observer_->OnSync(self.kind, self.path);
      if (rc != SQLITE_OK) {
        return rc;
      }
    }
    return Methods(f)->xSync(Real(f), flags);
  }
  static int FileSize(sqlite3_file* f, sqlite3_int64* size) {
    return Methods(f)->xFileSize(Real(f), size);
  }
  static int Lock(sqlite3_file* f, int level) { return Methods(f)->xLock(Real(f), level); }
  static int Unlock(sqlite3_file* f, int level) { return Methods(f)->xUnlock(Real(f), level); }
  static int CheckReservedLock(sqlite3_file* f, int* result) {
    return Methods(f)->xCheckReservedLock(Real(f), result);
  }
  static int FileControl(sqlite3_file* f, int op, void* argument) {
    return Methods(f)->xFileControl(Real(f), op, argument);
  }
  static int SectorSize(sqlite3_file* f) { return Methods(f)->xSectorSize(Real(f)); }
  static int DeviceCharacteristics(sqlite3_file* f) {
    return Methods(f)->xDeviceCharacteristics(Real(f));
  }
  static int ShmMap(sqlite3_file* f, int page, int bytes, int extend, volatile void** out) {
    return Methods(f)->xShmMap(Real(f), page, bytes, extend, out);
  }
  static int ShmLock(sqlite3_file* f, int offset, int n, int flags) {
    return Methods(f)->xShmLock(Real(f), offset, n, flags);
  }
  static void ShmBarrier(sqlite3_file* f) { Methods(f)->xShmBarrier(Real(f)); }
  static int ShmUnmap(sqlite3_file* f, int remove) {
    return Methods(f)->xShmUnmap(Real(f), remove);
  }

  // Version 2: everything but memory-mapped reads, which we do not use.
  static constexpr sqlite3_io_methods kMethods = {2,
                                                  Close,
                                                  Read,
                                                  Write,
                                                  Truncate,
                                                  Sync,
                                                  FileSize,
                                                  Lock,
                                                  Unlock,
                                                  CheckReservedLock,
                                                  FileControl,
                                                  SectorSize,
                                                  DeviceCharacteristics,
                                                  ShmMap,
                                                  ShmLock,
                                                  ShmBarrier,
                                                  ShmUnmap,
                                                  nullptr,
                                                  nullptr};

  static int Open(sqlite3_vfs* vfs, const char* path, sqlite3_file* file, int flags,
                  int* flags_out) {
    Vfs* owner = static_cast<Vfs*>(vfs->pAppData);
    auto* self = new (file) WrappedFile{};
    self->owner = owner;
    self->path = path == nullptr ? "" : path;
    self->kind = (flags & SQLITE_OPEN_MAIN_DB) != 0 ? FileKind::kDatabase
                 : (flags & SQLITE_OPEN_WAL) != 0   ? FileKind::kLog
                                                    : FileKind::kOther;
    const int rc = owner->base_->xOpen(owner->base_, path, Real(file), flags, flags_out);
    // xClose must be called, also after a failure, exactly when the real methods are there.
    self->base.pMethods = Real(file)->pMethods != nullptr ? &kMethods : nullptr;
    return rc;
  }
};

namespace {
std::string NextName() {
  static std::atomic<int> next{0};
  return "sublet-" + std::to_string(next.fetch_add(1));
}
}  // namespace

Vfs::Vfs(FileObserver* observer) : observer_(observer), name_(NextName()) {
  base_ = sqlite3_vfs_find(nullptr);
  SUBLET_CHECK(base_ != nullptr);
  // A copy forwards every call but xOpen as it is: the platform's functions look only at pAppData
  // and mxPathname of the object they get, so those calls are passed on with the platform's object
  // where they use pAppData.
  vfs_ = std::make_unique<sqlite3_vfs>(*base_);
  vfs_->zName = name_.c_str();
  vfs_->pNext = nullptr;
  vfs_->szOsFile = static_cast<int>(sizeof(WrappedFile)) + base_->szOsFile;
  vfs_->pAppData = this;
  vfs_->xOpen = VfsGlue::Open;
  sqlite3_vfs_register(vfs_.get(), 0);
}

Vfs::~Vfs() { sqlite3_vfs_unregister(vfs_.get()); }

}  // namespace sublet::storage
