#include "apiserver/http/response_head.h"

#include <charconv>

namespace sublet::apiserver {

std::string_view ReasonPhrase(int code) {
  switch (code) {
    case 100: return "Continue";
    case 101: return "Switching Protocols";
    case 200: return "OK";
    case 201: return "Created";
    case 202: return "Accepted";
    case 204: return "No Content";
    case 301: return "Moved Permanently";
    case 302: return "Found";
    case 304: return "Not Modified";
    case 307: return "Temporary Redirect";
    case 400: return "Bad Request";
    case 401: return "Unauthorized";
    case 403: return "Forbidden";
    case 404: return "Not Found";
    case 405: return "Method Not Allowed";
    case 406: return "Not Acceptable";
    case 408: return "Request Timeout";
    case 409: return "Conflict";
    case 410: return "Gone";
    case 413: return "Request Entity Too Large";
    case 415: return "Unsupported Media Type";
    case 422: return "Unprocessable Entity";
    case 429: return "Too Many Requests";
    case 431: return "Request Header Fields Too Large";
    case 500: return "Internal Server Error";
    case 501: return "Not Implemented";
    case 502: return "Bad Gateway";
    case 503: return "Service Unavailable";
    case 504: return "Gateway Timeout";
    case 505: return "HTTP Version Not Supported";
    default: return "Status";
  }
}

void AppendNumber(std::string& out, std::uint64_t number, int base) {
  char text[24];
  const auto end = std::to_chars(text, text + sizeof text, number, base).ptr;
  out.append(text, end);
}

bool HasHeader(const Response& response, std::string_view name) {
  for (const auto& header : response.headers) {
    if (header.first == name) {
      return true;
    }
  }
  return false;
}

std::string EncodeHead(const Response& head, const HeadFacts& facts, std::string_view date) {
  std::string text;
  text.reserve(512);
  text.append("HTTP/1.1 ");
  AppendNumber(text, static_cast<std::uint64_t>(head.code));
  text.append(" ").append(ReasonPhrase(head.code)).append("\r\n");
  for (const auto& [name, value] : head.headers) {
    text.append(name).append(": ").append(value).append("\r\n");
  }
  if (!head.content_type.empty() && facts.has_body) {
    text.append("Content-Type: ").append(head.content_type).append("\r\n");
  }
  text.append("Date: ").append(date).append("\r\n");
  if (facts.is_stream && facts.chunked) {
    text.append("Transfer-Encoding: chunked\r\n");
  } else if (!facts.is_stream && facts.has_body) {
    text.append("Content-Length: ");
    AppendNumber(text, facts.body_bytes);
    text.append("\r\n");
  }
  if (!facts.keep_alive && !facts.is_upgrade) {
    text.append("Connection: close\r\n");
  } else if (facts.is_http_1_0) {
    text.append("Connection: keep-alive\r\n");
  }
  text.append("\r\n");
  return text;
}

}  // namespace sublet::apiserver
