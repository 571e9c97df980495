// Times and durations in Kubernetes' spellings: RFC 3339 in seconds (metav1.Time) and microseconds
// (metav1.MicroTime), Go durations ("1h30m"), and the ages that tables show ("5d", "3h12m").
// Threads: any.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/result.h"

namespace sublet::kube {

// "2026-01-02T03:04:05Z"; a fraction is cut off.
std::string FormatTime(WallTime time);
// "2026-01-02T03:04:05.000006Z".
std::string FormatMicroTime(WallTime time);
// Any RFC 3339 text, with fraction and offset.
// Errors: BadRequest in Go's words ("parsing time \"x\" as ...").
Result<WallTime> ParseTime(std::string_view text);
// The same for fields that validation has passed: nullopt for "" and what is no time.
std::optional<WallTime> FindTime(std::string_view text);

// "1h30m0s", "300ms", "0s": how Go prints a duration.
std::string FormatDuration(std::chrono::nanoseconds duration);
// What Go's time.ParseDuration takes. Errors: BadRequest "time: invalid duration \"x\"".
Result<std::chrono::nanoseconds> ParseDuration(std::string_view text);

// "95s", "4m5s", "3h12m", "5d", "2y30d"; "<invalid>" for more than a second in the future.
std::string HumanDuration(std::chrono::nanoseconds duration);
// One unit only: "95s" is "1m".
std::string ShortHumanDuration(std::chrono::nanoseconds duration);
// The age of `timestamp` (RFC 3339) at `now`; "<unknown>" for "".
std::string HumanAge(std::string_view timestamp, WallTime now);

}  // namespace sublet::kube
