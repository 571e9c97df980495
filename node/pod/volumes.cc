#include "node/pod/volumes.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/log.h"
#include "kube/object.h"
#include "kube/quantity.h"

namespace sublet::node {
namespace {

using kube::Find;
using kube::FindBool;
using kube::FindInt;
using kube::FindString;
using kube::Json;

Status Failed(const std::string& path) { return InternalError(path + ": " + std::strerror(errno)); }

std::optional<std::uint32_t> FsGroup(const PodPlan& plan) {
  const auto group = FindInt(*plan.object, {"spec", "securityContext", "fsGroup"}, -1);
  return group < 0 ? std::nullopt : std::optional<std::uint32_t>(group);
}

// Gives a folder tree to the group, as kubelet does for volumes that hold the pod's own data.
Result<void> GiveToGroup(const std::string& path, std::uint32_t group) {
  if (::chown(path.c_str(), static_cast<uid_t>(-1), group) != 0 ||
      ::chmod(path.c_str(), 02777) != 0) {
    return Failed(path);
  }
  return {};
}

// Mount points at or below `prefix`, deepest first.
std::vector<std::string> MountsBelow(const std::string& prefix) {
  std::vector<std::string> found;
  std::ifstream file("/proc/self/mountinfo");
  std::string line;
  while (std::getline(file, line)) {
    std::size_t at = 0;
    for (int field = 0; field < 4 && at != std::string::npos; ++field) {
      at = line.find(' ', at);
      at = at == std::string::npos ? at : at + 1;
    }
    if (at == std::string::npos) {
      continue;
    }
    std::string path = line.substr(at, line.find(' ', at) - at);
    for (std::size_t i = path.find("\\040"); i != std::string::npos; i = path.find("\\040")) {
      path.replace(i, 4, " ");
    }
    if (path == prefix || path.rfind(prefix + "/", 0) == 0) {
      found.push_back(path);
    }
  }
  std::sort(found.rbegin(), found.rend());
  return found;
}

bool IsMounted(const std::string& path) {
  const auto mounts = MountsBelow(path);
  return std::find(mounts.begin(), mounts.end(), path) != mounts.end();
}

}  // namespace

void UnmountBelow(const std::string& prefix) {
  for (const std::string& path : MountsBelow(prefix)) {
    if (::umount2(path.c_str(), MNT_DETACH) != 0) {
      log::Warn("cannot unmount", {{"path", path}, {"error", std::strerror(errno)}});
    }
  }
}

std::string Volumes::PodFolder(const std::string& pod_uid) const {
  return config_.root + "/pods/" + pod_uid;
}

Result<void> Volumes::Prepare() {
  const std::string memory = config_.root + "/memory";
  SUBLET_RETURN_IF_ERROR(MakeDirectories(config_.root + "/pods", 0755));
  SUBLET_RETURN_IF_ERROR(MakeDirectories(memory, 0755));
  if (IsMounted(memory)) {
    return {};
  }
  if (::mount("tmpfs", memory.c_str(), "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755,size=256m") != 0) {
    return Failed("mounting a tmpfs for secrets on " + memory);
  }
  return {};
}

void Volumes::TearDownAll() { UnmountBelow(config_.root); }

Result<std::optional<WallTime>> Volumes::SetUp(const PodPlan& plan, const PodFacts& facts) {
  std::optional<WallTime> renew_at;
  std::map<std::string, Made> made;
  const Json* list = Find(*plan.object, {"spec", "volumes"});
  if (list != nullptr && list->is_array()) {
    for (const Json& volume : *list) {
      const std::string name(FindString(volume, {"name"}));
      auto one = SetUpOne(plan, facts, volume, &renew_at);
      if (!one.ok()) {
        return std::move(one).error().Prefixed("MountVolume.SetUp failed for volume \"" + name +
                                               "\" ");
      }
      made[name] = std::move(one).value();
    }
  }
  MutexLock lock(mutex_);
  made_[plan.uid] = std::move(made);
  return renew_at;
}

Result<Volumes::Made> Volumes::SetUpOne(const PodPlan& plan, const PodFacts& facts,
                                        const Json& volume, std::optional<WallTime>* renew_at) {
  const std::string name(FindString(volume, {"name"}));
  if (Find(volume, {"emptyDir"})) {
    return EmptyDir(plan, volume);
  }
  if (Find(volume, {"hostPath"})) {
    return HostPath(std::string(FindString(volume, {"hostPath", "path"})),
                    std::string(FindString(volume, {"hostPath", "type"})));
  }
  if (const Json* claim = Find(volume, {"persistentVolumeClaim"})) {
    return Claim(plan, std::string(FindString(*claim, {"claimName"})),
                 FindBool(*claim, {"readOnly"}));
  }
  if (Find(volume, {"ephemeral"})) {
    return Claim(plan, plan.name + "-" + name, false);
  }
  const bool in_memory = Find(volume, {"secret"}) || Find(volume, {"projected"});
  if (!in_memory && !Find(volume, {"configMap"}) && !Find(volume, {"downwardAPI"})) {
    return BadRequest("this kind of volume is not supported on this node");
  }
  Made made;
  made.path = in_memory ? config_.root + "/memory/" + plan.uid + "/" + name
                        : PodFolder(plan.uid) + "/volumes/" + name;
  made.read_only = true;
  SUBLET_TRY(const Payload payload, BuildPayload(plan, facts, volume, renew_at));
  PayloadOptions options;
  options.fs_group = FsGroup(plan);
  SUBLET_TRY(const bool changed, WritePayload(made.path, payload, options));
  if (changed) {
    log::Debug("volume written", {{"pod", plan.Text()}, {"volume", name}});
  }
  return made;
}

Result<Volumes::Made> Volumes::EmptyDir(const PodPlan& plan, const Json& volume) {
  Made made;
  made.path = PodFolder(plan.uid) + "/volumes/" + std::string(FindString(volume, {"name"}));
  struct stat info {};
  const bool is_new = ::stat(made.path.c_str(), &info) != 0;
  SUBLET_RETURN_IF_ERROR(MakeDirectories(made.path));
  const bool in_memory = FindString(volume, {"emptyDir", "medium"}) == "Memory";
  if (in_memory && !IsMounted(made.path)) {
    std::string options = "mode=0777";
    const kube::Quantity limit =
        kube::Quantity::ParseOrZero(FindString(volume, {"emptyDir", "sizeLimit"}));
    if (limit.Sign() > 0) {
      options += ",size=" + std::to_string(limit.Value());
    }
    if (::mount("tmpfs", made.path.c_str(), "tmpfs", MS_NOSUID | MS_NODEV, options.c_str()) != 0) {
      return Failed("mounting a tmpfs on " + made.path);
    }
  }
  if (is_new) {
    ::chmod(made.path.c_str(), 0777);
    if (const auto group = FsGroup(plan)) {
      SUBLET_RETURN_IF_ERROR(GiveToGroup(made.path, *group));
    }
  }
  return made;
}

Result<Volumes::Made> Volumes::HostPath(const std::string& path, const std::string& type) {
  Made made;
  made.path = path;
  struct stat info {};
  const bool exists = ::stat(path.c_str(), &info) == 0;
  if (type == "DirectoryOrCreate" || (type.empty() && !exists)) {
    // The runtime would make a folder for a missing source; doing it here gives one behaviour.
    SUBLET_RETURN_IF_ERROR(MakeDirectories(path));
    return made;
  }
  if (type == "FileOrCreate" && !exists) {
    const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0) {
      return Failed(path);
    }
    ::close(fd);
    return made;
  }
  const auto is = [&](std::string_view wanted, bool holds) { return type == wanted && !holds; };
  const mode_t mode = exists ? info.st_mode : 0;
  if (is("Directory", S_ISDIR(mode)) || is("File", S_ISREG(mode)) ||
      is("FileOrCreate", S_ISREG(mode)) || is("Socket", S_ISSOCK(mode)) ||
      is("CharDevice", S_ISCHR(mode)) || is("BlockDevice", S_ISBLK(mode))) {
    return BadRequest("hostPath type check failed: " + path + " is not a " + type);
  }
  return made;
}

Result<Volumes::Made> Volumes::Claim(const PodPlan& plan, const std::string& claim_name,
                                     bool read_only) {
  SUBLET_TRY(const Json claim, source_.GetClaim(plan.namespace_name, claim_name));
  const std::string volume_name(FindString(claim, {"spec", "volumeName"}));
  if (volume_name.empty() || FindString(claim, {"status", "phase"}) != "Bound") {
    return Status(Reason::kNotFound,
                  "persistentvolumeclaim \"" + claim_name + "\" is not bound to a volume yet");
  }
  SUBLET_TRY(const Json volume, source_.GetPersistentVolume(volume_name));
  std::string path(FindString(volume, {"spec", "hostPath", "path"}));
  if (path.empty()) {
    path = FindString(volume, {"spec", "local", "path"});
  }
  if (path.empty() || path.front() != '/') {
    return BadRequest("persistent volume " + volume_name +
                      " has neither a hostPath nor a local source");
  }
  Made made;
  made.path = path;
  made.read_only = read_only;
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) {
    SUBLET_RETURN_IF_ERROR(MakeDirectories(path));
    ::chmod(path.c_str(), 0777);
  }
  if (const auto group = FsGroup(plan)) {
    SUBLET_RETURN_IF_ERROR(GiveToGroup(path, *group));
  }
  return made;
}

Result<std::string> Volumes::PinSubPath(const PodPlan& plan, const ContainerPlan& container,
                                        int index, const std::string& volume_path,
                                        const std::string& sub_path) {
  if (!IsSafeRelativePath(sub_path)) {
    return BadRequest("subPath \"" + sub_path + "\" is not a path below its volume");
  }
  // Whoever writes to the volume may put a link in the way at any time: every step is resolved
  // beneath the volume's root by the kernel, and what was found is pinned by a bind mount of the
  // descriptor before the engine gets a path.
  const int root = ::open(volume_path.c_str(), O_PATH | O_CLOEXEC);
  if (root < 0) {
    return Failed(volume_path);
  }
  const auto resolve = [&](const std::string& path) {
    open_how how{};
    how.flags = O_PATH | O_CLOEXEC;
    how.resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS;
    return static_cast<int>(::syscall(SYS_openat2, root, path.c_str(), &how, sizeof(how)));
  };
  // Missing folders are made on the way, each inside the one that was resolved before it.
  int found = ::dup(root);
  for (std::size_t end = 0; found >= 0 && end != std::string::npos;) {
    const std::size_t begin = end == 0 ? 0 : end + 1;
    end = sub_path.find('/', begin);
    const std::string prefix = sub_path.substr(0, end);
    int next = resolve(prefix);
    if (next < 0 && errno == ENOENT) {
      const std::string part = prefix.substr(begin);
      ::mkdirat(found, part.c_str(), 0755);
      if (const auto group = FsGroup(plan)) {
        ::fchownat(found, part.c_str(), static_cast<uid_t>(-1), *group, AT_SYMLINK_NOFOLLOW);
      }
      next = resolve(prefix);
    }
    const int failure = errno;
    ::close(found);
    errno = failure;
    found = next;
  }
  const int error = errno;
  ::close(root);
  if (found < 0) {
    return BadRequest("subPath \"" + sub_path + "\": " + std::strerror(error));
  }
  struct stat info {};
  ::fstat(found, &info);
  const std::string folder = PodFolder(plan.uid) + "/subpaths/" + container.name;
  const std::string target = folder + "/" + std::to_string(index);
  const std::string source = "/proc/self/fd/" + std::to_string(found);
  auto pinned = [&]() -> Result<std::string> {
    SUBLET_RETURN_IF_ERROR(MakeDirectories(folder, 0750));
    ::umount2(target.c_str(), MNT_DETACH);
    if (S_ISDIR(info.st_mode)) {
      SUBLET_RETURN_IF_ERROR(MakeDirectories(target, 0750));
    } else {
      const int fd = ::open(target.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0640);
      if (fd < 0) {
        return Failed(target);
      }
      ::close(fd);
    }
    if (::mount(source.c_str(), target.c_str(), nullptr, MS_BIND | MS_REC, nullptr) != 0) {
      return Failed("pinning subPath " + sub_path);
    }
    return target;
  }();
  ::close(found);
  return pinned;
}

Result<std::vector<EngineMount>> Volumes::MountsOf(const PodPlan& plan,
                                                   const ContainerPlan& container,
                                                   const Environment& environment) {
  std::vector<EngineMount> mounts;
  const Json* list = Find(*container.spec, {"volumeMounts"});
  if (list == nullptr || !list->is_array()) {
    return mounts;
  }
  std::map<std::string, Made> made;
  {
    MutexLock lock(mutex_);
    made = made_[plan.uid];
  }
  const std::map<std::string, std::string> values(environment.begin(), environment.end());
  int index = 0;
  for (const Json& item : *list) {
    const std::string name(FindString(item, {"name"}));
    const auto it = made.find(name);
    if (it == made.end()) {
      return Status(Reason::kNotFound, "volume \"" + name + "\" is not set up");
    }
    EngineMount mount;
    mount.source = it->second.path;
    mount.target = FindString(item, {"mountPath"});
    if (mount.target.empty() || mount.target.front() != '/') {
      mount.target.insert(0, "/");
    }
    mount.read_only = it->second.read_only || FindBool(item, {"readOnly"});
    std::string sub_path(FindString(item, {"subPath"}));
    if (const auto expression = FindString(item, {"subPathExpr"}); !expression.empty()) {
      sub_path = ExpandVariables(expression, values);
    }
    if (!sub_path.empty()) {
      SUBLET_TRY(mount.source, PinSubPath(plan, container, index, mount.source, sub_path));
    }
    const std::string_view propagation = FindString(item, {"mountPropagation"});
    mount.propagation = propagation == "HostToContainer" ? "rslave"
                        : propagation == "Bidirectional" ? "rshared"
                                                         : "";
    mounts.push_back(std::move(mount));
    ++index;
  }
  return mounts;
}

Result<void> Volumes::TearDown(const std::string& pod_uid) {
  {
    MutexLock lock(mutex_);
    made_.erase(pod_uid);
    tokens_.erase(pod_uid);
  }
  if (pod_uid.empty() || !IsSafeRelativePath(pod_uid)) {
    return BadRequest("not a pod uid: " + pod_uid);
  }
  UnmountBelow(PodFolder(pod_uid));
  SUBLET_RETURN_IF_ERROR(RemoveTree(config_.root + "/memory/" + pod_uid));
  SUBLET_RETURN_IF_ERROR(RemoveTree(PodFolder(pod_uid) + "/volumes"));
  return RemoveTree(PodFolder(pod_uid) + "/subpaths");
}

}  // namespace sublet::node
