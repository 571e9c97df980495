#include "apiserver/crd/patterns.h"

#include <re2/re2.h>

#include <map>
#include <memory>
#include <unordered_map>

#include "base/mutex.h"

namespace sublet::apiserver {
namespace {

// A compiled pattern takes some kilobytes; when the cache is full it starts over.
constexpr std::size_t kPatternsMax = 256;

RE2::Options PatternOptions() {
  RE2::Options options;
  options.set_log_errors(false);
  options.set_max_mem(1 << 20);
  return options;
}

struct Cache {
  Mutex mutex;
  std::unordered_map<std::string, std::shared_ptr<const RE2>> patterns SUBLET_GUARDED_BY(mutex);
};

Cache& PatternCache() {
  static Cache cache;
  return cache;
}

std::shared_ptr<const RE2> Compiled(const std::string& pattern) {
  Cache& cache = PatternCache();
  {
    MutexLock lock(cache.mutex);
    if (const auto it = cache.patterns.find(pattern); it != cache.patterns.end()) {
      return it->second;
    }
  }
  auto compiled = std::make_shared<const RE2>(pattern, PatternOptions());
  MutexLock lock(cache.mutex);
  if (cache.patterns.size() >= kPatternsMax) {
    cache.patterns.clear();
  }
  cache.patterns.emplace(pattern, compiled);
  return compiled;
}

}  // namespace

Result<void> CheckPattern(const std::string& pattern) {
  const RE2 compiled(pattern, PatternOptions());
  if (!compiled.ok()) {
    // Go's words for RE2's codes.
    static const std::map<RE2::ErrorCode, const char*> kWords = {
        {RE2::ErrorMissingBracket, "missing closing ]"},
        {RE2::ErrorMissingParen, "missing closing )"},
        {RE2::ErrorTrailingBackslash, "trailing backslash at end of expression"},
        {RE2::ErrorRepeatArgument, "missing argument to repetition operator"},
        {RE2::ErrorRepeatSize, "invalid repeat count"},
        {RE2::ErrorRepeatOp, "invalid nested repetition operator"},
        {RE2::ErrorBadPerlOp, "invalid or unsupported Perl syntax"},
        {RE2::ErrorBadNamedCapture, "invalid named capture"},
        {RE2::ErrorBadEscape, "invalid escape sequence"},
        {RE2::ErrorBadCharClass, "invalid character class"},
        {RE2::ErrorBadCharRange, "invalid character class range"},
        {RE2::ErrorBadUTF8, "invalid UTF-8"}};
    const auto word = kWords.find(compiled.error_code());
    return BadRequest("error parsing regexp: " +
                      (word == kWords.end()
                           ? compiled.error()
                           : word->second + std::string(": `") + compiled.error_arg() + "`"));
  }
  return Ok();
}

bool MatchesPattern(const std::string& pattern, std::string_view text) {
  const auto compiled = Compiled(pattern);
  return compiled->ok() && RE2::PartialMatch(re2::StringPiece(text.data(), text.size()), *compiled);
}

}  // namespace sublet::apiserver
