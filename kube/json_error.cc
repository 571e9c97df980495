#include "kube/json_error.h"

#include <vector>

#include "kube/ascii.h"

namespace sublet::kube {
namespace {

std::string QuoteChar(unsigned char c) {
  static constexpr char kHex[] = "0123456789abcdef";
  switch (c) {
    case '\'': return "'\\''";
    case '"': return "'\"'";
    case '\\': return "'\\\\'";
    case '\a': return "'\\a'";
    case '\b': return "'\\b'";
    case '\f': return "'\\f'";
    case '\n': return "'\\n'";
    case '\r': return "'\\r'";
    case '\t': return "'\\t'";
    case '\v': return "'\\v'";
    default: break;
  }
  if (c < 0x20 || c == 0x7f) {
    return std::string("'\\x") + kHex[c >> 4] + kHex[c & 15] + "'";
  }
  if (c < 0x80) {
    return std::string("'") + static_cast<char>(c) + "'";
  }
  // Go prints the byte as the Latin-1 character of that number, C1 controls escaped.
  if (c < 0xa0 || c == 0xad) {
    return std::string("'\\u00") + kHex[c >> 4] + kHex[c & 15] + "'";
  }
  return std::string("'") + static_cast<char>(0xc0 | (c >> 6)) +
         static_cast<char>(0x80 | (c & 0x3f)) + "'";
}

// Walks the text with an explicit stack of open containers ('{' or '[').
class Scanner {
 public:
  explicit Scanner(std::string_view text) : text_(text) {}

  std::string Run() {
    if (!Document()) {
      return message_;
    }
    SkipSpace();
    if (pos_ < text_.size()) {
      Fail("after top-level value");
      return message_;
    }
    return "invalid UTF-8 in string";
  }

 private:
  bool Fail(std::string_view context) {
    if (pos_ >= text_.size()) {
      message_ = "unexpected end of JSON input";
    } else {
      message_ = "invalid character " + QuoteChar(static_cast<unsigned char>(text_[pos_])) + " " +
                 std::string(context);
    }
    return false;
  }
  void SkipSpace() {
    while (pos_ < text_.size() && IsSpace(text_[pos_])) {
      ++pos_;
    }
  }
  bool At(char c) const { return pos_ < text_.size() && text_[pos_] == c; }

  // One value with everything inside it.
  bool Document() {
    std::vector<char> open;
    bool want_value = true;
    while (true) {
      SkipSpace();
      if (want_value) {
        if (At('{')) {
          ++pos_;
          SkipSpace();
          if (At('}')) {
            ++pos_;
            want_value = false;
          } else {
            open.push_back('{');
            if (!Key("looking for beginning of object key string")) {
              return false;
            }
            continue;
          }
        } else if (At('[')) {
          ++pos_;
          SkipSpace();
          if (!At(']')) {
            open.push_back('[');
            continue;
          }
          ++pos_;
          want_value = false;
        } else if (!Scalar()) {
          return false;
        } else {
          want_value = false;
        }
      }
      if (open.empty()) {
        return true;
      }
      SkipSpace();
      if (At(',')) {
        ++pos_;
        want_value = true;
        SkipSpace();
        if (open.back() == '{' && !Key("looking for beginning of object key string")) {
          return false;
        }
      } else if (At(open.back() == '{' ? '}' : ']')) {
        ++pos_;
        open.pop_back();
      } else {
        return Fail(open.back() == '{' ? "after object key:value pair" : "after array element");
      }
    }
  }

  bool Key(std::string_view context) {
    if (!At('"')) {
      return Fail(context);
    }
    if (!String()) {
      return false;
    }
    SkipSpace();
    if (!At(':')) {
      return Fail("after object key");
    }
    ++pos_;
    return true;
  }

  bool String() {
    ++pos_;
    while (pos_ < text_.size()) {
      const char c = text_[pos_];
      if (c == '"') {
        ++pos_;
        return true;
      }
      if (static_cast<unsigned char>(c) < 0x20) {
        return Fail("in string literal");
      }
      ++pos_;
      if (c == '\\' && !Escape()) {
        return false;
      }
    }
    return Fail("");
  }

  bool Escape() {
    if (pos_ >= text_.size()) {
      return Fail("");
    }
    const char c = text_[pos_];
    if (c == 'u') {
      ++pos_;
      for (int i = 0; i < 4; ++i, ++pos_) {
        if (pos_ >= text_.size() ||
            !(IsDigit(text_[pos_]) || (text_[pos_] >= 'a' && text_[pos_] <= 'f') ||
              (text_[pos_] >= 'A' && text_[pos_] <= 'F'))) {
          return Fail("in \\u hexadecimal character escape");
        }
      }
      return true;
    }
    if (std::string_view("\"\\/bfnrt").find(c) == std::string_view::npos) {
      return Fail("in string escape code");
    }
    ++pos_;
    return true;
  }

  bool Scalar() {
    if (pos_ >= text_.size()) {
      return Fail("");
    }
    switch (text_[pos_]) {
      case '"': return String();
      case 't': return Word("true");
      case 'f': return Word("false");
      case 'n': return Word("null");
      default:
        if (At('-') || IsDigit(text_[pos_])) {
          return Number();
        }
        return Fail("looking for beginning of value");
    }
  }

  bool Word(std::string_view word) {
    for (std::size_t i = 0; i < word.size(); ++i, ++pos_) {
      if (!At(word[i])) {
        return Fail("in literal " + std::string(word) + " (expecting '" + word[i] + "')");
      }
    }
    return true;
  }

  bool Digits(std::string_view context) {
    if (pos_ >= text_.size() || !IsDigit(text_[pos_])) {
      return Fail(context);
    }
    while (pos_ < text_.size() && IsDigit(text_[pos_])) {
      ++pos_;
    }
    return true;
  }

  bool Number() {
    if (At('-')) {
      ++pos_;
    }
    if (At('0')) {
      ++pos_;
    } else if (!Digits("in numeric literal")) {
      return false;
    }
    if (At('.')) {
      ++pos_;
      if (!Digits("after decimal point in numeric literal")) {
        return false;
      }
    }
    if (At('e') || At('E')) {
      ++pos_;
      if (At('+') || At('-')) {
        ++pos_;
      }
      return Digits("in exponent of numeric literal");
    }
    return true;
  }

  std::string_view text_;
  std::size_t pos_ = 0;
  std::string message_;
};

}  // namespace

std::string GoJsonError(std::string_view text) { return Scanner(text).Run(); }

}  // namespace sublet::kube
