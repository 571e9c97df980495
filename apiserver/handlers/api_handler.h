// ApiHandler: from an authorized request to the function that serves it: resource verbs,
// subresources, discovery. What stands behind the pipeline.
#pragma once

#include <memory>

#include "apiserver/discovery/discovery.h"
#include "apiserver/handler.h"
#include "apiserver/handlers/api_context.h"

namespace sublet::apiserver {

class ApiHandler final : public Handler {
 public:
  // `context` outlives the handler and is complete (all pointers set).
  ApiHandler(const ApiContext* context, std::string server_address);

  void Handle(std::unique_ptr<Request> request, ResponderPtr responder) override;

 private:
  void HandleResource(CallPtr call);
  void HandlePath(Call& call);

  const ApiContext* const context_;
  Discovery discovery_;
};

// Kubernetes' answers to what no route matches: a plain text, and a Status without subject.
void SendPageNotFound(Call& call);
Status ResourceNotServed();
Status MethodNotAllowed();

}  // namespace sublet::apiserver
