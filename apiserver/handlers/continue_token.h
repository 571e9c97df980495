// ContinueToken: where a list in pages goes on, as clients carry it.
// Source: k8s.io/apiserver storage/continue.go.
// Threads: any; pure functions.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "storage/store.h"

namespace sublet::apiserver {

struct ContinueToken {
  storage::Revision revision = 0;  // -1: go on at the latest revision
  std::string start;               // relative to the collection's prefix, ends with '\0'
};

std::string EncodeContinue(const ContinueToken& token);
// Errors: BadRequest "invalid continue token: ...". Bytes from outside: see request_fuzz.cc.
Result<ContinueToken> DecodeContinue(std::string_view text);

}  // namespace sublet::apiserver
