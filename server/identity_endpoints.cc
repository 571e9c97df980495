#include "server/identity_endpoints.h"

#include <nlohmann/json.hpp>

#include "apiserver/handlers/body.h"
#include "apiserver/handlers/options.h"
#include "apiserver/handlers/respond.h"
#include "apiserver/registry/kind_ops.h"
#include "kube/timestamp.h"

namespace sublet::server {
namespace {

using apiserver::Call;
using apiserver::CallPtr;
using apiserver::User;

// Decodes the posted review, lets `answer` fill its status and sends it with 201.
template <typename Answer>
void Serve(const CallPtr& call, const kube::Kind& kind, Answer answer) {
  const auto options = apiserver::ParseWriteOptions(*call->request, "CreateOptions");
  if (!options.ok()) {
    return SendError(*call, options.error());
  }
  auto body = apiserver::DecodeBody(*call, {&kind, false}, options->validation);
  if (!body.ok()) {
    return SendError(*call, body.error());
  }
  if (&kind == &call->kind()) {
    apiserver::TrackUpdate(*call->resource, *body, nullptr, options->field_manager, "",
                           call->context->clock->Now());
  }
  auto answered = answer(std::move(*body));
  if (!answered.ok()) {
    return SendError(*call, answered.error());
  }
  SendTree(*call, 201, *answered);
}

template <typename Answer>
void ServeReview(const CallPtr& call, Answer answer) {
  Serve(call, call->kind(), std::move(answer));
}

const kube::Kind* TokenRequestKind(const Call& call) {
  const apiserver::Resource* resource =
      call.catalog->FindKind("authentication.k8s.io", "v1", "TokenRequest");
  return resource == nullptr ? nullptr : resource->kind.get();
}

void ServeToken(const CallPtr& call, const apiserver::ServiceAccountTokens& tokens) {
  const auto answer = [&](kube::Json body) {
    return tokens.Request(call->namespace_name(), call->name(), std::move(body));
  };
  if (const kube::Kind* kind = TokenRequestKind(*call)) {
    return Serve(call, *kind, answer);
  }
  // The kind has no collection of its own, so the catalog may not know it; its shape is checked by
  // Request itself.
  auto body = apiserver::ParseBody(*call, false);
  if (!body.ok()) {
    return SendError(*call, body.error());
  }
  body->tree["apiVersion"] = "authentication.k8s.io/v1";
  body->tree["kind"] = "TokenRequest";
  auto answered = answer(std::move(body->tree));
  if (!answered.ok()) {
    return SendError(*call, answered.error());
  }
  SendTree(*call, 201, *answered);
}

}  // namespace

void AddIdentityExtensions(apiserver::ApiContext& context, const apiserver::AccessReviews& reviews,
                           const apiserver::ServiceAccountTokens& tokens) {
  auto& to = context.extensions;
  to["authorization.k8s.io/selfsubjectaccessreviews"] = [&reviews](CallPtr call) {
    ServeReview(call, [&](kube::Json body) {
      return reviews.SelfSubjectAccess(std::move(body), call->request->user);
    });
  };
  to["authorization.k8s.io/selfsubjectrulesreviews"] = [&reviews](CallPtr call) {
    ServeReview(call, [&](kube::Json body) {
      return reviews.SelfSubjectRules(std::move(body), call->request->user);
    });
  };
  to["authorization.k8s.io/subjectaccessreviews"] = [&reviews](CallPtr call) {
    ServeReview(call, [&](kube::Json body) { return reviews.SubjectAccess(std::move(body)); });
  };
  to["authorization.k8s.io/localsubjectaccessreviews"] = [&reviews](CallPtr call) {
    ServeReview(call, [&](kube::Json body) {
      return reviews.LocalSubjectAccess(std::move(body), call->namespace_name());
    });
  };
  to["authentication.k8s.io/selfsubjectreviews"] = [&reviews](CallPtr call) {
    ServeReview(call, [&](kube::Json body) {
      body["metadata"]["creationTimestamp"] = kube::FormatTime(call->context->clock->Now());
      return reviews.SelfSubject(std::move(body), call->request->user);
    });
  };
  to["authentication.k8s.io/tokenreviews"] = [&reviews](CallPtr call) {
    ServeReview(call, [&](kube::Json body) { return reviews.Token(std::move(body)); });
  };
  to["/serviceaccounts/token"] = [&tokens](CallPtr call) { ServeToken(call, tokens); };
}

void OpenIdHandler::Handle(std::unique_ptr<apiserver::Request> request,
                           apiserver::ResponderPtr responder) {
  apiserver::Response response;
  response.headers = {{"Cache-Control", "public, max-age=3600"}};
  if (request->path == "/openid/v1/jwks") {
    response.content_type = "application/jwk-set+json";
    response.body = apiserver::Body(tokens_.KeysDocument());
  } else {
    response.body = apiserver::Body(tokens_.DiscoveryDocument(server_url_));
  }
  responder->Send(std::move(response));
}

}  // namespace sublet::server
