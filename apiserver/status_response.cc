#include "apiserver/status_response.h"

namespace sublet::apiserver {
namespace {

// The length of the well-formed UTF-8 sequence at the front of `text`, or 0.
std::size_t Utf8Length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const auto is_tail = [&](std::size_t i) { return i < text.size() && (byte(i) & 0xc0) == 0x80; };
  const unsigned char first = byte(0);
  if (first < 0x80) {
    return 1;
  }
  if (first >= 0xc2 && first <= 0xdf) {
    return is_tail(1) ? 2 : 0;
  }
  if (first >= 0xe0 && first <= 0xef && is_tail(1) && is_tail(2)) {
    const bool overlong = first == 0xe0 && byte(1) < 0xa0;
    const bool surrogate = first == 0xed && byte(1) >= 0xa0;
    return overlong || surrogate ? 0 : 3;
  }
  if (first >= 0xf0 && first <= 0xf4 && is_tail(1) && is_tail(2) && is_tail(3)) {
    const bool overlong = first == 0xf0 && byte(1) < 0x90;
    const bool too_big = first == 0xf4 && byte(1) >= 0x90;
    return overlong || too_big ? 0 : 4;
  }
  return 0;
}

void AppendMember(std::string& out, std::string_view name, std::string_view value) {
  if (!value.empty()) {
    out.append("\"").append(name).append("\":");
    AppendJsonString(out, value);
    out.push_back(',');
  }
}

void CloseObject(std::string& out, char close) {
  if (out.back() == ',') {
    out.back() = close;
  } else {
    out.push_back(close);
  }
}

void AppendDetails(std::string& out, const StatusDetails& details) {
  out.append("\"details\":{");
  AppendMember(out, "name", details.name);
  AppendMember(out, "group", details.group);
  AppendMember(out, "kind", details.kind);
  AppendMember(out, "uid", details.uid);
  if (!details.causes.empty()) {
    out.append("\"causes\":[");
    for (const StatusCause& cause : details.causes) {
      out.push_back('{');
      AppendMember(out, "reason", cause.reason);
      AppendMember(out, "message", cause.message);
      AppendMember(out, "field", cause.field);
      CloseObject(out, '}');
      out.push_back(',');
    }
    CloseObject(out, ']');
    out.push_back(',');
  }
  if (details.retry_after_seconds != 0) {
    out.append("\"retryAfterSeconds\":").append(std::to_string(details.retry_after_seconds));
    out.push_back(',');
  }
  CloseObject(out, '}');
  out.push_back(',');
}

}  // namespace

void AppendJsonString(std::string& out, std::string_view text) {
  static constexpr char kHex[] = "0123456789abcdef";
  out.push_back('"');
  while (!text.empty()) {
    const char c = text.front();
    const std::size_t length = Utf8Length(text);
    if (length == 0) {
      out.append("\xef\xbf\xbd");
      text.remove_prefix(1);
      continue;
    }
    if (c == '"' || c == '\\') {
      out.push_back('\\');
      out.push_back(c);
    } else if (c == '\n') {
      out.append("\\n");
    } else if (c == '\r') {
      out.append("\\r");
    } else if (c == '\t') {
      out.append("\\t");
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out.append("\\u00");
      out.push_back(kHex[(c >> 4) & 0xf]);
      out.push_back(kHex[c & 0xf]);
    } else {
      out.append(text.substr(0, length));
    }
    text.remove_prefix(length);
  }
  out.push_back('"');
}

std::string StatusJson(const Status& status) {
  std::string out = R"({"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure",)";
  AppendMember(out, "message", status.message());
  AppendMember(out, "reason", ReasonName(status.reason()));
  if (status.has_details()) {
    AppendDetails(out, status.details());
  }
  out.append("\"code\":").append(std::to_string(status.code())).append("}\n");
  return out;
}

Response StatusResponse(const Status& status) {
  Response response;
  response.code = status.code();
  if (status.details().retry_after_seconds > 0) {
    response.headers.emplace_back("Retry-After",
                                  std::to_string(status.details().retry_after_seconds));
  }
  response.body = Body(StatusJson(status));
  return response;
}

}  // namespace sublet::apiserver
