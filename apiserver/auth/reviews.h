// AccessReviews: the logic of the review kinds, which are asked and answered but never stored. Each
// takes the posted object and returns it with its status.
// Threads: any; pure but for the authorizer's and authenticator's state.
// Errors of all: BadRequest, Invalid with Kubernetes' causes.
// Source: k8s.io/kubernetes pkg/registry/authorization, authentication; their validation packages.
#pragma once

#include "apiserver/auth/authenticator.h"
#include "apiserver/auth/authorizer.h"

namespace sublet::apiserver {

class AccessReviews {
 public:
  AccessReviews(const Authorizer& authorizer, const Authenticator& authenticator)
      : authorizer_(authorizer), authenticator_(authenticator) {}

  Result<kube::Json> SelfSubjectAccess(kube::Json review, const User& user) const;
  Result<kube::Json> SubjectAccess(kube::Json review) const;
  Result<kube::Json> LocalSubjectAccess(kube::Json review, std::string_view namespace_name) const;
  Result<kube::Json> SelfSubjectRules(kube::Json review, const User& user) const;
  Result<kube::Json> SelfSubject(kube::Json review, const User& user) const;
  Result<kube::Json> Token(kube::Json review) const;

 private:
  Result<kube::Json> Answer(kube::Json review, const User& user) const;

  const Authorizer& authorizer_;
  const Authenticator& authenticator_;
};

}  // namespace sublet::apiserver
