#include "apiserver/handlers/api_handler.h"

#include <algorithm>

#include "apiserver/handlers/respond.h"
#include "apiserver/handlers/subresources.h"
#include "apiserver/handlers/verbs.h"
#include "apiserver/openapi/open_api.h"

namespace sublet::apiserver {
namespace {

using VerbFunction = void (*)(CallPtr);

VerbFunction GenericVerb(std::string_view verb) {
  static constexpr std::pair<std::string_view, VerbFunction> kVerbs[] = {
      {"get", &HandleGet},       {"list", &HandleList},
      {"watch", &HandleWatch},   {"create", &HandleCreate},
      {"update", &HandleUpdate}, {"patch", &HandlePatch},
      {"delete", &HandleDelete}, {"deletecollection", &HandleDeleteCollection},
  };
  for (const auto& [name, function] : kVerbs) {
    if (name == verb) {
      return function;
    }
  }
  return nullptr;
}

bool HasVerb(const std::vector<std::string>& verbs, std::string_view verb) {
  return std::find(verbs.begin(), verbs.end(), verb) != verbs.end();
}

// Whether the URL has the shape that the resource's scope demands for the verb.
Result<void> CheckScope(const Call& call) {
  const RequestInfo& info = call.request->info;
  const bool needs_name = info.verb == "update" || info.verb == "patch" || info.verb == "delete";
  if (needs_name && info.name.empty()) {
    return MethodNotAllowed();
  }
  if (info.verb == "create" && !info.name.empty() && info.subresource.empty()) {
    return MethodNotAllowed();
  }
  // A Namespace's own name stands where others have their namespace.
  const bool is_namespaces = call.resource->Is("", "namespaces");
  if (!call.resource->namespaced()) {
    if (!info.namespace_name.empty() && !is_namespaces) {
      return ResourceNotServed();
    }
    return Ok();
  }
  if (!info.namespace_name.empty()) {
    return Ok();
  }
  if (!info.name.empty()) {
    return ResourceNotServed();
  }
  if (info.verb == "list" || info.verb == "watch" || call.resource->type == nullptr) {
    return Ok();
  }
  return MethodNotAllowed();
}

// Subresources that carry bytes instead of objects: their Accept header is not about objects.
bool IsConnect(std::string_view subresource) {
  return subresource == "exec" || subresource == "attach" || subresource == "portforward" ||
         subresource == "proxy" || subresource == "log";
}

}  // namespace

void SendPageNotFound(Call& call) {
  SendText(call, 404, "text/plain; charset=utf-8", "404 page not found\n");
}

Status ResourceNotServed() {
  return Status(Reason::kNotFound, "the server could not find the requested resource").With({});
}

Status MethodNotAllowed() {
  return Status(Reason::kMethodNotAllowed,
                "the server does not allow this method on the requested resource")
      .With({});
}

ApiHandler::ApiHandler(const ApiContext* context, std::string server_address)
    : context_(context), discovery_(std::move(server_address)) {}

void ApiHandler::Handle(std::unique_ptr<Request> request, ResponderPtr responder) {
  auto call = std::make_shared<Call>();
  call->context = context_;
  call->request = std::move(request);
  call->responder = std::move(responder);
  call->catalog = context_->catalog->Get();
  if (!call->request->info.is_resource) {
    return HandlePath(*call);
  }
  HandleResource(std::move(call));
}

void ApiHandler::HandlePath(Call& call) {
  if (!discovery_.Serve(call) && !ServeOpenApi(call)) {
    SendPageNotFound(call);
  }
}

void ApiHandler::HandleResource(CallPtr call) {
  const RequestInfo& info = call->request->info;
  if (call->request->method == "HEAD") {
    return SendError(*call, MethodNotAllowed());
  }
  if (!call->catalog->HasGroupVersion(info.group, info.version)) {
    const GroupEntry* group = call->catalog->FindGroup(info.group);
    if (group != nullptr && !group->is_custom) {
      return SendError(*call, ResourceNotServed());
    }
    return SendPageNotFound(*call);
  }
  const Resource* resource = call->catalog->Find(info.group, info.version, info.resource);
  if (resource == nullptr) {
    return SendError(*call, ResourceNotServed());
  }
  call->resource = resource;
  const std::vector<std::string>* verbs = &resource->kind->verbs;
  std::string extension = info.group + "/" + info.resource;
  if (!info.subresource.empty()) {
    call->subresource = resource->kind->FindSubresource(info.subresource);
    if (call->subresource == nullptr) {
      return SendError(*call, ResourceNotServed());
    }
    verbs = &call->subresource->verbs;
    extension += "/" + info.subresource;
  }
  if (const auto scope = CheckScope(*call); !scope.ok()) {
    return SendError(*call, scope.error());
  }
  if (!HasVerb(*verbs, info.verb)) {
    return SendError(*call, MethodNotAllowed());
  }
  if (!resource->deprecation_warning.empty()) {
    call->Warn(resource->deprecation_warning);
  }
  call->request_warnings = call->request->warnings.size();
  const auto handler = context_->extensions.find(extension);
  if (!IsConnect(info.subresource)) {
    auto form = NegotiateOutput(*call->request,
                                {.allows_table = resource->kind->has_metadata,
                                 .is_custom = resource->kind->is_custom,
                                 .is_collection = info.verb == "list" || info.verb == "watch"});
    if (!form.ok()) {
      return SendError(*call, form.error());
    }
    call->form = std::move(*form);
  }
  if (handler != context_->extensions.end()) {
    return handler->second(std::move(call));
  }
  if (info.subresource == "scale" && resource->kind->scale.has_value()) {
    return HandleScale(std::move(call));
  }
  const VerbFunction function = GenericVerb(info.verb);
  if (function == nullptr || resource->type == nullptr) {
    return SendError(*call, MethodNotAllowed());
  }
  function(std::move(call));
}

}  // namespace sublet::apiserver
