#include "kube/label_selector_parser.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "kube/ascii.h"
#include "kube/field_error.h"
#include "kube/validation_names.h"

namespace sublet::kube {
namespace {

enum class Token : std::uint8_t {
  kError,
  kEnd,
  kClose,
  kComma,
  kNot,
  kDoubleEquals,
  kEquals,
  kGreater,
  kIdentifier,
  kIn,
  kLess,
  kNotEquals,
  kNotIn,
  kOpen,
};

struct Item {
  Token token = Token::kEnd;
  std::string text;
};

bool IsSymbol(char c) { return std::string_view("=!(),><").find(c) != std::string_view::npos; }

Token SymbolToken(std::string_view text) {
  static constexpr std::pair<std::string_view, Token> kSymbols[] = {
      {")", Token::kClose},         {",", Token::kComma},      {"!", Token::kNot},
      {"==", Token::kDoubleEquals}, {"=", Token::kEquals},     {">", Token::kGreater},
      {"<", Token::kLess},          {"!=", Token::kNotEquals}, {"(", Token::kOpen},
  };
  for (const auto& [symbol, token] : kSymbols) {
    if (symbol == text) {
      return token;
    }
  }
  return Token::kError;
}

std::vector<Item> Lex(std::string_view text) {
  std::vector<Item> items;
  std::size_t pos = 0;
  while (true) {
    while (pos < text.size() && IsSpace(text[pos])) {
      ++pos;
    }
    if (pos >= text.size() || text[pos] == '\0') {
      items.push_back({Token::kEnd, ""});
      return items;
    }
    if (IsSymbol(text[pos])) {
      // The longest symbol that starts here: two characters at most.
      const std::size_t length =
          SymbolToken(text.substr(pos, 2)) != Token::kError && pos + 1 < text.size() ? 2 : 1;
      const std::string_view symbol = text.substr(pos, length);
      items.push_back({SymbolToken(symbol), std::string(symbol)});
      pos += length;
      continue;
    }
    const std::size_t start = pos;
    while (pos < text.size() && !IsSymbol(text[pos]) && !IsSpace(text[pos]) && text[pos] != '\0') {
      ++pos;
    }
    const std::string_view word = text.substr(start, pos - start);
    const Token token = word == "in"      ? Token::kIn
                        : word == "notin" ? Token::kNotIn
                                          : Token::kIdentifier;
    items.push_back({token, std::string(word)});
  }
}

class Parser {
 public:
  explicit Parser(std::string_view text) : items_(Lex(text)) {}

  Result<std::vector<LabelRequirement>> Run() {
    std::vector<LabelRequirement> requirements;
    while (true) {
      const Item& next = Peek();
      if (next.token == Token::kEnd) {
        return requirements;
      }
      const Token token = ValueToken(next.token);
      if (token != Token::kIdentifier && token != Token::kNot) {
        return Found(next, "!, identifier, or 'end of string'");
      }
      auto requirement = Requirement();
      if (!requirement.ok()) {
        return std::move(requirement).error().Prefixed("unable to parse requirement");
      }
      requirements.push_back(std::move(requirement).value());
      const Item& after = Take();
      if (after.token == Token::kEnd) {
        return requirements;
      }
      if (after.token != Token::kComma) {
        return Found(after, "',' or 'end of string'");
      }
      const Token then = ValueToken(Peek().token);
      if (then != Token::kIdentifier && then != Token::kNot) {
        return Found(Peek(), "identifier after ','");
      }
    }
  }

 private:
  const Item& Peek() const { return items_[std::min(pos_, items_.size() - 1)]; }
  const Item& Take() {
    const Item& item = Peek();
    ++pos_;
    return item;
  }
  // The words "in" and "notin" are ordinary identifiers where a value may stand.
  static Token ValueToken(Token token) {
    return token == Token::kIn || token == Token::kNotIn ? Token::kIdentifier : token;
  }
  static Status Found(const Item& item, std::string_view expected) {
    return BadRequest("found '" + item.text + "', expected: " + std::string(expected));
  }

  Result<LabelRequirement> Requirement() {
    LabelRequirement requirement;
    bool negated = false;
    const Item* item = &Take();
    if (item->token == Token::kNot) {
      negated = true;
      item = &Take();
    }
    if (ValueToken(item->token) != Token::kIdentifier) {
      return Found(*item, "identifier");
    }
    requirement.key = item->text;
    if (const auto problems = IsQualifiedName(requirement.key); !problems.empty()) {
      return BadRequest("<nil>: Invalid value: " + GoQuote(requirement.key) + ": " +
                        Join(problems, "; "));
    }
    const Token next = Peek().token;
    if (negated || next == Token::kEnd || next == Token::kComma) {
      requirement.op = negated ? LabelOperator::kDoesNotExist : LabelOperator::kExists;
      return requirement;
    }
    SUBLET_RETURN_IF_ERROR(Operator(&requirement.op));
    if (requirement.op == LabelOperator::kIn || requirement.op == LabelOperator::kNotIn) {
      SUBLET_TRY(requirement.values, Values());
    } else {
      SUBLET_TRY(requirement.values, ExactValue());
    }
    SUBLET_RETURN_IF_ERROR(CheckLabelRequirement(&requirement));
    return requirement;
  }

  Result<void> Operator(LabelOperator* op) {
    const Item& item = Take();
    switch (item.token) {
      case Token::kIn: *op = LabelOperator::kIn; return Ok();
      case Token::kNotIn: *op = LabelOperator::kNotIn; return Ok();
      case Token::kEquals: *op = LabelOperator::kEquals; return Ok();
      case Token::kDoubleEquals: *op = LabelOperator::kDoubleEquals; return Ok();
      case Token::kNotEquals: *op = LabelOperator::kNotEquals; return Ok();
      case Token::kGreater: *op = LabelOperator::kGreaterThan; return Ok();
      case Token::kLess: *op = LabelOperator::kLessThan; return Ok();
      default: return Found(item, "in, notin, =, ==, !=, gt, lt");
    }
  }

  Result<std::vector<std::string>> Values() {
    if (const Item& open = Take(); open.token != Token::kOpen) {
      return BadRequest("found '" + open.text + "' expected: '('");
    }
    const Item& first = Peek();
    if (first.token == Token::kClose) {
      Take();
      return std::vector<std::string>{""};
    }
    if (ValueToken(first.token) != Token::kIdentifier && first.token != Token::kComma) {
      return Found(first, "',', ')' or identifier");
    }
    std::vector<std::string> values;
    while (true) {
      const Item& item = Take();
      if (ValueToken(item.token) == Token::kIdentifier) {
        values.push_back(item.text);
        const Item& after = Peek();
        if (after.token == Token::kClose) {
          break;
        }
        if (after.token != Token::kComma) {
          return Found(after, "',' or ')'");
        }
      } else if (item.token == Token::kComma) {
        if (values.empty() || Peek().token == Token::kComma || Peek().token == Token::kClose) {
          values.emplace_back();
        }
        if (Peek().token == Token::kClose) {
          break;
        }
      } else {
        return Found(item, "',', or identifier");
      }
    }
    Take();  // the closing parenthesis
    return values;
  }

  Result<std::vector<std::string>> ExactValue() {
    if (Peek().token == Token::kEnd || Peek().token == Token::kComma) {
      return std::vector<std::string>{""};
    }
    const Item& item = Take();
    if (ValueToken(item.token) != Token::kIdentifier) {
      return Found(item, "identifier");
    }
    return std::vector<std::string>{item.text};
  }

  std::vector<Item> items_;
  std::size_t pos_ = 0;
};

bool IsInt64(const std::string& text) {
  std::int64_t value = 0;
  const char* begin = text.data() + (text.starts_with('+') ? 1 : 0);
  const char* last = text.data() + text.size();
  const auto [end, error] = std::from_chars(begin, last, value);
  return begin != last && error == std::errc() && end == last;
}

}  // namespace

Result<std::vector<LabelRequirement>> ParseLabelRequirements(std::string_view text) {
  return Parser(text).Run();
}

Result<void> CheckLabelRequirement(LabelRequirement* requirement) {
  auto& values = requirement->values;
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
  FieldErrors errors;
  if (const auto problems = IsQualifiedName(requirement->key); !problems.empty()) {
    errors.Invalid("key", requirement->key, Join(problems, "; "));
  }
  const auto wrong_count = [&](std::string_view why) {
    errors.Invalid("values", Json(values), why);
  };
  switch (requirement->op) {
    case LabelOperator::kIn:
    case LabelOperator::kNotIn:
      if (values.empty()) {
        wrong_count("for 'in', 'notin' operators, values set can't be empty");
      }
      break;
    case LabelOperator::kExists:
    case LabelOperator::kDoesNotExist:
      if (!values.empty()) {
        wrong_count("values set must be empty for exists and does not exist");
      }
      break;
    case LabelOperator::kGreaterThan:
    case LabelOperator::kLessThan:
      if (values.size() != 1) {
        wrong_count("for 'Gt', 'Lt' operators, exactly one value is required");
      } else if (!IsInt64(values[0])) {
        errors.Invalid("values[0]", values[0],
                       "for 'Gt', 'Lt' operators, the value must be an integer");
      }
      break;
    default:
      if (values.size() != 1) {
        wrong_count("exact-match compatibility requires one single value");
      }
  }
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (const auto problems = IsLabelValue(values[i]); !problems.empty()) {
      errors.Invalid("values[" + std::to_string(i) + "][" + requirement->key + "]", values[i],
                     Join(problems, "; "));
    }
  }
  if (!errors.empty()) {
    return BadRequest(errors.Aggregate());
  }
  return Ok();
}

}  // namespace sublet::kube
