#include <nlohmann/json.hpp>

#include "kube/field_error.h"
#include "kube/kinds/validate_common.h"
#include "kube/kinds/warn_kinds.h"

namespace sublet::kube::warn {
namespace {

using validate::Get;
using validate::Has;
using validate::Items;
using validate::Str;

struct File {
  std::string path;
  std::string source;  // "" where the volume has only one

  bool operator==(const File&) const = default;
  std::string Text() const { return GoQuote(path) + (source.empty() ? "" : " (" + source + ")"); }
};

bool Overlap(const File& a, const File& b) {
  if (a.path.empty() || b.path.empty()) {
    return false;
  }
  const std::string left = a.path + "/";
  const std::string right = b.path + "/";
  return left.starts_with(right) || right.starts_with(left);
}

std::vector<File> FilesOf(const Json& items, const std::string& source) {
  std::vector<File> files;
  if (items.is_array()) {
    for (const Json& item : items) {
      files.push_back({Str(item, "path"), source});
    }
  }
  return files;
}

// Adds `files` to `all`, telling of each that meets one already there.
void Place(std::vector<File> files, const std::string& lead, std::vector<File>* all,
           Warnings* warnings) {
  for (File& file : files) {
    file.path.resize(file.path.find_last_not_of('/') + 1);
    for (const File& other : *all) {
      if (Overlap(other, file)) {
        warnings->push_back(lead + file.Text() + " with " + other.Text());
      }
    }
    all->push_back(std::move(file));
  }
}

std::vector<File> ProjectedFiles(const Json& source) {
  if (const Json& map = Get(source, "configMap"); map.is_object()) {
    return FilesOf(Get(map, "items"), "ConfigMap " + GoQuote(Str(map, "name")));
  }
  if (const Json& secret = Get(source, "secret"); secret.is_object()) {
    return FilesOf(Get(secret, "items"), "Secret " + GoQuote(Str(secret, "name")));
  }
  if (const Json& downward = Get(source, "downwardAPI"); downward.is_object()) {
    return FilesOf(Get(downward, "items"), "DownwardAPI");
  }
  if (const Json& token = Get(source, "serviceAccountToken"); token.is_object()) {
    return {{Str(token, "path"), "ServiceAccountToken"}};
  }
  if (const Json& bundle = Get(source, "clusterTrustBundle"); bundle.is_object()) {
    const std::string name = Str(bundle, Has(bundle, "name") ? "name" : "signerName");
    return {{Str(bundle, "path"), "ClusterTrustBundle " + GoQuote(name)}};
  }
  return {};
}

}  // namespace

void OverlappingPaths(const Json& pod_spec, Warnings* warnings) {
  for (const Json& volume : Items(pod_spec, "volumes")) {
    const std::string name = "volume " + GoQuote(Str(volume, "name")) + " (";
    const auto one = [&](const char* member, const std::string& what) {
      std::vector<File> all;
      Place(FilesOf(Get(Get(volume, member), "items"), ""),
            name + what + "): overlapping paths: ", &all, warnings);
    };
    one("configMap", "ConfigMap " + GoQuote(Str(Get(volume, "configMap"), "name")));
    one("secret", "Secret " + GoQuote(Str(Get(volume, "secret"), "secretName")));
    one("downwardAPI", "DownwardAPI");
    std::vector<File> all;
    for (const Json& source : Items(Get(volume, "projected"), "sources")) {
      if (source.is_object() && source.empty()) {
        warnings->push_back(name + "Projected) has no sources provided");
        continue;
      }
      Place(ProjectedFiles(source), name + "Projected): overlapping paths: ", &all, warnings);
    }
  }
}

}  // namespace sublet::kube::warn
