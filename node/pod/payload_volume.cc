#include "node/pod/payload_volume.h"

#include <fcntl.h>
#include <ftw.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <set>

#include "base/clock.h"
#include "base/random.h"
#include "kube/timestamp.h"

namespace sublet::node {
namespace {

namespace fs = std::filesystem;

constexpr const char* kDataLink = "..data";

Status PayloadFailed(const std::string& path) {
  return InternalError(path + ": " + std::strerror(errno));
}

std::string FirstPart(std::string_view path) { return std::string(path.substr(0, path.find('/'))); }

// Whether the folder behind ..data holds exactly these files.
bool IsCurrent(const std::string& folder, const Payload& payload) {
  std::error_code error;
  const fs::path data = fs::path(folder) / kDataLink;
  std::size_t count = 0;
  fs::recursive_directory_iterator walk(fs::canonical(data, error), error);
  if (error) {
    return false;
  }
  const fs::path root = fs::canonical(data, error);
  for (; walk != fs::recursive_directory_iterator(); walk.increment(error)) {
    if (error) {
      return false;
    }
    if (walk->is_directory(error)) {
      continue;
    }
    const auto it = payload.find(walk->path().lexically_relative(root).string());
    struct stat info {};
    if (it == payload.end() || ::stat(walk->path().c_str(), &info) != 0 ||
        (info.st_mode & 0777 & it->second.mode) != (it->second.mode & 0777) ||
        info.st_size != static_cast<off_t>(it->second.content.size()) ||
        ReadFile(walk->path().string(), it->second.content.size() + 1) != it->second.content) {
      return false;
    }
    ++count;
  }
  return count == payload.size();
}

Result<void> WriteOne(const std::string& path, const PayloadFile& file,
                      const PayloadOptions& options) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) {
    return PayloadFailed(path);
  }
  Result<void> result;
  std::size_t done = 0;
  while (done < file.content.size()) {
    const ssize_t n = ::write(fd, file.content.data() + done, file.content.size() - done);
    if (n <= 0) {
      result = PayloadFailed(path);
      break;
    }
    done += static_cast<std::size_t>(n);
  }
  std::uint32_t mode = file.mode & 0777;
  if (options.fs_group) {
    mode |= (mode & 0400) >> 3;
  }
  if (result.ok() && (::fchown(fd, file.owner.value_or(static_cast<uid_t>(-1)),
                               options.fs_group.value_or(static_cast<gid_t>(-1))) != 0 ||
                      ::fchmod(fd, mode) != 0)) {
    result = PayloadFailed(path);
  }
  ::close(fd);
  return result;
}

}  // namespace

bool IsSafeRelativePath(std::string_view path) {
  if (path.empty() || path.front() == '/' || path.back() == '/' || path.size() > 4096) {
    return false;
  }
  while (!path.empty()) {
    const auto slash = path.find('/');
    const std::string_view part = path.substr(0, slash);
    if (part.empty() || part == "." || part == "..") {
      return false;
    }
    path = slash == std::string_view::npos ? std::string_view() : path.substr(slash + 1);
  }
  return true;
}

Result<void> MakeDirectories(const std::string& path, std::uint32_t mode) {
  if (path.empty() || path == "/") {
    return {};
  }
  struct stat info {};
  if (::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode)) {
    return {};
  }
  const auto slash = path.rfind('/');
  if (slash != std::string::npos) {
    SUBLET_RETURN_IF_ERROR(MakeDirectories(path.substr(0, slash), mode));
  }
  if (::mkdir(path.c_str(), mode) != 0 && errno != EEXIST) {
    return PayloadFailed(path);
  }
  return {};
}

Result<void> RemoveTree(const std::string& path) {
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0) {
    return errno == ENOENT ? Ok() : Result<void>(PayloadFailed(path));
  }
  const auto remove_one = [](const char* item, const struct stat*, int, struct FTW*) {
    return ::remove(item) == 0 || errno == ENOENT ? 0 : -1;
  };
  // A few descriptors suffice: nftw reopens folders when it needs more.
  if (::nftw(path.c_str(), remove_one, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT) != 0) {
    return errno == ENOENT ? Ok() : Result<void>(PayloadFailed("removing " + path));
  }
  return {};
}

std::string ReadFile(const std::string& path, std::size_t bytes_max) {
  std::string out;
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) {
    return out;
  }
  char chunk[16384];
  while (out.size() < bytes_max) {
    const ssize_t n = ::read(fd, chunk, std::min(sizeof(chunk), bytes_max - out.size()));
    if (n <= 0) {
      break;
    }
    out.append(chunk, static_cast<std::size_t>(n));
  }
  ::close(fd);
  return out;
}

Result<void> WriteFile(const std::string& path, std::string_view content, std::uint32_t mode) {
  const std::string temporary = path + "." + RandomUuid().substr(0, 8);
  PayloadFile file;
  file.content = content;
  file.mode = mode;
  SUBLET_RETURN_IF_ERROR(WriteOne(temporary, file, {}));
  if (::rename(temporary.c_str(), path.c_str()) != 0) {
    const Status error = PayloadFailed(path);
    ::unlink(temporary.c_str());
    return error;
  }
  return {};
}

Result<bool> WritePayload(const std::string& folder, const Payload& payload,
                          const PayloadOptions& options) {
  for (const auto& [path, file] : payload) {
    if (!IsSafeRelativePath(path) || path.substr(0, 2) == "..") {
      return BadRequest("invalid path in a volume: " + path);
    }
  }
  SUBLET_RETURN_IF_ERROR(MakeDirectories(folder));
  if (IsCurrent(folder, payload)) {
    return false;
  }
  const std::string old_name = [&] {
    char target[4096];
    const ssize_t n = ::readlink((folder + "/" + kDataLink).c_str(), target, sizeof(target));
    return n > 0 ? std::string(target, static_cast<std::size_t>(n)) : std::string();
  }();
  std::string name = ".." + kube::FormatTime(SystemClock().Now()) + "." + RandomUuid().substr(0, 9);
  for (char& c : name) {
    c = c == ':' || c == '-' || c == 'T' || c == 'Z' ? '_' : c;
  }
  const std::string fresh = folder + "/" + name;
  SUBLET_RETURN_IF_ERROR(MakeDirectories(fresh));
  for (const auto& [path, file] : payload) {
    if (const auto slash = path.rfind('/'); slash != std::string::npos) {
      SUBLET_RETURN_IF_ERROR(MakeDirectories(fresh + "/" + path.substr(0, slash)));
    }
    SUBLET_RETURN_IF_ERROR(WriteOne(fresh + "/" + path, file, options));
  }
  // The swap: from here on every open sees the new files.
  const std::string temporary = folder + "/..data_tmp";
  ::unlink(temporary.c_str());
  if (::symlink(name.c_str(), temporary.c_str()) != 0 ||
      ::rename(temporary.c_str(), (folder + "/" + kDataLink).c_str()) != 0) {
    return PayloadFailed(folder);
  }
  std::set<std::string> visible;
  for (const auto& [path, file] : payload) {
    const std::string first = FirstPart(path);
    if (visible.insert(first).second) {
      const std::string link = folder + "/" + first;
      struct stat info {};
      if (::lstat(link.c_str(), &info) != 0 &&
          ::symlink((std::string(kDataLink) + "/" + first).c_str(), link.c_str()) != 0) {
        return PayloadFailed(link);
      }
    }
  }
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string item = entry.path().filename().string();
    if (item == kDataLink || item == name) {
      continue;
    }
    if (item.substr(0, 2) == ".." || visible.find(item) == visible.end()) {
      SUBLET_RETURN_IF_ERROR(RemoveTree(entry.path().string()));
    }
  }
  if (!old_name.empty()) {
    SUBLET_RETURN_IF_ERROR(RemoveTree(folder + "/" + old_name));
  }
  return true;
}

}  // namespace sublet::node
