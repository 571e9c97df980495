#include <algorithm>
#include <cstdlib>

#include "storage/testing/store_contract.h"

namespace sublet::storage::testing {

int Rounds() {
  const char* text = std::getenv("SUBLET_STORE_ROUNDS");
  return std::max(1, text == nullptr ? 1 : std::atoi(text));
}

}  // namespace sublet::storage::testing
