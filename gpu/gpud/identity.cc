#include "gpu/gpud/identity.h"

#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <charconv>
#include <fstream>
#include <sstream>

#include "gpu/hooks/protocol.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif

namespace sublet::gpu {
namespace {

// /proc files have no size; a bound keeps a strange one from filling memory.
std::string ReadProc(int pid, const char* name) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/" + name);
  std::string text;
  char block[4096];
  while (file && text.size() < (1U << 20)) {
    file.read(block, sizeof block);
    text.append(block, static_cast<std::size_t>(file.gcount()));
  }
  return text;
}

}  // namespace

std::uint64_t ProcessStartTime(int pid) {
  const std::string stat = ReadProc(pid, "stat");
  // The command may hold spaces and parentheses: fields are counted from the last one.
  const std::size_t end = stat.rfind(')');
  if (end == std::string::npos) {
    return 0;
  }
  std::istringstream fields(stat.substr(end + 1));
  std::string field;
  for (int i = 3; i <= 22 && fields >> field; ++i) {
    if (i == 3 && (field == "Z" || field == "X")) {
      return 0;
    }
  }
  std::uint64_t time = 0;
  std::from_chars(field.data(), field.data() + field.size(), time);
  return time;
}

std::string LongestCgroup(std::string_view text) {
  std::string_view longest;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    const std::size_t first = line.find(':');
    const std::size_t second = first == line.npos ? line.npos : line.find(':', first + 1);
    if (second != line.npos && line.size() - second - 1 > longest.size()) {
      longest = line.substr(second + 1);
    }
  }
  return std::string(longest);
}

std::string ProcessCgroup(int pid) { return LongestCgroup(ReadProc(pid, "cgroup")); }

bool IsWithinCgroup(std::string_view path, std::string_view parent) {
  return path == parent || (path.size() > parent.size() && path.starts_with(parent) &&
                            (path[parent.size()] == '/' || parent.ends_with('/')));
}

std::string MountedSliceIn(std::string_view mountinfo) {
  while (!mountinfo.empty()) {
    const std::string_view line = mountinfo.substr(0, mountinfo.find('\n'));
    mountinfo.remove_prefix(std::min(mountinfo.size(), line.size() + 1));
    // "36 35 98:0 /root/in/filesystem /mount/point options ..."
    std::string_view rest = line;
    std::string_view fields[5];
    for (std::string_view& field : fields) {
      field = rest.substr(0, rest.find(' '));
      rest.remove_prefix(std::min(rest.size(), field.size() + 1));
    }
    if (fields[4] == kContainerFolder) {
      return std::string(fields[3].substr(fields[3].rfind('/') + 1));
    }
  }
  return "";
}

std::string MountedSlice(int pid) { return MountedSliceIn(ReadProc(pid, "mountinfo")); }

int OpenPidfd(int pid, std::uint64_t start_time) {
  const int fd = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
  if (fd >= 0 && ProcessStartTime(pid) != start_time) {
    close(fd);
    return -1;
  }
  return fd;
}

int PeerPid(int socket, int* pidfd) {
  *pidfd = -1;
  struct ucred credentials {};
  socklen_t length = sizeof credentials;
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &length) != 0 ||
      credentials.pid <= 0) {
    return 0;
  }
  length = sizeof *pidfd;
  if (getsockopt(socket, SOL_SOCKET, SO_PEERPIDFD, pidfd, &length) != 0) {
    *pidfd = OpenPidfd(credentials.pid, ProcessStartTime(credentials.pid));
  }
  return credentials.pid;
}

}  // namespace sublet::gpu
