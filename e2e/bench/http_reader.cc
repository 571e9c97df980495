#include "e2e/bench/http_reader.h"

#include <strings.h>

#include <cstdlib>

namespace sublet::bench {
namespace {

std::size_t FindHeader(std::string_view head, std::string_view name) {
  for (std::size_t at = head.find("\r\n"); at != std::string_view::npos;
       at = head.find("\r\n", at + 2)) {
    if (head.size() - at >= name.size() &&
        ::strncasecmp(head.data() + at, name.data(), name.size()) == 0) {
      return at + name.size();
    }
  }
  return std::string_view::npos;
}

}  // namespace

std::uint64_t HttpReader::HeaderNumber(std::string_view head, std::string_view name) {
  const auto at = FindHeader(head, name);
  return at == std::string_view::npos ? 0 : std::strtoull(head.data() + at, nullptr, 10);
}

void HttpReader::Feed(std::string_view data) {
  while (!data.empty()) {
    switch (stage_) {
      case Stage::kHead: TakeHead(&data); break;
      case Stage::kChunkSize: TakeChunkSize(&data); break;
      case Stage::kChunkEnd: {
        const auto skipped = std::min<std::uint64_t>(left_, data.size());
        data.remove_prefix(skipped);
        if ((left_ -= skipped) == 0) {
          if (last_chunk_) {
            End();
          } else {
            stage_ = Stage::kChunkSize;
          }
        }
        break;
      }
      case Stage::kBody: {
        const auto piece = data.substr(0, left_);
        left_ -= piece.size();
        data.remove_prefix(piece.size());
        if (on_body) {
          on_body(piece);
        }
        if (left_ == 0) {
          if (chunked_) {
            stage_ = Stage::kChunkEnd;
            left_ = 2;
          } else {
            End();
          }
        }
        break;
      }
    }
  }
}

void HttpReader::TakeHead(std::string_view* data) {
  const std::size_t before = head_.size();
  head_.append(*data);
  const auto end = head_.find("\r\n\r\n", before < 3 ? 0 : before - 3);
  if (end == std::string::npos) {
    *data = {};
    return;
  }
  data->remove_prefix(end + 4 - before);
  head_.resize(end + 4);
  code_ = head_.starts_with("HTTP/") ? std::atoi(head_.c_str() + 9) : 0;
  chunked_ = FindHeader(head_, "\r\nTransfer-Encoding: chunked") != std::string::npos;
  last_chunk_ = false;
  left_ = chunked_ ? 0 : HeaderNumber(head_, "\r\nContent-Length:");
  if (chunked_) {
    stage_ = Stage::kChunkSize;
  } else if (left_ > 0) {
    stage_ = Stage::kBody;
  } else {
    End();
  }
}

void HttpReader::TakeChunkSize(std::string_view* data) {
  const auto end = data->find('\n');
  line_.append(data->substr(0, end));
  if (end == std::string_view::npos) {
    *data = {};
    return;
  }
  data->remove_prefix(end + 1);
  left_ = std::strtoull(line_.c_str(), nullptr, 16);
  line_.clear();
  last_chunk_ = left_ == 0;
  stage_ = last_chunk_ ? Stage::kChunkEnd : Stage::kBody;
  if (last_chunk_) {
    left_ = 2;
  }
}

void HttpReader::End() {
  stage_ = Stage::kHead;
  if (on_end) {
    on_end();
  }
  head_.clear();
}

}  // namespace sublet::bench
