#include "node/net/firewall.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

extern char** environ;

namespace sublet::node {
namespace {

constexpr std::size_t kMessageBytesMax = 64u << 10;

// Where administrators' tools are, also for users whose PATH lacks sbin.
std::string FindProgram(const std::string& name) {
  const char* path = std::getenv("PATH");
  std::string folders = path == nullptr ? "" : path;
  folders += ":/usr/local/sbin:/usr/sbin:/sbin:/usr/bin:/bin";
  std::size_t at = 0;
  while (at <= folders.size()) {
    auto end = folders.find(':', at);
    end = end == std::string::npos ? folders.size() : end;
    const std::string candidate = folders.substr(at, end - at) + "/" + name;
    if (end > at && ::access(candidate.c_str(), X_OK) == 0) {
      return candidate;
    }
    at = end + 1;
  }
  return {};
}

}  // namespace

Result<ProgramOutput> RunTool(const std::vector<std::string>& argv, std::string_view input) {
  const std::string program = FindProgram(argv.at(0));
  if (program.empty()) {
    return Status(Reason::kNotFound, argv[0] + " is not installed");
  }
  // A memory file takes any amount of input without a second thread.
  const int in = ::memfd_create("input", MFD_CLOEXEC);
  int out[2];
  if (in < 0 || ::pipe2(out, O_CLOEXEC) != 0) {
    return InternalError(std::string("pipe: ") + std::strerror(errno));
  }
  for (std::size_t done = 0; done < input.size();) {
    const ssize_t n = ::write(in, input.data() + done, input.size() - done);
    if (n <= 0) {
      ::close(in);
      ::close(out[0]);
      ::close(out[1]);
      return InternalError(std::string("writing a tool's input: ") + std::strerror(errno));
    }
    done += static_cast<std::size_t>(n);
  }
  ::lseek(in, 0, SEEK_SET);
  std::vector<char*> pointers;
  std::vector<std::string> copies = argv;
  for (std::string& copy : copies) {
    pointers.push_back(copy.data());
  }
  pointers.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in, 0);
  posix_spawn_file_actions_adddup2(&actions, out[1], 1);
  posix_spawn_file_actions_adddup2(&actions, out[1], 2);
  // The program must not inherit the signals this process blocks for its own sigwait.
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none;
  sigemptyset(&none);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
  pid_t pid = -1;
  const int error =
      ::posix_spawn(&pid, program.c_str(), &actions, &attributes, pointers.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  ::close(in);
  ::close(out[1]);
  ProgramOutput result;
  if (error == 0) {
    char chunk[4096];
    for (;;) {
      const ssize_t n = ::read(out[0], chunk, sizeof(chunk));
      if (n < 0 && errno == EINTR) {
        continue;
      }
      if (n <= 0) {
        break;
      }
      if (result.text.size() < kMessageBytesMax) {
        result.text.append(chunk, static_cast<std::size_t>(n));
      }
    }
    int status = 0;
    while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    result.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  ::close(out[0]);
  if (error != 0) {
    return InternalError(program + ": " + std::strerror(error));
  }
  return result;
}

Result<void> LoadRules(std::string_view script) {
  auto loaded = RunTool({"nft", "-f", "-"}, script);
  if (!loaded.ok()) {
    return loaded.error().Is(Reason::kNotFound)
               ? Result<void>(Status(Reason::kNotFound,
                                     "nft is not installed (Debian: apt install nftables)"))
               : Result<void>(std::move(loaded).error());
  }
  if (loaded->status != 0) {
    return InternalError("nft: " + loaded->text.substr(0, 2048));
  }
  return {};
}

Result<void> RemoveRules(const std::string& table) {
  return LoadRules("add table ip " + table + "\ndelete table ip " + table + "\n");
}

Result<void> PassForwardPolicy(const std::string& veth_prefix, bool wanted) {
  auto policy = RunTool({"iptables", "-w", "-S", "FORWARD"}, "");
  if (!policy.ok() || policy->status != 0) {
    return {};  // no iptables: nobody sets a policy with it
  }
  for (const char* direction : {"-i", "-o"}) {
    const std::string link = veth_prefix + "+";
    const bool present =
        policy->text.find(std::string(direction) + " " + link + " -j ACCEPT") != std::string::npos;
    const bool needed = wanted && policy->text.find("-P FORWARD DROP") != std::string::npos;
    if (needed == present || (wanted && !needed)) {
      continue;
    }
    SUBLET_TRY(const ProgramOutput done, RunTool({"iptables", "-w", needed ? "-I" : "-D", "FORWARD",
                                                  direction, link, "-j", "ACCEPT"},
                                                 ""));
    if (done.status != 0) {
      return InternalError("iptables: " + done.text.substr(0, 512));
    }
  }
  return {};
}

}  // namespace sublet::node
