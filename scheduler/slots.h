// Numbers of things in a vector, used again when their thing is gone. Threads: one.
#pragma once

#include <vector>

namespace sublet::scheduler {

// Takes a free number, or a new one and makes room for it.
template <typename V>
int TakeSlot(std::vector<int>& free, V& vector) {
  if (free.empty()) {
    vector.emplace_back();
    return static_cast<int>(vector.size()) - 1;
  }
  const int id = free.back();
  free.pop_back();
  return id;
}

}  // namespace sublet::scheduler
