#include "kube/validation_names.h"

#include <arpa/inet.h>

#include <algorithm>
#include <charconv>
#include <initializer_list>

#include "kube/ascii.h"

namespace sublet::kube {
namespace {

bool IsLower(char c) { return c >= 'a' && c <= 'z'; }
bool IsUpper(char c) { return c >= 'A' && c <= 'Z'; }
bool IsLowerOrDigit(char c) { return IsLower(c) || IsDigit(c); }
bool IsAlphanumeric(char c) { return IsLowerOrDigit(c) || IsUpper(c); }

template <typename Predicate>
bool All(std::string_view text, Predicate predicate) {
  return std::all_of(text.begin(), text.end(), predicate);
}

// [a-z0-9]([-a-z0-9]*[a-z0-9])?
bool HasLabelShape(std::string_view text) {
  return !text.empty() && IsLowerOrDigit(text.front()) && IsLowerOrDigit(text.back()) &&
         All(text, [](char c) { return IsLowerOrDigit(c) || c == '-'; });
}

// _?[a-z0-9]([-_a-z0-9]*[a-z0-9])?
bool HasUnderscoreLabelShape(std::string_view text) {
  if (text.starts_with('_')) {
    text.remove_prefix(1);
  }
  return !text.empty() && IsLowerOrDigit(text.front()) && IsLowerOrDigit(text.back()) &&
         All(text, [](char c) { return IsLowerOrDigit(c) || c == '-' || c == '_'; });
}

template <typename Shape>
bool HasDottedShape(std::string_view text, Shape shape) {
  while (true) {
    const std::size_t dot = text.find('.');
    if (!shape(text.substr(0, dot))) {
      return false;
    }
    if (dot == std::string_view::npos) {
      return true;
    }
    text.remove_prefix(dot + 1);
  }
}

// ([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]
bool HasQualifiedShape(std::string_view text) {
  return !text.empty() && IsAlphanumeric(text.front()) && IsAlphanumeric(text.back()) &&
         All(text, [](char c) { return IsAlphanumeric(c) || c == '-' || c == '_' || c == '.'; });
}

std::string RegexProblem(std::string_view message, std::string_view format,
                         std::initializer_list<std::string_view> examples) {
  std::string out(message);
  if (examples.size() == 0) {
    return out.append(" (regex used for validation is '").append(format).append("')");
  }
  out += " (e.g. ";
  bool first = true;
  for (const std::string_view example : examples) {
    out.append(first ? "'" : " or '").append(example).append("', ");
    first = false;
  }
  return out.append("regex used for validation is '").append(format).append("')");
}

constexpr std::string_view kLabelFormat = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
constexpr std::string_view kSubdomainFormat =
    "[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";
constexpr std::string_view kQualifiedFormat = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";
constexpr std::string_view kQualifiedMessage =
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an "
    "alphanumeric character";

void AddDirectoryProblems(std::string_view value, Problems* problems) {
  if (value == ".") {
    problems->push_back("must not be '.'");
  } else if (value == "..") {
    problems->push_back("must not be '..'");
  } else if (value.starts_with("..")) {
    problems->push_back("must not start with '..'");
  }
}

}  // namespace

std::string MaxLengthProblem(int length) {
  return "must be no more than " + std::to_string(length) + " characters";
}

// The checks of label keys and values count in bytes, and say so.
static std::string MaxBytesProblem(int length) {
  return "must be no more than " + std::to_string(length) + " bytes";
}

std::string RangeProblem(std::int64_t low, std::int64_t high) {
  return "must be between " + std::to_string(low) + " and " + std::to_string(high) + ", inclusive";
}

Problems IsDns1123Label(std::string_view value) {
  Problems problems;
  if (value.size() > 63) {
    problems.push_back(MaxLengthProblem(63));
  }
  if (!HasLabelShape(value)) {
    if (HasDottedShape(value, HasLabelShape)) {
      problems.push_back("must not contain dots");
    } else {
      problems.push_back(RegexProblem(
          "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', "
          "and must start and end with an alphanumeric character",
          kLabelFormat, {"my-name", "123-abc"}));
    }
  }
  return problems;
}

Problems IsDns1123Subdomain(std::string_view value) {
  Problems problems;
  if (value.size() > 253) {
    problems.push_back(MaxLengthProblem(253));
  }
  if (!HasDottedShape(value, HasLabelShape)) {
    problems.push_back(RegexProblem(
        "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or "
        "'.', and must start and end with an alphanumeric character",
        kSubdomainFormat, {"example.com"}));
  }
  return problems;
}

Problems IsDns1123SubdomainWithUnderscore(std::string_view value) {
  Problems problems;
  if (value.size() > 253) {
    problems.push_back(MaxLengthProblem(253));
  }
  if (!HasDottedShape(value, HasUnderscoreLabelShape)) {
    problems.push_back(RegexProblem(
        "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', "
        "'-' or '.', and must start and end with an alphanumeric character",
        "_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?(\\._?[a-z0-9]([-_a-z0-9]*[a-z0-9])?)*", {"example.com"}));
  }
  return problems;
}

Problems IsDns1035Label(std::string_view value) {
  Problems problems;
  if (value.size() > 63) {
    problems.push_back(MaxLengthProblem(63));
  }
  if (!HasLabelShape(value) || !IsLower(value.front())) {
    problems.push_back(RegexProblem(
        "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an "
        "alphabetic character, and end with an alphanumeric character",
        "[a-z]([-a-z0-9]*[a-z0-9])?", {"my-name", "abc-123"}));
  }
  return problems;
}

Problems IsWildcardDns1123Subdomain(std::string_view value) {
  Problems problems;
  if (value.size() > 253) {
    problems.push_back(MaxLengthProblem(253));
  }
  if (!value.starts_with("*.") || !HasDottedShape(value.substr(2), HasLabelShape)) {
    problems.push_back(RegexProblem(
        "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, "
        "which must consist of lower case alphanumeric characters, '-' or '.' and end with an "
        "alphanumeric character",
        std::string("\\*\\.").append(kSubdomainFormat), {"*.example.com"}));
  }
  return problems;
}

Problems IsQualifiedName(std::string_view value) {
  Problems problems;
  std::string_view name = value;
  const std::size_t slash = value.find('/');
  if (slash != std::string_view::npos) {
    if (value.find('/', slash + 1) != std::string_view::npos) {
      return {"a valid label key " +
              RegexProblem(kQualifiedMessage, kQualifiedFormat, {"MyName", "my.name", "123-abc"}) +
              " with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"};
    }
    const std::string_view prefix = value.substr(0, slash);
    name = value.substr(slash + 1);
    if (prefix.empty()) {
      problems.push_back("prefix part must be non-empty");
    } else {
      for (const std::string& problem : IsDns1123Subdomain(prefix)) {
        problems.push_back("prefix part " +
                           (problem == MaxLengthProblem(253) ? MaxBytesProblem(253) : problem));
      }
    }
  }
  if (name.empty()) {
    problems.push_back("name part must be non-empty");
  } else if (name.size() > 63) {
    problems.push_back("name part " + MaxBytesProblem(63));
  }
  if (!HasQualifiedShape(name)) {
    problems.push_back("name part " + RegexProblem(kQualifiedMessage, kQualifiedFormat,
                                                   {"MyName", "my.name", "123-abc"}));
  }
  return problems;
}

Problems IsLabelValue(std::string_view value) {
  Problems problems;
  if (value.size() > 63) {
    problems.push_back(MaxBytesProblem(63));
  }
  if (!value.empty() && !HasQualifiedShape(value)) {
    problems.push_back(RegexProblem(
        "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or "
        "'.', and must start and end with an alphanumeric character",
        "(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?", {"MyValue", "my_value", "12345"}));
  }
  return problems;
}

Problems IsCIdentifier(std::string_view value) {
  const bool ok = !value.empty() && !IsDigit(value.front()) &&
                  All(value, [](char c) { return IsAlphanumeric(c) || c == '_'; });
  if (ok) {
    return {};
  }
  return {
      RegexProblem("a valid C identifier must start with alphabetic character or '_', followed "
                   "by a string of alphanumeric characters or '_'",
                   "[A-Za-z_][A-Za-z0-9_]*", {"my_name", "MY_NAME", "MyName"})};
}

Problems IsPathSegmentName(std::string_view value) {
  if (value == "." || value == "..") {
    return {"may not be '" + std::string(value) + "'"};
  }
  Problems problems;
  for (const char* illegal : {"/", "%"}) {
    if (value.find(illegal) != std::string_view::npos) {
      problems.push_back("may not contain '" + std::string(illegal) + "'");
    }
  }
  return problems;
}

Problems IsPortName(std::string_view value) {
  Problems problems;
  if (value.size() > 15) {
    problems.push_back(MaxLengthProblem(15));
  }
  if (value.empty() || !All(value, [](char c) { return IsLowerOrDigit(c) || c == '-'; })) {
    problems.push_back("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)");
  }
  if (std::none_of(value.begin(), value.end(), IsLower)) {
    problems.push_back("must contain at least one letter (a-z)");
  }
  if (value.find("--") != std::string_view::npos) {
    problems.push_back("must not contain consecutive hyphens");
  }
  if (!value.empty() && (value.front() == '-' || value.back() == '-')) {
    problems.push_back("must not begin or end with a hyphen");
  }
  return problems;
}

Problems IsInRange(std::int64_t value, std::int64_t min, std::int64_t max) {
  if (value >= min && value <= max) {
    return {};
  }
  return {RangeProblem(min, max)};
}

Problems IsPortNumber(std::int64_t value) { return IsInRange(value, 1, 65535); }

Problems IsPercent(std::string_view value) {
  if (value.size() > 1 && value.back() == '%' && All(value.substr(0, value.size() - 1), IsDigit)) {
    return {};
  }
  return {RegexProblem("a valid percent string must be a numeric string followed by an ending '%'",
                       "[0-9]+%", {"1%", "93%"})};
}

Problems IsHttpHeaderName(std::string_view value) {
  if (!value.empty() && All(value, [](char c) { return IsAlphanumeric(c) || c == '-'; })) {
    return {};
  }
  return {RegexProblem("a valid HTTP header must consist of alphanumeric characters or '-'",
                       "[-A-Za-z0-9]+", {"X-Header-Name"})};
}

Problems IsEnvVarName(std::string_view value) {
  Problems problems;
  const bool ok = !value.empty() && !IsDigit(value.front()) && All(value, [](char c) {
    return IsAlphanumeric(c) || c == '-' || c == '_' || c == '.';
  });
  if (!ok) {
    problems.push_back(RegexProblem(
        "a valid environment variable name must consist of alphabetic characters, digits, '_', "
        "'-', or '.', and must not start with a digit",
        "[-._a-zA-Z][-._a-zA-Z0-9]*", {"my.env-name", "MY_ENV.NAME", "MyEnvName1"}));
  }
  AddDirectoryProblems(value, &problems);
  return problems;
}

Problems IsRelaxedEnvVarName(std::string_view value) {
  Problems problems;
  if (value.empty()) {
    problems.push_back("environment variable name must be non-empty");
  }
  if (!All(value, [](char c) { return c >= 0x20 && c < 0x7f && c != '='; })) {
    problems.push_back(
        "a valid environment variable name must consist only of printable ASCII characters other "
        "than '='");
  }
  return problems;
}

Problems IsConfigMapKey(std::string_view value) {
  Problems problems;
  if (value.size() > 253) {
    problems.push_back(MaxLengthProblem(253));
  }
  const bool ok = !value.empty() && All(value, [](char c) {
    return IsAlphanumeric(c) || c == '-' || c == '_' || c == '.';
  });
  if (!ok) {
    problems.push_back(
        RegexProblem("a valid config key must consist of alphanumeric characters, '-', '_' or '.'",
                     "[-._a-zA-Z0-9]+", {"key.name", "KEY_NAME", "key-name"}));
  }
  AddDirectoryProblems(value, &problems);
  return problems;
}

Problems IsIpAddress(std::string_view value) {
  unsigned char buffer[16];
  const std::string text(value);
  const bool ok =
      text.find('%') == std::string::npos && (inet_pton(AF_INET, text.c_str(), buffer) == 1 ||
                                              inet_pton(AF_INET6, text.c_str(), buffer) == 1);
  if (ok) {
    return {};
  }
  return {"must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"};
}

Problems IsCidr(std::string_view value) {
  const std::size_t slash = value.find('/');
  if (slash != std::string_view::npos && IsIpAddress(value.substr(0, slash)).empty()) {
    const std::string_view bits = value.substr(slash + 1);
    const int max = value.substr(0, slash).find(':') == std::string_view::npos ? 32 : 128;
    int length = -1;
    const auto [end, error] = std::from_chars(bits.data(), bits.data() + bits.size(), length);
    if (error == std::errc() && end == bits.data() + bits.size() && length >= 0 && length <= max &&
        (bits.size() == 1 || bits[0] != '0')) {
      return {};
    }
  }
  return {"must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"};
}

}  // namespace sublet::kube
