// Base64 as RFC 4648: standard with padding (kubeconfig, Secrets) and URL-safe without (JWT).
// Threads: any.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace sublet::apiserver {

std::string EncodeBase64(std::string_view bytes);
std::string EncodeBase64Url(std::string_view bytes);
// nullopt: a character outside the alphabet, a wrong length, or stray bits at the end.
std::optional<std::string> DecodeBase64Url(std::string_view text);

}  // namespace sublet::apiserver
