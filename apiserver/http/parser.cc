#include "apiserver/http/parser.h"

#include <algorithm>
#include <array>
#include <charconv>

namespace sublet::apiserver {
namespace {

constexpr std::size_t kLineBytesMax = 8 * 1024;  // chunk size and trailer lines
constexpr std::size_t kSkippedMax = 16;          // bytes of empty lines before a request

constexpr std::array<bool, 256> MakeTokenTable() {
  std::array<bool, 256> table{};
  for (unsigned c = '0'; c <= '9'; ++c) {
    table[c] = true;
  }
  for (unsigned c = 'a'; c <= 'z'; ++c) {
    table[c] = true;
  }
  for (unsigned c = 'A'; c <= 'Z'; ++c) {
    table[c] = true;
  }
  for (const char c : std::string_view("!#$%&'*+-.^_`|~")) {
    table[static_cast<unsigned char>(c)] = true;
  }
  return table;
}
constexpr std::array<bool, 256> kToken = MakeTokenTable();

bool IsToken(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(),
                                      [](char c) { return kToken[static_cast<unsigned char>(c)]; });
}

char Lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; }

bool EqualsIgnoringCase(std::string_view a, std::string_view b) {
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(),
                                            [](char x, char y) { return Lower(x) == Lower(y); });
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

// Calls visit(element) for each element of a comma separated list.
template <typename Visit>
void ForEachElement(std::string_view list, Visit visit) {
  while (!list.empty()) {
    const auto comma = list.find(',');
    const auto element = Trim(list.substr(0, comma));
    if (!element.empty()) {
      visit(element);
    }
    list.remove_prefix(comma == std::string_view::npos ? list.size() : comma + 1);
  }
}

// "gzip", "gzip;q=0.5", but not "gzip;q=0".
bool IsWantedGzip(std::string_view element) {
  const auto semicolon = element.find(';');
  const auto name = Trim(element.substr(0, semicolon));
  if (!EqualsIgnoringCase(name, "gzip") && name != "*") {
    return false;
  }
  if (semicolon == std::string_view::npos) {
    return true;
  }
  const auto q = Trim(element.substr(semicolon + 1));
  return q.find_first_of("123456789") != std::string_view::npos;
}

}  // namespace

RequestParser::State RequestParser::Fail(int code, std::string_view text) {
  stage_ = Stage::kFailed;
  error_code_ = code;
  error_text_ = text;
  return State::kError;
}

ParsedRequest RequestParser::Take() {
  ParsedRequest taken = std::move(request_);
  request_ = {};
  stage_ = Stage::kHead;
  scanned_ = 0;
  skipped_ = 0;
  body_left_ = 0;
  trailer_bytes_ = 0;
  has_length_ = is_chunked_ = expects_continue_ = has_host_ = false;
  return taken;
}

RequestParser::State RequestParser::Parse(std::string_view data, std::size_t* consumed) {
  *consumed = 0;
  const std::size_t size_before = data.size();
  if (stage_ == Stage::kHead) {
    // Empty lines before a request are allowed and skipped (RFC 9112 2.2), boundedly, however they
    // are cut.
    const bool may_skip = scanned_ == 0;
    while (may_skip && skipped_ < kSkippedMax && data.starts_with("\r\n")) {
      data.remove_prefix(2);
      skipped_ += 2;
    }
    *consumed = size_before - data.size();
    if (may_skip && skipped_ < kSkippedMax && data == "\r") {
      return State::kNeedMore;
    }
    const std::size_t from = scanned_ > 3 ? scanned_ - 3 : 0;
    const auto end = data.find("\r\n\r\n", from);
    if (end == std::string_view::npos) {
      scanned_ = data.size();
      if (data.size() > limits_.head_bytes_max + 3) {  // without what may be of its end
        return Fail(431, "request header fields too large");
      }
      return State::kNeedMore;
    }
    if (end > limits_.head_bytes_max) {
      return Fail(431, "request header fields too large");
    }
    if (!ParseHead(data.substr(0, end + 2))) {
      return State::kError;
    }
    data.remove_prefix(end + 4);
    if (expects_continue_ && stage_ != Stage::kDone && data.empty()) {
      expects_continue_ = false;
      *consumed = size_before;
      return State::kSendContinue;
    }
  }
  while (stage_ != Stage::kDone) {
    if (!StepBody(&data)) {
      *consumed = size_before - data.size();
      return stage_ == Stage::kFailed ? State::kError : State::kNeedMore;
    }
  }
  *consumed = size_before - data.size();
  return State::kDone;
}

bool RequestParser::ParseHead(std::string_view head) {
  auto next_line = [&head]() {
    const auto end = head.find("\r\n");
    const auto line = head.substr(0, end);
    head.remove_prefix(end + 2);
    return line;
  };
  if (!ParseRequestLine(next_line())) {
    return false;
  }
  request_.headers.reserve(10);
  while (!head.empty()) {
    if (request_.headers.size() >= limits_.headers_max) {
      Fail(431, "too many header fields");
      return false;
    }
    if (!ParseHeaderLine(next_line())) {
      return false;
    }
  }
  return FinishHead();
}

bool RequestParser::ParseRequestLine(std::string_view line) {
  const auto first = line.find(' ');
  const auto last = line.rfind(' ');
  if (first == std::string_view::npos || first == last) {
    Fail(400, "malformed request line");
    return false;
  }
  const auto method = line.substr(0, first);
  auto target = line.substr(first + 1, last - first - 1);
  const auto version = line.substr(last + 1);
  const bool clean = std::all_of(target.begin(), target.end(), [](char c) {
    return static_cast<unsigned char>(c) > 0x20 && c != 0x7f;
  });
  if (!IsToken(method) || method.size() > 32 || target.empty() || !clean) {
    Fail(400, "malformed request line");
    return false;
  }
  if (version == "HTTP/1.0") {
    request_.http_1_0 = true;
    request_.keep_alive = false;
  } else if (version != "HTTP/1.1") {
    Fail(version.starts_with("HTTP/") ? 505 : 400, "unsupported protocol version");
    return false;
  }
  if (target.front() != '/' && target != "*") {
    // Absolute form, as a proxy's client sends it.
    const auto scheme = target.find("://");
    const auto slash =
        scheme == std::string_view::npos ? std::string_view::npos : target.find('/', scheme + 3);
    if (scheme == std::string_view::npos) {
      Fail(400, "malformed request target");
      return false;
    }
    target = slash == std::string_view::npos ? std::string_view("/") : target.substr(slash);
  }
  target = target.substr(0, target.find('#'));
  const auto question = target.find('?');
  request_.method = method;
  request_.raw_path = target.substr(0, question);
  if (question != std::string_view::npos) {
    request_.raw_query = target.substr(question + 1);
  }
  return true;
}

bool RequestParser::ParseHeaderLine(std::string_view line) {
  const auto colon = line.find(':');
  if (colon == std::string_view::npos || !IsToken(line.substr(0, colon))) {
    Fail(400, "malformed header field");
    return false;
  }
  const auto value = Trim(line.substr(colon + 1));
  for (const char c : value) {
    if ((static_cast<unsigned char>(c) < 0x20 && c != '\t') || c == 0x7f) {
      Fail(400, "invalid header field value");
      return false;
    }
  }
  std::string name(line.substr(0, colon));
  std::transform(name.begin(), name.end(), name.begin(), Lower);
  if (!ApplyHeader(name, value)) {
    return false;
  }
  request_.headers.emplace_back(std::move(name), value);
  return true;
}

bool RequestParser::ApplyHeader(const std::string& name, std::string_view value) {
  if (name == "content-length") {
    std::uint64_t length = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), length);
    if (value.empty() || error != std::errc() || end != value.data() + value.size() ||
        has_length_) {
      Fail(400, "bad Content-Length");
      return false;
    }
    has_length_ = true;
    body_left_ = length;
  } else if (name == "transfer-encoding") {
    if (!EqualsIgnoringCase(value, "chunked") || is_chunked_ || request_.http_1_0) {
      Fail(501, "unsupported transfer encoding");
      return false;
    }
    is_chunked_ = true;
  } else if (name == "connection") {
    ForEachElement(value, [this](std::string_view option) {
      if (EqualsIgnoringCase(option, "close")) {
        request_.keep_alive = false;
      } else if (EqualsIgnoringCase(option, "upgrade")) {
        request_.is_upgrade = true;
      } else if (EqualsIgnoringCase(option, "keep-alive") && request_.http_1_0) {
        request_.keep_alive = true;
      }
    });
  } else if (name == "expect") {
    expects_continue_ = EqualsIgnoringCase(value, "100-continue");
  } else if (name == "accept-encoding") {
    ForEachElement(value, [this](std::string_view element) {
      request_.accepts_gzip = request_.accepts_gzip || IsWantedGzip(element);
    });
  } else if (name == "host") {
    if (has_host_) {
      Fail(400, "too many Host headers");
      return false;
    }
    has_host_ = true;
  }
  return true;
}

bool RequestParser::FinishHead() {
  if (!has_host_ && !request_.http_1_0) {
    Fail(400, "missing required Host header");
    return false;
  }
  if (is_chunked_ && has_length_) {
    Fail(400, "both Content-Length and Transfer-Encoding");
    return false;
  }
  if (is_chunked_) {
    stage_ = Stage::kChunkSize;
    return true;
  }
  if (body_left_ > limits_.body_bytes_max) {
    Fail(413, "");
    return false;
  }
  stage_ = body_left_ == 0 ? Stage::kDone : Stage::kBody;
  request_.body.reserve(std::min<std::size_t>(body_left_, 64 * 1024));
  return true;
}

bool RequestParser::TakeLine(std::string_view* data, std::string_view* line) {
  const auto end = data->find("\r\n");
  if (end == std::string_view::npos || end > kLineBytesMax) {
    if (end != std::string_view::npos || data->size() > kLineBytesMax + 1) {
      Fail(400, "chunk line too long");
    }
    return false;
  }
  *line = data->substr(0, end);
  data->remove_prefix(end + 2);
  return true;
}

bool RequestParser::StepChunkSize(std::string_view* data) {
  std::string_view line;
  if (!TakeLine(data, &line)) {
    return false;
  }
  const auto size_text = Trim(line.substr(0, line.find(';')));
  std::uint64_t size = 0;
  const auto [end, error] =
      std::from_chars(size_text.data(), size_text.data() + size_text.size(), size, 16);
  if (size_text.empty() || error != std::errc() || end != size_text.data() + size_text.size()) {
    Fail(400, "malformed chunk size");
    return false;
  }
  if (size > limits_.body_bytes_max || request_.body.size() + size > limits_.body_bytes_max) {
    Fail(413, "");
    return false;
  }
  body_left_ = size;
  stage_ = size == 0 ? Stage::kTrailer : Stage::kChunkData;
  return true;
}

bool RequestParser::StepBody(std::string_view* data) {
  switch (stage_) {
    case Stage::kBody:
    case Stage::kChunkData: {
      const std::size_t taken = std::min<std::uint64_t>(body_left_, data->size());
      request_.body.append(data->substr(0, taken));
      data->remove_prefix(taken);
      body_left_ -= taken;
      if (body_left_ > 0) {
        return false;
      }
      stage_ = stage_ == Stage::kBody ? Stage::kDone : Stage::kChunkEnd;
      return true;
    }
    case Stage::kChunkEnd:
      if (data->size() < 2) {
        return false;
      }
      if (!data->starts_with("\r\n")) {
        Fail(400, "malformed chunked encoding");
        return false;
      }
      data->remove_prefix(2);
      stage_ = Stage::kChunkSize;
      return true;
    case Stage::kChunkSize: return StepChunkSize(data);
    case Stage::kTrailer: {
      std::string_view line;
      if (!TakeLine(data, &line)) {
        return false;
      }
      trailer_bytes_ += line.size();
      if (trailer_bytes_ > kLineBytesMax) {
        Fail(400, "trailers too long");
        return false;
      }
      if (line.empty()) {
        stage_ = Stage::kDone;
      }
      return true;
    }
    case Stage::kHead:
    case Stage::kDone:
    case Stage::kFailed: break;
  }
  return false;
}

}  // namespace sublet::apiserver
