// AdminServer: gpud's unix socket for the node's own tools: GET /metrics, /status, /healthz in
// HTTP/1.0. One thread ("gpud-admin"), one request at a time, two seconds and 4 KiB each. The
// socket is for root.
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <thread>

#include "base/result.h"

namespace sublet::gpu {

// The body and type of a path; nullopt: 404. Runs on the admin thread.
struct AdminAnswer {
  int code = 200;
  std::string type = "text/plain; charset=utf-8";
  std::string body;
};
using AdminHandler = std::function<AdminAnswer(std::string_view path)>;

class AdminServer {
 public:
  AdminServer(std::string path, AdminHandler handler);
  ~AdminServer();  // Stop
  // Errors: InternalError (cannot listen), BadRequest (path too long for a socket).
  Result<void> Start();
  void Stop();  // idempotent; joins

 private:
  void Run();
  void Serve(int fd);

  const std::string path_;
  const AdminHandler handler_;
  int listener_ = -1;
  int stop_event_ = -1;
  std::thread thread_;
};

// GET over such a socket. Errors: ServiceUnavailable (nobody there), InternalError (not 200).
Result<std::string> AdminGet(const std::string& socket_path, const std::string& path);

// The path of a request's first line, or "" when it is no GET. Pure: fuzzed.
std::string_view AdminPath(std::string_view request);

}  // namespace sublet::gpu
