#include "storage/testing/power_loss.h"

#include <sqlite3.h>

#include <filesystem>
#include <fstream>

namespace sublet::storage::testing {
namespace {

constexpr std::size_t kSector = 512;

// A new database is written as state.db.new and then renamed, which SQLite does not report.
std::string FileName(const char* path) {
  std::string name = std::filesystem::path(path).filename().string();
  if (const auto at = name.find(".new"); at != std::string::npos) {
    name.erase(at, 4);
  }
  return name;
}

}  // namespace

int PowerLoss::OnWrite(FileKind kind, const char* path, const void* data, int bytes,
                       std::int64_t offset) {
  if (kind == FileKind::kOther) {
    return SQLITE_OK;
  }
  if (before_change) {
    before_change(kind == FileKind::kDatabase ? "write of the database" : "write of the log");
  }
  MutexLock lock(mutex_);
  files_[FileName(path)].pending.push_back(
      {offset, std::string(static_cast<const char*>(data), static_cast<std::size_t>(bytes))});
  return SQLITE_OK;
}

int PowerLoss::OnTruncate(FileKind kind, const char* path, std::int64_t bytes) {
  if (kind == FileKind::kOther) {
    return SQLITE_OK;
  }
  MutexLock lock(mutex_);
  files_[FileName(path)].pending.push_back({bytes, {}, true});
  return SQLITE_OK;
}

int PowerLoss::OnSync(FileKind kind, const char* path) {
  if (kind == FileKind::kOther) {
    return SQLITE_OK;
  }
  MutexLock lock(mutex_);
  File& file = files_[FileName(path)];
  for (const Change& change : file.pending) {
    Apply(file.durable, change);
  }
  file.pending.clear();
  return SQLITE_OK;
}

void PowerLoss::Apply(std::string& content, const Change& change) {
  const auto offset = static_cast<std::size_t>(change.offset);
  if (change.truncates) {
    content.resize(offset);
    return;
  }
  if (content.size() < offset + change.data.size()) {
    content.resize(offset + change.data.size());
  }
  content.replace(offset, change.data.size(), change.data);
}

void PowerLoss::WriteImage(const std::string& directory, Unsynced unsynced,
                           std::mt19937_64& random) {
  MutexLock lock(mutex_);
  for (const auto& [name, file] : files_) {
    std::string content = file.durable;
    for (const Change& change : file.pending) {
      if (unsynced == Unsynced::kDropped || random() % 2 == 0) {
        continue;
      }
      if (unsynced == Unsynced::kSomeKept || change.truncates) {
        Apply(content, change);
        continue;
      }
      for (std::size_t at = 0; at < change.data.size(); at += kSector) {
        if (random() % 2 == 0) {
          Apply(content,
                {change.offset + static_cast<std::int64_t>(at), change.data.substr(at, kSector)});
        }
      }
    }
    std::ofstream(std::filesystem::path(directory) / name, std::ios::binary) << content;
  }
}

}  // namespace sublet::storage::testing
