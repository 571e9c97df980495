// PayloadVolume: a folder of small files that changes all at once. Readers see either the old files
// or the new ones: the files live in a timestamped folder, `..data` is a symbolic link to it that
// is swapped by rename, and the visible names are links through `..data`. Source: kubelet
// volume/util AtomicWriter. Threads: one writer per folder.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "base/result.h"

namespace sublet::node {

struct PayloadFile {
  std::string content;
  std::uint32_t mode = 0644;
  std::optional<std::uint32_t> owner;  // uid; unset = root
  bool operator==(const PayloadFile&) const = default;
};
// Relative paths ("a", "sub/b") to files; no "..", no leading slash.
using Payload = std::map<std::string, PayloadFile>;

struct PayloadOptions {
  std::optional<std::uint32_t> fs_group;  // group of every file and folder; files become g+r
};

// Brings the folder to exactly `payload`; returns whether anything changed. Errors: BadRequest (a
// path that leaves the folder), InternalError (the file system's word).
Result<bool> WritePayload(const std::string& folder, const Payload& payload,
                          const PayloadOptions& options);

// A path that may be used below a volume: relative, no "..", no empty parts.
bool IsSafeRelativePath(std::string_view path);

// mkdir -p. Errors: InternalError.
Result<void> MakeDirectories(const std::string& path, std::uint32_t mode = 0755);
// rm -rf that does not follow links and does not leave the file system of `path`. Absent is fine.
Result<void> RemoveTree(const std::string& path);
// Reads at most `bytes_max`; "" when absent.
std::string ReadFile(const std::string& path, std::size_t bytes_max);
// Replaces the file's content by rename.
Result<void> WriteFile(const std::string& path, std::string_view content, std::uint32_t mode);

}  // namespace sublet::node
