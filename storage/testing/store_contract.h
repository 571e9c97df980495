// The contract every engine must keep, as one suite of tests. An engine's test file instantiates
// it:
//   INSTANTIATE_TEST_SUITE_P(Sqlite, StoreContract, ::testing::Values(&OpenMyEngine));
// Random tests use fixed seeds; SUBLET_STORE_ROUNDS multiplies how many.
#pragma once

#include <gtest/gtest.h>

#include <memory>

#include "storage/store.h"

namespace sublet::storage::testing {

using OpenEngine = std::unique_ptr<Store> (*)(StoreOptions options);

class StoreContract : public ::testing::TestWithParam<OpenEngine> {};

// The value of SUBLET_STORE_ROUNDS, at least 1.
int Rounds();

}  // namespace sublet::storage::testing
