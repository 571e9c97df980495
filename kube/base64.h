// Standard base64 with padding, as JSON carries byte fields. Threads: any.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace sublet::kube {

std::string EncodeBase64(std::string_view bytes);
// nullopt when `text` is not canonical padded base64; line ends are skipped.
std::optional<std::string> DecodeBase64(std::string_view text);

}  // namespace sublet::kube
