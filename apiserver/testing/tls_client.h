// TlsClient: a small blocking HTTPS client for tests, which can send any bytes it likes.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>

namespace sublet::apiserver::testing {

struct TlsClientOptions {
  std::uint16_t port = 0;
  std::string authority;           // PEM; "" = the server's certificate is not checked
  std::string client_certificate;  // PEM
  std::string client_key;
};

struct ClientResponse {
  int code = 0;
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;
};

class TlsClient {
 public:
  // Null when connection or handshake fail.
  static std::unique_ptr<TlsClient> Connect(const TlsClientOptions& options);
  ~TlsClient();

  bool Send(std::string_view bytes);
  // What arrives next, at most 64 KiB; "" at the end, an error, or after `timeout_ms`.
  std::string Receive(int timeout_ms = 10000);
  // Reads one whole answer (Content-Length, chunked, or none for 1xx, 204, 304 and HEAD).
  // code 0: none came.
  ClientResponse ReadResponse(bool is_head = false);
  // Up to the empty line.
  ClientResponse ReadHead();
  // The next chunk of a chunked body; "" = the last one, or the end.
  std::string ReadChunk();
  // Sends method and path with Host and the given further header lines ("A: b\r\n"), reads the
  // answer.
  ClientResponse Call(std::string_view method, std::string_view path, std::string_view headers = "",
                      std::string_view body = "");
  void Close();

 private:
  struct Impl;
  explicit TlsClient(std::unique_ptr<Impl> impl);
  bool Fill();
  std::unique_ptr<Impl> impl_;
  std::string buffer_;
};

}  // namespace sublet::apiserver::testing
