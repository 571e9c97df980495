#include "apiserver/router.h"

namespace sublet::apiserver {
namespace {

std::string SubresourceKey(std::string_view group, std::string_view resource,
                           std::string_view subresource) {
  std::string key;
  key.reserve(group.size() + resource.size() + subresource.size() + 2);
  return key.append(group).append("/").append(resource).append("/").append(subresource);
}

}  // namespace

void Router::AddPath(std::string path, Handler& handler, bool is_slow) {
  paths_[std::move(path)] = {&handler, is_slow};
}

void Router::AddPrefix(std::string prefix, Handler& handler, bool is_slow) {
  prefixes_[std::move(prefix)] = {&handler, is_slow};
}

void Router::AddSubresource(std::string_view group, std::string_view resource,
                            std::string_view subresource, Handler& handler, bool is_slow) {
  subresources_[SubresourceKey(group, resource, subresource)] = {&handler, is_slow};
}

void Router::SetResources(Handler& handler, bool is_slow) { resources_ = {&handler, is_slow}; }

Router::Route Router::Find(const Request& request) const {
  const RequestInfo& info = request.info;
  if (info.is_resource) {
    if (!info.subresource.empty() && !subresources_.empty()) {
      const auto found =
          subresources_.find(SubresourceKey(info.group, info.resource, info.subresource));
      if (found != subresources_.end()) {
        return found->second;
      }
    }
    return resources_;
  }
  const auto exact = paths_.find(request.path);
  if (exact != paths_.end()) {
    return exact->second;
  }
  // The longest prefix is the last one not after the path that the path starts with.
  for (auto it = prefixes_.upper_bound(request.path); it != prefixes_.begin();) {
    --it;
    if (request.path.starts_with(it->first)) {
      return it->second;
    }
  }
  return {};
}

std::vector<std::string> Router::Paths() const {
  std::vector<std::string> paths;
  for (const auto& entry : paths_) {
    paths.push_back(entry.first);
  }
  for (const auto& entry : prefixes_) {
    paths.push_back(entry.first);
  }
  return paths;
}

}  // namespace sublet::apiserver
