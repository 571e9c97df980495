#include "apiserver/registry/resource.h"

#include <algorithm>

namespace sublet::apiserver {

std::string StoredType::Key(std::string_view namespace_name, std::string_view object_name) const {
  std::string key;
  key.reserve(prefix.size() + namespace_name.size() + object_name.size() + 1);
  key += prefix;
  if (namespaced) {
    key += namespace_name;
    key += '/';
  }
  key += object_name;
  return key;
}

std::string StoredType::CollectionPrefix(std::string_view namespace_name) const {
  std::string key = prefix;
  if (namespaced && !namespace_name.empty()) {
    key += namespace_name;
    key += '/';
  }
  return key;
}

KeyParts SplitKey(std::string_view key, std::size_t prefix_bytes, bool namespaced) {
  std::string_view rest = key.substr(std::min(prefix_bytes, key.size()));
  if (!namespaced) {
    return {"", rest};
  }
  const auto slash = rest.find('/');
  if (slash == std::string_view::npos) {
    return {"", rest};
  }
  return {rest.substr(0, slash), rest.substr(slash + 1)};
}

}  // namespace sublet::apiserver
