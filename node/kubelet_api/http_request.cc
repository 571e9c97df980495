#include "node/kubelet_api/http_request.h"

#include <cstdio>
#include <cstdlib>

namespace sublet::node {
namespace {

std::string Lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  }
  return out;
}

std::string_view Trim(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) {
    text.remove_prefix(1);
  }
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) {
    text.remove_suffix(1);
  }
  return text;
}

int HexDigit(char c) {
  return c >= '0' && c <= '9'   ? c - '0'
         : c >= 'a' && c <= 'f' ? c - 'a' + 10
         : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                : -1;
}

Result<void> ParseTarget(std::string_view target, KubeletRequest* request) {
  if (target.empty() || target.front() != '/') {
    return BadRequest("the request target is not a path");
  }
  const auto mark = target.find('?');
  request->path = UrlDecode(target.substr(0, mark), false);
  std::string_view query = mark == std::string_view::npos ? "" : target.substr(mark + 1);
  while (!query.empty()) {
    const auto end = query.find('&');
    const std::string_view item = query.substr(0, end);
    const auto equals = item.find('=');
    if (!item.empty()) {
      request->query.emplace_back(
          UrlDecode(item.substr(0, equals), true),
          equals == std::string_view::npos ? "" : UrlDecode(item.substr(equals + 1), true));
    }
    query = end == std::string_view::npos ? std::string_view() : query.substr(end + 1);
  }
  return {};
}

}  // namespace

std::string UrlDecode(std::string_view text, bool plus_is_space) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size() && HexDigit(text[i + 1]) >= 0 &&
        HexDigit(text[i + 2]) >= 0) {
      out += static_cast<char>(HexDigit(text[i + 1]) * 16 + HexDigit(text[i + 2]));
      i += 2;
    } else {
      out += text[i] == '+' && plus_is_space ? ' ' : text[i];
    }
  }
  return out;
}

std::vector<std::string> SplitList(std::string_view value) {
  std::vector<std::string> out;
  while (!value.empty()) {
    const auto comma = value.find(',');
    const std::string_view item = Trim(value.substr(0, comma));
    if (!item.empty()) {
      out.emplace_back(item);
    }
    value = comma == std::string_view::npos ? std::string_view() : value.substr(comma + 1);
  }
  return out;
}

Result<KubeletRequest> ParseRequestHead(std::string_view head) {
  KubeletRequest request;
  const auto line_end = head.find("\r\n");
  const std::string_view line = head.substr(0, line_end);
  const auto first = line.find(' ');
  const auto last = line.rfind(' ');
  if (first == std::string_view::npos || last <= first) {
    return BadRequest("malformed request line");
  }
  request.method = line.substr(0, first);
  const std::string_view version = line.substr(last + 1);
  if (version != "HTTP/1.1" && version != "HTTP/1.0") {
    return BadRequest("unsupported HTTP version");
  }
  SUBLET_RETURN_IF_ERROR(ParseTarget(line.substr(first + 1, last - first - 1), &request));
  request.keep_alive = version == "HTTP/1.1";
  std::string_view rest =
      line_end == std::string_view::npos ? std::string_view() : head.substr(line_end + 2);
  while (!rest.empty()) {
    const auto end = rest.find("\r\n");
    const std::string_view field = rest.substr(0, end);
    rest = end == std::string_view::npos ? std::string_view() : rest.substr(end + 2);
    const auto colon = field.find(':');
    if (colon == std::string_view::npos || colon == 0) {
      return BadRequest("malformed header field");
    }
    request.headers.emplace_back(Lower(field.substr(0, colon)),
                                 std::string(Trim(field.substr(colon + 1))));
    const auto& [name, value] = request.headers.back();
    if (name == "connection" && Lower(value).find("close") != std::string::npos) {
      request.keep_alive = false;
    } else if (name == "transfer-encoding") {
      return BadRequest("request bodies must have a Content-Length");
    } else if (name == "content-length") {
      char* stop = nullptr;
      const unsigned long long length = std::strtoull(value.c_str(), &stop, 10);
      if (value.empty() || *stop != '\0' || value[0] == '-' || length > (1u << 20)) {
        return BadRequest("bad Content-Length");
      }
      request.content_length = length;
    }
  }
  return request;
}

std::string_view KubeletRequest::Header(std::string_view lower_case_name) const {
  for (const auto& [name, value] : headers) {
    if (name == lower_case_name) {
      return value;
    }
  }
  return {};
}

std::string_view KubeletRequest::Query(std::string_view wanted) const {
  for (const auto& [name, value] : query) {
    if (name == wanted) {
      return value;
    }
  }
  return {};
}

std::vector<std::string> KubeletRequest::QueryAll(std::string_view wanted) const {
  std::vector<std::string> out;
  for (const auto& [name, value] : query) {
    if (name == wanted) {
      out.push_back(value);
    }
  }
  return out;
}

bool KubeletRequest::Flag(std::string_view wanted) const {
  for (const auto& [name, value] : query) {
    if (name == wanted) {
      const std::string text = Lower(value);
      return text.empty() || text == "1" || text == "true" || text == "t";
    }
  }
  return false;
}

std::vector<std::string> KubeletRequest::PathParts() const {
  std::vector<std::string> parts;
  std::size_t at = 0;
  while (at < path.size()) {
    auto end = path.find('/', at);
    end = end == std::string::npos ? path.size() : end;
    if (end > at) {
      parts.push_back(path.substr(at, end - at));
    }
    at = end + 1;
  }
  return parts;
}

std::string_view ReasonPhrase(int code) {
  switch (code) {
    case 101: return "Switching Protocols";
    case 200: return "OK";
    case 400: return "Bad Request";
    case 401: return "Unauthorized";
    case 403: return "Forbidden";
    case 404: return "Not Found";
    case 405: return "Method Not Allowed";
    case 503: return "Service Unavailable";
    default: return "Internal Server Error";
  }
}

std::string MakeResponse(int code, std::string_view content_type, std::string_view body,
                         bool close) {
  std::string out = "HTTP/1.1 " + std::to_string(code) + " " + std::string(ReasonPhrase(code)) +
                    "\r\nContent-Type: " + std::string(content_type) +
                    "\r\nContent-Length: " + std::to_string(body.size()) + "\r\n";
  out += close ? "Connection: close\r\n\r\n" : "\r\n";
  out += body;
  return out;
}

ChunkedResponse::ChunkedResponse(Duplex& connection, std::string_view content_type)
    : connection_(connection) {
  failed_ = !connection_
                 .Write("HTTP/1.1 200 OK\r\nContent-Type: " + std::string(content_type) +
                        "\r\nTransfer-Encoding: chunked\r\n\r\n")
                 .ok();
}

bool ChunkedResponse::Write(std::string_view data) {
  if (failed_ || data.empty()) {
    return !failed_;
  }
  char size[32];
  std::snprintf(size, sizeof(size), "%zx\r\n", data.size());
  std::string chunk = size;
  chunk += data;
  chunk += "\r\n";
  failed_ = !connection_.Write(chunk).ok();
  return !failed_;
}

void ChunkedResponse::Finish() {
  if (!failed_) {
    failed_ = !connection_.Write("0\r\n\r\n").ok();
  }
}

}  // namespace sublet::node
