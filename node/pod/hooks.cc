#include "node/pod/hooks.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/random.h"
#include "kube/json.h"
#include "node/pod/payload_volume.h"

// The program of gate.c, built beside this file.
__asm__(
    ".section .rodata\n"
    ".global sublet_gate_begin\n"
    ".global sublet_gate_end\n"
    "sublet_gate_begin:\n"
    ".incbin \"" SUBLET_GATE_PROGRAM
    "\"\n"
    "sublet_gate_end:\n"
    ".previous\n");
extern "C" const char sublet_gate_begin[];
extern "C" const char sublet_gate_end[];

namespace sublet::node {
namespace {

constexpr const char* kInside = "/.sublet-gate";
constexpr std::chrono::seconds kHookTimeout{30};

std::vector<char*> Pointers(std::vector<std::string>& texts) {
  std::vector<char*> out;
  for (std::string& text : texts) {
    out.push_back(text.data());
  }
  out.push_back(nullptr);
  return out;
}

// Runs a program with `input` on its standard input. Errors: InternalError with what it said.
Result<void> RunProgram(const std::string& path, std::vector<std::string> argv,
                        std::vector<std::string> env, const std::string& input,
                        std::chrono::milliseconds timeout) {
  int to[2];
  int from[2];
  if (::pipe2(to, O_CLOEXEC) != 0 || ::pipe2(from, O_CLOEXEC) != 0) {
    return InternalError(std::string("pipe: ") + std::strerror(errno));
  }
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, to[0], 0);
  posix_spawn_file_actions_adddup2(&actions, from[1], 1);
  posix_spawn_file_actions_adddup2(&actions, from[1], 2);
  pid_t pid = -1;
  const int error = ::posix_spawn(&pid, path.c_str(), &actions, nullptr, Pointers(argv).data(),
                                  Pointers(env).data());
  posix_spawn_file_actions_destroy(&actions);
  ::close(to[0]);
  ::close(from[1]);
  if (error == 0) {
    // The state is smaller than a pipe, so this does not block; a hook may well not read it.
    [[maybe_unused]] const ssize_t n = ::write(to[1], input.data(), input.size());
  }
  ::close(to[1]);
  if (error != 0) {
    ::close(from[0]);
    return InternalError(path + ": " + std::strerror(error));
  }
  std::string output;
  const Deadline deadline = After(timeout);
  bool late = false;
  for (;;) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    pollfd p{from[0], POLLIN, 0};
    if (left.count() <= 0 || ::poll(&p, 1, static_cast<int>(left.count())) == 0) {
      late = true;
      ::kill(pid, SIGKILL);
      break;
    }
    char chunk[4096];
    const ssize_t n = ::read(from[0], chunk, sizeof(chunk));
    if (n <= 0) {
      break;
    }
    output.append(chunk, static_cast<std::size_t>(n));
    output.resize(std::min<std::size_t>(output.size(), 16384));
  }
  ::close(from[0]);
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (late || !WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    return InternalError("hook " + path + (late ? " timed out" : " failed") + ": " +
                         output.substr(0, 1024));
  }
  return {};
}

}  // namespace

HookGate::HookGate(const std::string& root, const CdiEdits& edits, ContainerSpec* spec)
    : hooks_(edits.hooks) {
  if (hooks_.empty()) {
    return;
  }
  folder_ = root + "/gates/" + RandomUuid();
  const bool made =
      MakeDirectories(folder_).ok() &&
      WriteFile(folder_ + "/gate",
                std::string_view(sublet_gate_begin,
                                 static_cast<std::size_t>(sublet_gate_end - sublet_gate_begin)),
                0755)
          .ok() &&
      ::mkfifo((folder_ + "/go").c_str(), 0644) == 0;
  if (!made) {
    folder_.clear();  // Run says so
    return;
  }
  EngineMount mount;
  mount.source = folder_;
  mount.target = kInside;
  mount.read_only = true;
  spec->mounts.push_back(std::move(mount));
  spec->argv.insert(spec->argv.begin(), std::string(kInside) + "/gate");
}

HookGate::~HookGate() {
  if (!folder_.empty()) {
    // The mount keeps the program's inode alive for the container.
    static_cast<void>(RemoveTree(folder_).ok());
  }
}

Result<void> HookGate::RunOne(const CdiHook& hook, const ContainerState& state,
                              std::string_view status) {
  kube::Json document = {{"ociVersion", "1.0.2"},
                         {"id", state.id},
                         {"status", status},
                         {"pid", state.pid},
                         {"bundle", state.bundle}};
  std::vector<std::string> argv =
      hook.args.empty() ? std::vector<std::string>{hook.path} : hook.args;
  const auto timeout =
      hook.timeout_seconds > 0 ? std::chrono::seconds(hook.timeout_seconds) : kHookTimeout;
  return RunProgram(hook.path, std::move(argv), hook.env, kube::Dump(document), timeout);
}

Result<void> HookGate::Open() {
  // Non-blocking: a container that died before it reached the gate has no reader.
  const Deadline deadline = After(std::chrono::seconds(10));
  const std::string path = folder_ + "/go";
  for (;;) {
    const int fd = ::open(path.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd >= 0) {
      ::close(fd);
      return {};
    }
    if (errno != ENXIO || std::chrono::steady_clock::now() > deadline) {
      return InternalError("the container did not reach the gate: " +
                           std::string(std::strerror(errno)));
    }
    ::usleep(2000);
  }
}

Result<void> HookGate::Run(ContainerEngine& engine, const ContainerState& state) {
  if (hooks_.empty()) {
    return {};
  }
  if (folder_.empty()) {
    return InternalError("no folder for the gate of device hooks");
  }
  for (const char* stage : {"prestart", "createRuntime", "createContainer"}) {
    for (const CdiHook& hook : hooks_) {
      if (hook.hook_name == stage) {
        SUBLET_RETURN_IF_ERROR(RunOne(hook, state, "created"));
      }
    }
  }
  for (const CdiHook& hook : hooks_) {
    if (hook.hook_name == "startContainer") {
      std::vector<std::string> argv =
          hook.args.empty() ? std::vector<std::string>{hook.path} : hook.args;
      argv[0] = hook.path;
      SUBLET_TRY(const ExecOutput output,
                 RunExec(engine, state.id, argv, After(kHookTimeout), 4096));
      if (output.exit_code != 0) {
        return InternalError("hook " + hook.path + " failed: " + output.output);
      }
    }
  }
  SUBLET_RETURN_IF_ERROR(Open());
  for (const CdiHook& hook : hooks_) {
    if (hook.hook_name == "poststart") {
      SUBLET_RETURN_IF_ERROR(RunOne(hook, state, "running"));
    }
  }
  return {};
}

}  // namespace sublet::node
