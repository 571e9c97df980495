// The review kinds, token requests and the OIDC documents as handlers: the API server's face of
// apiserver/auth. Threads: any; nothing blocks.
#pragma once

#include <string>

#include "apiserver/auth/reviews.h"
#include "apiserver/auth/service_account_tokens.h"
#include "apiserver/handler.h"
#include "apiserver/handlers/api_context.h"

namespace sublet::server {

// Adds them to context.extensions. All arguments outlive the context.
void AddIdentityExtensions(apiserver::ApiContext& context, const apiserver::AccessReviews& reviews,
                           const apiserver::ServiceAccountTokens& tokens);

// /.well-known/openid-configuration and /openid/v1/jwks.
class OpenIdHandler final : public apiserver::Handler {
 public:
  OpenIdHandler(const apiserver::ServiceAccountTokens& tokens, std::string server_url)
      : tokens_(tokens), server_url_(std::move(server_url)) {}
  void Handle(std::unique_ptr<apiserver::Request> request,
              apiserver::ResponderPtr responder) override;

 private:
  const apiserver::ServiceAccountTokens& tokens_;
  const std::string server_url_;
};

}  // namespace sublet::server
