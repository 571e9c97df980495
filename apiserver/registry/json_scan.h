// A scanner that finds members inside compact JSON this server wrote itself, without making a tree:
// what a filter needs is read from the published bytes.
// Threads: any; pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace sublet::apiserver {

// A member of a compact JSON object: where its value stands inside the scanned text.
struct MemberSpan {
  std::size_t begin = 0;
  std::size_t end = 0;
};
// The value of top-level member `key` of the object that starts at text[0] == '{'. Precondition:
// `text` is well-formed compact JSON; anything else gives nullopt or a wrong span, never a read
// outside `text`.
std::optional<MemberSpan> FindMember(std::string_view text, std::string_view key);
// Where the value that starts at `begin` ends (exclusive).
std::size_t SkipValue(std::string_view text, std::size_t begin);
// The text of a scanned scalar as field selectors compare it: strings unescaped, numbers and
// booleans as they stand, null as "".
std::string ScalarText(std::string_view value);

// Calls `visit(key, value_span)` for each member of the object at text[0] == '{', until it returns
// false. `key` is the raw text between the quotes (keys with escapes keep them).
template <typename Visit>
void ForEachMember(std::string_view text, Visit visit) {
  std::size_t at = 1;
  while (at < text.size() && text[at] == '"') {
    const std::size_t key_end = SkipValue(text, at);
    if (key_end >= text.size() || text[key_end] != ':') {
      return;
    }
    const std::size_t value_end = SkipValue(text, key_end + 1);
    if (!visit(text.substr(at + 1, key_end - at - 2), MemberSpan{key_end + 1, value_end})) {
      return;
    }
    if (value_end >= text.size() || text[value_end] != ',') {
      return;
    }
    at = value_end + 1;
  }
}

}  // namespace sublet::apiserver
