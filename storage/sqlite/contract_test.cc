// The contract, kept by the SQLite engine: once with production limits, once with limits so small
// that reads leave memory and checkpoints run all the time.
#include "storage/testing/store_contract.h"
#include "storage/testing/test_store.h"

namespace sublet::storage::testing {
namespace {

std::unique_ptr<Store> OpenPlain(StoreOptions options) { return Open(std::move(options)); }

std::unique_ptr<Store> OpenTight(StoreOptions options) {
  static const TestHooks* const hooks = [] {
    auto* made = new TestHooks;  // outlives every store
    made->log_limits = {.events_max = 150, .bytes_max = 1u << 20};
    made->checkpoint_pages = 8;
    return made;
  }();
  return Open(std::move(options), hooks);
}

INSTANTIATE_TEST_SUITE_P(Sqlite, StoreContract, ::testing::Values(&OpenPlain, &OpenTight));

}  // namespace
}  // namespace sublet::storage::testing
