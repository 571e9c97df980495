// Regular expressions of schemas: RE2, which takes the same syntax as Go's regexp. Compiled when
// first used and kept in a bounded cache, because most patterns of most CRDs are never asked.
// Threads: any.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace sublet::apiserver {

// Errors: BadRequest with RE2's reason.
Result<void> CheckPattern(const std::string& pattern);
// True when `text` contains a match. A pattern that does not compile matches nothing.
bool MatchesPattern(const std::string& pattern, std::string_view text);

}  // namespace sublet::apiserver
