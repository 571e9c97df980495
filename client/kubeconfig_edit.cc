// Contexts written into and removed from a kubeconfig file, under kubectl's lock.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "client/kubeconfig.h"

namespace sublet::client {
namespace {

using kube::Json;

constexpr std::chrono::seconds kLockWait{10};
constexpr std::chrono::milliseconds kLockRetry{20};

std::string FieldText(const Json& object, std::string_view key) {
  return std::string(kube::FindString(object, {key}));
}

// PATH.lock, made exclusively, as client-go does.
class FileLock {
 public:
  static Result<FileLock> Take(const std::string& path) {
    const std::string lock_path = path + ".lock";
    const Deadline deadline = After(kLockWait);
    for (;;) {
      const int fd = open(lock_path.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
      if (fd >= 0) {
        close(fd);
        return FileLock(lock_path);
      }
      if (errno != EEXIST) {
        return InternalError("cannot make " + lock_path + ": " + std::strerror(errno));
      }
      if (std::chrono::steady_clock::now() >= deadline) {
        return Timeout(lock_path +
                       " is there: another process changes the kubeconfig; remove the file "
                       "if none does");
      }
      std::this_thread::sleep_for(kLockRetry);
    }
  }
  FileLock(FileLock&& other) noexcept : path_(std::move(other.path_)) { other.path_.clear(); }
  FileLock& operator=(FileLock&&) = delete;
  ~FileLock() {
    if (!path_.empty()) {
      unlink(path_.c_str());
    }
  }

 private:
  explicit FileLock(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

// The tree as it stands in the file; relative paths stay as they are.
Result<Json> ReadTree(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  Json root = Json::object();
  if (file) {
    std::ostringstream text;
    text << file.rdbuf();
    auto parsed = kube::ParseYaml(text.str());
    if (!parsed.ok()) {
      return std::move(parsed).error().Prefixed(path);
    }
    if (parsed->is_object()) {
      root = std::move(*parsed);
    } else if (!parsed->is_null()) {
      return BadRequest(path + " is not a kubeconfig");
    }
  }
  root["apiVersion"] = "v1";
  root["kind"] = "Config";
  for (const char* list : {"clusters", "contexts", "users"}) {
    if (!root.contains(list) || !root[list].is_array()) {
      root[list] = Json::array();
    }
  }
  return root;
}

// Writes beside the file and renames, so that a reader sees the old or the new one.
Result<void> WriteTree(const std::string& path, const Json& root) {
  const std::string text = kube::ToYaml(root);
  // A link (dotfiles kept elsewhere) is followed, not replaced.
  std::error_code ignored;
  const auto real = std::filesystem::weakly_canonical(path, ignored);
  const std::string target = real.empty() ? path : real.string();
  const std::string temporary = target + ".new";
  const int fd = open(temporary.c_str(), O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600);
  if (fd < 0) {
    return InternalError("cannot write " + temporary + ": " + std::strerror(errno));
  }
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t written = write(fd, text.data() + done, text.size() - done);
    if (written < 0) {
      const int error = errno;
      close(fd);
      unlink(temporary.c_str());
      return InternalError("cannot write " + temporary + ": " + std::strerror(error));
    }
    done += static_cast<std::size_t>(written);
  }
  fsync(fd);
  close(fd);
  if (rename(temporary.c_str(), target.c_str()) != 0) {
    return InternalError("cannot replace " + target + ": " + std::strerror(errno));
  }
  return Ok();
}

void PutEntry(Json* list, const std::string& name, const char* member, Json value) {
  Json entry = {{"name", name}, {member, std::move(value)}};
  for (Json& present : *list) {
    if (FieldText(present, "name") == name) {
      present = std::move(entry);
      return;
    }
  }
  list->push_back(std::move(entry));
}

bool DropEntry(Json* list, const std::string& name) {
  for (auto at = list->begin(); at != list->end(); ++at) {
    if (FieldText(*at, "name") == name) {
      list->erase(at);
      return true;
    }
  }
  return false;
}

bool AnyContextUses(const Json& root, const char* member, const std::string& name) {
  const Json& contexts = root["contexts"];
  return std::any_of(contexts.begin(), contexts.end(), [&](const Json& entry) {
    return kube::FindString(entry, {"context", member}) == name;
  });
}

}  // namespace

Result<void> WriteContext(const std::string& path, const ContextEntry& entry) {
  const auto folder = std::filesystem::path(path).parent_path();
  if (!folder.empty() && !std::filesystem::exists(folder)) {
    std::error_code error;
    std::filesystem::create_directories(folder, error);
    if (error) {
      return InternalError("cannot make " + folder.string() + ": " + error.message());
    }
    chmod(folder.c_str(), 0700);
  }
  SUBLET_TRY(const FileLock lock, FileLock::Take(path));
  SUBLET_TRY(Json root, ReadTree(path));
  PutEntry(&root["clusters"], entry.name, "cluster", entry.cluster);
  PutEntry(&root["users"], entry.name, "user", entry.user);
  Json context = {{"cluster", entry.name}, {"user", entry.name}};
  if (!entry.namespace_name.empty()) {
    context["namespace"] = entry.namespace_name;
  }
  PutEntry(&root["contexts"], entry.name, "context", std::move(context));
  if (entry.make_current) {
    root["current-context"] = entry.name;
  }
  return WriteTree(path, root);
}

Result<bool> RemoveContext(const std::string& path, const std::string& name,
                           const std::string& next_current) {
  if (!std::filesystem::exists(path)) {
    return false;
  }
  SUBLET_TRY(const FileLock lock, FileLock::Take(path));
  SUBLET_TRY(Json root, ReadTree(path));
  std::string cluster;
  std::string user;
  for (const Json& entry : root["contexts"]) {
    if (FieldText(entry, "name") == name) {
      cluster = kube::FindString(entry, {"context", "cluster"});
      user = kube::FindString(entry, {"context", "user"});
    }
  }
  if (!DropEntry(&root["contexts"], name)) {
    return false;
  }
  if (!AnyContextUses(root, "cluster", cluster)) {
    DropEntry(&root["clusters"], cluster);
  }
  if (!AnyContextUses(root, "user", user)) {
    DropEntry(&root["users"], user);
  }
  if (FieldText(root, "current-context") == name) {
    const Json& contexts = root["contexts"];
    const bool known = std::any_of(contexts.begin(), contexts.end(), [&](const Json& entry) {
      return FieldText(entry, "name") == next_current;
    });
    root["current-context"] = known ? next_current : "";
  }
  SUBLET_RETURN_IF_ERROR(WriteTree(path, root));
  return true;
}

}  // namespace sublet::client
