// What create, update, patch and delete share: metadata rules, the commit, and running again after
// a lost race.
// Source: k8s.io/apiserver registry/rest, registry/generic/registry/store.go.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "apiserver/admission/admission.h"
#include "apiserver/handlers/api_context.h"
#include "apiserver/handlers/options.h"
#include "apiserver/registry/object_codec.h"

namespace sublet::apiserver {

inline constexpr std::string_view kModifiedMessage =
    "the object has been modified; please apply your changes to the latest version and try again";

// Lost races that are run again before the request is answered with a Conflict.
inline constexpr int kAttemptsMax = 64;
// What an object may weigh once encoded. Source: etcd's request limit, which clients know.
inline constexpr std::size_t kObjectBytesMax = 1536u * 1024;

// metadata as an object, made when missing. Errors: none; a non-object was refused by Decode.
kube::Json& MetadataOf(kube::Json& object);

// Puts the URL's namespace into the object. Errors: BadRequest when it names another.
Result<void> EnsureNamespace(const Call& call, kube::Json& object);

// Forgets what a client may not set when creating: uid, creationTimestamp, deletionTimestamp, ...
void WipeSystemFields(kube::Json& object);
// Who writes, when and where to, for kube/kinds/write_path.h.
kube::WriteContext MakeWriteContext(const Call& call, bool dry_run);

// Removes owner references that repeat a uid and are equal; warns as Kubernetes does.
void DedupOwners(Call& call, kube::Json& object, bool after_admission);

AdmissionRequest MakeAdmissionRequest(Call& call, Operation operation, bool dry_run,
                                      std::vector<storage::Op>& companions);

// The op that stores `object` (in this call's version) under its key.
Result<storage::Op> MakePut(const Call& call, kube::Json object, std::string key,
                            storage::Revision expected);

// Leaves the tree that was just encoded as `facts` to the watches of this process.
void KeepTree(const Call& call, const StoredType& type, std::shared_ptr<const ObjectFacts> facts,
              kube::Json tree, std::size_t bytes);
// A published object as a tree in the version of `resource`; the one its writer left, if it is still
// there. Shared with other threads: copy it to change it.
std::shared_ptr<const kube::Json> LiveTree(const Call& call, const Resource& resource,
                                           const storage::Value& value);

// Runs `work` on the request pool, or answers TooManyRequests when it is full.
void Offload(const CallPtr& call, std::function<void()> work);

// Removes managedFields' effect on a comparison: true when both objects differ in nothing but the
// times inside managedFields; `object` then gets the old times.
void KeepManagedTimes(kube::Json& object, const kube::Json& live);

// True when the encoded object equals the published bytes but for resourceVersion.
bool SameBytes(const storage::Op& put, const storage::Value& value);

}  // namespace sublet::apiserver
