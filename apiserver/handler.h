// Handler: what stands behind authentication and authorization, and Server: the pipeline that
// http/ and the loopback transport call. The way of a request (DESIGN.md section 3):
//   transport → Server::Handle → authn → impersonation → authz → route → handler → storage
#pragma once

#include <memory>

#include "apiserver/request.h"
#include "apiserver/response.h"

namespace sublet::apiserver {

// Takes a request to its answer. Threads: called on a transport or pool thread; returns without
// waiting for commits or network (the Responder travels on), except handlers that are declared
// slow, which run on the request pool.
class Handler {
 public:
  virtual ~Handler() = default;
  virtual void Handle(std::unique_ptr<Request> request, ResponderPtr responder) = 0;
};

}  // namespace sublet::apiserver
