#include "cli/host/process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <fstream>
#include <sstream>
#include <thread>

namespace sublet::cli {
namespace {

std::uint64_t StartTicks(std::int64_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  std::getline(file, text);
  // The command's name may hold anything; the fields follow its closing parenthesis.
  const auto end = text.rfind(')');
  if (end == std::string::npos) {
    return 0;
  }
  std::istringstream fields(text.substr(end + 2));
  std::string field;
  for (int i = 3; i <= 22 && fields >> field; ++i) {
  }
  return std::strtoull(field.c_str(), nullptr, 10);
}

// A process that was sent SIGKILL looks alive for a moment.
bool WasKilled(std::int64_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("SigPnd:") || line.starts_with("ShdPnd:")) {
      const std::uint64_t pending =
          std::strtoull(line.c_str() + sizeof("SigPnd:") - 1, nullptr, 16);
      if ((pending & (std::uint64_t{1} << (SIGKILL - 1))) != 0) {
        return true;
      }
    }
  }
  return false;
}

// The child's side of fork: never returns.
[[noreturn]] void Become(const std::vector<std::string>& command,
                         const std::vector<std::string>& environment, const std::string& log_file) {
  const int null = open("/dev/null", O_RDONLY);
  const int log = open(log_file.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
  dup2(null, 0);
  dup2(log, 1);
  dup2(log, 2);
  for (int fd = 3; fd < 1024; ++fd) {
    close(fd);
  }
  for (const std::string& variable : environment) {
    putenv(const_cast<char*>(variable.c_str()));
  }
  std::vector<char*> arguments;
  for (const std::string& word : command) {
    arguments.push_back(const_cast<char*>(word.c_str()));
  }
  arguments.push_back(nullptr);
  execvp(arguments[0], arguments.data());
  dprintf(2, "cannot run %s: %s\n", arguments[0], std::strerror(errno));
  _exit(127);
}

}  // namespace

std::string OwnPath() {
  char path[PATH_MAX];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof(path) - 1);
  return length > 0 ? std::string(path, static_cast<std::size_t>(length)) : "sublet";
}

Result<Process> StartProcess(const std::string& name, const std::vector<std::string>& command,
                             const std::vector<std::string>& environment,
                             const std::string& log_file) {
  int report[2];
  if (pipe2(report, O_CLOEXEC) != 0) {
    return InternalError(std::string("cannot start ") + name + ": " + std::strerror(errno));
  }
  const pid_t middle = fork();
  if (middle < 0) {
    close(report[0]);
    close(report[1]);
    return InternalError(std::string("cannot start ") + name + ": " + std::strerror(errno));
  }
  if (middle == 0) {
    setsid();
    const pid_t child = fork();
    if (child != 0) {
      const std::int64_t pid = child;
      (void)!write(report[1], &pid, sizeof(pid));
      _exit(0);
    }
    Become(command, environment, log_file);
  }
  close(report[1]);
  std::int64_t pid = 0;
  const bool read_pid = read(report[0], &pid, sizeof(pid)) == sizeof(pid);
  close(report[0]);
  waitpid(middle, nullptr, 0);
  if (!read_pid || pid <= 0) {
    return InternalError("cannot start " + name);
  }
  return Process{name, pid, StartTicks(pid)};
}

bool IsAlive(const Process& process) {
  if (process.pid <= 0 || kill(static_cast<pid_t>(process.pid), 0) != 0) {
    return false;
  }
  std::ifstream file("/proc/" + std::to_string(process.pid) + "/stat");
  std::string text;
  std::getline(file, text);
  const auto end = text.rfind(')');
  if (end == std::string::npos || end + 2 >= text.size() || text[end + 2] == 'Z') {
    return false;
  }
  std::istringstream fields(text.substr(end + 2));
  std::string field;
  for (int i = 3; i <= 9 && fields >> field; ++i) {
  }
  constexpr std::uint64_t kExiting = 4;  // PF_EXITING
  if ((std::strtoull(field.c_str(), nullptr, 10) & kExiting) != 0 || WasKilled(process.pid)) {
    return false;
  }
  return StartTicks(process.pid) == process.start_ticks;
}

void StopProcess(const Process& process, Deadline deadline) {
  if (!IsAlive(process)) {
    return;
  }
  kill(static_cast<pid_t>(process.pid), SIGTERM);
  while (IsAlive(process)) {
    if (std::chrono::steady_clock::now() >= deadline) {
      kill(static_cast<pid_t>(process.pid), SIGKILL);
      deadline = Deadline::max();
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

bool RunProcess(const std::vector<std::string>& command,
                const std::vector<std::string>& environment, const std::string& log_file) {
  const pid_t child = fork();
  if (child == 0) {
    Become(command, environment, log_file);
  }
  int status = 0;
  return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) &&
         WEXITSTATUS(status) == 0;
}

std::string Tail(const std::string& file, std::size_t lines) {
  std::ifstream in(file);
  std::deque<std::string> last;
  for (std::string line; std::getline(in, line);) {
    last.push_back(line);
    if (last.size() > lines) {
      last.pop_front();
    }
  }
  std::string text;
  for (const std::string& line : last) {
    text += "    " + line + "\n";
  }
  return text;
}

bool PrintLog(const std::string& file, std::size_t lines, bool follow) {
  std::FILE* in = std::fopen(file.c_str(), "re");
  if (in == nullptr) {
    return false;
  }
  std::deque<std::string> last;
  std::string line;
  int byte = 0;
  while ((byte = std::fgetc(in)) != EOF) {
    line += static_cast<char>(byte);
    if (byte == '\n') {
      last.push_back(std::move(line));
      line.clear();
      if (last.size() > lines) {
        last.pop_front();
      }
    }
  }
  for (const std::string& text : last) {
    std::fputs(text.c_str(), stdout);
  }
  std::fputs(line.c_str(), stdout);
  while (follow && std::fflush(stdout) == 0) {
    struct stat now {};
    struct stat open {};
    if (::stat(file.c_str(), &now) != 0 || ::fstat(::fileno(in), &open) != 0 ||
        now.st_ino != open.st_ino) {
      break;
    }
    if (now.st_size < std::ftell(in)) {
      std::rewind(in);
    }
    std::clearerr(in);
    char piece[4096];
    std::size_t read = 0;
    while ((read = std::fread(piece, 1, sizeof(piece), in)) > 0) {
      std::fwrite(piece, 1, read, stdout);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
  }
  std::fclose(in);
  return true;
}

}  // namespace sublet::cli
