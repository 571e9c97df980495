// Base64 with the standard alphabet and padding, as Secrets, kubeconfig data and basic
// authentication carry it. Threads: any.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace sublet {

std::string EncodeBase64(std::string_view bytes);
// nullopt when `text` is not base64; line breaks are skipped.
std::optional<std::string> DecodeBase64(std::string_view text);

}  // namespace sublet
