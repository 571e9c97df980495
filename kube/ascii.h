// Characters of texts that know no locale. Threads: any; pure functions.
#pragma once

namespace sublet::kube {

inline bool IsDigit(char c) { return c >= '0' && c <= '9'; }
// What JSON and label selectors skip.
inline bool IsSpace(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

}  // namespace sublet::kube
