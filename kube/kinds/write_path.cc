#include "kube/kinds/write_path.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "base/random.h"
#include "kube/name_generator.h"
#include "kube/object.h"
#include "kube/timestamp.h"
#include "kube/typed.h"

namespace sublet::kube {
namespace {

const FieldPath kMetadata("metadata");

std::string LowerCase(std::string_view text) {
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  return lower;
}

void ValidateLabelsAndAnnotations(const Json& object, FieldErrors* errors) {
  if (const Json* labels = LabelsOf(object); labels != nullptr && labels->is_object()) {
    const FieldPath path = kMetadata.Child("labels");
    for (const auto& [key, value] : labels->items()) {
      errors->InvalidEach(path, key, IsQualifiedName(key));
      if (value.is_string()) {
        errors->InvalidEach(path, value, IsLabelValue(value.get_ref<const std::string&>()));
      }
    }
  }
  if (const Json* annotations = AnnotationsOf(object);
      annotations != nullptr && annotations->is_object()) {
    const FieldPath path = kMetadata.Child("annotations");
    std::size_t bytes = 0;
    for (const auto& [key, value] : annotations->items()) {
      errors->InvalidEach(path, key, IsQualifiedName(LowerCase(key)));
      bytes += key.size() + (value.is_string() ? value.get_ref<const std::string&>().size() : 0);
    }
    constexpr std::size_t kAnnotationBytesMax = 256 * 1024;
    if (bytes > kAnnotationBytesMax) {
      errors->TooLong(path, kAnnotationBytesMax);
    }
  }
}

// Owner references in the order in which Kubernetes declares their fields.
std::string OwnersText(const Json& list) {
  std::string out = "[";
  for (const Json& owner : list) {
    out += out.size() > 1 ? ",{" : "{";
    bool first = true;
    for (const char* field :
         {"apiVersion", "kind", "name", "uid", "controller", "blockOwnerDeletion"}) {
      if (const Json* value = Find(owner, {field})) {
        out.append(first ? "\"" : ",\"").append(field).append("\":").append(Dump(*value));
        first = false;
      }
    }
    out += "}";
  }
  return out + "]";
}

void ValidateOwners(const Json& object, FieldErrors* errors) {
  const Json* list = Find(object, {"metadata", "ownerReferences"});
  if (list == nullptr || !list->is_array()) {
    return;
  }
  const FieldPath path = kMetadata.Child("ownerReferences");
  std::string controller;
  for (const OwnerReference& owner : OwnersOf(object)) {
    const GroupVersion version = GroupVersion::Parse(owner.api_version);
    if (version.version.empty()) {
      errors->Invalid(path.Child("apiVersion"), owner.api_version, "version must not be empty");
    }
    if (owner.kind.empty()) {
      errors->Invalid(path.Child("kind"), owner.kind, "must not be empty");
    }
    if (owner.name.empty()) {
      errors->Invalid(path.Child("name"), owner.name, "must not be empty");
    }
    if (owner.uid.empty()) {
      errors->Invalid(path.Child("uid"), owner.uid, "must not be empty");
    }
    if (owner.api_version == "v1" && owner.kind == "Event") {
      Json shown = {{"apiVersion", owner.api_version},
                    {"kind", owner.kind},
                    {"name", owner.name},
                    {"uid", owner.uid}};
      errors->Invalid(path, shown, "/v1, Kind=Event is disallowed from being an owner");
    }
    if (owner.controller) {
      const std::string current = owner.kind + "/" + owner.name;
      if (!controller.empty()) {
        errors->InvalidShown(
            path, OwnersText(*list),
            "Only one reference can have Controller set to true. Found \"true\" in "
            "references for " +
                controller + " and " + current);
      } else {
        controller = current;
      }
    }
  }
}

std::vector<std::string> FinalizersOf(const Json& object) {
  std::vector<std::string> out;
  const Json* list = Find(object, {"metadata", "finalizers"});
  if (list != nullptr && list->is_array()) {
    for (const Json& one : *list) {
      if (one.is_string()) {
        out.push_back(one.get<std::string>());
      }
    }
  }
  return out;
}

void ValidateFinalizers(const Kind& kind, const Json& object, FieldErrors* errors) {
  const FieldPath path = kMetadata.Child("finalizers");
  const std::vector<std::string> finalizers = FinalizersOf(object);
  for (const std::string& finalizer : finalizers) {
    errors->InvalidEach(path, finalizer, IsQualifiedName(finalizer));
  }
  const auto has = [&](std::string_view name) {
    return std::find(finalizers.begin(), finalizers.end(), name) != finalizers.end();
  };
  if (has("orphan") && has("foregroundDeletion")) {
    errors->Invalid(path, Json(finalizers),
                    "finalizer foregroundDeletion and orphan cannot be both set");
  }
  for (std::size_t i = 0; !kind.is_custom && i < finalizers.size(); ++i) {
    const std::string& name = finalizers[i];
    const bool standard = name == "kubernetes" || name == "orphan" || name == "foregroundDeletion";
    if (name.find('/') == std::string::npos && !standard) {
      errors->Invalid(path.Index(i), name,
                      "name is neither a standard finalizer name nor is it fully qualified");
    }
  }
}

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

void ValidateObjectMeta(const Kind& kind, const Json& object, FieldErrors* errors) {
  const std::string generate(FindString(object, {"metadata", "generateName"}));
  if (!generate.empty()) {
    // A prefix may end with '-': the random part follows.
    const std::string masked = generate.size() > 1 && generate.ends_with('-')
                                   ? generate.substr(0, generate.size() - 2) + "a"
                                   : generate;
    errors->InvalidEach(kMetadata.Child("generateName"), generate, kind.name_rule(masked));
  }
  const std::string name(NameOf(object));
  if (name.empty()) {
    errors->Required(kMetadata.Child("name"), "name or generateName is required");
  } else {
    errors->InvalidEach(kMetadata.Child("name"), name, kind.name_rule(name));
  }
  const std::string space(NamespaceOf(object));
  if (kind.namespaced && space.empty()) {
    errors->Required(kMetadata.Child("namespace"));
  } else if (kind.namespaced) {
    errors->InvalidEach(kMetadata.Child("namespace"), space, IsDns1123Label(space));
  } else if (!space.empty()) {
    errors->Forbidden(kMetadata.Child("namespace"), "not allowed on this type");
  }
  ValidateLabelsAndAnnotations(object, errors);
  ValidateOwners(object, errors);
  ValidateFinalizers(kind, object, errors);
}

void ValidateObjectMetaUpdate(const Json& object, const Json& old, FieldErrors* errors) {
  if (IsDeleting(old)) {
    const std::vector<std::string> before = FinalizersOf(old);
    std::set<std::string> added;
    for (const std::string& finalizer : FinalizersOf(object)) {
      if (std::find(before.begin(), before.end(), finalizer) == before.end()) {
        added.insert(finalizer);
      }
    }
    std::string list;
    for (const std::string& finalizer : added) {
      list.append(list.empty() ? "" : ", ").append(GoQuote(finalizer));
    }
    if (!added.empty()) {
      errors->Forbidden(kMetadata.Child("finalizers"),
                        "no new finalizers can be added if the object is being deleted, found new "
                        "finalizers []string{" +
                            list + "}");
    }
  }
  for (const char* field : {"name", "namespace", "uid", "creationTimestamp", "deletionTimestamp",
                            "deletionGracePeriodSeconds"}) {
    const Json* now = Find(object, {"metadata", field});
    const Json* then = Find(old, {"metadata", field});
    const Json none;
    if ((now != nullptr ? *now : none) != (then != nullptr ? *then : none)) {
      errors->Invalid(kMetadata.Child(field), now != nullptr ? *now : none, "field is immutable");
    }
  }
  ValidateLabelsAndAnnotations(object, errors);
  ValidateOwners(object, errors);
}

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
  ValidateObjectMeta(kind, *object, &errors);
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
  // Twice: the generic step and then each kind's own look at metadata; the causes say so.
  ValidateObjectMetaUpdate(*object, old, &errors);
  if (!errors.empty()) {
    ValidateObjectMetaUpdate(*object, old, &errors);
  }
  // These kinds judge the whole object again, its metadata included.
  if (subresource.empty() && kind.gvk.group.empty() &&
      (kind.gvk.kind == "ConfigMap" || kind.gvk.kind == "Secret")) {
    for (int times = kind.gvk.kind == "ConfigMap" ? 2 : 1; times > 0; --times) {
      ValidateObjectMeta(kind, *object, &errors);
    }
  }
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
