// Rows about the process: start, idle, memory under many objects, and the disk it stands on.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "e2e/bench/rows.h"

namespace sublet::bench {
namespace {

int FreePort() {
  int port = 0;
  ::close(ListenLocal(&port));
  return port;
}

void ReplaceAll(std::string* text, const std::string& what, const std::string& with) {
  for (std::size_t at = text->find(what); at != std::string::npos; at = text->find(what)) {
    text->replace(at, what.size(), with);
  }
}

pid_t Spawn(const std::vector<std::string>& command) {
  std::vector<char*> arguments;
  for (const auto& word : command) {
    arguments.push_back(const_cast<char*>(word.c_str()));
  }
  arguments.push_back(nullptr);
  const pid_t pid = ::fork();
  if (pid == 0) {
    const int null = ::open("/dev/null", O_RDWR);
    ::dup2(null, 1);
    ::dup2(null, 2);
    ::execvp(arguments[0], arguments.data());
    ::_exit(127);
  }
  return pid;
}

// One GET of /readyz on a fresh connection; the code, 0 when there was no answer within two
// seconds.
int AskReady(ssl_ctx_st* context, int port) {
  const int fd = ConnectLocal(port);
  if (fd < 0) {
    return 0;
  }
  Endpoint endpoint(context, fd, false);
  HttpReader reader;
  int code = 0;
  reader.on_end = [&] { code = reader.code(); };
  bool asked = false;
  const auto deadline = Clock::now() + std::chrono::seconds(2);
  while (code == 0 && Clock::now() < deadline) {
    if (!endpoint.ready() && endpoint.Handshake() == Endpoint::Outcome::kClosed) {
      return 0;
    }
    if (endpoint.ready() && !asked) {
      asked = true;
      endpoint.Write("GET /readyz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
      endpoint.Flush();
    }
    if (endpoint.ready() && endpoint.Read([&](std::string_view data) { reader.Feed(data); }) ==
                                Endpoint::Outcome::kClosed) {
      break;
    }
    if (code == 0) {
      pollfd wait{.fd = fd, .events = POLLIN, .revents = 0};
      ::poll(&wait, 1, 100);
    }
  }
  return code;
}

void AwaitReady(int port, pid_t pid) {
  const TlsContextPtr context = MakeClientContext("", "", 16 * 1024);
  const auto deadline = Clock::now() + std::chrono::seconds(60);
  while (AskReady(context.get(), port) != 200) {
    if (::waitpid(pid, nullptr, WNOHANG) == pid) {
      Fail("the server ended instead of answering");
    }
    if (Clock::now() > deadline) {
      Fail("the server did not become ready within a minute");
    }
    ::usleep(200);
  }
}

}  // namespace

void MeasureStart(const std::string& server, int runs, const std::vector<std::string>& command) {
  Latencies latencies;
  for (int run = 0; run < runs; ++run) {
    char folder[] = "/tmp/api-load.XXXXXX";
    if (::mkdtemp(folder) == nullptr) {
      Fail("no folder under /tmp");
    }
    const int port = FreePort();
    auto words = command;
    for (auto& word : words) {
      ReplaceAll(&word, "{dir}", folder);
      ReplaceAll(&word, "{port}", std::to_string(port));
    }
    const auto begin = Clock::now();
    const pid_t pid = Spawn(words);
    AwaitReady(port, pid);
    latencies.Add(Clock::now() - begin);
    ::kill(pid, SIGTERM);
    ::waitpid(pid, nullptr, 0);
    std::error_code ignored;
    std::filesystem::remove_all(folder, ignored);
  }
  Row(server, "start, empty directory to /readyz", "ms", false)
      .Value(latencies.Quantile(0.5))
      .Note("best_ms", latencies.Quantile(0))
      .Note("worst_ms", latencies.Quantile(1))
      .Print();
}

void MeasureIdle(const Setting& setting, double seconds) {
  const double before = ProcessorSeconds(setting.pids);
  ::usleep(static_cast<useconds_t>(seconds * 1e6));
  const double used = ProcessorSeconds(setting.pids) - before;
  Row(setting.server, "idle, PSS", "MiB", false).Value(PssMiB(setting.pids)).Print();
  Row(setting.server, "idle, processor", "% of a core", false).Value(used / seconds * 100).Print();
}

void MeasureObjects(const Setting& setting, int count) {
  constexpr int kConnections = 32;
  const double before = PssMiB(setting.pids);
  Usage usage(setting.pids);
  const auto begin = Clock::now();
  {
    Fleet fleet(setting.target, kConnections);
    int sent = 0;
    int answered = 0;
    const auto next = [&](int index) {
      if (sent < count) {
        fleet.Send(index, CreateConfigMap("many-" + std::to_string(sent++)));
      }
    };
    fleet.on_answer = [&](int index, int code) {
      if (code != 201 && code != 200) {
        Fail("POST was answered " + std::to_string(code));
      }
      ++answered;
      next(index);
    };
    for (int i = 0; i < kConnections; ++i) {
      next(i);
    }
    while (answered < count) {
      fleet.Poll(std::chrono::milliseconds(100));
    }
  }
  const double wall = std::chrono::duration<double>(Clock::now() - begin).count();
  ::sleep(2);
  const double after = PssMiB(setting.pids);
  Row row(setting.server, std::to_string(count) + " objects of 1 KB, PSS", "MiB", false);
  row.Value(after).Note("kib_each", (after - before) * 1024 / count).Note("seconds", wall);
  usage.End(static_cast<std::size_t>(count), &row);
  row.Print();
}

void MeasureDisk(const std::string& directory, double seconds) {
  const std::string path = directory + "/disk-row";
  const int fd = ::open(path.c_str(), O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600);
  const std::string block(4096, 'x');
  Latencies latencies;
  const auto end = Clock::now() + std::chrono::nanoseconds(static_cast<long>(seconds * 1e9));
  const auto begin = Clock::now();
  while (Clock::now() < end) {
    const auto before = Clock::now();
    if (::write(fd, block.data(), block.size()) < 0 || ::fdatasync(fd) != 0) {
      Fail("cannot write " + path + ": " + std::strerror(errno));
    }
    latencies.Add(Clock::now() - before);
  }
  const double wall = std::chrono::duration<double>(Clock::now() - begin).count();
  ::close(fd);
  ::unlink(path.c_str());
  Row("ceiling", "disk: 4 KiB and fdatasync, one writer", "/s", true)
      .Value(static_cast<double>(latencies.size()) / wall)
      .Note("p50_ms", latencies.Quantile(0.5))
      .Note("p99_ms", latencies.Quantile(0.99))
      .Print();
}

}  // namespace sublet::bench
