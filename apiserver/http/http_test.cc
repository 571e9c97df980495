// The TLS port as a client sees it: requests in every form, answers of every kind, bounds, drain.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <condition_variable>
#include <thread>

#include "apiserver/auth/certificates.h"
#include "apiserver/http/gzip.h"
#include "apiserver/http/listener.h"
#include "apiserver/http/parser.h"
#include "apiserver/status_response.h"
#include "apiserver/testing/tls_client.h"
#include "base/bounded_queue.h"

namespace sublet::apiserver {
namespace {

using testing::ClientResponse;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using testing::TlsClient;

// Frames pushed by the test from outside.
class PushedStream final : public ByteStream {
 public:
  struct Source {
    std::mutex mutex;
    std::vector<std::string> frames;
    bool ended = false;
    int pulls = 0;
    std::function<void()> wake;
    std::atomic<bool> destroyed{false};
    void Push(std::string frame) {
      const std::lock_guard<std::mutex> lock(mutex);
      frames.push_back(std::move(frame));
      if (wake) {
        wake();
      }
    }
    void End() {
      const std::lock_guard<std::mutex> lock(mutex);
      ended = true;
      if (wake) {
        wake();
      }
    }
  };
  explicit PushedStream(std::shared_ptr<Source> source) : source_(std::move(source)) {}
  ~PushedStream() override {
    const std::lock_guard<std::mutex> lock(source_->mutex);
    source_->wake = nullptr;
    source_->destroyed = true;
  }
  State Pull(std::vector<Body::Piece>& out, std::size_t) override {
    const std::lock_guard<std::mutex> lock(source_->mutex);
    ++source_->pulls;
    for (auto& frame : source_->frames) {
      auto owned = std::make_shared<const std::string>(std::move(frame));
      out.push_back({*owned, owned});
    }
    source_->frames.clear();
    return source_->ended ? State::kEnd : State::kWait;
  }
  void Start(std::function<void()> wake) override {
    const std::lock_guard<std::mutex> lock(source_->mutex);
    source_->wake = std::move(wake);
  }

 private:
  std::shared_ptr<Source> source_;
};

// Produces as fast as it is pulled, for ever; counts what was taken.
class EndlessStream final : public ByteStream {
 public:
  explicit EndlessStream(std::atomic<std::size_t>& bytes) : bytes_(bytes) {}
  State Pull(std::vector<Body::Piece>& out, std::size_t bytes_max) override {
    auto owned = std::make_shared<const std::string>(bytes_max, 'x');
    bytes_ += owned->size();
    out.push_back({*owned, owned});
    return State::kMore;
  }
  void Start(std::function<void()>) override {}

 private:
  std::atomic<std::size_t>& bytes_;
};

class TestHandler final : public Handler {
 public:
  void Handle(std::unique_ptr<Request> request, ResponderPtr responder) override {
    Response response;
    response.content_type = "text/plain";
    if (request->path == "/echo") {
      response.body = Body(request->method + " " + request->raw_query + " " + request->body);
    } else if (request->path == "/who") {
      response.body =
          Body(request->tls_common_name + "/" +
               (request->tls_organizations.empty() ? "" : request->tls_organizations[0]) +
               (request->tls_certificate_rejected ? " rejected" : ""));
    } else if (request->path == "/large") {
      auto piece = std::make_shared<const std::string>(1200, 'p');
      for (int i = 0; i < 500; ++i) {
        response.body.AppendShared(piece, *piece);
        response.body.Append("\n");
      }
    } else if (request->path == "/later") {
      later.Push({std::move(responder), std::move(request)});
      return;
    } else if (request->path == "/stuck") {
      responder->AnswerBy(After(std::chrono::milliseconds(1)));
      later.Push({std::move(responder), std::move(request)});
      return;
    } else if (request->path == "/dropped") {
      return;
    } else if (request->path == "/stream") {
      responder->SendStream(std::move(response), std::make_unique<PushedStream>(source));
      return;
    } else if (request->path == "/endless") {
      responder->SendStream(std::move(response), std::make_unique<EndlessStream>(endless_bytes));
      return;
    } else if (request->path == "/upgrade") {
      response.code = 101;
      response.headers = {{"Connection", "Upgrade"}, {"Upgrade", "echo"}};
      responder->SendUpgrade(
          std::move(response), {[](RawConnection& connection) {
            char data[1024];
            for (;;) {
              const auto got = connection.Read(data, sizeof data);
              if (!got.ok() || *got == 0 || !connection.Write({data, *got}).ok()) {
                return;
              }
            }
          }});
      return;
    }
    responder->Send(std::move(response));
  }

  struct Pending {
    ResponderPtr responder;
    std::unique_ptr<Request> request;
  };
  BoundedQueue<Pending> later{16};
  std::shared_ptr<PushedStream::Source> source = std::make_shared<PushedStream::Source>();
  std::atomic<std::size_t> endless_bytes{0};
};

class HttpTest : public ::testing::Test {
 protected:
  void SetUp() override { Open({}); }
  void Open(ListenerOptions options) {
    const auto now = std::chrono::system_clock::now();
    authority_ = CertificateAuthority::Make("test", now).value();
    LeafOptions leaf;
    leaf.common_name = "server";
    leaf.dns_names = {"localhost"};
    leaf.is_server = true;
    const KeyPair pair = authority_->Issue(leaf, now).value();
    options.tls = {pair.certificate, pair.key, authority_->pair().certificate};
    auto opened = OpenListener(options, handler_);
    ASSERT_TRUE(opened.ok()) << opened.error().message();
    listener_ = std::move(*opened);
    listener_->Start();
  }
  testing::TlsClientOptions ClientOptions() const {
    testing::TlsClientOptions options;
    options.port = listener_->port();
    options.authority = authority_->pair().certificate;
    return options;
  }
  std::unique_ptr<TlsClient> Connect() { return TlsClient::Connect(ClientOptions()); }

  TestHandler handler_;
  std::shared_ptr<const CertificateAuthority> authority_;
  std::unique_ptr<Listener> listener_;
};

TEST_F(HttpTest, AnswersManyRequestsOnOneConnection) {
  auto client = Connect();
  ASSERT_NE(client, nullptr);
  for (int i = 0; i < 50; ++i) {
    const auto response = client->Call("GET", "/echo?n=" + std::to_string(i));
    EXPECT_EQ(response.code, 200);
    EXPECT_EQ(response.body, "GET n=" + std::to_string(i) + " ");
    EXPECT_TRUE(response.headers.contains("date"));
  }
  EXPECT_EQ(listener_->stats().accepted, 1u);
}

TEST_F(HttpTest, PipelinedRequestsAreAnsweredInOrder) {
  auto client = Connect();
  std::string requests;
  for (int i = 0; i < 200; ++i) {
    requests += "GET /echo?" + std::to_string(i) + " HTTP/1.1\r\nHost: a\r\n\r\n";
  }
  ASSERT_TRUE(client->Send(requests));
  for (int i = 0; i < 200; ++i) {
    EXPECT_EQ(client->ReadResponse().body, "GET " + std::to_string(i) + " ");
  }
}

TEST_F(HttpTest, ARequestBehindOneThatWaitsIsAnsweredAfterIt) {
  auto client = Connect();
  ASSERT_TRUE(
      client->Send("GET /later HTTP/1.1\r\nHost: a\r\n\r\n"
                   "GET /echo?b HTTP/1.1\r\nHost: a\r\n\r\n"));
  auto pending = handler_.later.Pop();
  ASSERT_TRUE(pending.has_value());
  Response response;
  response.body = Body("first");
  pending->responder->Send(std::move(response));
  EXPECT_EQ(client->ReadResponse().body, "first");
  EXPECT_EQ(client->ReadResponse().body, "GET b ");
}

TEST_F(HttpTest, BodiesArriveByLengthByChunksAndAfterContinue) {
  auto client = Connect();
  EXPECT_EQ(client->Call("POST", "/echo", "", "hello").body, "POST  hello");
  ASSERT_TRUE(
      client->Send("POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
                   "3;x=y\r\nabc\r\n2\r\nde\r\n0\r\nTrailer: x\r\n\r\n"));
  EXPECT_EQ(client->ReadResponse().body, "POST  abcde");
  ASSERT_TRUE(
      client->Send("PUT /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n"
                   "Expect: 100-continue\r\n\r\n"));
  EXPECT_EQ(client->ReadResponse().code, 100);
  ASSERT_TRUE(client->Send("body"));
  EXPECT_EQ(client->ReadResponse().body, "PUT  body");
}

TEST_F(HttpTest, ABodyOfThreeMebibytesPassesAndOneByteMoreIs413) {
  auto client = Connect();
  const std::string body(3u << 20, 'a');
  EXPECT_EQ(client->Call("POST", "/echo", "", body).body.size(), body.size() + 6);
  const auto refused = client->Call("POST", "/echo", "", body + "b");
  EXPECT_EQ(refused.code, 413);
  EXPECT_THAT(refused.body, HasSubstr("\"reason\":\"RequestEntityTooLarge\""));
  EXPECT_THAT(refused.body, HasSubstr("limit is 3145728"));
}

TEST_F(HttpTest, MalformedRequestsAreRefusedAndTheConnectionEnds) {
  for (const char* request : {
           "GET /echo HTTP/1.1\r\n\r\n",                              // no Host
           "GET /echo HTTP/1.1\r\nHost: a\r\n folded: x\r\n\r\n",     //
           "GET /echo HTTP/1.1\r\nHost : a\r\n\r\n",                  //
           "GET /echo HTTP/1.1\r\nHost: a\nX: y\r\n\r\n",             //
           "GET  HTTP/1.1\r\nHost: a\r\n\r\n",                        //
           "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n"  //
           "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",             // smuggling
           "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\na",
           "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: +1\r\n\r\na",  //
           "POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
       }) {
    auto client = Connect();
    ASSERT_TRUE(client->Send(request));
    const auto response = client->ReadResponse();
    EXPECT_EQ(response.code, 400) << request;
    EXPECT_EQ(response.headers.at("connection"), "close");
    EXPECT_EQ(client->Receive(), "") << request;
  }
  auto client = Connect();
  ASSERT_TRUE(client->Send("GET / HTTP/3.0\r\nHost: a\r\n\r\n"));
  EXPECT_EQ(client->ReadResponse().code, 505);
  client = Connect();
  ASSERT_TRUE(client->Send("GET / HTTP/1.1\r\nHost: a\r\nX: " + std::string(70000, 'x')));
  EXPECT_EQ(client->ReadResponse().code, 431);
}

TEST_F(HttpTest, HeadHasTheLengthButNoBody) {
  auto client = Connect();
  const auto response = client->Call("HEAD", "/large");
  EXPECT_EQ(response.code, 200);
  EXPECT_EQ(response.headers.at("content-length"), std::to_string(500 * 1201));
  EXPECT_EQ(client->Call("GET", "/echo?after").body, "GET after ");
}

TEST_F(HttpTest, ALargeBodyOfSharedPiecesArrivesWhole) {
  auto client = Connect();
  for (int i = 0; i < 3; ++i) {
    const auto response = client->Call("GET", "/large");
    ASSERT_EQ(response.body.size(), 500u * 1201);
    EXPECT_EQ(response.body.substr(0, 1202), std::string(1200, 'p') + "\np");
  }
}

TEST_F(HttpTest, LargeBodiesAreCompressedForWhoAsks) {
  auto client = Connect();
  const auto response = client->Call("GET", "/large", "Accept-Encoding: gzip\r\n");
  EXPECT_EQ(response.headers.at("content-encoding"), "gzip");
  EXPECT_EQ(response.headers.at("vary"), "Accept-Encoding");
  std::string plain(500 * 1201, '\0');
  z_stream stream{};
  ASSERT_EQ(inflateInit2(&stream, 15 + 16), Z_OK);
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(response.body.data()));
  stream.avail_in = static_cast<uInt>(response.body.size());
  stream.next_out = reinterpret_cast<Bytef*>(plain.data());
  stream.avail_out = static_cast<uInt>(plain.size());
  EXPECT_EQ(inflate(&stream, Z_FINISH), Z_STREAM_END);
  EXPECT_EQ(stream.avail_out, 0u);
  inflateEnd(&stream);
  EXPECT_FALSE(client->Call("GET", "/large", "Accept-Encoding: gzip;q=0\r\n")
                   .headers.contains("content-encoding"));
  EXPECT_FALSE(client->Call("GET", "/echo", "Accept-Encoding: gzip\r\n")
                   .headers.contains("content-encoding"));
}

std::string Inflate(const std::string& compressed, std::size_t bytes_max) {
  std::string plain(bytes_max, '\0');
  z_stream stream{};
  EXPECT_EQ(inflateInit2(&stream, 15 + 16), Z_OK);
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(compressed.data()));
  stream.avail_in = static_cast<uInt>(compressed.size());
  stream.next_out = reinterpret_cast<Bytef*>(plain.data());
  stream.avail_out = static_cast<uInt>(plain.size());
  EXPECT_EQ(inflate(&stream, Z_FINISH), Z_STREAM_END);  // the checksum and the length fit too
  plain.resize(plain.size() - stream.avail_out);
  inflateEnd(&stream);
  return plain;
}

// A list as the handler gives it: its own first piece, then buffers that storage published.
Body ListBody(const std::string& revision,
              const std::vector<std::shared_ptr<const std::string>>& items) {
  Body body;
  body.Append("{\"revision\":\"" + revision + "\",\"items\":[");
  for (const auto& item : items) {
    body.AppendShared(item, *item);
    body.AppendShared(nullptr, ",");
  }
  return body;
}

// What the parser says of `input` that arrives in pieces of `step` bytes: the path, or the error.
std::string ParsedInPieces(std::string_view input, std::size_t step) {
  ParserLimits limits;
  limits.head_bytes_max = 100;
  RequestParser parser(limits);
  std::string pending;
  for (std::size_t at = 0; at < input.size(); at += step) {
    pending += input.substr(at, step);
    std::size_t consumed = 0;
    const auto state = parser.Parse(pending, &consumed);
    pending.erase(0, consumed);
    if (state == RequestParser::State::kError) {
      return std::to_string(parser.error_code());
    }
    if (state == RequestParser::State::kDone) {
      const ParsedRequest request = parser.Take();
      return request.raw_path + " " + std::to_string(request.body.size());
    }
  }
  return "more";
}

TEST(RequestParser, TheSameHoweverTheBytesAreCut) {
  const std::string get = "GET /x HTTP/1.1\r\nHost: a\r\n\r\n";
  std::string eight, nine;
  for (int i = 0; i < 9; ++i) {
    eight += i < 8 ? "\r\n" : "";
    nine += "\r\n";
  }
  // A head of `bytes`, without the empty line that ends it.
  const auto head = [](std::size_t bytes) {
    const std::string start = "GET /x HTTP/1.1\r\nHost: a\r\nx: ";
    return start + std::string(bytes - start.size(), 'y') + "\r\n\r\n";
  };
  const std::string chunked = "PUT /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
  const auto extended = [&](std::size_t bytes) {
    return chunked + "1;" + std::string(bytes - 2, 'e') + "\r\nb\r\n0\r\n\r\n";
  };
  const std::pair<std::string, std::string> rows[] = {
      {"\r\n" + get, "/x 0"},   {eight + get, "/x 0"},   {nine + get, "400"},
      {"\r" + get, "400"},      {head(100), "/x 0"},     {head(101), "431"},
      {extended(8192), "/x 1"}, {extended(8193), "400"},
  };
  for (const auto& [input, expected] : rows) {
    for (const std::size_t step : {std::size_t{1}, std::size_t{2}, std::size_t{3}, input.size()}) {
      EXPECT_EQ(ParsedInPieces(input, step), expected) << step << " " << input.substr(0, 60);
    }
  }
}

TEST(GzipCache, TheSameBuffersBehindAnotherRevisionAreNotCompressedAgain) {
  std::vector<std::shared_ptr<const std::string>> items;
  for (int i = 0; i < 300; ++i) {
    items.push_back(std::make_shared<const std::string>(
        "{\"name\":\"c" + std::to_string(i) + "\",\"data\":\"" +
        std::string(500, static_cast<char>('a' + i % 26)) + "\"}"));
  }
  GzipCache cache;
  const auto round = [&](const std::string& revision) {
    const Body body = ListBody(revision, items);
    EXPECT_EQ(Inflate(cache.Compress(body).Flatten(), 2 * body.size()), body.Flatten()) << revision;
  };
  round("1");
  round("2");  // seen before: kept
  EXPECT_EQ(cache.hits(), 0u);
  round("3");
  round("44");
  EXPECT_EQ(cache.hits(), 2u);
  items[7] = std::make_shared<const std::string>("{\"name\":\"c7\",\"data\":\"changed\"}");
  round("45");
  EXPECT_EQ(cache.hits(), 2u);
}

TEST(GzipCache, HoldsNoMoreThanItsBoundAndForgetsTheOldest) {
  GzipCache cache;
  std::vector<std::vector<std::shared_ptr<const std::string>>> lists(12);
  std::weak_ptr<const std::string> oldest;
  for (auto& list : lists) {
    list.push_back(std::make_shared<const std::string>(GzipCache::kBytesMax / 8, 'x'));
    if (oldest.expired()) {
      oldest = list.front();
    }
    for (const char* revision : {"1", "2"}) {
      const Body body = ListBody(revision, list);
      EXPECT_EQ(Inflate(cache.Compress(body).Flatten(), 2 * body.size()), body.Flatten());
    }
  }
  EXPECT_FALSE(oldest.expired());
  lists.front().clear();
  EXPECT_TRUE(oldest.expired());
  (void)cache.Compress(ListBody("3", lists.back()));
  EXPECT_EQ(cache.hits(), 1u);
}

TEST_F(HttpTest, AStreamDeliversFramesAsTheyComeAndEndsCleanly) {
  auto client = Connect();
  handler_.source->Push("one");
  ASSERT_TRUE(client->Send("GET /stream HTTP/1.1\r\nHost: a\r\n\r\n"));
  EXPECT_EQ(client->ReadHead().headers.at("transfer-encoding"), "chunked");
  EXPECT_EQ(client->ReadChunk(), "one");
  handler_.source->Push("two");
  EXPECT_EQ(client->ReadChunk(), "two");
  handler_.source->End();
  EXPECT_EQ(client->ReadChunk(), "");
  EXPECT_EQ(client->Call("GET", "/echo?x").body, "GET x ");
}

TEST_F(HttpTest, AStreamIsDestroyedWhenItsClientLeaves) {
  auto client = Connect();
  ASSERT_TRUE(client->Send("GET /stream HTTP/1.1\r\nHost: a\r\n\r\n"));
  client->ReadHead();
  client->Close();
  client.reset();
  while (!handler_.source->destroyed) {
    std::this_thread::yield();
  }
  EXPECT_EQ(handler_.source->wake, nullptr);
}

TEST_F(HttpTest, AStreamIsNotPulledFasterThanItsClientReads) {
  auto client = Connect();
  ASSERT_TRUE(client->Send("GET /endless HTTP/1.1\r\nHost: a\r\n\r\n"));
  client->ReadHead();
  auto other = Connect();
  // The kernel's socket buffers are all that a client that does not read can fill.
  std::size_t before = 0;
  for (int i = 0; i < 20; ++i) {
    before = handler_.endless_bytes;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_EQ(other->Call("GET", "/echo").code, 200);
  }
  EXPECT_EQ(handler_.endless_bytes, before);
  EXPECT_LT(before, 16u << 20);
}

TEST_F(HttpTest, AnUpgradeCarriesRawBytesBothWays) {
  auto client = Connect();
  ASSERT_TRUE(
      client->Send("GET /upgrade HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\n"
                   "Upgrade: echo\r\n\r\nearly"));
  EXPECT_EQ(client->ReadHead().code, 101);
  EXPECT_EQ(client->Receive(), "early");
  ASSERT_TRUE(client->Send("later"));
  EXPECT_EQ(client->Receive(), "later");
  client->Close();
  while (listener_->stats().connections != 0) {
    std::this_thread::yield();
  }
}

TEST_F(HttpTest, ClientCertificatesNameTheirUserAndForeignOnesAreMarked) {
  const auto now = std::chrono::system_clock::now();
  LeafOptions leaf;
  leaf.common_name = "jane";
  leaf.organizations = {"devs"};
  leaf.is_client = true;
  auto options = ClientOptions();
  KeyPair pair = authority_->Issue(leaf, now).value();
  options.client_certificate = pair.certificate;
  options.client_key = pair.key;
  EXPECT_EQ(TlsClient::Connect(options)->Call("GET", "/who").body, "jane/devs");
  EXPECT_EQ(Connect()->Call("GET", "/who").body, "/");
  // Out of date.
  pair = authority_->Issue(leaf, now - std::chrono::hours(24 * 400)).value();
  options.client_certificate = pair.certificate;
  options.client_key = pair.key;
  EXPECT_EQ(TlsClient::Connect(options)->Call("GET", "/who").body, "/ rejected");
  // Of another authority with the same name: the client sends it, the signature does not fit.
  auto other = CertificateAuthority::Make("test", now).value();
  pair = other->Issue(leaf, now).value();
  options.client_certificate = pair.certificate;
  options.client_key = pair.key;
  EXPECT_EQ(TlsClient::Connect(options)->Call("GET", "/who").body, "/ rejected");
}

TEST_F(HttpTest, ANewCertificateServesNewConnectionsWithoutARestart) {
  auto old_client = Connect();
  auto other = CertificateAuthority::Make("other", std::chrono::system_clock::now()).value();
  LeafOptions leaf;
  leaf.common_name = "server";
  leaf.dns_names = {"localhost"};
  leaf.is_server = true;
  const KeyPair pair = other->Issue(leaf, std::chrono::system_clock::now()).value();
  ASSERT_TRUE(listener_->SetTls({pair.certificate, pair.key, ""}).ok());
  EXPECT_EQ(Connect(), nullptr);
  auto options = ClientOptions();
  options.authority = other->pair().certificate;
  EXPECT_NE(TlsClient::Connect(options), nullptr);
  EXPECT_EQ(old_client->Call("GET", "/echo").code, 200);
  EXPECT_FALSE(listener_->SetTls({"x", "y", ""}).ok());
}

TEST_F(HttpTest, ADroppedRequestIsAnsweredWith500AndALateOneWith504) {
  auto client = Connect();
  const auto dropped = client->Call("GET", "/dropped");
  EXPECT_EQ(dropped.code, 500);
  EXPECT_THAT(dropped.body, StartsWith(R"({"kind":"Status","apiVersion":"v1")"));
  const auto late = client->Call("GET", "/stuck");
  EXPECT_EQ(late.code, 504);
  EXPECT_THAT(late.body, HasSubstr("request did not complete within the allotted timeout"));
  handler_.later.Pop()->responder->Send({});
  EXPECT_EQ(client->Call("GET", "/echo?ok").body, "GET ok ");
}

TEST_F(HttpTest, StopEndsStreamsCleanlyAndWaitsForRequests) {
  auto idle = Connect();
  auto waiting = Connect();
  auto streaming = Connect();
  ASSERT_EQ(idle->Call("GET", "/echo").code, 200);
  ASSERT_TRUE(waiting->Send("GET /later HTTP/1.1\r\nHost: a\r\n\r\n"));
  ASSERT_TRUE(streaming->Send("GET /stream HTTP/1.1\r\nHost: a\r\n\r\n"));
  streaming->ReadHead();
  auto pending = handler_.later.Pop();
  std::thread stopper([this] { listener_->Stop(std::chrono::seconds(20)); });
  EXPECT_EQ(streaming->ReadChunk(), "");
  EXPECT_EQ(idle->Receive(), "");
  Response response;
  response.body = Body("done");
  pending->responder->Send(std::move(response));
  const auto answered = waiting->ReadResponse();
  EXPECT_EQ(answered.body, "done");
  EXPECT_EQ(answered.headers.at("connection"), "close");
  stopper.join();
  EXPECT_EQ(Connect(), nullptr);
}

TEST_F(HttpTest, AnAnswerAfterStopIsDropped) {
  auto client = Connect();
  ASSERT_TRUE(client->Send("GET /later HTTP/1.1\r\nHost: a\r\n\r\n"));
  auto pending = handler_.later.Pop();
  listener_->Stop(std::chrono::milliseconds(0));
  listener_.reset();
  pending->responder->Send({});
  EXPECT_EQ(client->Receive(), "");
}

TEST(HttpLimits, ConnectionsOverTheBoundAreClosedAndSlowHeadsTimeOut) {
  class Fixture : public HttpTest {
   public:
    void TestBody() override {
      ListenerOptions options;
      options.connections_max = 2;
      options.head_timeout = std::chrono::milliseconds(50);
      Open(options);
      auto first = Connect();
      auto second = Connect();
      ASSERT_NE(first, nullptr);
      ASSERT_NE(second, nullptr);
      EXPECT_EQ(Connect(), nullptr);
      EXPECT_EQ(listener_->stats().refused, 1u);
      ASSERT_TRUE(first->Send("GET /echo HT"));
      EXPECT_EQ(first->ReadResponse().code, 408);
    }
  };
  Fixture().TestBody();
}

TEST(OpenListenerTest, SaysWhyAPortCannotBeUsed) {
  TestHandler handler;
  ListenerOptions options;
  const auto bad_pem = OpenListener(options, handler);
  ASSERT_FALSE(bad_pem.ok());
  EXPECT_EQ(bad_pem.error().reason(), Reason::kBadRequest);
  const auto now = std::chrono::system_clock::now();
  LeafOptions leaf;
  leaf.common_name = "x";
  const auto pair = CertificateAuthority::Make("a", now).value()->Issue(leaf, now).value();
  options.tls = {pair.certificate, pair.key, ""};
  auto first = OpenListener(options, handler);
  ASSERT_TRUE(first.ok());
  options.port = (*first)->port();
  const auto taken = OpenListener(options, handler);
  ASSERT_FALSE(taken.ok());
  EXPECT_EQ(taken.error().reason(), Reason::kConflict);
  options.address = "localhost";
  EXPECT_THAT(OpenListener(options, handler).error().message(), HasSubstr("not an IP address"));
}

TEST(StatusJson, HasKubernetesShape) {
  EXPECT_EQ(StatusJson(NotFound({"apps", "deployments"}, "a")),
            R"({"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure",)"
            R"("message":"deployments.apps \"a\" not found","reason":"NotFound",)"
            R"("details":{"name":"a","group":"apps","kind":"deployments"},"code":404})"
            "\n");
  std::string out;
  AppendJsonString(out, "\x01\xff\xc3\xa9\xed\xa0\x80");
  EXPECT_EQ(out, "\"\\u0001\xef\xbf\xbd\xc3\xa9\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\"");
}

}  // namespace
}  // namespace sublet::apiserver
