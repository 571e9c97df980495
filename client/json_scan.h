// Reading single members out of encoded JSON without building a tree: what informers use for the
// metadata of objects whose bytes they keep. Well-formed input is assumed to be well-formed where
// it is skipped; whoever reads a skipped part parses it then. Outside bytes: fuzzed by
// json_scan_fuzz.cc. Threads: any.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace sublet::client {

// Calls `member(key, value)` for each member of the object `text` in order, until it returns false;
// key and value are the encoded texts, key without quotes and with escapes as they stand.
// Returns false when `text` is no object or is malformed before the end.
bool ForEachMember(std::string_view text,
                   const std::function<bool(std::string_view key, std::string_view value)>& member);
// The same for the elements of an array.
bool ForEachElement(std::string_view text,
                    const std::function<bool(std::string_view value)>& element);

// The encoded value of member `key`, "" when absent or malformed.
std::string_view FindMember(std::string_view text, std::string_view key);

// The text of an encoded JSON string; nullopt when it is none.
std::optional<std::string> StringValue(std::string_view encoded);

}  // namespace sublet::client
