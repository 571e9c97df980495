// Who a process is, from the node's point of view: start time, cgroup, the slice whose folder is
// mounted in it. Read from /proc; a tenant cannot forge any of it without CAP_SYS_ADMIN on the
// node. Threads: any.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace sublet::gpu {

// In clock ticks since boot; 0: no such process. Together with the pid it names a process for ever.
std::uint64_t ProcessStartTime(int pid);

// The longest path in /proc/PID/cgroup (hybrid hosts have several); "" when the process is gone.
std::string ProcessCgroup(int pid);
// The same from the file's text. Pure.
std::string LongestCgroup(std::string_view text);
// Whether `path` is `parent` or below it.
bool IsWithinCgroup(std::string_view path, std::string_view parent);

// The name of the slice folder that is mounted at /run/sublet/gpu in the process's mount namespace;
// "" when there is none.
std::string MountedSlice(int pid);
// The same from mountinfo's text. Pure.
std::string MountedSliceIn(std::string_view mountinfo);

// The peer of a connected unix socket: its pid on this node, and a pidfd (SO_PEERPIDFD where the
// kernel has it, else pidfd_open with a look at the start time). *pidfd is -1 when the process is
// gone.
int PeerPid(int socket, int* pidfd);
// pidfd_open for a process that must have this start time; -1: it is another one, or gone.
int OpenPidfd(int pid, std::uint64_t start_time);

}  // namespace sublet::gpu
