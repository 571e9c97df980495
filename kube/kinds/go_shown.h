// Objects as Kubernetes' messages show them: its internal structures printed by Go. Only for
// messages of refused writes. Threads: any.
// Source: k8s.io/apimachinery pkg/util/validation/field.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "kube/json.h"

namespace sublet::kube {

// What printing and comparing may cost, counted in steps: a field looked at, an item or 32
// characters printed, a line compared with one equal to it. Whoever is refused chose the object, so
// this is bounded; one cost may be handed to the texts of one message together.
struct GoTextCost {
  std::size_t max = 150'000;
  std::size_t taken = 0;

  bool Spent() const { return taken >= max; }
  // False when that was the last.
  bool Take(std::size_t steps = 1) {
    taken += steps;
    return taken < max;
  }
};

// `value` as it stands in requests, printed as the structure `type` ("PodSpec", "[]PodIP") on one
// line. A type that is not known prints as it was sent.
// Differs: a text that costs more than GoTextCost's steps ends in "..." where they were spent.
std::string ShownAsGo(std::string_view type, const Json& value);

// The same, an item or field a line, each deeper level one blank further in. Takes from `cost`;
// when that is spent the text ends there, in the midst of a line.
std::string LinesAsGo(std::string_view type, const Json& value, GoTextCost* cost);

}  // namespace sublet::kube
