// Resource claims of a pod and of its containers, and variables read from files of its volumes.
#include <nlohmann/json.hpp>
#include <set>

#include "kube/kinds/validate_common.h"

namespace sublet::kube::validate {
namespace {

// A Go structure of two pointers: set ones are shown as text.
std::string ShownClaim(const Json& claim) {
  const auto shown = [&](const char* key) {
    return Has(claim, key) ? Json(Str(claim, key)).dump() : std::string("null");
  };
  return "{\"Name\":" + Json(Str(claim, "name")).dump() +
         ",\"ResourceClaimName\":" + shown("resourceClaimName") +
         ",\"ResourceClaimTemplateName\":" + shown("resourceClaimTemplateName") + "}";
}

std::set<std::string> ClaimNames(const Json& spec) {
  std::set<std::string> names;
  for (const Json& claim : Items(spec, "resourceClaims")) {
    names.insert(Str(claim, "name"));
  }
  // Nameless ones are reported where they stand.
  names.erase("");
  return names;
}

void UnknownClaim(const Path& at, const std::string& name, const std::set<std::string>& known,
                  FieldErrors* errors) {
  std::string detail = "must be one of the names in pod.spec.resourceClaims";
  if (known.empty()) {
    detail += " which is empty";
  } else {
    detail += ": " + Join({known.begin(), known.end()}, ", ");
  }
  errors->Add({"FieldValueNotFound", "Not found: " + GoQuote(name) + ": " + detail, at.Text()});
}

}  // namespace

void PodClaims(const Path& path, const Json& spec, FieldErrors* errors) {
  std::set<std::string> names;
  std::size_t index = 0;
  for (const Json& claim : Items(spec, "resourceClaims")) {
    const Path at = path.Index(index++);
    const std::string name = Str(claim, "name");
    if (name.empty()) {
      errors->Required(at.Child("name"));
    } else if (!names.insert(name).second) {
      errors->Duplicate(at.Child("name"), name);
    } else {
      Check(at.Child("name"), name, &IsDns1123Label, errors);
    }
    const bool by_name = Has(claim, "resourceClaimName");
    const bool by_template = Has(claim, "resourceClaimTemplateName");
    if (by_name && by_template) {
      errors->InvalidShown(at, ShownClaim(claim),
                           "at most one of `resourceClaimName` or `resourceClaimTemplateName` may "
                           "be specified");
    } else if (!by_name && !by_template) {
      errors->InvalidShown(at, ShownClaim(claim),
                           "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`");
    }
    for (const char* key : {"resourceClaimName", "resourceClaimTemplateName"}) {
      if (Has(claim, key)) {
        Check(at.Child(key), Str(claim, key), &IsDns1123Subdomain, errors);
      }
    }
  }
}

void ContainerClaims(const Path& path, const Json& container, const Json& spec,
                     FieldErrors* errors) {
  const std::set<std::string> known = ClaimNames(spec);
  std::set<std::string> seen;
  std::size_t index = 0;
  for (const Json& claim : Items(Get(container, "resources"), "claims")) {
    const Path at = path.Index(index++);
    const std::string name = Str(claim, "name");
    const std::string request = Str(claim, "request");
    if (name.empty()) {
      errors->Required(at);
      continue;
    }
    if (seen.contains(name)) {
      errors->Duplicate(at, name);
    } else {
      if (!request.empty()) {
        Check(at.Child("request"), request, &IsDns1123Label, errors);
      }
      const std::string key = request.empty() ? name : name + "/" + request;
      if (seen.contains(key)) {
        errors->Duplicate(at, key);
      } else if (request.empty()) {
        for (const std::string& other : seen) {
          if (other.starts_with(name + "/")) {
            errors->Duplicate(at, name);
          }
        }
      }
      seen.insert(key);
    }
    if (!known.contains(name)) {
      UnknownClaim(at, name, known, errors);
    }
  }
}

void FileKeyRef(const Path& path, const Json& reference, FieldErrors* errors) {
  CheckRequired(path.Child("key"), Str(reference, "key"), &IsRelaxedEnvVarName, errors);
  CheckRequired(path.Child("volumeName"), Str(reference, "volumeName"), &IsDns1123Label, errors);
  if (const std::string file = Str(reference, "path"); file.empty()) {
    errors->Required(path.Child("path"));
  } else {
    NoBacksteps(path.Child("path"), file, errors);
  }
}

void FileKeyVolumes(const Path& spec_path, const Json& spec, FieldErrors* errors) {
  for (const char* list : {"initContainers", "containers", "ephemeralContainers"}) {
    const Path at = spec_path.Child(list);
    std::size_t index = 0;
    for (const Json& container : Items(spec, list)) {
      const Path here = at.Index(index++);
      const Path env = here.Child("env");
      std::size_t variable_index = 0;
      for (const Json& variable : Items(container, "env")) {
        const Path variable_path = env.Index(variable_index++);
        const Json& reference = Get(Get(variable, "valueFrom"), "fileKeyRef");
        if (!reference.is_object()) {
          continue;
        }
        const std::string name = Str(reference, "volumeName");
        const Json* volume = nullptr;
        for (const Json& one : Items(spec, "volumes")) {
          volume = Str(one, "name") == name ? &one : volume;
        }
        const Path from = variable_path.Child("valueFrom");
        const Path file = from.Child("fileKeyRef");
        if (volume == nullptr) {
          errors->NotFound(file.Child("volumeName"), name);
        } else if (!Has(*volume, "emptyDir")) {
          errors->Invalid(file.Child("volumeName"), name,
                          "referenced volume must be of type emptyDir");
        }
      }
    }
  }
}

}  // namespace sublet::kube::validate
