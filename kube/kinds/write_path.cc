#include "kube/kinds/write_path.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "base/random.h"
#include "kube/kinds/metadata_rules.h"
#include "kube/name_generator.h"
#include "kube/object.h"
#include "kube/timestamp.h"
#include "kube/typed.h"

namespace sublet::kube {
namespace {

Result<void> CheckNamespace(const Kind& kind, const WriteContext& context, Json* metadata) {
  const std::string_view sent = FindString(*metadata, {"namespace"});
  const std::string expected = kind.namespaced ? context.namespace_name : "";
  if (sent == expected) {
    return Ok();
  }
  if (!sent.empty() && !expected.empty()) {
    return BadRequest(
        "the namespace of the provided object does not match the namespace sent on the request");
  }
  PutString(metadata, "namespace", expected);
  return Ok();
}

// The status that a new object has: what Go writes for an empty one, or nothing at all.
void ClearStatus(const Kind& kind, Json* object) {
  const schema::Field field = kind.is_custom ? schema::Field() : kind.type.FindField("status");
  if (field && !field.Has(schema::kPointer)) {
    (*object)["status"] = ZeroValue(field.type());
  } else {
    EraseMember(object, "status");
  }
}

// Everything but type, metadata and status: what generation counts.
bool SpecEqual(const Json& a, const Json& b) {
  const auto skip = [](const std::string& key) {
    return key == "metadata" || key == "status" || key == "apiVersion" || key == "kind";
  };
  const auto& left = a.get_ref<const Json::object_t&>();
  const auto& right = b.get_ref<const Json::object_t&>();
  auto i = left.begin();
  auto j = right.begin();
  while (true) {
    while (i != left.end() && skip(i->first)) {
      ++i;
    }
    while (j != right.end() && skip(j->first)) {
      ++j;
    }
    if (i == left.end() || j == right.end()) {
      return i == left.end() && j == right.end();
    }
    if (i->first != j->first || i->second != j->second) {
      return false;
    }
    ++i;
    ++j;
  }
}

// Same-uid owner references stand once.
void DedupeOwners(Json* metadata, std::vector<std::string>* warnings) {
  Json* list = Find(*metadata, {"ownerReferences"});
  if (list == nullptr || !list->is_array() || list->size() < 2) {
    return;
  }
  std::set<std::string> seen;
  std::vector<std::string> twice;
  auto& items = list->get_ref<Json::array_t&>();
  std::erase_if(items, [&](const Json& one) {
    const std::string uid(FindString(one, {"uid"}));
    if (seen.insert(uid).second) {
      return false;
    }
    twice.push_back(uid);
    return true;
  });
  if (!twice.empty()) {
    warnings->push_back(
        ".metadata.ownerReferences contains duplicate entries; API server dedups owner references "
        "in 1.20+, and may reject such requests as early as 1.24; please fix your requests; "
        "duplicate UID(s) observed: " +
        Join(twice, ", "));
  }
}

void TakeFromOld(const Json& old_metadata, std::string_view key, bool only_if_absent,
                 Json* metadata) {
  const Json* old = Find(old_metadata, {key});
  if (old != nullptr && !old->is_null()) {
    if (!only_if_absent || FindString(*metadata, {key}).empty()) {
      (*metadata)[std::string(key)] = *old;
    }
  }
}

}  // namespace

Result<void> BeforeCreate(const Kind& kind, const WriteContext& context, Json* object,
                          std::vector<std::string>* warnings) {
  Json& metadata = EnsureObject(object, "metadata");
  if (!FindString(metadata, {"resourceVersion"}).empty()) {
    return {Status(Reason::kUnknown, "resourceVersion should not be set on objects to be created")};
  }
  SUBLET_RETURN_IF_ERROR(CheckNamespace(kind, context, &metadata));
  for (const char* field :
       {"deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "resourceVersion"}) {
    EraseMember(&metadata, field);
  }
  // Kinds that do not count generations keep what the client says.
  if (kind.has_generation || kind.generation_starts_absent) {
    EraseMember(&metadata, "generation");
  }
  metadata["uid"] = RandomUuid();
  metadata["creationTimestamp"] = FormatTime(context.now);
  const std::string generate(FindString(metadata, {"generateName"}));
  if (!generate.empty() && FindString(metadata, {"name"}).empty()) {
    metadata["name"] = GenerateName(generate);
  }
  DedupeOwners(&metadata, warnings);
  if (kind.has_status && !kind.keeps_status_on_create) {
    ClearStatus(kind, object);
  }
  if (kind.has_generation && !kind.generation_starts_absent) {
    (*object)["metadata"]["generation"] = 1;
  }
  kind.strategy->PrepareCreate(context, object);
  FieldErrors errors;
  ValidateMetadataOfCreate(kind, *object, &errors);
  kind.strategy->ValidateCreate(*object, &errors);
  if (!errors.empty()) {
    return Invalid(kind.error_group(), kind.gvk.kind, NameOf(*object), errors.Take());
  }
  kind.strategy->Warn(*object, nullptr, warnings);
  return Ok();
}

Result<void> BeforeUpdate(const Kind& kind, const WriteContext& context,
                          std::string_view subresource, const Json& old, Json* object,
                          std::vector<std::string>* warnings) {
  Json& metadata = EnsureObject(object, "metadata");
  SUBLET_RETURN_IF_ERROR(CheckNamespace(kind, context, &metadata));
  const Json& old_metadata = *Find(old, {"metadata"});
  DedupeOwners(&metadata, warnings);
  // A client cannot change the generation; absent in the old object means absent.
  EraseMember(&metadata, "generation");
  TakeFromOld(old_metadata, "generation", false, &metadata);
  EraseMember(&metadata, "selfLink");
  if (subresource == "status") {
    kind.strategy->PrepareStatusUpdate(context, old, object);
  } else if (subresource.empty()) {
    if (kind.has_status) {
      if (const Json* status = Find(old, {"status"})) {
        (*object)["status"] = *status;
      } else {
        EraseMember(object, "status");
      }
    }
    kind.strategy->PrepareUpdate(context, old, object);
  } else {
    kind.strategy->PrepareSubresource(subresource, context, old, object);
  }
  Json& prepared = (*object)["metadata"];
  TakeFromOld(old_metadata, "uid", true, &prepared);
  TakeFromOld(old_metadata, "creationTimestamp", false, &prepared);
  TakeFromOld(old_metadata, "deletionTimestamp", false, &prepared);
  if (Find(prepared, {"deletionGracePeriodSeconds"}) == nullptr) {
    TakeFromOld(old_metadata, "deletionGracePeriodSeconds", false, &prepared);
  }
  if (kind.has_generation && subresource != "status") {
    const bool annotations_changed =
        kind.annotations_raise_generation &&
        (AnnotationsOf(*object) != nullptr ? *AnnotationsOf(*object) : Json()) !=
            (AnnotationsOf(old) != nullptr ? *AnnotationsOf(old) : Json());
    if (annotations_changed || !SpecEqual(*object, old)) {
      prepared["generation"] = GenerationOf(old) + 1;
    }
  }
  FieldErrors errors;
  ValidateMetadataOfUpdate(kind, subresource, *object, old, &errors);
  if (subresource == "status") {
    kind.strategy->ValidateStatusUpdate(*object, old, &errors);
  } else if (subresource.empty()) {
    kind.strategy->ValidateUpdate(*object, old, &errors);
  } else {
    kind.strategy->ValidateSubresource(subresource, *object, old, &errors);
  }
  if (!errors.empty()) {
    return Invalid(kind.error_group(), kind.gvk.kind, NameOf(*object), errors.Take());
  }
  if (subresource.empty()) {
    kind.strategy->Warn(*object, &old, warnings);
  }
  return Ok();
}

void MarkDeleting(const Kind& kind, WallTime now, std::int64_t grace_seconds, Json* object) {
  Json& metadata = EnsureObject(object, "metadata");
  const bool first = !IsDeleting(*object);
  metadata["deletionTimestamp"] = FormatTime(now + std::chrono::seconds(grace_seconds));
  metadata["deletionGracePeriodSeconds"] = grace_seconds;
  if (first && (kind.has_generation || GenerationOf(*object) > 0)) {
    metadata["generation"] = GenerationOf(*object) + 1;
  }
}

bool IsUnchanged(const Json& old, const Json& object) {
  const auto& left = old.get_ref<const Json::object_t&>();
  const auto& right = object.get_ref<const Json::object_t&>();
  if (left.size() != right.size()) {
    return false;
  }
  for (auto i = left.begin(), j = right.begin(); i != left.end(); ++i, ++j) {
    if (i->first != j->first) {
      return false;
    }
    if (i->first != "metadata") {
      if (i->second != j->second) {
        return false;
      }
      continue;
    }
    const auto strip = [](Json metadata) {
      EraseMember(&metadata, "resourceVersion");
      if (Json* entries = Find(metadata, {"managedFields"});
          entries != nullptr && entries->is_array()) {
        for (Json& entry : *entries) {
          EraseMember(&entry, "time");
        }
      }
      return metadata;
    };
    if (strip(i->second) != strip(j->second)) {
      return false;
    }
  }
  return true;
}

}  // namespace sublet::kube
