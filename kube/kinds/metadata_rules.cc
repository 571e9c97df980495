#include "kube/kinds/metadata_rules.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "kube/object.h"

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
    const bool too_deep = std::count(owner.api_version.begin(), owner.api_version.end(), '/') > 1;
    if (version.version.empty() || too_deep) {
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

void ValidateFinalizers(const Json& object, FieldErrors* errors) {
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
}

// Those without a domain are Kubernetes' own.
void ValidateStandardFinalizers(const Json& object, FieldErrors* errors) {
  const FieldPath path = kMetadata.Child("finalizers");
  const std::vector<std::string> finalizers = FinalizersOf(object);
  for (std::size_t i = 0; i < finalizers.size(); ++i) {
    const std::string& name = finalizers[i];
    const bool standard = name == "kubernetes" || name == "orphan" || name == "foregroundDeletion";
    if (name.find('/') == std::string::npos && !standard) {
      errors->Invalid(path.Index(i), name,
                      "name is neither a standard finalizer name nor is it fully qualified");
    }
  }
}

// How a kind's own validation looks at metadata once more, after the generic step. Messages do not
// show it, the list of causes does.
struct Own {
  bool update = false;   // compares with the old metadata
  int whole = 0;         // checks all of it, this often
  bool standard = true;  // finalizers without a domain have to be known ones
};

struct OwnRow {
  std::string_view kind;
  Own own;
};

// Kinds that are not here compare once with the old metadata.
constexpr OwnRow kOwn[] = {
    {"Pod", {true, 1}},
    {"ControllerRevision", {true, 1}},
    {"Job", {true, 1}},
    {"PersistentVolumeClaim", {true, 1}},
    {"PersistentVolume", {false, 2}},
    {"StorageClass", {true, 1}},
    {"Ingress", {true, 1}},
    {"IngressClass", {true, 1}},
    {"IPAddress", {true, 1}},
    {"Role", {true, 1}},
    {"RoleBinding", {true, 1}},
    {"ClusterRole", {true, 1}},
    {"ClusterRoleBinding", {true, 1}},
    {"CertificateSigningRequest", {true, 1}},
    {"ResourceClaim", {true, 1}},
    {"ResourceClaimTemplate", {true, 1}},
    {"DeviceClass", {true, 1}},
    {"Endpoints", {true, 1}},
    {"Node", {true, 1}},
    {"ConfigMap", {true, 1}},
    {"Secret", {true, 1}},
    {"ServiceAccount", {true, 1}},
    {"CSIStorageCapacity", {true, 1}},
    {"VolumeAttributesClass", {true, 1}},
    {"LimitRange", {false, 1}},
    {"FlowSchema", {false, 1}},
    {"PriorityLevelConfiguration", {false, 1}},
    {"EndpointSlice", {false, 1}},
    {"CSINode", {false, 1}},
    {"VolumeAttachment", {false, 1}},
    {"RuntimeClass", {true, 1, false}},
    {"APIService", {true, 1, false}},
    {"ValidatingWebhookConfiguration", {false, 1, false}},
    {"MutatingWebhookConfiguration", {false, 1, false}},
    {"ValidatingAdmissionPolicy", {false, 1, false}},
    {"ValidatingAdmissionPolicyBinding", {false, 1, false}},
    {"MutatingAdmissionPolicy", {false, 1, false}},
    {"MutatingAdmissionPolicyBinding", {false, 1, false}},
    {"Lease", {true, 0, false}},
    {"PodDisruptionBudget", {false, 0, false}},
    {"Event", {false, 0, false}},
};

Own OwnOf(const Kind& kind) {
  if (kind.is_custom) {
    return {true, 0, false};
  }
  for (const OwnRow& row : kOwn) {
    if (row.kind == kind.gvk.kind) {
      return row.own;
    }
  }
  return {true, 0};
}

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
  if (FindInt(object, {"metadata", "generation"}) < 0) {
    errors->Invalid(kMetadata.Child("generation"), FindInt(object, {"metadata", "generation"}),
                    "must be greater than or equal to 0");
  }
  ValidateLabelsAndAnnotations(object, errors);
  ValidateOwners(object, errors);
  ValidateFinalizers(object, errors);
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

}  // namespace

void ValidateMetadataOfCreate(const Kind& kind, const Json& object, FieldErrors* errors) {
  ValidateObjectMeta(kind, object, errors);
  if (OwnOf(kind).standard) {
    ValidateStandardFinalizers(object, errors);
  }
}

void ValidateMetadataOfUpdate(const Kind& kind, std::string_view subresource, const Json& object,
                              const Json& old, FieldErrors* errors) {
  Own own = OwnOf(kind);
  if (subresource == "status" && kind.gvk.kind != "CertificateSigningRequest") {
    const bool none = kind.gvk.kind == "CronJob" || kind.gvk.kind == "PodDisruptionBudget";
    own = {!none, 0, own.standard};
  }
  ValidateLabelsAndAnnotations(object, errors);
  ValidateOwners(object, errors);
  ValidateFinalizers(object, errors);
  ValidateObjectMetaUpdate(object, old, errors);
  if (own.update) {
    ValidateObjectMetaUpdate(object, old, errors);
    if (own.standard) {
      ValidateStandardFinalizers(object, errors);
    }
  }
  for (int times = own.whole; times > 0; --times) {
    ValidateObjectMeta(kind, object, errors);
    if (own.standard) {
      ValidateStandardFinalizers(object, errors);
    }
  }
}

}  // namespace sublet::kube
