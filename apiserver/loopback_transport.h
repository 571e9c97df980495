// LoopbackTransport: an in-process client's way into the pipeline, without TLS and HTTP. The same
// authentication chain, authorization, admission and handlers as for anybody else; published
// buffers are handed over instead of being encoded again. Threads: any; a call runs the handler on
// the caller's thread and waits there for the answer.
#pragma once

#include "apiserver/handler.h"
#include "client/transport.h"

namespace sublet::apiserver {

class LoopbackTransport final : public client::Transport {
 public:
  // Every request is asked by `user` (who may impersonate). `server` outlives the transport and
  // what it opened.
  LoopbackTransport(Handler& server, User user) : server_(server), user_(std::move(user)) {}

  Result<client::HttpResponse> RoundTrip(const client::HttpRequest& request) override;
  Result<std::unique_ptr<client::Stream>> OpenStream(const client::HttpRequest& request) override;
  Result<std::unique_ptr<client::Tunnel>> OpenTunnel(const client::HttpRequest& request) override;

 private:
  struct Answer;
  class Mailbox;
  class LoopbackResponder;
  Result<std::unique_ptr<Answer>> Call(const client::HttpRequest& request);

  Handler& server_;
  const User user_;
};

// A transport whose user is system:masters, for the control plane's own parts.
std::shared_ptr<client::Transport> MakeLoopback(Handler& server, std::string user_name);

}  // namespace sublet::apiserver
