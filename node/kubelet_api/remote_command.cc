#include "node/kubelet_api/remote_command.h"

#include <openssl/evp.h>
#include <pthread.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/log.h"
#include "kube/json.h"
#include "node/kubelet_api/spdy.h"
#include "node/kubelet_api/websocket.h"
#include "node/pod/env.h"

namespace sublet::node {
namespace {

using kube::Json;

constexpr std::size_t kStdinBytesMax = 1u << 20;
constexpr std::size_t kMessageBytesMax = 4u << 20;
constexpr std::chrono::seconds kStreamsWithin{30};
constexpr std::chrono::seconds kCloseWithin{5};

// Bytes between two threads, bounded.
class BytePipe {
 public:
  // Blocks while full. False when the reader has gone.
  bool Push(std::string_view data) {
    MutexLock lock(mutex_);
    while (buffer_.size() >= kStdinBytesMax && !closed_) {
      changed_.Wait(mutex_);
    }
    if (closed_ || ended_) {
      return false;
    }
    buffer_ += data;
    changed_.NotifyAll();
    return true;
  }
  void End() {
    MutexLock lock(mutex_);
    ended_ = true;
    changed_.NotifyAll();
  }
  void Close() {
    MutexLock lock(mutex_);
    closed_ = true;
    changed_.NotifyAll();
  }
  // "" at the end.
  std::string Pop() {
    MutexLock lock(mutex_);
    while (buffer_.empty() && !ended_ && !closed_) {
      changed_.Wait(mutex_);
    }
    std::string out;
    if (!closed_) {
      out.swap(buffer_);
    }
    changed_.NotifyAll();
    return out;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::string buffer_ SUBLET_GUARDED_BY(mutex_);
  bool ended_ SUBLET_GUARDED_BY(mutex_) = false;
  bool closed_ SUBLET_GUARDED_BY(mutex_) = false;
};

// The client's side, whatever the protocol. Output calls come from one thread.
class ClientSide {
 public:
  virtual ~ClientSide() = default;
  virtual bool WriteOutput(StreamId stream, std::string_view data) = 0;
  virtual void WriteStatus(const std::string& status, bool success, const std::string& plain) = 0;
  virtual void Close() = 0;
};

// Moves bytes between one session of the engine and one client.
class Pump {
 public:
  Pump(std::unique_ptr<StreamSession> session, ClientSide& client)
      : session_(std::move(session)), client_(client) {}

  void Start(bool with_stdin) {
    output_ = std::thread([this] {
      ::pthread_setname_np(::pthread_self(), "exec-output");
      RunOutput();
    });
    if (with_stdin) {
      stdin_ = std::thread([this] {
        ::pthread_setname_np(::pthread_self(), "exec-stdin");
        for (std::string data = pipe_.Pop(); !data.empty(); data = pipe_.Pop()) {
          if (!session_->WriteStdin(data).ok()) {
            pipe_.Close();
            return;
          }
        }
        session_->CloseStdin();
      });
    }
  }

  void OnStdin(std::string_view data) {
    if (!data.empty()) {
      pipe_.Push(data);
    }
  }
  void OnStdinEnd() { pipe_.End(); }
  void OnResize(std::string_view bytes) {
    resize_.Feed(bytes, [this](int columns, int rows) {
      if (auto resized = session_->Resize(columns, rows); !resized.ok()) {
        log::Debug("cannot resize a terminal", {{"error", resized.error()}});
      }
    });
  }

  // The client has gone (or all is done): ends what still waits.
  void Finish() {
    pipe_.Close();
    session_->Cancel();
    output_.join();
    if (stdin_.joinable()) {
      stdin_.join();
    }
  }

 private:
  void RunOutput() {
    for (;;) {
      auto chunk = session_->Read(Deadline::max());
      if (!chunk.ok()) {
        break;  // cancelled, or the engine went away
      }
      if (!*chunk) {
        break;
      }
      if (!client_.WriteOutput((*chunk)->stream, (*chunk)->data)) {
        client_.Close();
        return;
      }
    }
    const auto code = session_->ExitCode();
    if (!code.ok()) {
      client_.WriteStatus(MakeErrorStatus(code.error()), false, code.error().message());
    } else {
      client_.WriteStatus(MakeExitStatus(*code), *code == 0,
                          "command terminated with exit code " + std::to_string(*code));
    }
    client_.Close();
  }

  std::unique_ptr<StreamSession> session_;
  ClientSide& client_;
  BytePipe pipe_;
  ResizeParser resize_;
  std::thread output_;
  std::thread stdin_;
};

// ---- WebSocket: one byte of channel number before each message.

struct WebSocketProtocol {
  std::string name;
  int version = 1;
  bool base64 = false;
};

std::optional<WebSocketProtocol> ChooseProtocol(std::string_view offered) {
  const auto list = SplitList(offered);
  if (list.empty()) {
    return WebSocketProtocol{"", 1, false};
  }
  static const WebSocketProtocol kKnown[] = {
      {"v5.channel.k8s.io", 5, false},   {"v4.channel.k8s.io", 4, false},
      {"v3.channel.k8s.io", 3, false},   {"v2.channel.k8s.io", 2, false},
      {"channel.k8s.io", 1, false},      {"v4.base64.channel.k8s.io", 4, true},
      {"base64.channel.k8s.io", 1, true}};
  for (const WebSocketProtocol& known : kKnown) {
    if (std::find(list.begin(), list.end(), known.name) != list.end()) {
      return known;
    }
  }
  return std::nullopt;
}

std::string EncodeBase64(std::string_view data) {
  std::string out((data.size() + 2) / 3 * 4 + 1, '\0');
  const int n = EVP_EncodeBlock(reinterpret_cast<unsigned char*>(out.data()),
                                reinterpret_cast<const unsigned char*>(data.data()),
                                static_cast<int>(data.size()));
  out.resize(static_cast<std::size_t>(n));
  return out;
}

class WebSocketClient final : public ClientSide {
 public:
  enum Channel { kStdin = 0, kStdout = 1, kStderr = 2, kError = 3, kResize = 4, kHalfClose = 255 };

  WebSocketClient(Duplex& connection, WebSocketProtocol protocol, RemoteCommandOptions options)
      : connection_(connection), protocol_(std::move(protocol)), options_(options) {}

  bool WriteOutput(StreamId stream, std::string_view data) override {
    const int channel = stream == StreamId::kStderr ? kStderr : kStdout;
    if ((channel == kStdout && !options_.stdout) || (channel == kStderr && !options_.stderr)) {
      return true;
    }
    return Send(channel, data);
  }
  void WriteStatus(const std::string& status, bool success, const std::string& plain) override {
    if (protocol_.version >= 4) {
      Send(kError, status);
    } else if (!success) {
      Send(kError, plain);
    }
  }
  // Says goodbye and cuts the connection when the client does not answer.
  void Close() override {
    static_cast<void>(
        connection_.Write(MakeWebSocketFrame(WebSocketOp::kClose, std::string("\x03\xe8", 2)))
            .ok());
    MutexLock lock(mutex_);
    const Deadline deadline = After(kCloseWithin);
    while (!client_gone_ && std::chrono::steady_clock::now() < deadline) {
      changed_.WaitUntil(mutex_, deadline);
    }
    if (!client_gone_) {
      connection_.Shutdown();
    }
  }

  // Reads until the client closes.
  void Run(Pump& pump, std::string early) {
    Serve(pump, std::move(early));
    NoteGone();
  }
  void NoteGone() {
    MutexLock lock(mutex_);
    client_gone_ = true;
    changed_.NotifyAll();
  }

 private:
  void Serve(Pump& pump, std::string early) {
    ReadWebSocketMessages(connection_, early, kMessageBytesMax,
                          [&](const std::string& payload) { Dispatch(pump, payload); });
  }

  bool Send(int channel, std::string_view data) {
    std::string payload;
    if (protocol_.base64) {
      payload = static_cast<char>('0' + channel);
      payload += EncodeBase64(data);
    } else {
      payload = static_cast<char>(channel);
      payload += data;
    }
    return connection_
        .Write(MakeWebSocketFrame(protocol_.base64 ? WebSocketOp::kText : WebSocketOp::kBinary,
                                  payload))
        .ok();
  }

  void Dispatch(Pump& pump, const std::string& payload) {
    int channel = static_cast<unsigned char>(payload[0]);
    std::string data = payload.substr(1);
    if (protocol_.base64) {
      channel -= '0';
      data = DecodeBase64(data);
    }
    if (channel == kStdin) {
      pump.OnStdin(data);
    } else if (channel == kResize && protocol_.version >= 3) {
      pump.OnResize(data);
    } else if (channel == kHalfClose && protocol_.version >= 5 && !data.empty() && data[0] == 0) {
      pump.OnStdinEnd();
    }
  }

  Duplex& connection_;
  const WebSocketProtocol protocol_;
  const RemoteCommandOptions options_;
  Mutex mutex_;
  CondVar changed_;
  bool client_gone_ SUBLET_GUARDED_BY(mutex_) = false;
};

Result<void> ServeWebSocket(Duplex& connection, const KubeletRequest& request, std::string early,
                            const RemoteCommandOptions& options, const OpenSession& open) {
  const auto protocol = ChooseProtocol(request.Header("sec-websocket-protocol"));
  if (!protocol) {
    return BadRequest("none of the offered WebSocket subprotocols is supported");
  }
  SUBLET_RETURN_IF_ERROR(connection.Write(MakeWebSocketAccept(request, protocol->name)));
  WebSocketClient client(connection, *protocol, options);
  auto session = open();
  if (!session.ok()) {
    client.WriteStatus(MakeErrorStatus(session.error()), false, session.error().message());
    client.NoteGone();  // nobody reads any more
    client.Close();
    return {};
  }
  Pump pump(std::move(session).value(), client);
  pump.Start(options.stdin);
  client.Run(pump, std::move(early));
  pump.Finish();
  return {};
}

// ---- SPDY: a stream per direction, named by the header streamType.

class SpdyClient final : public ClientSide {
 public:
  SpdyClient(SpdySession& session, int version) : session_(session), version_(version) {}

  bool WriteOutput(StreamId stream, std::string_view data) override {
    SpdyStream* target = Get(stream == StreamId::kStderr ? "stderr" : "stdout");
    return target == nullptr || target->Write(data);
  }
  void WriteStatus(const std::string& status, bool success, const std::string& plain) override {
    SpdyStream* error = Get("error");
    if (error == nullptr) {
      return;
    }
    if (version_ >= 4) {
      error->Write(status);
    } else if (!success) {
      error->Write(plain);
    }
    error->Close();
  }
  // The client closes the connection when it has read all streams to their end; a client that does
  // not is cut off after a while.
  void Close() override {
    for (const char* type : {"stdout", "stderr", "error", "resize", "stdin"}) {
      if (SpdyStream* stream = Get(type)) {
        stream->Close();
      }
    }
    MutexLock lock(mutex_);
    const Deadline deadline = After(kCloseWithin);
    while (!client_gone_ && std::chrono::steady_clock::now() < deadline) {
      changed_.WaitUntil(mutex_, deadline);
    }
    if (!client_gone_) {
      session_.Shutdown();
    }
  }

  void Add(const std::shared_ptr<SpdyStream>& stream) {
    MutexLock lock(mutex_);
    streams_[stream->Header("streamtype")] = stream;
    changed_.NotifyAll();
  }
  bool Await(std::size_t count) {
    MutexLock lock(mutex_);
    const Deadline deadline = After(kStreamsWithin);
    while (streams_.size() < count && !client_gone_) {
      if (!changed_.WaitUntil(mutex_, deadline) && std::chrono::steady_clock::now() >= deadline) {
        return false;
      }
    }
    return streams_.size() >= count;
  }
  void NoteGone() {
    MutexLock lock(mutex_);
    client_gone_ = true;
    changed_.NotifyAll();
  }
  void WaitGone() {
    MutexLock lock(mutex_);
    while (!client_gone_) {
      changed_.Wait(mutex_);
    }
  }
  SpdyStream* Get(const std::string& type) {
    MutexLock lock(mutex_);
    const auto it = streams_.find(type);
    return it == streams_.end() ? nullptr : it->second.get();
  }

 private:
  SpdySession& session_;
  const int version_;
  Mutex mutex_;
  CondVar changed_;
  std::map<std::string, std::shared_ptr<SpdyStream>> streams_ SUBLET_GUARDED_BY(mutex_);
  bool client_gone_ SUBLET_GUARDED_BY(mutex_) = false;
};

// Runs beside the session's reader: waits for the streams, then moves bytes.
void RunSpdyCommand(SpdyClient& client, const RemoteCommandOptions& options, int version,
                    const OpenSession& open, SpdySession& session) {
  const bool has_resize = options.tty && version >= 3;
  const std::size_t expected = 1u + (options.stdin ? 1 : 0) + (options.stdout ? 1 : 0) +
                               (options.stderr && !options.tty ? 1 : 0) + (has_resize ? 1 : 0);
  if (!client.Await(expected)) {
    session.Shutdown();
    return;
  }
  auto opened = open();
  if (!opened.ok()) {
    client.WriteStatus(MakeErrorStatus(opened.error()), false, opened.error().message());
    client.Close();
    return;
  }
  Pump pump(std::move(opened).value(), client);
  pump.Start(options.stdin);
  std::thread resizes;
  if (SpdyStream* stream = has_resize ? client.Get("resize") : nullptr) {
    resizes = std::thread([&pump, stream] {
      ::pthread_setname_np(::pthread_self(), "exec-resize");
      for (std::string data = stream->Read(); !data.empty(); data = stream->Read()) {
        pump.OnResize(data);
      }
    });
  }
  if (SpdyStream* stream = options.stdin ? client.Get("stdin") : nullptr) {
    for (std::string data = stream->Read(); !data.empty(); data = stream->Read()) {
      pump.OnStdin(data);
    }
    pump.OnStdinEnd();
  }
  // The error stream carries nothing from the client: its end is the connection's.
  if (SpdyStream* stream = client.Get("error")) {
    while (!stream->Read().empty()) {
    }
  }
  client.WaitGone();
  pump.Finish();
  if (resizes.joinable()) {
    resizes.join();
  }
}

Result<void> ServeSpdy(Duplex& connection, const KubeletRequest& request, std::string early,
                       const RemoteCommandOptions& options, const OpenSession& open) {
  int version = 0;
  std::string chosen;
  std::vector<std::string> offered;
  for (const auto& [name, value] : request.headers) {
    if (name == "x-stream-protocol-version") {
      for (std::string& item : SplitList(value)) {
        offered.push_back(std::move(item));
      }
    }
  }
  for (int candidate = 4; candidate >= 1 && version == 0; --candidate) {
    const std::string name =
        candidate == 1 ? "channel.k8s.io" : "v" + std::to_string(candidate) + ".channel.k8s.io";
    if (std::find(offered.begin(), offered.end(), name) != offered.end()) {
      version = candidate;
      chosen = name;
    }
  }
  if (version == 0 && !offered.empty()) {
    return BadRequest("none of the offered stream protocols is supported");
  }
  std::string answer =
      "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n";
  if (!chosen.empty()) {
    answer += "X-Stream-Protocol-Version: " + chosen + "\r\n";
  }
  SUBLET_RETURN_IF_ERROR(connection.Write(answer + "\r\n"));
  version = std::max(version, 1);
  SpdySession session(connection, std::move(early));
  SpdyClient client(session, version);
  std::thread command([&] {
    ::pthread_setname_np(::pthread_self(), "exec-spdy");
    RunSpdyCommand(client, options, version, open, session);
  });
  const auto ran = session.Run([&](std::shared_ptr<SpdyStream> stream) {
    client.Add(stream);
    return true;
  });
  client.NoteGone();
  command.join();
  return ran;
}

}  // namespace

RemoteCommandOptions ParseRemoteCommandOptions(const KubeletRequest& request) {
  RemoteCommandOptions options;
  options.stdin = request.Flag("input") || request.Flag("stdin");
  options.stdout = request.Flag("output") || request.Flag("stdout");
  options.stderr = request.Flag("error") || request.Flag("stderr");
  options.tty = request.Flag("tty");
  if (options.tty) {
    options.stderr = false;  // a terminal has one output
  }
  return options;
}

Result<void> ServeRemoteCommand(Duplex& connection, const KubeletRequest& request,
                                std::string early, const RemoteCommandOptions& options,
                                const OpenSession& open) {
  if (IsWebSocketUpgrade(request)) {
    return ServeWebSocket(connection, request, std::move(early), options, open);
  }
  const auto upgrade = SplitList(request.Header("upgrade"));
  if (std::find_if(upgrade.begin(), upgrade.end(), [](const std::string& item) {
        return item == "SPDY/3.1" || item == "spdy/3.1";
      }) != upgrade.end()) {
    return ServeSpdy(connection, request, std::move(early), options, open);
  }
  return BadRequest(
      "you must specify at least 1 of stdin, stdout, stderr and upgrade the connection");
}

std::string MakeExitStatus(int code) {
  if (code == 0) {
    return R"({"metadata":{},"status":"Success"})";
  }
  const std::string number = std::to_string(code);
  return kube::Dump(
      Json{{"metadata", Json::object()},
           {"status", "Failure"},
           {"message", "command terminated with non-zero exit code: exit status " + number},
           {"reason", "NonZeroExitCode"},
           {"details", {{"causes", {{{"reason", "ExitCode"}, {"message", number}}}}}}});
}

std::string MakeErrorStatus(const Status& error) {
  return kube::Dump(Json{{"metadata", Json::object()},
                         {"status", "Failure"},
                         {"message", error.message()},
                         {"reason", ReasonName(error.reason())},
                         {"code", error.code()}});
}

void ResizeParser::Feed(std::string_view bytes, const std::function<void(int, int)>& on_size) {
  buffer_ += bytes;
  for (auto end = buffer_.find('}'); end != std::string::npos; end = buffer_.find('}')) {
    if (auto size = kube::ParseJson(std::string_view(buffer_).substr(0, end + 1)); size.ok()) {
      const auto columns = kube::FindInt(*size, {"Width"});
      const auto rows = kube::FindInt(*size, {"Height"});
      if (columns > 0 && rows > 0 && columns < 65536 && rows < 65536) {
        on_size(static_cast<int>(columns), static_cast<int>(rows));
      }
    }
    buffer_.erase(0, end + 1);
  }
  if (buffer_.size() > 4096) {
    buffer_.clear();
  }
}

}  // namespace sublet::node
