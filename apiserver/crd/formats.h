// The string formats a schema can demand.
// Threads: any; pure functions.
// Source: k8s.io/kube-openapi pkg/validation/strfmt, apiextensions validation/formats.go.
#pragma once

#include <string>
#include <string_view>

namespace sublet::apiserver {

// False when `format` is not enforced (unknown formats are ignored).
bool IsKnownFormat(std::string_view format);
// True when `text` has the format, or the format is unknown.
bool MatchesFormat(std::string_view format, std::string_view text);

}  // namespace sublet::apiserver
