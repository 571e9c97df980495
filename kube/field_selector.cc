#include "kube/field_selector.h"

#include <algorithm>

namespace sublet::kube {
namespace {

std::vector<std::string_view> SplitTerms(std::string_view text) {
  std::vector<std::string_view> terms;
  std::size_t start = 0;
  bool escaped = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (escaped) {
      escaped = false;
    } else if (text[i] == '\\') {
      escaped = true;
    } else if (text[i] == ',') {
      terms.push_back(text.substr(start, i - start));
      start = i + 1;
    }
  }
  terms.push_back(text.substr(start));
  return terms;
}

Result<std::string> Unescape(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == ',' || c == '=') {
      return BadRequest("invalid field selector: unescaped character in value: " +
                        std::to_string(static_cast<int>(c)));
    }
    if (c != '\\') {
      out.push_back(c);
      continue;
    }
    const std::string_view next = text.substr(i + 1, 1);
    if (next != "\\" && next != "," && next != "=") {
      return BadRequest("invalid field selector: invalid escape sequence: \\" + std::string(next));
    }
    out.push_back(next[0]);
    ++i;
  }
  return out;
}

std::string Escape(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\' || c == ',' || c == '=') {
      out.push_back('\\');
    }
    out.push_back(c);
  }
  return out;
}

}  // namespace

Result<FieldSelector> FieldSelector::Parse(std::string_view text) {
  std::vector<std::string_view> parts = SplitTerms(text);
  std::sort(parts.begin(), parts.end());
  std::vector<FieldTerm> terms;
  for (const std::string_view part : parts) {
    if (part.empty()) {
      continue;
    }
    const std::size_t at = part.find_first_of("!=");
    std::size_t mark = at;
    // A '!' counts only in front of '='.
    while (mark != std::string_view::npos && part[mark] == '!' && part.substr(mark, 2) != "!=") {
      mark = part.find_first_of("!=", mark + 1);
    }
    if (mark == std::string_view::npos) {
      return BadRequest("invalid selector: '" + std::string(text) + "'; can't understand '" +
                        std::string(part) + "'");
    }
    FieldTerm term;
    term.field = part.substr(0, mark);
    term.equal = part[mark] == '=';
    const std::size_t width = part.substr(mark, 2) == "!=" || part.substr(mark, 2) == "==" ? 2 : 1;
    SUBLET_TRY(term.value, Unescape(part.substr(mark + width)));
    if (!term.equal || !term.field.empty() || !term.value.empty()) {
      terms.push_back(std::move(term));
    }
  }
  return FieldSelector(std::move(terms));
}

std::string FieldSelector::Text() const {
  std::string out;
  for (const FieldTerm& term : terms_) {
    out.append(out.empty() ? "" : ",").append(term.field).append(term.equal ? "=" : "!=");
    out.append(Escape(term.value));
  }
  return out;
}

const std::string* FieldSelector::RequiredValue(std::string_view field) const {
  for (const FieldTerm& term : terms_) {
    if (term.equal && term.field == field) {
      return &term.value;
    }
  }
  return nullptr;
}

bool FieldSelector::Matches(const std::function<std::string_view(std::string_view)>& lookup) const {
  for (const FieldTerm& term : terms_) {
    if ((lookup(term.field) == term.value) != term.equal) {
      return false;
    }
  }
  return true;
}

}  // namespace sublet::kube
