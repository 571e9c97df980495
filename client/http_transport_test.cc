// The HTTP transport against a scripted server on loopback, plain and with TLS.
#include "client/http_transport.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <sys/socket.h>
#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "base/mutex.h"
#include "client/client.h"
#include "client/http_response_parser.h"

namespace sublet::client {
namespace {

struct Pem {
  std::string certificate;
  std::string key;
};

std::string TextOf(BIO* bio) {
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio, &data);
  std::string out(data, static_cast<std::size_t>(size));
  BIO_free(bio);
  return out;
}

// A self-signed certificate for 127.0.0.1.
Pem MakeCertificate() {
  EVP_PKEY* key = EVP_EC_gen("P-256");
  X509* certificate = X509_new();
  X509_set_version(certificate, 2);
  ASN1_INTEGER_set(X509_get_serialNumber(certificate), 1);
  X509_gmtime_adj(X509_getm_notBefore(certificate), -60);
  X509_gmtime_adj(X509_getm_notAfter(certificate), 3600);
  X509_set_pubkey(certificate, key);
  X509_NAME* name = X509_get_subject_name(certificate);
  X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC,
                             reinterpret_cast<const unsigned char*>("test"), -1, -1, 0);
  X509_set_issuer_name(certificate, name);
  X509_EXTENSION* extension =
      X509V3_EXT_conf_nid(nullptr, nullptr, NID_subject_alt_name, "IP:127.0.0.1");
  X509_add_ext(certificate, extension, -1);
  X509_EXTENSION_free(extension);
  X509_sign(certificate, key, EVP_sha256());
  BIO* certificate_bio = BIO_new(BIO_s_mem());
  PEM_write_bio_X509(certificate_bio, certificate);
  BIO* key_bio = BIO_new(BIO_s_mem());
  PEM_write_bio_PrivateKey(key_bio, key, nullptr, nullptr, 0, nullptr, nullptr);
  X509_free(certificate);
  EVP_PKEY_free(key);
  return {TextOf(certificate_bio), TextOf(key_bio)};
}

// Accepts connections one after the other; answers each request with what `respond` returns.
class ScriptedServer {
 public:
  struct Reply {
    std::string bytes;
    bool close = false;
  };
  using Respond = std::function<Reply(const std::string& request)>;

  ScriptedServer(Respond respond, const Pem* pem = nullptr) : respond_(std::move(respond)) {
    if (pem != nullptr) {
      context_ = SSL_CTX_new(TLS_server_method());
      BIO* bio = BIO_new_mem_buf(pem->certificate.data(), -1);
      X509* certificate = PEM_read_bio_X509(bio, nullptr, nullptr, nullptr);
      SSL_CTX_use_certificate(context_, certificate);
      X509_free(certificate);
      BIO_free(bio);
      bio = BIO_new_mem_buf(pem->key.data(), -1);
      EVP_PKEY* key = PEM_read_bio_PrivateKey(bio, nullptr, nullptr, nullptr);
      SSL_CTX_use_PrivateKey(context_, key);
      EVP_PKEY_free(key);
      BIO_free(bio);
    }
    listen_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(bind(listen_, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(listen(listen_, 8), 0);
    socklen_t size = sizeof address;
    getsockname(listen_, reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { Run(); });
  }
  ~ScriptedServer() {
    stop_ = true;
    shutdown(listen_, SHUT_RDWR);
    shutdown(connection_, SHUT_RDWR);
    thread_.join();
    close(listen_);
    SSL_CTX_free(context_);
  }
  std::string Url() const {
    return (context_ != nullptr ? "https://127.0.0.1:" : "http://127.0.0.1:") +
           std::to_string(port_);
  }
  int accepted() const { return accepted_; }

 private:
  void Run() {
    while (!stop_) {
      const int fd = accept4(listen_, nullptr, nullptr, SOCK_CLOEXEC);
      if (fd < 0) {
        return;
      }
      connection_ = fd;
      ++accepted_;
      Serve(fd);
      shutdown(fd, SHUT_RDWR);
      close(fd);
    }
  }
  void Serve(int fd) {
    SSL* ssl = nullptr;
    if (context_ != nullptr) {
      ssl = SSL_new(context_);
      SSL_set_fd(ssl, fd);
      if (SSL_accept(ssl) != 1) {
        SSL_free(ssl);
        return;
      }
    }
    std::string buffer;
    char bytes[4096];
    for (;;) {
      const std::size_t end = buffer.find("\r\n\r\n");
      std::size_t length = 0;
      if (const auto at = buffer.find("Content-Length: "); at != std::string::npos) {
        length = std::stoul(buffer.substr(at + 16));
      }
      if (end != std::string::npos && buffer.size() >= end + 4 + length) {
        const Reply reply = respond_(buffer.substr(0, end + 4 + length));
        buffer.erase(0, end + 4 + length);
        const int size = static_cast<int>(reply.bytes.size());
        if (ssl != nullptr) {
          SSL_write(ssl, reply.bytes.data(), size);
        } else {
          EXPECT_EQ(send(fd, reply.bytes.data(), reply.bytes.size(), MSG_NOSIGNAL), size);
        }
        if (reply.close) {
          break;
        }
        continue;
      }
      const auto count = ssl != nullptr ? SSL_read(ssl, bytes, sizeof bytes)
                                        : static_cast<int>(recv(fd, bytes, sizeof bytes, 0));
      if (count <= 0) {
        break;
      }
      buffer.append(bytes, static_cast<std::size_t>(count));
    }
    SSL_free(ssl);
  }

  const Respond respond_;
  SSL_CTX* context_ = nullptr;
  int listen_ = -1;
  std::atomic<int> connection_{-1};
  int port_ = 0;
  std::atomic<int> accepted_{0};
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

std::string Ok200(const std::string& body) {
  return "HTTP/1.1 200 OK\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
}

const Target kPod{{"", "v1", "pods"}, "a", "p", ""};

TEST(HttpTransport, SendsTheRequestAndKeepsTheConnection) {
  std::vector<std::string> requests;
  ScriptedServer server([&](const std::string& request) {
    requests.push_back(request);
    return ScriptedServer::Reply{Ok200(R"({"a":1})")};
  });
  HttpTransportOptions options{.server = server.Url() + "/prefix/"};
  options.credential.bearer_token = "tok";
  auto transport = MakeHttpTransport(options);
  ASSERT_TRUE(transport.ok());
  const Client client(*transport, "test/1");
  EXPECT_EQ((*client.Get(kPod))["a"], 1);
  EXPECT_TRUE(client.Create(kPod, {{"x", "y"}}).ok());
  EXPECT_EQ(server.accepted(), 1);
  ASSERT_EQ(requests.size(), 2U);
  EXPECT_TRUE(requests[0].starts_with("GET /prefix/api/v1/namespaces/a/pods/p HTTP/1.1\r\n"));
  EXPECT_NE(requests[0].find("Authorization: Bearer tok\r\n"), std::string::npos);
  EXPECT_TRUE(requests[1].ends_with("\r\n\r\n{\"x\":\"y\"}"));
}

TEST(HttpTransport, ReadsChunkedAnswersAndRepeatsAGetOnAClosedConnection) {
  int count = 0;
  ScriptedServer server([&](const std::string&) {
    ++count;
    return ScriptedServer::Reply{
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: "
        "chunked\r\n\r\n5\r\n{\"n\":\r\n2;x=y\r\n7}\r\n0\r\n\r\n",
        count == 1};
  });
  const Client client(*MakeHttpTransport({.server = server.Url()}), "t");
  EXPECT_EQ((*client.Get(kPod))["n"], 7);
  EXPECT_EQ((*client.Get(kPod))["n"], 7);
  EXPECT_EQ(server.accepted(), 2);
}

TEST(HttpTransport, SpeaksTlsAndChecksWhoAnswers) {
  const Pem pem = MakeCertificate();
  ScriptedServer server([](const std::string&) { return ScriptedServer::Reply{Ok200("{}")}; },
                        &pem);
  const auto get = [&](HttpTransportOptions options) {
    options.server = server.Url();
    return Client(*MakeHttpTransport(options), "t").Get(kPod);
  };
  EXPECT_TRUE(get({.ca_pem = pem.certificate}).ok());
  EXPECT_TRUE(get({.insecure = true}).ok());
  EXPECT_TRUE(
      get({.ca_pem = MakeCertificate().certificate}).error().Is(Reason::kServiceUnavailable));
  const auto wrong_name = get({.ca_pem = pem.certificate, .tls_server_name = "other"});
  ASSERT_FALSE(wrong_name.ok());
  EXPECT_NE(wrong_name.error().message().find("tls"), std::string::npos);
  EXPECT_FALSE(MakeHttpTransport({.server = server.Url(), .ca_pem = "no pem"}).ok());
}

TEST(HttpTransport, StreamsEventsOverTlsAndTellsWhenMoreCame) {
  const Pem pem = MakeCertificate();
  const std::string frame = "{\"type\":\"ADDED\",\"object\":{}}\n";
  ScriptedServer server(
      [&](const std::string&) {
        return ScriptedServer::Reply{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1d\r\n" +
                                     frame + "\r\n"};
      },
      &pem);
  const Client client(*MakeHttpTransport({.server = server.Url(), .ca_pem = pem.certificate}), "t");
  auto stream = client.OpenWatchStream(kPod, {});
  ASSERT_TRUE(stream.ok()) << stream.error().message();
  Mutex mutex;
  CondVar changed;
  bool ready = false;
  ASSERT_TRUE((*stream)->NotifyWhenReady([&] {
    MutexLock lock(mutex);
    ready = true;
    changed.NotifyAll();
  }));
  const auto first = (*stream)->Next(Deadline::max());
  ASSERT_TRUE(first.ok() && *first);
  EXPECT_EQ(***first + "\n", frame);
  EXPECT_TRUE((*stream)->Next(Deadline::min()).error().Is(Reason::kTimeout));
  (*stream)->Close();
  {
    MutexLock lock(mutex);
    while (!ready) {
      changed.Wait(mutex);
    }
  }
  EXPECT_FALSE(*(*stream)->Next(Deadline::max()));
}

TEST(HttpTransport, AStreamThatIsCutIsAnErrorAndOneThatEndsIsNot) {
  bool cut = true;
  ScriptedServer server([&](const std::string&) {
    return ScriptedServer::Reply{
        std::string("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n") +
            (cut ? "5\r\nab" : "0\r\n\r\n"),
        true};
  });
  const Client client(*MakeHttpTransport({.server = server.Url()}), "t");
  auto stream = client.OpenWatchStream(kPod, {});
  ASSERT_TRUE(stream.ok());
  EXPECT_TRUE((*stream)->Next(Deadline::max()).error().Is(Reason::kServiceUnavailable));
  cut = false;
  stream = client.OpenWatchStream(kPod, {});
  EXPECT_FALSE(*(*stream)->Next(Deadline::max()));
}

TEST(HttpTransport, OpensATunnelAfterSwitchingProtocols) {
  ScriptedServer server([](const std::string&) {
    return ScriptedServer::Reply{"HTTP/1.1 101 Switching Protocols\r\nX-Stream: a\r\n\r\nfirst",
                                 true};
  });
  auto transport = *MakeHttpTransport({.server = server.Url()});
  auto tunnel = transport->OpenTunnel({.target = "/x", .headers = {{"Upgrade", "SPDY/3.1"}}});
  ASSERT_TRUE(tunnel.ok());
  EXPECT_EQ((*tunnel)->response().Header("x-stream"), "a");
  std::string text;
  char bytes[3];
  for (;;) {
    const auto count = (*tunnel)->Read(bytes, sizeof bytes);
    if (!count.ok() || *count == 0) {
      break;
    }
    text.append(bytes, *count);
  }
  EXPECT_EQ(text, "first");
}

TEST(HttpTransport, ReportsARefusedConnectionAndAnAnswerThatNeverComes) {
  std::string url;
  {
    ScriptedServer gone([](const std::string&) { return ScriptedServer::Reply{""}; });
    url = gone.Url();
  }
  EXPECT_TRUE(Client(*MakeHttpTransport({.server = url}), "t")
                  .Get(kPod)
                  .error()
                  .Is(Reason::kServiceUnavailable));
  ScriptedServer silent([](const std::string&) { return ScriptedServer::Reply{""}; });
  EXPECT_TRUE(Client(*MakeHttpTransport({.server = silent.Url()}), "t")
                  .WithTimeout(std::chrono::milliseconds(50))
                  .Get(kPod)
                  .error()
                  .Is(Reason::kTimeout));
}

TEST(HttpTransport, ReadsANewTokenFromItsFileAfterARefusal) {
  char path[] = "/tmp/sublet-token-XXXXXX";
  close(mkstemp(path));
  std::ofstream(path) << "old\n";
  ScriptedServer server([](const std::string& request) {
    return ScriptedServer::Reply{request.find("Bearer new") != std::string::npos
                                     ? Ok200("{}")
                                     : "HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n"};
  });
  const Client client(*MakeHttpTransport({.server = server.Url(), .token_file = path}), "t");
  EXPECT_TRUE(client.Get(kPod).error().Is(Reason::kUnauthorized));
  std::ofstream(path) << "new\n";
  EXPECT_TRUE(client.Get(kPod).ok());
  unlink(path);
}

TEST(HttpTransport, RefusesServerAddressesItCannotUse) {
  for (const char* bad : {"", "ftp://x", "https://", "https://h:port", "https://[::1"}) {
    EXPECT_TRUE(MakeHttpTransport({.server = bad}).error().Is(Reason::kBadRequest)) << bad;
  }
}

TEST(HttpResponseParser, TakesAnAnswerByteByByteAndLeavesTheRest) {
  const std::string text =
      "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
      "3\r\nabc\r\n0\r\nTrailer: x\r\n\r\nHTTP/1.1";
  HttpResponseParser parser;
  std::string body;
  std::size_t used = 0;
  while (!parser.complete()) {
    used += *parser.Feed(std::string_view(text).substr(used, 1), &body);
  }
  EXPECT_EQ(body, "abc");
  EXPECT_EQ(text.substr(used), "HTTP/1.1");
}

TEST(HttpResponseParser, RefusesMalformedAnswers) {
  for (const char* bad :
       {"SSH-2.0\r\n\r\n", "HTTP/1.1 abc\r\n\r\n", "HTTP/1.1 200 OK\r\nnocolon\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1x\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n"}) {
    HttpResponseParser parser;
    std::string body;
    EXPECT_FALSE(parser.Feed(bad, &body).ok()) << bad;
  }
  HttpResponseParser endless;
  std::string body;
  EXPECT_FALSE(endless.Feed("HTTP/1.1 200 OK\r\nA: " + std::string(300000, 'a'), &body).ok());
}

}  // namespace
}  // namespace sublet::client
