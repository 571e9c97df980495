// From text to tree (scheduler/device_selector.h).
#include <algorithm>
#include <cctype>
#include <cstdlib>

#include "scheduler/device_expression.h"

namespace sublet::scheduler::device_expression {
namespace {

constexpr int kDepthMax = 48;

bool IsNameStart(char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0 || c == '_'; }
bool IsNamePart(char c) {
  return IsNameStart(c) || std::isdigit(static_cast<unsigned char>(c)) != 0;
}

// Recursive descent; the first error stays.
class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Result<Node> Run() {
    Node node = Or();
    Skip();
    if (error_.empty() && at_ != text_.size()) {
      Fail("\"" + std::string(text_.substr(at_, 20)) + "\" was not expected");
    }
    if (!error_.empty()) {
      return BadRequest(error_);
    }
    return node;
  }

 private:
  void Fail(std::string why) {
    if (error_.empty()) {
      error_ = std::move(why);
    }
    at_ = text_.size();
  }
  void Skip() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_])) != 0) {
      ++at_;
    }
  }
  bool Take(std::string_view token) {
    Skip();
    if (text_.substr(at_, token.size()) != token) {
      return false;
    }
    at_ += token.size();
    return true;
  }
  void Expect(std::string_view token) {
    if (!Take(token)) {
      Fail("\"" + std::string(token) + "\" was expected");
    }
  }
  std::string Name() {
    Skip();
    const std::size_t from = at_;
    while (at_ < text_.size() && (at_ == from ? IsNameStart(text_[at_]) : IsNamePart(text_[at_]))) {
      ++at_;
    }
    return std::string(text_.substr(from, at_ - from));
  }

  Node Or() { return Chain("||", Kind::kOr, &Parser::And); }
  Node And() { return Chain("&&", Kind::kAnd, &Parser::Comparison); }
  Node Chain(const char* token, Kind kind, Node (Parser::*next)()) {
    Node first = (this->*next)();
    if (!Take(token)) {
      return first;
    }
    Node out{kind, {}, "", {}};
    out.children.push_back(std::move(first));
    do {
      out.children.push_back((this->*next)());
    } while (Take(token));
    return out;
  }

  Node Comparison() {
    Node left = Unary();
    for (const char* token : {"==", "!=", "<=", ">=", "<", ">"}) {
      if (Take(token)) {
        Node out{Kind::kCompare, {}, token, {}};
        out.children.push_back(std::move(left));
        out.children.push_back(Unary());
        return out;
      }
    }
    const std::size_t back = at_;
    if (Name() == "in") {
      Node out{Kind::kIn, {}, "", {}};
      out.children.push_back(std::move(left));
      out.children.push_back(Unary());
      return out;
    }
    at_ = error_.empty() ? back : at_;
    return left;
  }

  Node Unary() {
    if (++depth_ > kDepthMax) {
      Fail("the expression is nested too deeply");
      return {};
    }
    Node out;
    Skip();
    if (at_ < text_.size() && text_[at_] == '!' && text_.substr(at_, 2) != "!=") {
      ++at_;
      out.kind = Kind::kNot;
      out.children.push_back(Unary());
    } else {
      out = Primary();
      while (error_.empty() && Take(".")) {
        out = Method(std::move(out));
      }
    }
    --depth_;
    return out;
  }

  Node Method(Node on) {
    Node call{Kind::kCall, {}, Name(), {}};
    static constexpr const char* kKnown[] = {"startsWith", "endsWith",      "contains",
                                             "lowerAscii", "isGreaterThan", "isLessThan",
                                             "compareTo"};
    if (std::none_of(std::begin(kKnown), std::end(kKnown),
                     [&](const char* known) { return call.text == known; })) {
      Fail("the function " + call.text + " is not known");
      return {};
    }
    call.children.push_back(std::move(on));
    Expect("(");
    if (!Take(")")) {
      call.children.push_back(Or());
      Expect(")");
    }
    if (call.children.size() != (call.text == "lowerAscii" ? 1u : 2u)) {
      Fail("the function " + call.text + " got the wrong number of arguments");
    }
    return call;
  }

  Node Primary() {
    Skip();
    const char c = at_ < text_.size() ? text_[at_] : '\0';
    if (c == '(') {
      ++at_;
      Node inner = Or();
      Expect(")");
      return inner;
    }
    if (c == '"' || c == '\'') {
      return {Kind::kLiteral, Text(), "", {}};
    }
    if (c == '[') {
      return List();
    }
    if (std::isdigit(static_cast<unsigned char>(c)) != 0 || c == '-') {
      return Number();
    }
    const std::string name = Name();
    if (name == "true" || name == "false") {
      return {Kind::kLiteral, name == "true", "", {}};
    }
    if (name == "device") {
      return Device();
    }
    if (name == "has" || name == "quantity") {
      Expect("(");
      Node out{name == "has" ? Kind::kHas : Kind::kCall, {}, name, {}};
      out.children.push_back(Or());
      Expect(")");
      return out;
    }
    Fail(name.empty() ? "the expression is not complete" : name + " is not known");
    return {};
  }

  std::string Text() {
    const char quote = text_[at_++];
    std::string out;
    while (at_ < text_.size() && text_[at_] != quote) {
      if (text_[at_] == '\\' && at_ + 1 < text_.size()) {
        ++at_;
        if (text_[at_] != '\\' && text_[at_] != '"' && text_[at_] != '\'') {
          Fail("only \\\\, \\\" and \\' are known in text");
          return "";
        }
      }
      out += text_[at_++];
    }
    if (at_ == text_.size()) {
      Fail("text without an end");
      return "";
    }
    ++at_;
    return out;
  }

  Node List() {
    std::vector<std::string> items;
    ++at_;
    while (error_.empty() && !Take("]")) {
      Skip();
      if (at_ >= text_.size() || (text_[at_] != '"' && text_[at_] != '\'')) {
        Fail("only lists of text are known");
        break;
      }
      items.push_back(Text());
      if (!Take(",")) {
        Expect("]");
        break;
      }
    }
    return {Kind::kLiteral, std::move(items), "", {}};
  }

  Node Number() {
    const std::size_t from = at_++;
    while (at_ < text_.size() && std::isdigit(static_cast<unsigned char>(text_[at_])) != 0) {
      ++at_;
    }
    const std::string digits(text_.substr(from, at_ - from));
    if (digits == "-" || digits.size() > 18) {
      Fail("\"" + digits + "\" is no number");
      return {};
    }
    return {Kind::kLiteral, static_cast<std::int64_t>(std::atoll(digits.c_str())), "", {}};
  }

  // ".name" or "[text]"
  std::string Key() {
    Skip();
    if (Take("[")) {
      Skip();
      std::string key;
      if (at_ < text_.size() && (text_[at_] == '"' || text_[at_] == '\'')) {
        key = Text();
      } else {
        Fail("text was expected in []");
      }
      Expect("]");
      return key;
    }
    Expect(".");
    return Name();
  }

  Node Device() {
    const std::string field = Key();
    if (field == "driver") {
      return {Kind::kDriver, {}, "", {}};
    }
    if (field == "attributes" || field == "capacity") {
      const std::string domain = Key();
      return {
          field == "capacity" ? Kind::kCapacity : Kind::kAttribute, {}, domain + "/" + Key(), {}};
    }
    Fail("device." + field + " is not known");
    return {};
  }

  std::string_view text_;
  std::size_t at_ = 0;
  int depth_ = 0;
  std::string error_;
};

}  // namespace

Result<Node> Parse(std::string_view text) { return Parser(text).Run(); }

}  // namespace sublet::scheduler::device_expression
