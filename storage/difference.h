// DifferenceTo: what must be written to make the present what the past was. Pure; any thread.
#pragma once

#include <string_view>
#include <vector>

#include "storage/key_tree.h"

namespace sublet::storage {

// The ops, ascending by key, that turn what `tree` holds under `prefix` into `then`, a list of all
// keys under `prefix` without those of short history, which the result leaves alone as well. Values
// that differ only in their revision are the same.
std::vector<Op> DifferenceTo(const ListResult& then, const KeyTree& tree, std::string_view prefix);

}  // namespace sublet::storage
