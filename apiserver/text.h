// Text in messages and headers. Threads: any; pure functions.
#pragma once

#include <string>
#include <string_view>

namespace sublet::apiserver {

// `text` between double quotes, nothing escaped.
inline std::string Quoted(std::string_view text) { return "\"" + std::string(text) + "\""; }

// ASCII letters in lower case, in every locale.
inline std::string Lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    c = c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  }
  return out;
}

}  // namespace sublet::apiserver
