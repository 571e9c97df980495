#include "apiserver/crd/formats.h"

#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "apiserver/crd/patterns.h"
#include "kube/timestamp.h"
#include "kube/validation_names.h"

namespace sublet::apiserver {
namespace {

bool IsIp(std::string_view text, int family) {
  const std::string copy(text);
  std::array<unsigned char, 16> buffer{};
  return inet_pton(family, copy.c_str(), buffer.data()) == 1;
}

bool IsDate(std::string_view text) {
  return text.size() == 10 && kube::ParseTime(std::string(text) + "T00:00:00Z").ok();
}

bool IsBase64(std::string_view text) {
  if (text.size() % 4 != 0) {
    return false;
  }
  std::size_t padding = 0;
  for (const char c : text) {
    const bool plain = std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '+' || c == '/';
    if (c == '=') {
      ++padding;
    } else if (!plain || padding > 0) {
      return false;
    }
  }
  return padding <= 2;
}

// Go's duration, or Scala's "22 ns".
bool IsDuration(std::string_view text) {
  static const std::string kScala =
      R"(^\s*((\d+)\s*(ns|nanos?|nanoseconds?|us|µs|micros?|microseconds?|ms|millis?|milliseconds?|s|secs?|seconds?|m|mins?|minutes?|h|hrs?|hours?|d|days?|w|wks?|weeks?))+\s*$)";
  return kube::ParseDuration(text).ok() || MatchesPattern(kScala, text);
}

bool IsUri(std::string_view text) {
  static const std::string kAbsolute = R"(^[A-Za-z][A-Za-z0-9+.-]*:[^\s]*$)";
  return (!text.empty() && text.front() == '/') || MatchesPattern(kAbsolute, text);
}

bool IsUuid(std::string_view text, const char* version) {
  static const std::string kAny =
      "(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}$";
  if (!MatchesPattern(kAny, text)) {
    return false;
  }
  if (*version == '\0') {
    return true;
  }
  std::string digits;
  std::copy_if(text.begin(), text.end(), std::back_inserter(digits),
               [](char c) { return c != '-'; });
  const char variant = static_cast<char>(std::tolower(static_cast<unsigned char>(digits[16])));
  const bool needs_variant = *version == '4' || *version == '5';
  return digits[12] == *version &&
         (!needs_variant || variant == '8' || variant == '9' || variant == 'a' || variant == 'b');
}

bool IsHostname(std::string_view text) {
  static const std::string kHostname =
      R"(^([a-zA-Z0-9\p{S}\p{L}]((-?[a-zA-Z0-9\p{S}\p{L}]{0,62})?)|([a-zA-Z0-9\p{S}\p{L}](([a-zA-Z0-9-\p{S}\p{L}]{0,61}[a-zA-Z0-9\p{S}\p{L}])?)(\.)){1,}([a-zA-Z\p{L}]){2,63})$)";
  return text.size() <= 255 && MatchesPattern(kHostname, text);
}

struct Format {
  std::string_view name;  // normalised: without '-'
  bool (*matches)(std::string_view);
};

bool Pattern(const char* pattern, std::string_view text) { return MatchesPattern(pattern, text); }

constexpr Format kFormats[] = {
    {"datetime",
     [](std::string_view t) {
       return kube::ParseTime(t).ok() ||
              Pattern(R"(^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d+)?([+-]\d{4}|Z)?$)", t);
     }},
    {"date", [](std::string_view t) { return IsDate(t); }},
    {"byte", [](std::string_view t) { return IsBase64(t); }},
    {"password", [](std::string_view) { return true; }},
    {"duration", [](std::string_view t) { return IsDuration(t); }},
    {"email", [](std::string_view t) { return Pattern(R"(^[^@\s<>]+@[^@\s<>]+$)", t); }},
    {"ipv4", [](std::string_view t) { return IsIp(t, AF_INET); }},
    {"ipv6", [](std::string_view t) { return IsIp(t, AF_INET6); }},
    {"cidr", [](std::string_view t) { return kube::IsCidr(t).empty(); }},
    {"hostname", [](std::string_view t) { return IsHostname(t); }},
    {"uri", [](std::string_view t) { return IsUri(t); }},
    {"mac",
     [](std::string_view t) {
       return Pattern(
           R"((?i)^(([0-9a-f]{2}[:-]){5}([0-9a-f]{2}[:-]){0,14}[0-9a-f]{2}|([0-9a-f]{4}\.){2,9}[0-9a-f]{4})$)",
           t);
     }},
    {"uuid", [](std::string_view t) { return IsUuid(t, ""); }},
    {"uuid3", [](std::string_view t) { return IsUuid(t, "3"); }},
    {"uuid4", [](std::string_view t) { return IsUuid(t, "4"); }},
    {"uuid5", [](std::string_view t) { return IsUuid(t, "5"); }},
    {"bsonobjectid", [](std::string_view t) { return Pattern("(?i)^[0-9a-f]{24}$", t); }},
    {"isbn10", [](std::string_view t) { return Pattern(R"(^(?:[0-9][- ]?){9}[0-9X]$)", t); }},
    {"isbn13", [](std::string_view t) { return Pattern(R"(^(?:[0-9][- ]?){13}$)", t); }},
    {"isbn",
     [](std::string_view t) {
       return Pattern(R"(^((?:[0-9][- ]?){9}[0-9X]|(?:[0-9][- ]?){13})$)", t);
     }},
    {"creditcard", [](std::string_view t) { return Pattern(R"(^[0-9][0-9 -]{11,22}[0-9]$)", t); }},
    {"ssn", [](std::string_view t) { return Pattern(R"(^\d{3}[- ]?\d{2}[- ]?\d{4}$)", t); }},
    {"hexcolor",
     [](std::string_view t) { return Pattern("^#?([0-9a-fA-F]{3}|[0-9a-fA-F]{6})$", t); }},
    {"rgbcolor",
     [](std::string_view t) {
       return Pattern(R"(^rgb\(\s*\d{1,3}\s*,\s*\d{1,3}\s*,\s*\d{1,3}\s*\)$)", t);
     }},
    {"k8sshortname", [](std::string_view t) { return kube::IsDns1123Label(t).empty(); }},
    {"k8slongname", [](std::string_view t) { return kube::IsDns1123Subdomain(t).empty(); }},
};

const Format* FindFormat(std::string_view format) {
  std::string normal;
  std::copy_if(format.begin(), format.end(), std::back_inserter(normal),
               [](char c) { return c != '-'; });
  for (const auto& candidate : kFormats) {
    if (candidate.name == normal) {
      return &candidate;
    }
  }
  return nullptr;
}

}  // namespace

bool IsKnownFormat(std::string_view format) { return FindFormat(format) != nullptr; }

bool MatchesFormat(std::string_view format, std::string_view text) {
  const Format* found = FindFormat(format);
  return found == nullptr || found->matches(text);
}

}  // namespace sublet::apiserver
