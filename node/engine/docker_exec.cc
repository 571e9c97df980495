#include "node/engine/docker_exec.h"

#include <nlohmann/json.hpp>
#include <thread>

#include "kube/json.h"
#include "node/engine/docker_json.h"
#include "node/engine/stream_frames.h"

namespace sublet::node {
namespace {

using kube::FindInt;
using kube::FindString;
using kube::Json;

constexpr std::chrono::seconds kExecTimeout{60};

Status Failed(const EngineResponse& response) {
  std::string message = response.body.substr(0, 512);
  if (auto parsed = kube::ParseJson(response.body); parsed.ok()) {
    if (const auto text = FindString(*parsed, {"message"}); !text.empty()) {
      message = text;
    }
  }
  if (response.code == 404) {
    return Status(Reason::kNotFound, message);
  }
  return InternalError(message);
}

class HijackSession final : public StreamSession {
 public:
  struct Target {
    std::string resize_path;  // without the query
    std::string exec_id;      // "" for attach
    bool tty = false;
    bool keep_stdin = false;
  };
  HijackSession(const UnixHttp& http, std::unique_ptr<Hijack> hijack, Target target)
      : http_(http), hijack_(std::move(hijack)), target_(std::move(target)) {}

  Result<std::optional<Chunk>> Read(Deadline deadline) override {
    for (;;) {
      if (!target_.tty) {
        SUBLET_TRY(auto chunk, frames_.Next());
        if (chunk) {
          return chunk;
        }
      }
      SUBLET_TRY(const std::size_t n, hijack_->Read(buffer_, sizeof(buffer_), deadline));
      if (n == 0) {
        return std::optional<Chunk>();
      }
      if (target_.tty) {
        Chunk chunk;
        chunk.data = std::string_view(buffer_, n);
        return std::optional<Chunk>(chunk);
      }
      frames_.Feed(std::string_view(buffer_, n));
    }
  }

  Result<void> WriteStdin(std::string_view data) override { return hijack_->Write(data); }
  void CloseStdin() override {
    if (!target_.keep_stdin) {
      hijack_->CloseWrite();
    }
  }
  void Cancel() override { hijack_->Cancel(); }

  Result<void> Resize(int columns, int rows) override {
    EngineRequest request;
    request.method = "POST";
    request.target =
        target_.resize_path + "?h=" + std::to_string(rows) + "&w=" + std::to_string(columns);
    request.deadline = After(kExecTimeout);
    SUBLET_TRY(const EngineResponse response, http_.Call(request));
    return response.code < 300 ? Ok() : Failed(response);
  }

  Result<int> ExitCode() override {
    if (target_.exec_id.empty()) {
      return 0;
    }
    EngineRequest request;
    request.target = "/v1.41/exec/" + target_.exec_id + "/json";
    // Podman closes the stream some milliseconds before it records the code; both engines say
    // Running until then.
    const Deadline deadline = After(std::chrono::seconds(2));
    for (;;) {
      request.deadline = After(kExecTimeout);
      SUBLET_TRY(const EngineResponse response, http_.Call(request));
      if (response.code != 200) {
        return Failed(response);
      }
      SUBLET_TRY(const Json state, kube::ParseJson(response.body));
      if (!kube::FindBool(state, {"Running"}) || std::chrono::steady_clock::now() > deadline) {
        return static_cast<int>(FindInt(state, {"ExitCode"}));
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }

 private:
  const UnixHttp& http_;
  std::unique_ptr<Hijack> hijack_;
  const Target target_;
  StreamFrames frames_;
  char buffer_[32768];
};

Result<std::unique_ptr<StreamSession>> Open(const UnixHttp& http, EngineRequest request,
                                            HijackSession::Target target, Canceller* cancel) {
  EngineResponse head;
  SUBLET_TRY(auto hijack, http.OpenHijack(request, &head, cancel));
  if (hijack == nullptr) {
    return Failed(head);
  }
  return std::unique_ptr<StreamSession>(
      std::make_unique<HijackSession>(http, std::move(hijack), std::move(target)));
}

}  // namespace

Result<std::unique_ptr<StreamSession>> StartExec(const UnixHttp& http, const std::string& id,
                                                 const ExecSpec& spec) {
  EngineRequest create;
  create.method = "POST";
  create.target = "/v1.41/containers/" + id + "/exec";
  create.body = kube::Dump(Json{{"Cmd", spec.argv},
                                {"Tty", spec.tty},
                                {"AttachStdin", spec.attach_stdin},
                                {"AttachStdout", spec.attach_stdout},
                                {"AttachStderr", spec.attach_stderr}});
  create.deadline = After(kExecTimeout);
  SUBLET_TRY(const EngineResponse response, http.Call(create));
  if (response.code != 201) {
    return Failed(response);
  }
  SUBLET_TRY(const Json answer, kube::ParseJson(response.body));
  const std::string exec_id(FindString(answer, {"Id"}));

  EngineRequest start;
  start.method = "POST";
  start.target = "/v1.41/exec/" + exec_id + "/start";
  start.body = kube::Dump(Json{{"Detach", false}, {"Tty", spec.tty}});
  start.deadline = After(kExecTimeout);
  HijackSession::Target target;
  target.resize_path = "/v1.41/exec/" + exec_id + "/resize";
  target.exec_id = exec_id;
  target.tty = spec.tty;
  return Open(http, std::move(start), std::move(target), spec.cancel);
}

Result<std::unique_ptr<StreamSession>> StartAttach(const UnixHttp& http, const std::string& id,
                                                   const AttachSpec& spec) {
  EngineRequest request;
  request.method = "POST";
  request.target = "/v1.41/containers/" + id + "/attach?stream=1";
  request.target += spec.attach_stdin ? "&stdin=1" : "";
  request.target += spec.attach_stdout ? "&stdout=1" : "";
  request.target += spec.attach_stderr ? "&stderr=1" : "";
  request.deadline = After(kExecTimeout);
  HijackSession::Target target;
  target.resize_path = "/v1.41/containers/" + id + "/resize";
  target.tty = spec.tty;
  target.keep_stdin = spec.keep_stdin;
  return Open(http, std::move(request), std::move(target), nullptr);
}

Result<ExecOutput> RunExec(ContainerEngine& engine, const std::string& id,
                           const std::vector<std::string>& argv, Deadline deadline,
                           std::size_t output_bytes_max, Canceller* cancel) {
  ExecSpec spec;
  spec.argv = argv;
  spec.cancel = cancel;
  SUBLET_TRY(auto session, engine.Exec(id, spec));
  ExecOutput out;
  for (;;) {
    SUBLET_TRY(const auto chunk, session->Read(deadline));
    if (!chunk) {
      break;
    }
    if (out.output.size() < output_bytes_max) {
      out.output.append(chunk->data.substr(0, output_bytes_max - out.output.size()));
    }
  }
  SUBLET_TRY(out.exit_code, session->ExitCode());
  return out;
}

}  // namespace sublet::node
