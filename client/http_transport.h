// HttpTransport: the Transport over TCP (TLS 1.2 and 1.3, or plain) or a unix socket. A request is
// sent and read by the thread that asks, with poll and a deadline: no hand-over, no buffer between
// threads. Idle connections are kept for the next request; each stream or tunnel has a connection
// of its own. One thread ("http-poll", started with the first stream that asks for NotifyWhenReady)
// only waits for readability of idle streams.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "client/transport.h"

namespace sublet::client {

// What proves who we are; PEM texts, not paths.
struct Credential {
  std::string bearer_token;
  std::string certificate_pem;  // leaf first
  std::string key_pem;
  WallTime expires = WallTime::max();
};

struct HttpTransportOptions {
  // "https://10.0.0.1:6443", "http://[::1]:80/prefix", "unix:/run/podman/podman.sock".
  std::string server;
  std::string ca_pem;           // "" = the machine's trusted authorities
  bool insecure = false;        // accept any server certificate
  std::string tls_server_name;  // "" = the host of `server`
  Credential credential;
  std::string token_file;  // re-read every minute; wins over credential.bearer_token
  std::string basic_user;  // Authorization: Basic
  std::string basic_password;
  // Asked before the first request, when a credential expires and after a 401 (at most once per
  // 10 s); the exec plugins of kubeconfig. Blocks the thread that asks.
  std::function<Result<Credential>()> get_credential;
  int idle_connections_max = 32;
  std::chrono::milliseconds connect_timeout{10000};
};

// Errors: BadRequest (unreadable server URL, certificate or key).
// Threads: the transport may be used from any; requests block their caller.
Result<std::shared_ptr<Transport>> MakeHttpTransport(HttpTransportOptions options);

}  // namespace sublet::client
