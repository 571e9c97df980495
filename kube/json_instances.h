// Says that the code of the JSON value stands in kube/json_instances.cc, so that no other file compiles
// it again: the precompiled header carries this behind <nlohmann/json.hpp> (cmake/sublet.cmake), which
// takes two fifths off a debug build. Not to be included by hand; without a precompiled header every
// file makes its own copy, as ever.
#pragma once

#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

extern template class nlohmann::basic_json<>;
extern template class nlohmann::detail::iter_impl<const nlohmann::json>;
extern template class std::vector<nlohmann::json>;
extern template class std::map<std::string, nlohmann::json, std::less<>>;
