// What every reader of objects asks for: a member as an array, an array's texts, a number in an
// annotation. Pure; threads: any.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kube/json.h"

namespace sublet::kube {

// The array at `path`; an empty one when there is none.
const Json& ArrayAt(const Json& object, std::initializer_list<std::string_view> path);

// The strings of an array, in order; nothing for nullptr and for what is no array.
std::vector<std::string> TextsOf(const Json* list);

// The whole text as a decimal number; nullopt when it is something else.
std::optional<std::int64_t> NumberOf(std::string_view text);

}  // namespace sublet::kube
