#include "apiserver/request.h"

#include <array>

namespace sublet::apiserver {
namespace {

int HexDigit(char c) {
  if (c >= '0' && c <= '9') {
    return c - '0';
  }
  if (c >= 'a' && c <= 'f') {
    return c - 'a' + 10;
  }
  if (c >= 'A' && c <= 'F') {
    return c - 'A' + 10;
  }
  return -1;
}

std::string DecodePercent(std::string_view text, bool plus_is_space) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '+' && plus_is_space) {
      out.push_back(' ');
    } else if (c == '%' && i + 2 < text.size() && HexDigit(text[i + 1]) >= 0 &&
               HexDigit(text[i + 2]) >= 0) {
      out.push_back(static_cast<char>(HexDigit(text[i + 1]) * 16 + HexDigit(text[i + 2])));
      i += 2;
    } else {
      out.push_back(c);
    }
  }
  return out;
}

// Path segments, leading and trailing '/' ignored; bounded, the tail stays in the last one.
constexpr std::size_t kSegmentsMax = 12;
struct Segments {
  std::array<std::string_view, kSegmentsMax> at;
  std::size_t count = 0;
};

Segments Split(std::string_view path) {
  Segments result;
  while (!path.empty() && path.front() == '/') {
    path.remove_prefix(1);
  }
  while (!path.empty() && path.back() == '/') {
    path.remove_suffix(1);
  }
  while (!path.empty() && result.count < kSegmentsMax) {
    const auto slash = path.find('/');
    result.at[result.count++] = path.substr(0, slash);
    if (slash == std::string_view::npos) {
      break;
    }
    path.remove_prefix(slash + 1);
  }
  return result;
}

// True as Go's conversion of a query value to a bool in meta.k8s.io ListOptions: present and
// neither "false" nor "0".
bool QueryBool(const Query& query, std::string_view name) {
  if (!query.Has(name)) {
    return false;
  }
  const auto value = query.Get(name);
  return value != "false" && value != "0" && value != "False" && value != "FALSE";
}

// The name that a field selector demands exactly ("metadata.name=x"), or "".
std::string_view ExactName(std::string_view selector) {
  while (!selector.empty()) {
    const auto comma = selector.find(',');
    auto term = selector.substr(0, comma);
    selector.remove_prefix(comma == std::string_view::npos ? selector.size() : comma + 1);
    constexpr std::string_view kKey = "metadata.name=";
    if (term.starts_with(kKey)) {
      term.remove_prefix(kKey.size());
      if (term.starts_with('=')) {
        term.remove_prefix(1);
      }
      const bool is_segment = !term.empty() && term != "." && term != ".." &&
                              term.find_first_of("/%\\") == std::string_view::npos;
      return is_segment ? term : std::string_view();
    }
  }
  return {};
}

std::string_view VerbOf(std::string_view method) {
  if (method == "POST") {
    return "create";
  }
  if (method == "GET" || method == "HEAD") {
    return "get";
  }
  if (method == "PUT") {
    return "update";
  }
  if (method == "PATCH") {
    return "patch";
  }
  if (method == "DELETE") {
    return "delete";
  }
  return "";
}

std::string LowerCase(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') {
      c = static_cast<char>(c - 'A' + 'a');
    }
  }
  return out;
}

}  // namespace

std::string_view Query::Get(std::string_view name) const {
  for (const auto& [key, value] : items_) {
    if (key == name) {
      return value;
    }
  }
  return {};
}

bool Query::Has(std::string_view name) const {
  for (const auto& item : items_) {
    if (item.first == name) {
      return true;
    }
  }
  return false;
}

std::vector<std::string_view> Query::All(std::string_view name) const {
  std::vector<std::string_view> values;
  for (const auto& [key, value] : items_) {
    if (key == name) {
      values.emplace_back(value);
    }
  }
  return values;
}

std::string_view Request::Header(std::string_view lower_case_name) const {
  for (const auto& [key, value] : headers) {
    if (key == lower_case_name) {
      return value;
    }
  }
  return {};
}

Query ParseQuery(std::string_view text) {
  std::vector<std::pair<std::string, std::string>> items;
  while (!text.empty()) {
    const auto end = text.find('&');
    const auto part = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (part.empty()) {
      continue;
    }
    const auto equal = part.find('=');
    items.emplace_back(DecodePercent(part.substr(0, equal), true),
                       equal == std::string_view::npos
                           ? std::string()
                           : DecodePercent(part.substr(equal + 1), true));
  }
  return Query(std::move(items));
}

std::string DecodePath(std::string_view raw_path) { return DecodePercent(raw_path, false); }

RequestInfo ParseRequestInfo(std::string_view method, std::string_view path, const Query& query) {
  RequestInfo info;
  info.verb = LowerCase(method);
  const Segments parts = Split(path);
  if (parts.count < 3 || (parts.at[0] != "api" && parts.at[0] != "apis")) {
    return info;
  }
  std::size_t next = 1;
  if (parts.at[0] == "apis") {
    if (parts.count < 4) {
      return info;
    }
    info.group = parts.at[next++];
  }
  info.prefix = parts.at[0];
  info.is_resource = true;
  info.version = parts.at[next++];
  if (parts.at[next] == "watch" && next + 1 < parts.count) {
    info.verb = "watch";
    ++next;
  } else {
    info.verb = VerbOf(method);
  }
  // Namespaces are resources and prefixes of resources; "status" and "finalize" are theirs.
  if (parts.at[next] == "namespaces" && next + 1 < parts.count) {
    info.namespace_name = parts.at[next + 1];
    if (next + 2 < parts.count && parts.at[next + 2] != "status" &&
        parts.at[next + 2] != "finalize") {
      next += 2;
    }
  }
  info.resource = parts.at[next++];
  if (next < parts.count) {
    info.name = parts.at[next++];
  }
  if (next < parts.count) {
    const std::string_view subresource = parts.at[next];
    info.subresource = subresource;
    info.rest = path.substr(
        static_cast<std::size_t>(subresource.data() + subresource.size() - path.data()));
  }
  if (info.name.empty() && info.verb == "get") {
    info.verb = QueryBool(query, "watch") ? "watch" : "list";
  }
  if (info.name.empty() && (info.verb == "list" || info.verb == "watch")) {
    info.selected_name = ExactName(query.Get("fieldSelector"));
  }
  if (info.name.empty() && info.verb == "delete") {
    info.verb = "deletecollection";
  }
  return info;
}

}  // namespace sublet::apiserver
