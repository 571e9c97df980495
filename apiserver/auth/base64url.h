// Base64 in the URL-safe alphabet without padding (RFC 4648 section 5), as tokens carry it; the
// standard alphabet is base/base64.h. Threads: any.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace sublet::apiserver {

std::string EncodeBase64Url(std::string_view bytes);
// nullopt: a character outside the alphabet, a wrong length, or stray bits at the end.
std::optional<std::string> DecodeBase64Url(std::string_view text);

}  // namespace sublet::apiserver
