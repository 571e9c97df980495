// ApiContext: everything a handler may touch, wired once by server/. Call: one request on its way
// through a handler to its answer.
// Threads: ApiContext is immutable after wiring; its members synchronise themselves. A Call belongs
// to whoever works on the request: first the transport's thread, then the writer thread's callback
// or a pool thread.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "apiserver/admission/access_question.h"
#include "apiserver/handlers/negotiate.h"
#include "apiserver/registry/catalog.h"
#include "apiserver/request.h"
#include "apiserver/response.h"
#include "base/clock.h"
#include "storage/store.h"

namespace sublet::apiserver {

class AdmissionChain;
class FreshTrees;
class TimerQueue;

struct ApiContext {
  storage::Store* store = nullptr;
  const Clock* clock = nullptr;
  CatalogHolder* catalog = nullptr;
  const AdmissionChain* admission = nullptr;
  TimerQueue* timers = nullptr;
  FreshTrees* fresh_trees = nullptr;  // null: watches of this process parse what they get
  // Runs `work` on the request pool: retries after a lost race, and handlers that wait. Returns
  // false when the pool is full; the caller then answers TooManyRequests.
  std::function<bool(std::function<void()> work)> offload;
  // Errors: Forbidden with Kubernetes' text.
  std::function<Result<void>(const User&, const AccessQuestion&)> authorize;
  // Handlers of resources and subresources that have logic of their own, by
  // "group/resource" or "group/resource/subresource" ("/pods/exec",
  // "authorization.k8s.io/subjectaccessreviews"). Consulted before the generic verbs.
  std::map<std::string, std::function<void(std::shared_ptr<struct Call>)>, std::less<>> extensions;
};

struct Call {
  const ApiContext* context = nullptr;
  std::unique_ptr<Request> request;
  ResponderPtr responder;
  std::shared_ptr<const Catalog> catalog;  // keeps `resource` alive
  const Resource* resource = nullptr;
  const kube::Subresource* subresource = nullptr;  // null: the main resource
  OutputForm form;
  std::size_t request_warnings = 0;  // collected before the verb began
  bool on_pool = false;              // runs on the request pool: may wait

  const std::string& namespace_name() const { return request->info.namespace_name; }
  const std::string& name() const { return request->info.name; }
  std::string_view subresource_name() const {
    return subresource == nullptr ? std::string_view() : std::string_view(subresource->name);
  }
  const kube::Kind& kind() const { return *resource->kind; }
  const kube::Strategy& strategy() const { return *resource->kind->strategy; }
  const StoredType& type() const { return *resource->type; }
  std::string Key() const { return type().Key(namespace_name(), name()); }
  void Warn(std::string text) { request->warnings.push_back(std::move(text)); }
  // Another attempt: its warnings come again, those of the request itself stay.
  void ResetWarnings() { request->warnings.resize(request_warnings); }
};
// Shared, because it travels in callbacks that std::function copies; there is one owner at a time.
using CallPtr = std::shared_ptr<Call>;

}  // namespace sublet::apiserver
