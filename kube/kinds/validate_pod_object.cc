// Pods and pod templates as objects of their own. What may change later: validate_pod_update.cc.
#include <charconv>
#include <nlohmann/json.hpp>

#include "kube/kinds/validate_kinds.h"
#include "kube/kinds/validate_pod.h"
#include "kube/object.h"

namespace sublet::kube::validate {

bool HasOuterSpace(const std::string& text) {
  const auto space = [](char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; };
  return !text.empty() && (space(text.front()) || space(text.back()));
}

namespace {

void ImagesWithoutSpace(const Json& spec, FieldErrors* errors) {
  for (const char* list : {"containers", "initContainers"}) {
    const Path containers = kSpec.Child(list);
    std::size_t index = 0;
    for (const Json& container : Items(spec, list)) {
      const Path at = containers.Index(index++);
      const std::string image = Str(container, "image");
      if (HasOuterSpace(image)) {
        errors->Invalid(at.Child("image"), image, "must not have leading or trailing whitespace");
      }
    }
  }
}

// A whole number of 32 bits without a plus sign or leading zeros.
bool IsDeletionCost(std::string_view text) {
  const bool negative = text.starts_with('-');
  const std::string_view digits = text.substr(negative ? 1 : 0);
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  return !digits.empty() && error == std::errc() && end == digits.data() + digits.size() &&
         (negative || digits.size() == 1 || digits[0] != '0') && digits[0] != '-' &&
         (negative ? -value >= INT32_MIN : value <= INT32_MAX);
}

bool HasContainer(const Json& spec, const std::string& name) {
  for (const char* list : {"initContainers", "containers", "ephemeralContainers"}) {
    for (const Json& container : Items(spec, list)) {
      if (Str(container, "name") == name) {
        return true;
      }
    }
  }
  return false;
}

void OldSeccomp(const Path& path, const std::string& profile, FieldErrors* errors) {
  constexpr std::string_view kLocal = "localhost/";
  if (profile.starts_with(kLocal)) {
    LocalPath(path, profile.substr(kLocal.size()), errors);
  } else if (profile != "runtime/default" && profile != "docker/default" &&
             profile != "unconfined") {
    errors->Invalid(path, profile, "must be a valid seccomp profile");
  }
}

}  // namespace

void PodAnnotations(const Json& object, FieldErrors* errors) {
  constexpr std::string_view kMirror = "kubernetes.io/config.mirror";
  constexpr std::string_view kCost = "controller.kubernetes.io/pod-deletion-cost";
  constexpr std::string_view kSeccomp = "container.seccomp.security.alpha.kubernetes.io/";
  constexpr std::string_view kPodSeccomp = "seccomp.security.alpha.kubernetes.io/pod";
  constexpr std::string_view kAppArmor = "container.apparmor.security.beta.kubernetes.io/";
  const Json* annotations = AnnotationsOf(object);
  if (annotations == nullptr || !annotations->is_object()) {
    return;
  }
  const Json& spec = Get(object, "spec");
  const Path metadata("metadata");
  const Path path = metadata.Child("annotations");
  if (Has(*annotations, kMirror) && Str(spec, "nodeName").empty()) {
    errors->Invalid(path.Key(kMirror), Get(*annotations, kMirror),
                    "must set spec.nodeName if mirror pod annotation is set");
  }
  if (Has(*annotations, kCost) && !IsDeletionCost(Str(*annotations, kCost))) {
    errors->Invalid(path.Key(kCost), Get(*annotations, kCost), "must be a 32bit integer");
  }
  if (Has(*annotations, kPodSeccomp)) {
    OldSeccomp(path.Child(kPodSeccomp), Str(*annotations, kPodSeccomp), errors);
  }
  for (const auto& [key, value] : annotations->items()) {
    if (key.starts_with(kSeccomp)) {
      OldSeccomp(path.Child(key), value.get<std::string>(), errors);
    }
  }
  for (const auto& [key, value] : annotations->items()) {
    if (!key.starts_with(kAppArmor)) {
      continue;
    }
    const std::string container = key.substr(kAppArmor.size());
    const std::string profile = value.get<std::string>();
    if (!HasContainer(spec, container)) {
      errors->Invalid(path.Key(key), container, "container not found");
    }
    if (!profile.empty() && profile != "runtime/default" && profile != "unconfined" &&
        !profile.starts_with("localhost/")) {
      errors->Invalid(path.Key(key), profile, "invalid AppArmor profile name: " + GoQuote(profile));
    }
  }
}

void PodMetadataAndSpec(const Json& object, FieldErrors* errors) {
  const Json& spec = Get(object, "spec");
  PodAnnotations(object, errors);
  PodSpec(kSpec, spec, std::string(NameOf(object)), true, errors);
  if (Str(spec, "serviceAccountName").empty()) {
    const Path volumes = kSpec.Child("volumes");
    std::size_t i = 0;
    for (const Json& volume : Items(spec, "volumes")) {
      const Path at = volumes.Index(i++);
      const Path projected = at.Child("projected");
      const Path sources = projected.Child("sources");
      std::size_t j = 0;
      for (const Json& source : Items(Get(volume, "projected"), "sources")) {
        const Path here = sources.Index(j++);
        if (Has(source, "serviceAccountToken")) {
          errors->Forbidden(here.Child("serviceAccountToken"),
                            "must not be specified when serviceAccountName is not set");
        }
      }
    }
  }
  ImagesWithoutSpace(spec, errors);
}

void Pod(const Json& object, FieldErrors* errors) {
  PodMetadataAndSpec(object, errors);
  const Json& spec = Get(object, "spec");
  if (!Items(spec, "ephemeralContainers").empty()) {
    errors->Forbidden(kSpec.Child("ephemeralContainers"), "cannot be set on create");
  }
  if (!Str(spec, "nodeName").empty() && !Items(spec, "schedulingGates").empty()) {
    errors->Forbidden(kSpec.Child("nodeName"),
                      "cannot be set until all schedulingGates have been cleared");
  }
}

void PodTemplateObject(const Json& object, FieldErrors* errors) {
  PodTemplate(Path("template"), Get(object, "template"), errors);
}

void PodTemplateObjectUpdate(const Json& object, const Json&, FieldErrors* errors) {
  PodTemplateObject(object, errors);
}

}  // namespace sublet::kube::validate
