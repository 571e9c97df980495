// Config maps, secrets, namespaces, nodes, events and the small policy kinds.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "kube/base64.h"
#include "kube/kinds/go_shown.h"
#include "kube/kinds/validate_common.h"
#include "kube/kinds/validate_kinds.h"
#include "kube/object.h"
#include "kube/quantity.h"

namespace sublet::kube::validate {
namespace {

constexpr std::size_t kBytesMax = 1024 * 1024;
constexpr std::string_view kFrozen = "field is immutable when `immutable` is set";

std::size_t Keys(const Path& path, const Json& map, bool encoded, FieldErrors* errors) {
  std::size_t bytes = 0;
  if (!map.is_object()) {
    return 0;
  }
  for (const auto& [key, value] : map.items()) {
    Check(path.Key(key), key, &IsConfigMapKey, errors);
    const std::size_t size = value.is_string() ? value.get_ref<const std::string&>().size() : 0;
    bytes += encoded ? size / 4 * 3 : size;
  }
  return bytes;
}

// Data of an immutable object.
void Frozen(const Json& object, const Json& old, std::initializer_list<std::string_view> fields,
            FieldErrors* errors) {
  if (!FindBool(old, {"immutable"})) {
    return;
  }
  if (!FindBool(object, {"immutable"})) {
    errors->Forbidden(Path("immutable"), kFrozen);
  }
  for (const std::string_view field : fields) {
    const Json& now = Get(object, field);
    const Json& before = Get(old, field);
    if (now != before && !(now.empty() && before.empty())) {
      errors->Forbidden(Path(field), kFrozen);
    }
  }
}

void SecretType(const Json& object, FieldErrors* errors) {
  const std::string type = Str(object, "type");
  const Json& data = Get(object, "data");
  const Path path("data");
  const auto required = [&](std::initializer_list<std::string_view> keys) {
    for (const std::string_view key : keys) {
      if (!Has(data, key)) {
        errors->Required(path.Key(key));
      }
    }
  };
  const auto json = [&](std::string_view key) {
    if (!Has(data, key)) {
      errors->Required(path.Key(key));
      return;
    }
    const auto parsed = ParseJson(DecodeBase64(Str(data, key)).value_or(""));
    if (!parsed.ok()) {
      errors->Invalid(path.Key(key), "<secret contents redacted>", parsed.error().message());
    }
  };
  if (type == "kubernetes.io/service-account-token") {
    if (AnnotationOf(object, "kubernetes.io/service-account.name").empty()) {
      const Path metadata("metadata");
      const Path annotations = metadata.Child("annotations");
      errors->Required(annotations.Key("kubernetes.io/service-account.name"));
    }
  } else if (type == "kubernetes.io/dockercfg") {
    json(".dockercfg");
  } else if (type == "kubernetes.io/dockerconfigjson") {
    json(".dockerconfigjson");
  } else if (type == "kubernetes.io/basic-auth") {
    if (!Has(data, "username") && !Has(data, "password")) {
      required({"username", "password"});
    }
  } else if (type == "kubernetes.io/ssh-auth") {
    required({"ssh-privatekey"});
  } else if (type == "kubernetes.io/tls") {
    required({"tls.crt", "tls.key"});
  }
}

}  // namespace

void ConfigMap(const Json& object, FieldErrors* errors) {
  const Json& data = Get(object, "data");
  const Json& binary = Get(object, "binaryData");
  const Path data_path("data");
  std::size_t bytes = Keys(data_path, data, false, errors);
  if (data.is_object()) {
    for (const auto& [key, value] : data.items()) {
      if (Has(binary, key)) {
        errors->Invalid(data_path.Key(key), key, "duplicate of key present in binaryData");
      }
    }
  }
  bytes += Keys(Path("binaryData"), binary, true, errors);
  if (bytes > kBytesMax) {
    errors->TooLong("", kBytesMax);
  }
}

void ConfigMapUpdate(const Json& object, const Json& old, FieldErrors* errors) {
  Frozen(object, old, {"data", "binaryData"}, errors);
  ConfigMap(object, errors);
}

void Secret(const Json& object, FieldErrors* errors) {
  const Path path("data");
  if (Keys(path, Get(object, "data"), true, errors) > kBytesMax) {
    errors->TooLong(path, kBytesMax);
  }
  SecretType(object, errors);
}

void SecretUpdate(const Json& object, const Json& old, FieldErrors* errors) {
  if (!SameMember(object, old, "type")) {
    errors->Invalid(Path("type"), Get(object, "type"), kImmutable);
  }
  Frozen(object, old, {"data"}, errors);
  Secret(object, errors);
}

namespace {

void Finalizer(const Path& path, const std::string& name, FieldErrors* errors) {
  Check(path, name, &IsQualifiedName, errors);
  if (name.find('/') == std::string::npos && name != "kubernetes" && name != "orphan" &&
      name != "foregroundDeletion") {
    errors->Invalid(path, name,
                    "name is neither a standard finalizer name nor is it fully "
                    "qualified");
  }
}

}  // namespace

void Namespace(const Json& object, FieldErrors* errors) {
  for (const Json& finalizer : Items(Get(object, "spec"), "finalizers")) {
    Finalizer(kSpec.Child("finalizers"), finalizer.get<std::string>(), errors);
  }
}

void NamespaceStatus(const Json& object, const Json&, FieldErrors* errors) {
  const Path status("status");
  const std::string phase(FindString(object, {"status", "phase"}));
  if (!IsDeleting(object) && phase != "Active") {
    errors->Invalid(status.Child("Phase"), phase,
                    "may only be 'Active' if `deletionTimestamp` is empty");
  } else if (IsDeleting(object) && phase != "Terminating") {
    errors->Invalid(status.Child("Phase"), phase,
                    "may only be 'Terminating' if `deletionTimestamp` is not empty");
  }
}

void NamespaceSubresource(std::string_view, const Json& object, const Json&, FieldErrors* errors) {
  const Path path = kSpec.Child("finalizers");
  std::size_t index = 0;
  for (const Json& finalizer : Items(Get(object, "spec"), "finalizers")) {
    Finalizer(path.Index(index++), finalizer.get<std::string>(), errors);
  }
}

void Lease(const Json& object, FieldErrors* errors) {
  const Json& spec = Get(object, "spec");
  const Json& duration = Get(spec, "leaseDurationSeconds");
  if (duration.is_number_integer() && duration.get<std::int64_t>() <= 0) {
    errors->Invalid(kSpec.Child("leaseDurationSeconds"), duration, kPositive);
  }
  NotNegative(spec, "leaseTransitions", kSpec, errors);
}
void LeaseUpdate(const Json& object, const Json&, FieldErrors* errors) { Lease(object, errors); }

void PriorityClass(const Json& object, FieldErrors* errors) {
  constexpr std::int64_t kUserMax = 1'000'000'000;
  const std::string name(NameOf(object));
  const std::int64_t value = FindInt(object, {"value"});
  if (name.starts_with("system-")) {
    if (name != "system-cluster-critical" && name != "system-node-critical") {
      errors->Forbidden(Path("metadata").Child("name"),
                        "priority class names with 'system-' prefix are reserved for system use "
                        "only. error: " +
                            name + " is not a known system priority class");
    }
  } else if (value > kUserMax) {
    errors->Forbidden(Path("value"),
                      "maximum allowed value of a user defined priority is 1000000000");
  }
  if (Has(object, "preemptionPolicy")) {
    OneOf(Path("preemptionPolicy"), Str(object, "preemptionPolicy"),
          {"PreemptLowerPriority", "Never"}, true, errors);
  }
}

void PriorityClassUpdate(const Json& object, const Json& old, FieldErrors* errors) {
  if (!SameMember(object, old, "value")) {
    errors->Forbidden(Path("value"), "may not be changed in an update.");
  }
  if (!SameMember(object, old, "preemptionPolicy")) {
    errors->Invalid(Path("preemptionPolicy"), Get(object, "preemptionPolicy"), kImmutable);
  }
}

void RuntimeClass(const Json& object, FieldErrors* errors) {
  CheckRequired(Path("handler"), Str(object, "handler"), &IsDns1123Label, errors);
  if (const Json& fixed = Get(Get(object, "overhead"), "podFixed"); fixed.is_object()) {
    const Path overhead("overhead");
    Resources(overhead, {{"limits", fixed}}, errors);
  }
  const Json& scheduling = Get(object, "scheduling");
  const Path path("scheduling");
  Labels(path.Child("nodeSelector"), Get(scheduling, "nodeSelector"), errors);
  const Path tolerations = path.Child("tolerations");
  Tolerations(tolerations, scheduling, errors);
  std::vector<Json> seen;
  for (const Json& one : Items(scheduling, "tolerations")) {
    if (std::find(seen.begin(), seen.end(), one) != seen.end()) {
      errors->DuplicateShown(tolerations.Index(seen.size()), ShownAsGo("Toleration", one));
    }
    seen.push_back(one);
  }
}

void RuntimeClassUpdate(const Json& object, const Json& old, FieldErrors* errors) {
  RuntimeClass(object, errors);
  if (!SameMember(object, old, "handler")) {
    errors->Invalid(Path("handler"), Get(object, "handler"), kImmutable);
  }
}

}  // namespace sublet::kube::validate
