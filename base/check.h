// SUBLET_CHECK: a broken invariant ends the process, in release builds too. Bad input is never an
// invariant: it becomes a Status (base/status.h).
#pragma once

#include <cstdio>
#include <cstdlib>

namespace sublet::internal {
[[noreturn]] inline void CheckFailed(const char* condition, const char* file, int line) {
  std::fprintf(stderr, "sublet: invariant broken: %s (%s:%d)\n", condition, file, line);
  std::abort();
}
}  // namespace sublet::internal

#define SUBLET_CHECK(condition)                                        \
  do {                                                                 \
    if (!(condition)) [[unlikely]] {                                   \
      ::sublet::internal::CheckFailed(#condition, __FILE__, __LINE__); \
    }                                                                  \
  } while (false)
