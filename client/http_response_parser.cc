#include "client/http_response_parser.h"

#include <algorithm>
#include <charconv>

namespace sublet::client {
namespace {

constexpr std::size_t kHeadBytesMax = 256 * 1024;
constexpr std::size_t kLineBytesMax = 8 * 1024;

std::string_view Trim(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) {
    text.remove_prefix(1);
  }
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t' || text.back() == '\r')) {
    text.remove_suffix(1);
  }
  return text;
}

bool ContainsToken(std::string_view list, std::string_view token) {
  while (!list.empty()) {
    const std::size_t comma = list.find(',');
    if (HeaderNameEquals(Trim(list.substr(0, comma)), token)) {
      return true;
    }
    if (comma == std::string_view::npos) {
      break;
    }
    list.remove_prefix(comma + 1);
  }
  return false;
}

}  // namespace

Result<std::size_t> HttpResponseParser::FeedHead(std::string_view data) {
  // The end may lie across two pieces: look again from three bytes before this one.
  const std::size_t before = line_.size();
  line_ += data;
  const std::size_t end = line_.find("\r\n\r\n", before < 3 ? 0 : before - 3);
  if (end == std::string::npos) {
    if (line_.size() > kHeadBytesMax) {
      return ServiceUnavailable("the server's answer has a head above 256 KiB");
    }
    return data.size();
  }
  line_.resize(end + 2);
  SUBLET_RETURN_IF_ERROR(ParseHead());
  line_.clear();
  return end + 4 - before;
}

Result<void> HttpResponseParser::ParseHead() {
  std::string_view rest = line_;
  std::size_t eol = rest.find("\r\n");
  const std::string_view status = rest.substr(0, eol);
  if (!status.starts_with("HTTP/1.") || status.size() < 12 || status[8] != ' ') {
    return ServiceUnavailable("the server does not speak HTTP/1.1");
  }
  keep_alive_ = status[7] != '0';
  const auto parsed = std::from_chars(status.data() + 9, status.data() + 12, code_);
  if (parsed.ptr != status.data() + 12 || code_ < 100 || code_ > 999) {
    return ServiceUnavailable("the server's answer has no status code");
  }
  headers_.clear();
  chunked_ = false;
  has_length_ = false;
  rest.remove_prefix(eol + 2);
  while (!rest.empty()) {
    eol = rest.find("\r\n");
    SUBLET_RETURN_IF_ERROR(ParseHeaderLine(rest.substr(0, eol)));
    rest.remove_prefix(eol + 2);
  }
  return ChooseBody();
}

Result<void> HttpResponseParser::ParseHeaderLine(std::string_view line) {
  const std::size_t colon = line.find(':');
  if (colon == std::string_view::npos || colon == 0) {
    return ServiceUnavailable("the server's answer has a malformed header");
  }
  const std::string_view name = line.substr(0, colon);
  const std::string_view value = Trim(line.substr(colon + 1));
  if (HeaderNameEquals(name, "Content-Length")) {
    std::uint64_t length = 0;
    const auto parsed = std::from_chars(value.data(), value.data() + value.size(), length);
    if (parsed.ec != std::errc() || parsed.ptr != value.data() + value.size() ||
        (has_length_ && length != left_)) {
      return ServiceUnavailable("the server's answer has a bad Content-Length");
    }
    has_length_ = true;
    left_ = length;
  } else if (HeaderNameEquals(name, "Transfer-Encoding")) {
    if (!HeaderNameEquals(value, "chunked")) {
      return ServiceUnavailable("the server's answer has an unknown Transfer-Encoding");
    }
    chunked_ = true;
  } else if (HeaderNameEquals(name, "Connection")) {
    if (ContainsToken(value, "close")) {
      keep_alive_ = false;
    } else if (ContainsToken(value, "keep-alive")) {
      keep_alive_ = true;
    }
  }
  headers_.emplace_back(name, value);
  return Ok();
}

Result<void> HttpResponseParser::ChooseBody() {
  if (code_ == 101 || code_ == 204 || code_ == 304 || !has_body_) {
    state_ = State::kComplete;
  } else if (code_ < 200) {
    state_ = State::kHead;  // 100 Continue: the real head follows
  } else if (chunked_) {
    state_ = State::kChunkSize;
  } else if (has_length_) {
    state_ = left_ == 0 ? State::kComplete : State::kLength;
  } else {
    state_ = State::kUntilEnd;
    keep_alive_ = false;
  }
  return Ok();
}

Result<std::size_t> HttpResponseParser::FeedLine(std::string_view data) {
  const std::size_t end = data.find('\n');
  const std::size_t used = end == std::string_view::npos ? data.size() : end + 1;
  line_ += data.substr(0, used);
  if (line_.size() > kLineBytesMax) {
    return ServiceUnavailable("the server's answer has a chunk line above 8 KiB");
  }
  if (end != std::string_view::npos) {
    SUBLET_RETURN_IF_ERROR(ChunkLine());
    line_.clear();
  }
  return used;
}

Result<void> HttpResponseParser::ChunkLine() {
  const std::string_view line = Trim(std::string_view(line_).substr(0, line_.size() - 1));
  if (state_ == State::kChunkSize) {
    const std::string_view digits = Trim(line.substr(0, line.find(';')));
    const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), left_, 16);
    if (digits.empty() || parsed.ec != std::errc() || parsed.ptr != digits.data() + digits.size()) {
      return ServiceUnavailable("the server's answer has a malformed chunk");
    }
    state_ = left_ == 0 ? State::kTrailer : State::kChunkData;
  } else if (state_ == State::kChunkEnd) {
    if (!line.empty()) {
      return ServiceUnavailable("the server's answer has a malformed chunk");
    }
    state_ = State::kChunkSize;
  } else if (line.empty()) {
    state_ = State::kComplete;
  }
  return Ok();
}

Result<std::size_t> HttpResponseParser::Feed(std::string_view data, std::string* body) {
  std::size_t used = 0;
  while (used < data.size() && state_ != State::kComplete) {
    const std::string_view rest = data.substr(used);
    switch (state_) {
      case State::kHead: {
        SUBLET_TRY(const std::size_t taken, FeedHead(rest));
        used += taken;
        break;
      }
      case State::kLength:
      case State::kChunkData: {
        const std::size_t taken =
            static_cast<std::size_t>(std::min<std::uint64_t>(left_, rest.size()));
        body->append(rest.substr(0, taken));
        left_ -= taken;
        used += taken;
        if (left_ == 0) {
          state_ = state_ == State::kLength ? State::kComplete : State::kChunkEnd;
        }
        break;
      }
      case State::kUntilEnd:
        body->append(rest);
        used += rest.size();
        break;
      default: {
        SUBLET_TRY(const std::size_t taken, FeedLine(rest));
        used += taken;
      }
    }
  }
  return used;
}

Result<void> HttpResponseParser::FeedEnd() {
  if (state_ == State::kUntilEnd) {
    state_ = State::kComplete;
  }
  if (state_ != State::kComplete) {
    return ServiceUnavailable("the server closed the connection in the middle of its answer");
  }
  return Ok();
}

}  // namespace sublet::client
