// Admission: one ordered, visible list of plugins between authorization and storage. A plugin may
// change what is written (mutate), refuse it (mutate or validate), and add writes that must commit
// together with the object (companion operations: a quota's new usage, a Service's IPAddress).
// The list is made in admission/registry.cc; other parts add theirs there.
// Threads: plugins are called on request threads, several at once; a plugin synchronises itself.
// Source: k8s.io/apiserver pkg/admission.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "apiserver/registry/resource.h"
#include "apiserver/request.h"
#include "base/result.h"
#include "kube/json.h"
#include "storage/store.h"

namespace sublet::apiserver {

enum class Operation : std::uint8_t { kCreate = 1, kUpdate = 2, kDelete = 4, kConnect = 8 };

struct AdmissionRequest {
  Operation operation = Operation::kCreate;
  const Resource* resource = nullptr;
  std::string_view subresource;
  std::string namespace_name;              // of a Namespace object: its own name
  std::string name;                        // may be "" while a name is still to be generated
  kube::Json* object = nullptr;            // null for deletes; only mutate may change it
  const kube::Json* old_object = nullptr;  // null for creates
  const User* user = nullptr;
  bool dry_run = false;
  Deadline deadline = Deadline::max();
  // Texts for Warning headers.
  std::vector<std::string>* warnings = nullptr;
  // Writes that commit with this one or not at all; a lost race on one of them runs the whole
  // request again.
  std::vector<storage::Op>* companions = nullptr;

  bool Is(std::string_view group, std::string_view plural) const {
    return resource->group() == group && resource->plural() == plural;
  }
};

struct AdmissionPlugin {
  std::string name;
  std::uint8_t operations = 0;  // bits of Operation
  // Errors end the request with that Status.
  std::function<Result<void>(AdmissionRequest&)> mutate;
  std::function<Result<void>(AdmissionRequest&)> validate;
  // True when this request's calls may wait for something outside (a host object); it then runs on
  // the request pool. Null = never.
  std::function<bool(const AdmissionRequest&)> may_block;
};

class AdmissionChain {
 public:
  void Add(AdmissionPlugin plugin) { plugins_.push_back(std::move(plugin)); }

  // In order; the first refusal ends it.
  Result<void> Mutate(AdmissionRequest& request) const;
  Result<void> Validate(AdmissionRequest& request) const;
  bool MayBlock(const AdmissionRequest& request) const;
  const std::vector<AdmissionPlugin>& plugins() const { return plugins_; }

 private:
  std::vector<AdmissionPlugin> plugins_;
};

constexpr std::uint8_t Operations(std::initializer_list<Operation> list) {
  std::uint8_t bits = 0;
  for (const auto operation : list) {
    bits |= static_cast<std::uint8_t>(operation);
  }
  return bits;
}

// Kubernetes' refusal: `pods "p" is forbidden: <why>`.
Status AdmissionForbidden(const AdmissionRequest& request, std::string_view why);

}  // namespace sublet::apiserver
