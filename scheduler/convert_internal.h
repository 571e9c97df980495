// Helpers shared by the converters (scheduler/convert.h); nobody else includes this.
// Threads: pure, any.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kube/json.h"
#include "kube/quantity.h"
#include "scheduler/model.h"

namespace sublet::scheduler::internal {

// The array at `path`, or an empty one. Valid while `object` lives.
const kube::Json& Array(const kube::Json& object, std::initializer_list<std::string_view> path);
std::string Text(const kube::Json& object, std::initializer_list<std::string_view> path);
Labels LabelMap(const kube::Json* object);
// 0 for "" and what is no time.
Millis TimeOf(std::string_view text);
std::optional<Millis> DurationOf(std::string_view text);
kube::Quantity Amount(const kube::Json& value);
std::vector<std::string> Strings(const kube::Json& array);
Selector Requirements(const kube::Json& expressions);
NodeTerm NodeTermFrom(const kube::Json& term);
// Of pods and of device requests.
std::vector<Toleration> TolerationsFrom(const kube::Json& array);

}  // namespace sublet::scheduler::internal
