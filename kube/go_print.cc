#include "kube/go_print.h"

#include <nlohmann/json.hpp>

namespace sublet::kube {

std::string GoPrint(const Json& value) {
  if (value.is_string()) {
    return value.get<std::string>();
  }
  if (value.is_null()) {
    return "<nil>";
  }
  if (value.is_object()) {
    std::string out = "map[";
    for (const auto& [key, member] : value.items()) {
      out.append(out.size() == 4 ? "" : " ").append(key).append(":").append(GoPrint(member));
    }
    return out + "]";
  }
  if (value.is_array()) {
    std::string out = "[";
    for (const Json& item : value) {
      out.append(out.size() == 1 ? "" : " ").append(GoPrint(item));
    }
    return out + "]";
  }
  return Dump(value);
}

std::string GoTypeName(const Json& value) {
  switch (value.type()) {
    case Json::value_t::object: return "map[string]interface {}";
    case Json::value_t::array: return "[]interface {}";
    case Json::value_t::string: return "string";
    case Json::value_t::boolean: return "bool";
    case Json::value_t::number_float: return "float64";
    case Json::value_t::null: return "%!s(<nil>)";
    default: return "int64";
  }
}

}  // namespace sublet::kube
