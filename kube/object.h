// What every Kubernetes object has, read and written on its JSON value: type, metadata, owner
// references, finalizers, conditions. Views returned by the Find functions live as long as the
// object is not changed. Threads: any, as for the value itself.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kube/json.h"
#include "kube/names.h"

namespace sublet::kube {

GroupVersionKind KindOf(const Json& object);
std::string_view NameOf(const Json& object);
std::string_view NamespaceOf(const Json& object);
std::string_view UidOf(const Json& object);
std::string_view ResourceVersionOf(const Json& object);
std::int64_t GenerationOf(const Json& object);
ObjectKey KeyOf(const Json& object);
// metadata.deletionTimestamp is set.
bool IsDeleting(const Json& object);

// metadata.labels / annotations, nullptr when absent; the text of one, "" when absent.
const Json* LabelsOf(const Json& object);
const Json* AnnotationsOf(const Json& object);
std::string_view LabelOf(const Json& object, std::string_view key);
std::string_view AnnotationOf(const Json& object, std::string_view key);
void SetLabel(Json* object, std::string_view key, std::string_view value);
void SetAnnotation(Json* object, std::string_view key, std::string_view value);
// Removes the map too when it becomes empty.
void RemoveLabel(Json* object, std::string_view key);
void RemoveAnnotation(Json* object, std::string_view key);

struct OwnerReference {
  std::string api_version;
  std::string kind;
  std::string name;
  std::string uid;
  bool controller = false;
  bool block_owner_deletion = false;
};
std::vector<OwnerReference> OwnersOf(const Json& object);
// The owner marked as controller.
std::optional<OwnerReference> ControllerOf(const Json& object);
// Replaces the reference with the same uid, or appends.
void SetOwner(Json* object, const OwnerReference& owner);
bool RemoveOwner(Json* object, std::string_view uid);  // true when there was one
// A reference to `owner` as managing controller that blocks its deletion.
OwnerReference ControllerReference(const Json& owner);

bool HasFinalizer(const Json& object, std::string_view finalizer);
// True when the object changed.
bool AddFinalizer(Json* object, std::string_view finalizer);
bool RemoveFinalizer(Json* object, std::string_view finalizer);

// status.conditions[type=...], nullptr when absent.
const Json* FindCondition(const Json& object, std::string_view type);
bool IsConditionTrue(const Json& object, std::string_view type);
struct Condition {
  std::string type;
  std::string status;  // "True", "False", "Unknown"
  std::string reason;
  std::string message;
  std::int64_t observed_generation = 0;  // 0 = not written
};
// Writes status.conditions; lastTransitionTime moves to `now` only when the status changes. Returns
// true when the object changed.
bool SetCondition(Json* object, const Condition& condition, std::string_view now);

// The member `key` of an object as an array or object to write into, made when absent.
Json& EnsureObject(Json* parent, std::string_view key);
Json& EnsureArray(Json* parent, std::string_view key);
// Removes a member; true when there was one.
bool EraseMember(Json* object, std::string_view key);
// Writes text, or removes the member for "".
void PutString(Json* object, std::string_view key, std::string_view text);

}  // namespace sublet::kube
