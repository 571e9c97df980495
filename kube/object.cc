#include "kube/object.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace sublet::kube {
namespace {

std::string_view MapText(const Json* map, std::string_view key) {
  return map == nullptr ? std::string_view() : FindString(*map, {key});
}

void SetIn(Json* object, const char* map, std::string_view key, std::string_view value) {
  EnsureObject(&EnsureObject(object, "metadata"), map)[std::string(key)] = std::string(value);
}

void RemoveIn(Json* object, std::string_view map_name, std::string_view key) {
  Json* metadata = Find(*object, {"metadata"});
  Json* map = metadata == nullptr ? nullptr : Find(*metadata, {map_name});
  if (map != nullptr && map->is_object() && EraseMember(map, key) && map->empty()) {
    EraseMember(metadata, map_name);
  }
}

}  // namespace

GroupVersionKind KindOf(const Json& object) {
  GroupVersion version = GroupVersion::Parse(FindString(object, {"apiVersion"}));
  return {std::move(version.group), std::move(version.version),
          std::string(FindString(object, {"kind"}))};
}

std::string_view NameOf(const Json& object) { return FindString(object, {"metadata", "name"}); }
std::string_view NamespaceOf(const Json& object) {
  return FindString(object, {"metadata", "namespace"});
}
std::string_view UidOf(const Json& object) { return FindString(object, {"metadata", "uid"}); }
std::string_view ResourceVersionOf(const Json& object) {
  return FindString(object, {"metadata", "resourceVersion"});
}
std::int64_t GenerationOf(const Json& object) {
  return FindInt(object, {"metadata", "generation"});
}
ObjectKey KeyOf(const Json& object) {
  return {std::string(NamespaceOf(object)), std::string(NameOf(object))};
}
bool IsDeleting(const Json& object) {
  const Json* time = Find(object, {"metadata", "deletionTimestamp"});
  return time != nullptr && !time->is_null();
}

const Json* LabelsOf(const Json& object) { return Find(object, {"metadata", "labels"}); }
const Json* AnnotationsOf(const Json& object) { return Find(object, {"metadata", "annotations"}); }
std::string_view LabelOf(const Json& object, std::string_view key) {
  return MapText(LabelsOf(object), key);
}
std::string_view AnnotationOf(const Json& object, std::string_view key) {
  return MapText(AnnotationsOf(object), key);
}
void SetLabel(Json* object, std::string_view key, std::string_view value) {
  SetIn(object, "labels", key, value);
}
void SetAnnotation(Json* object, std::string_view key, std::string_view value) {
  SetIn(object, "annotations", key, value);
}
void RemoveLabel(Json* object, std::string_view key) { RemoveIn(object, "labels", key); }
void RemoveAnnotation(Json* object, std::string_view key) { RemoveIn(object, "annotations", key); }

std::vector<OwnerReference> OwnersOf(const Json& object) {
  std::vector<OwnerReference> owners;
  const Json* list = Find(object, {"metadata", "ownerReferences"});
  if (list == nullptr || !list->is_array()) {
    return owners;
  }
  for (const Json& one : *list) {
    owners.push_back({.api_version = std::string(FindString(one, {"apiVersion"})),
                      .kind = std::string(FindString(one, {"kind"})),
                      .name = std::string(FindString(one, {"name"})),
                      .uid = std::string(FindString(one, {"uid"})),
                      .controller = FindBool(one, {"controller"}),
                      .block_owner_deletion = FindBool(one, {"blockOwnerDeletion"})});
  }
  return owners;
}

std::optional<OwnerReference> ControllerOf(const Json& object) {
  for (OwnerReference& owner : OwnersOf(object)) {
    if (owner.controller) {
      return std::move(owner);
    }
  }
  return std::nullopt;
}

void SetOwner(Json* object, const OwnerReference& owner) {
  Json entry = {{"apiVersion", owner.api_version},
                {"kind", owner.kind},
                {"name", owner.name},
                {"uid", owner.uid}};
  if (owner.controller) {
    entry["controller"] = true;
  }
  if (owner.block_owner_deletion) {
    entry["blockOwnerDeletion"] = true;
  }
  Json& list = EnsureArray(&EnsureObject(object, "metadata"), "ownerReferences");
  for (Json& one : list) {
    if (FindString(one, {"uid"}) == owner.uid) {
      one = std::move(entry);
      return;
    }
  }
  list.push_back(std::move(entry));
}

bool RemoveOwner(Json* object, std::string_view uid) {
  Json* list = Find(*object, {"metadata", "ownerReferences"});
  if (list == nullptr || !list->is_array()) {
    return false;
  }
  auto& items = list->get_ref<Json::array_t&>();
  const auto removed =
      std::erase_if(items, [&](const Json& one) { return FindString(one, {"uid"}) == uid; });
  if (items.empty()) {
    EraseMember(Find(*object, {"metadata"}), "ownerReferences");
  }
  return removed > 0;
}

OwnerReference ControllerReference(const Json& owner) {
  return {.api_version = std::string(FindString(owner, {"apiVersion"})),
          .kind = std::string(FindString(owner, {"kind"})),
          .name = std::string(NameOf(owner)),
          .uid = std::string(UidOf(owner)),
          .controller = true,
          .block_owner_deletion = true};
}

bool HasFinalizer(const Json& object, std::string_view finalizer) {
  const Json* list = Find(object, {"metadata", "finalizers"});
  return list != nullptr && list->is_array() &&
         std::any_of(list->begin(), list->end(), [&](const Json& one) {
           return one.is_string() && one.get_ref<const std::string&>() == finalizer;
         });
}

bool AddFinalizer(Json* object, std::string_view finalizer) {
  if (HasFinalizer(*object, finalizer)) {
    return false;
  }
  EnsureArray(&EnsureObject(object, "metadata"), "finalizers").push_back(std::string(finalizer));
  return true;
}

bool RemoveFinalizer(Json* object, std::string_view finalizer) {
  if (!HasFinalizer(*object, finalizer)) {
    return false;
  }
  Json* metadata = Find(*object, {"metadata"});
  auto& items = (*metadata)["finalizers"].get_ref<Json::array_t&>();
  std::erase_if(items, [&](const Json& one) {
    return one.is_string() && one.get_ref<const std::string&>() == finalizer;
  });
  if (items.empty()) {
    EraseMember(metadata, "finalizers");
  }
  return true;
}

const Json* FindCondition(const Json& object, std::string_view type) {
  const Json* list = Find(object, {"status", "conditions"});
  if (list == nullptr || !list->is_array()) {
    return nullptr;
  }
  for (const Json& one : *list) {
    if (FindString(one, {"type"}) == type) {
      return &one;
    }
  }
  return nullptr;
}

bool IsConditionTrue(const Json& object, std::string_view type) {
  const Json* condition = FindCondition(object, type);
  return condition != nullptr && FindString(*condition, {"status"}) == "True";
}

bool SetCondition(Json* object, const Condition& condition, std::string_view now) {
  Json& list = EnsureArray(&EnsureObject(object, "status"), "conditions");
  Json* entry = const_cast<Json*>(FindCondition(*object, condition.type));
  if (entry == nullptr) {
    list.push_back({{"type", condition.type}});
    entry = &list.back();
  }
  Json changed = *entry;
  if (FindString(changed, {"status"}) != condition.status) {
    changed["status"] = condition.status;
    changed["lastTransitionTime"] = std::string(now);
  }
  PutString(&changed, "reason", condition.reason);
  PutString(&changed, "message", condition.message);
  if (condition.observed_generation != 0) {
    changed["observedGeneration"] = condition.observed_generation;
  }
  if (changed == *entry) {
    return false;
  }
  *entry = std::move(changed);
  return true;
}

Json& EnsureObject(Json* parent, std::string_view key) {
  Json& member = (*parent)[std::string(key)];
  if (!member.is_object()) {
    member = Json::object();
  }
  return member;
}

Json& EnsureArray(Json* parent, std::string_view key) {
  Json& member = (*parent)[std::string(key)];
  if (!member.is_array()) {
    member = Json::array();
  }
  return member;
}

bool EraseMember(Json* object, std::string_view key) {
  if (object == nullptr || !object->is_object()) {
    return false;
  }
  auto& members = object->get_ref<Json::object_t&>();
  const auto it = members.find(key);
  if (it == members.end()) {
    return false;
  }
  members.erase(it);
  return true;
}

void PutString(Json* object, std::string_view key, std::string_view text) {
  if (text.empty()) {
    EraseMember(object, key);
  } else {
    (*object)[std::string(key)] = std::string(text);
  }
}

}  // namespace sublet::kube
