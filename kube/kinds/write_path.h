// The server-side middle of a write: metadata rules, the kind's preparation and validation, in the
// order Kubernetes runs them. Callers: the API server's create, update, patch and apply handlers,
// after decoding, defaulting and mutating admission.
// Threads: any. Source: k8s.io/apiserver pkg/registry/rest (BeforeCreate, BeforeUpdate).
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "kube/json.h"
#include "kube/kinds/kind.h"

namespace sublet::kube {

// Makes `object` what is stored on create: uid, creationTimestamp, namespace, generated name,
// generation, cleared status; then validates. metadata.resourceVersion is gone afterwards.
// Errors: InternalError (resourceVersion set), BadRequest (other namespace), Invalid.
Result<void> BeforeCreate(const Kind& kind, const WriteContext& context, Json* object,
                          std::vector<std::string>* warnings);

// Makes `object` what replaces `old` on an update of the main resource (subresource ""), or of
// "status" or another one. System metadata comes from `old`; generation and immutable fields are
// taken care of. The caller has compared resourceVersions.
// Errors: BadRequest (other name or namespace), Conflict (other uid), Invalid.
Result<void> BeforeUpdate(const Kind& kind, const WriteContext& context,
                          std::string_view subresource, const Json& old, Json* object,
                          std::vector<std::string>* warnings);

// Marks `object` for deletion after `grace_seconds`: deletionTimestamp, grace, generation.
void MarkDeleting(const Kind& kind, WallTime now, std::int64_t grace_seconds, Json* object);

// True when two states differ in nothing that is stored: resourceVersion and the times of
// managedFields do not count.
bool IsUnchanged(const Json& old, const Json& object);

}  // namespace sublet::kube
