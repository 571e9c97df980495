// The kubelet API's protocols without a network: HTTP heads, WebSocket and SPDY frames, statuses.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <deque>
#include <thread>

#include "base/random.h"
#include "node/kubelet_api/access.h"
#include "node/kubelet_api/http_request.h"
#include "node/kubelet_api/remote_command.h"
#include "node/kubelet_api/spdy.h"
#include "node/kubelet_api/spdy_dictionary.h"
#include "node/kubelet_api/tls_connection.h"
#include "node/kubelet_api/websocket.h"

namespace sublet::node {
namespace {

TEST(RequestHead, DecodesPathQueryAndFlags) {
  auto request = ParseRequestHead(
      "POST /exec/ns/pod/c?command=echo&command=a%20b+c&input=1&tty=false HTTP/1.1\r\n"
      "Host: x\r\nConnection: Upgrade\r\nX-Y:  z ");
  ASSERT_TRUE(request.ok());
  EXPECT_EQ(request->PathParts(), (std::vector<std::string>{"exec", "ns", "pod", "c"}));
  EXPECT_EQ(request->QueryAll("command"), (std::vector<std::string>{"echo", "a b c"}));
  EXPECT_TRUE(request->Flag("input"));
  EXPECT_FALSE(request->Flag("tty"));
  EXPECT_EQ(request->Header("x-y"), "z");
  for (const char* bad :
       {"GET", "GET / HTTP/2", "GET x HTTP/1.1", "GET / HTTP/1.1\r\nNoColon",
        "GET / HTTP/1.1\r\nContent-Length: -1", "GET / HTTP/1.1\r\nTransfer-Encoding: chunked"}) {
    EXPECT_FALSE(ParseRequestHead(bad).ok()) << bad;
  }
}

TEST(RequestHead, NamesTheSubresourceForAuthorization) {
  const auto subresource = [](const char* line) {
    return SubresourceOf(*ParseRequestHead(std::string(line) + " HTTP/1.1"));
  };
  EXPECT_EQ(subresource("GET /stats/summary"), "stats");
  EXPECT_EQ(subresource("GET /metrics/cadvisor"), "metrics");
  EXPECT_EQ(subresource("POST /exec/a/b/c"), "proxy");
  EXPECT_EQ(subresource("GET /containerLogs/a/b/c"), "proxy");
  EXPECT_EQ(VerbOf(*ParseRequestHead("POST /exec/a/b/c HTTP/1.1")), "create");
}

std::string Masked(int first, std::string payload, bool mask = true) {
  std::string out(1, static_cast<char>(first));
  const char key[4] = {1, 2, 3, 4};
  if (payload.size() < 126) {
    out += static_cast<char>((mask ? 0x80 : 0) | static_cast<int>(payload.size()));
  } else {
    out += static_cast<char>(0x80 | 126);
    out += static_cast<char>(payload.size() >> 8);
    out += static_cast<char>(payload.size() & 255);
  }
  if (mask) {
    out.append(key, 4);
    for (std::size_t i = 0; i < payload.size(); ++i) {
      payload[i] = static_cast<char>(payload[i] ^ key[i & 3]);
    }
  }
  return out + payload;
}

TEST(WebSocket, AcceptKeyIsTheRfcsExample) {
  auto request = ParseRequestHead(
      "GET /exec HTTP/1.1\r\nConnection: keep-alive, Upgrade\r\nUpgrade: WebSocket\r\n"
      "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==");
  ASSERT_TRUE(request.ok());
  EXPECT_TRUE(IsWebSocketUpgrade(*request));
  EXPECT_NE(MakeWebSocketAccept(*request, "p").find("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="),
            std::string::npos);
}

TEST(WebSocket, JoinsFragmentsAroundControlFrames) {
  WebSocketReader reader(1000);
  std::string wire = Masked(0x02, "hel") + Masked(0x89, "ping") + Masked(0x80, "lo") +
                     Masked(0x82, std::string(300, 'x'));
  std::vector<WebSocketMessage> messages;
  for (const char c : wire) {
    reader.Feed(std::string_view(&c, 1));
    auto next = reader.Next();
    ASSERT_TRUE(next.ok());
    if (*next) {
      messages.push_back(**next);
    }
  }
  ASSERT_EQ(messages.size(), 3u);
  EXPECT_EQ(messages[0].op, WebSocketOp::kPing);
  EXPECT_EQ(messages[1].payload, "hello");
  EXPECT_EQ(messages[2].payload.size(), 300u);
}

TEST(WebSocket, RefusesBrokenAndHugeFrames) {
  const auto fails = [](const std::string& wire) {
    WebSocketReader reader(100);
    reader.Feed(wire);
    return !reader.Next().ok();
  };
  EXPECT_TRUE(fails(Masked(0x82, "x", false))) << "clients must mask";
  EXPECT_TRUE(fails(Masked(0x80, "x"))) << "a continuation of nothing";
  EXPECT_TRUE(fails(Masked(0xf2, "x"))) << "reserved bits";
  EXPECT_TRUE(fails(Masked(0x82, std::string(200, 'x')))) << "too large";
}

TEST(Spdy, DictionaryIsTheProtocols) { EXPECT_EQ(SpdyDictionary().size(), 1423u); }

TEST(Spdy, HeadersSurviveSeveralCompressedBlocks) {
  SpdyWriter writer;
  SpdyReader reader;
  for (int i = 0; i < 5; ++i) {
    const SpdyHeaders headers = {{"streamtype", "stdin"}, {"port", std::to_string(i)}};
    const std::string wire =
        writer.SynStream(static_cast<std::uint32_t>(2 * i + 1), headers, i == 4) +
        SpdyWriter::Data(static_cast<std::uint32_t>(2 * i + 1), "data", false);
    std::vector<SpdyFrame> frames;
    for (const char c : wire) {
      reader.Feed(std::string_view(&c, 1));
      auto frame = reader.Next();
      ASSERT_TRUE(frame.ok());
      if (*frame) {
        frames.push_back(**frame);
      }
    }
    ASSERT_EQ(frames.size(), 2u);
    EXPECT_EQ(frames[0].kind, SpdyFrame::Kind::kSynStream);
    EXPECT_EQ(frames[0].headers, headers);
    EXPECT_EQ(frames[0].fin, i == 4);
    EXPECT_EQ(frames[1].data, "data");
  }
}

TEST(Spdy, RefusesForeignBytes) {
  SpdyReader version;
  version.Feed(std::string("\x80\x02\0\1\0\0\0\0", 8));
  EXPECT_FALSE(version.Next().ok());
  SpdyReader garbage;
  garbage.Feed(std::string("\x80\3\0\1\0\0\0\x0e", 8) + std::string(14, '\x55'));
  EXPECT_FALSE(garbage.Next().ok());
}

// A pair of in-memory ends.
class MemoryDuplex final : public Duplex {
 public:
  Result<std::size_t> Read(char* data, std::size_t bytes_max, Deadline) override {
    MutexLock lock(mutex_);
    while (in_.empty() && !closed_) {
      changed_.Wait(mutex_);
    }
    const std::size_t n = std::min(bytes_max, in_.size());
    std::copy_n(in_.begin(), n, data);
    in_.erase(in_.begin(), in_.begin() + static_cast<std::ptrdiff_t>(n));
    return n;
  }
  Result<void> Write(std::string_view data) override {
    MutexLock lock(mutex_);
    out_ += data;
    changed_.NotifyAll();
    return {};
  }
  void Shutdown() override {
    MutexLock lock(mutex_);
    closed_ = true;
    changed_.NotifyAll();
  }
  void Send(const std::string& data) {
    MutexLock lock(mutex_);
    in_.insert(in_.end(), data.begin(), data.end());
    changed_.NotifyAll();
  }
  std::string Sent() {
    MutexLock lock(mutex_);
    return out_;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::deque<char> in_ SUBLET_GUARDED_BY(mutex_);
  std::string out_ SUBLET_GUARDED_BY(mutex_);
  bool closed_ SUBLET_GUARDED_BY(mutex_) = false;
};

TEST(SpdySession, EchoesAStreamAndAnswersPings) {
  MemoryDuplex duplex;
  SpdySession session(duplex, "");
  std::vector<std::thread> echoes;
  SpdyWriter client;
  duplex.Send(client.SynStream(1, {{"streamtype", "data"}}, false) +
              SpdyWriter::Data(1, "hello", true) + SpdyWriter::Ping(7) + SpdyWriter::GoAway(0));
  const auto ran = session.Run([&](std::shared_ptr<SpdyStream> stream) {
    EXPECT_EQ(stream->Header("streamtype"), "data");
    echoes.emplace_back([stream] {
      for (std::string data = stream->Read(); !data.empty(); data = stream->Read()) {
        stream->Write(data);
      }
      stream->Close();
    });
    return true;
  });
  EXPECT_TRUE(ran.ok());
  for (std::thread& thread : echoes) {
    thread.join();
  }
  SpdyReader reader;
  reader.Feed(duplex.Sent());
  bool replied = false;
  bool pinged = false;
  for (;;) {
    auto frame = reader.Next();
    ASSERT_TRUE(frame.ok());
    if (!*frame) {
      break;
    }
    replied = replied || (*frame)->kind == SpdyFrame::Kind::kSynReply;
    pinged = pinged || ((*frame)->kind == SpdyFrame::Kind::kPing && (*frame)->stream == 7);
  }
  EXPECT_TRUE(replied);
  EXPECT_TRUE(pinged);
}

TEST(RemoteCommand, StatusesAreWhatKubectlReads) {
  EXPECT_EQ(MakeExitStatus(0), R"({"metadata":{},"status":"Success"})");
  EXPECT_NE(MakeExitStatus(7).find(R"("causes":[{"message":"7","reason":"ExitCode"}])"),
            std::string::npos);
  EXPECT_NE(MakeExitStatus(7).find(R"("reason":"NonZeroExitCode")"), std::string::npos);
}

TEST(RemoteCommand, SizesComeInPiecesAndRows) {
  ResizeParser parser;
  std::vector<std::pair<int, int>> sizes;
  const auto note = [&](int columns, int rows) { sizes.emplace_back(columns, rows); };
  for (const char c : std::string("{\"Width\":80,\"Height\":24}\n{\"Width\":1,\"Height\":2}{}")) {
    parser.Feed(std::string_view(&c, 1), note);
  }
  EXPECT_EQ(sizes, (std::vector<std::pair<int, int>>{{80, 24}, {1, 2}}));
}

TEST(Tls, ConnectionCarriesBothWaysAndKnowsNoStranger) {
  auto pair = MakeSelfSigned("node", {"node", "127.0.0.1"});
  ASSERT_TRUE(pair.ok());
  EXPECT_TRUE(TlsContext::Make(pair->certificate_pem, pair->key_pem, pair->certificate_pem).ok());
  EXPECT_FALSE(TlsContext::Make("nonsense", pair->key_pem, "").ok());
  EXPECT_FALSE(TlsContext::Make(pair->certificate_pem, pair->key_pem, "nonsense").ok());
  auto context = TlsContext::Make(pair->certificate_pem, pair->key_pem, "");
  ASSERT_TRUE(context.ok());
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends), 0);
  ASSERT_EQ(::write(ends[1], "GET / HTTP/1.1\r\n\r\n", 18), 18);
  EXPECT_FALSE(TlsConnection::Accept(**context, ends[0], After(std::chrono::seconds(5))).ok())
      << "plain HTTP is no TLS";
  ::close(ends[1]);
}

}  // namespace
}  // namespace sublet::node
