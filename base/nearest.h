// The word that somebody meant: for "did you mean" after an unknown key, flag or command.
// Threads: any.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace sublet {

// The first of `words` that the fewest edits (letters added, left out or changed) turn `word` into;
// "" when each needs more than two.
std::string NearestWord(std::string_view word, const std::vector<std::string>& words);

}  // namespace sublet
