// What is wrong with a JSON text, in the words of Go's decoder: API clients and tests compare these
// sentences. Runs only after a fast parser refused the text. Threads: any.
#pragma once

#include <string>
#include <string_view>

namespace sublet::kube {

// The message for the first mistake in `text`, for example "unexpected end of JSON input" or
// "invalid character '}' looking for beginning of object key string"; a generic one when Go would
// accept the text (bad UTF-8).
// Source: the state machine documented in Go's encoding/json.
std::string GoJsonError(std::string_view text);

}  // namespace sublet::kube
