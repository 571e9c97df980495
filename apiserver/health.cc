#include "apiserver/health.h"

#include <set>

namespace sublet::apiserver {
namespace {

Response Text(int code, std::string text) {
  Response response;
  response.code = code;
  response.content_type = "text/plain; charset=utf-8";
  response.headers = {{"X-Content-Type-Options", "nosniff"}};
  response.body = Body(std::move(text));
  return response;
}

std::string Quoted(const std::set<std::string>& names) {
  std::string text;
  for (const auto& name : names) {
    text.append(text.empty() ? "\"" : ",\"").append(name).append("\"");
  }
  return text;
}

}  // namespace

void HealthHandler::Handle(std::unique_ptr<Request> request, ResponderPtr responder) {
  const std::string& path = request->path;
  const auto slash = path.find('/', 1);
  const std::string root = path.substr(1, slash == std::string::npos ? slash : slash - 1);
  const std::string only = slash == std::string::npos ? "" : path.substr(slash + 1);
  std::vector<Check> checks;
  for (const Check& check : checks_) {
    if (!check.only_ready || root == "readyz") {
      checks.push_back(check);
    }
  }
  if (root == "readyz") {
    checks.push_back({"shutdown",
                      [this]() -> Result<void> {
                        return shutting_down_.load()
                                   ? Result<void>(ServiceUnavailable("process is shutting down"))
                                   : Ok();
                      },
                      true});
  }
  if (!only.empty()) {
    for (const Check& check : checks) {
      if (check.name == only) {
        const auto result = check.run();
        responder->Send(
            result.ok() ? Text(200, "ok")
                        : Text(500, "internal server error: " + result.error().message() + "\n"));
        return;
      }
    }
    responder->Send(Text(404, "404 page not found\n"));
    return;
  }
  std::set<std::string> excluded;
  for (const auto name : request->query.All("exclude")) {
    excluded.emplace(name);
  }
  std::string report;
  bool failed = false;
  for (const Check& check : checks) {
    if (excluded.erase(check.name) > 0) {
      report += "[+]" + check.name + " excluded: ok\n";
    } else if (check.run().ok()) {
      report += "[+]" + check.name + " ok\n";
    } else {
      report += "[-]" + check.name + " failed: reason withheld\n";
      failed = true;
    }
  }
  if (!excluded.empty()) {
    report +=
        "warn: some health checks cannot be excluded: no matches for " + Quoted(excluded) + "\n";
  }
  if (failed) {
    responder->Send(Text(500, report + root + " check failed\n"));
  } else {
    responder->Send(
        Text(200, request->query.Has("verbose") ? report + root + " check passed\n" : "ok"));
  }
}

}  // namespace sublet::apiserver
