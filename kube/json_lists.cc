#include "kube/json_lists.h"

#include <charconv>
#include <nlohmann/json.hpp>

namespace sublet::kube {

const Json& ArrayAt(const Json& object, std::initializer_list<std::string_view> path) {
  static const Json kEmpty = Json::array();
  const Json* found = Find(object, path);
  return found != nullptr && found->is_array() ? *found : kEmpty;
}

std::vector<std::string> TextsOf(const Json* list) {
  std::vector<std::string> out;
  if (list != nullptr && list->is_array()) {
    for (const Json& item : *list) {
      if (item.is_string()) {
        out.push_back(item.get<std::string>());
      }
    }
  }
  return out;
}

std::optional<std::int64_t> NumberOf(std::string_view text) {
  std::int64_t value = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || parsed.ec != std::errc() || parsed.ptr != text.data() + text.size()) {
    return std::nullopt;
  }
  return value;
}

}  // namespace sublet::kube
