#include "node/pod/logs.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "kube/json.h"
#include "kube/timestamp.h"

namespace sublet::node {
namespace {

constexpr std::size_t kBlock = 64u << 10;
// A single entry larger than this is passed on in pieces by the engines themselves (8 and 16 KiB).
constexpr std::size_t kLineBytesMax = 1u << 20;

// Counts lines backwards: an entry begins a line when the one before it is not a partial one.
class TailFinder {
 public:
  explicit TailFinder(std::int64_t lines) : lines_(lines) {}

  // Takes the entry at `offset`, newest first. True when the tail's begin is known.
  bool Visit(off_t offset, std::string_view line) {
    while (!line.empty() && line.back() == '\n') {
      line.remove_suffix(1);
    }
    const auto entry = ParseLogLine(line);
    if (!entry) {
      return false;  // what is no entry is not shown either
    }
    if (newer_ >= 0 && !entry->partial && ++count_ == lines_) {
      return true;
    }
    newer_ = offset;
    return false;
  }
  off_t begin() const { return newer_; }

 private:
  const std::int64_t lines_;
  std::int64_t count_ = 0;
  off_t newer_ = -1;
};

// The offset where the last `lines` lines begin.
off_t FindTail(int fd, off_t size, std::int64_t lines) {
  if (lines <= 0) {
    return size;
  }
  TailFinder finder(lines);
  std::string block;
  std::string carry;  // the end of an entry whose begin lies in an earlier block
  for (off_t at = size; at > 0;) {
    const off_t from = at > static_cast<off_t>(kBlock) ? at - static_cast<off_t>(kBlock) : 0;
    block.resize(static_cast<std::size_t>(at - from));
    if (::pread(fd, block.data(), block.size(), from) != static_cast<ssize_t>(block.size())) {
      return 0;
    }
    block += carry;
    std::size_t end = block.size();
    while (end > 1) {
      const auto newline = block.rfind('\n', end - 2);
      if (newline == std::string::npos) {
        break;
      }
      if (finder.Visit(from + static_cast<off_t>(newline) + 1,
                       std::string_view(block).substr(newline + 1, end - newline - 1))) {
        return finder.begin();
      }
      end = newline + 1;
    }
    carry = block.substr(0, end);
    if (carry.size() > kLineBytesMax) {
      return std::max<off_t>(finder.begin(), 0);
    }
    at = from;
  }
  return finder.Visit(0, carry) ? finder.begin() : 0;
}

// Sends entries as lines of text.
class LineWriter {
 public:
  LineWriter(const LogOptions& options, const std::function<bool(std::string_view)>& write)
      : options_(options), write_(write), left_(options.limit_bytes.value_or(-1)) {}

  // False when nothing more is wanted.
  bool Put(const LogLine& line) {
    if (options_.stream && line.stream != *options_.stream) {
      return true;
    }
    if (options_.since) {
      const auto at = kube::FindTime(line.timestamp);
      if (at && *at < *options_.since) {
        return true;
      }
    }
    std::string out;
    if (options_.timestamps && !inside_line_) {
      out = std::string(line.timestamp) + " ";
    }
    out += line.text;
    if (!line.partial) {
      out += '\n';
    }
    inside_line_ = line.partial;
    if (left_ >= 0) {
      out.resize(std::min<std::size_t>(out.size(), static_cast<std::size_t>(left_)));
      left_ -= static_cast<std::int64_t>(out.size());
    }
    return (out.empty() || write_(out)) && left_ != 0;
  }

 private:
  const LogOptions& options_;
  const std::function<bool(std::string_view)>& write_;
  std::int64_t left_;
  bool inside_line_ = false;
};

class Follower {
 public:
  explicit Follower(const std::string& path) : fd_(::inotify_init1(IN_CLOEXEC | IN_NONBLOCK)) {
    if (fd_ >= 0) {
      ::inotify_add_watch(fd_, path.c_str(),
                          IN_MODIFY | IN_CLOSE_WRITE | IN_MOVE_SELF | IN_DELETE_SELF | IN_ATTRIB);
    }
  }
  ~Follower() {
    if (fd_ >= 0) {
      ::close(fd_);
    }
  }
  Follower(const Follower&) = delete;
  Follower& operator=(const Follower&) = delete;

  // False when cancelled. The engine does not touch the file when its container ends, so a wait is
  // bounded: `ended` is asked again after it.
  bool Wait(Canceller* cancel) const {
    pollfd fds[2] = {{fd_, POLLIN, 0}, {cancel != nullptr ? cancel->fd() : -1, POLLIN, 0}};
    // Without inotify (128 instances a user) the file itself is looked at.
    ::poll(fds, 2, fd_ >= 0 ? 1000 : 200);
    char drained[4096];
    while (fd_ >= 0 && ::read(fd_, drained, sizeof(drained)) > 0) {
    }
    return fds[1].revents == 0;
  }

 private:
  int fd_;
};

}  // namespace

std::optional<LogLine> ParseLogLine(std::string_view line) {
  LogLine out;
  if (!line.empty() && line.front() == '{') {
    auto parsed = kube::ParseJson(line);
    if (!parsed.ok()) {
      return std::nullopt;
    }
    // The timestamp is a view into the line: "time" is Docker's last member.
    const auto time = line.rfind("\"time\":\"");
    const auto end = time == std::string_view::npos ? time : line.find('"', time + 8);
    if (end == std::string_view::npos) {
      return std::nullopt;
    }
    out.timestamp = line.substr(time + 8, end - time - 8);
    out.stream =
        kube::FindString(*parsed, {"stream"}) == "stderr" ? StreamId::kStderr : StreamId::kStdout;
    out.text = kube::FindString(*parsed, {"log"});
    out.partial = out.text.empty() || out.text.back() != '\n';
    if (!out.partial) {
      out.text.pop_back();
    }
    return out;
  }
  // "2026-01-02T03:04:05.000000006+00:00 stdout F text"
  const auto first = line.find(' ');
  const auto second = first == std::string_view::npos ? first : line.find(' ', first + 1);
  if (second == std::string_view::npos || second + 1 >= line.size()) {
    return std::nullopt;
  }
  const std::string_view stream = line.substr(first + 1, second - first - 1);
  if (stream != "stdout" && stream != "stderr") {
    return std::nullopt;
  }
  const char tag = line[second + 1];
  if ((tag != 'F' && tag != 'P') || (second + 2 < line.size() && line[second + 2] != ' ')) {
    return std::nullopt;
  }
  out.timestamp = line.substr(0, first);
  out.stream = stream == "stderr" ? StreamId::kStderr : StreamId::kStdout;
  out.partial = tag == 'P';
  out.text = second + 3 <= line.size() ? line.substr(second + 3) : std::string_view();
  return out;
}

Result<void> ReadLog(const std::string& path, const LogOptions& options,
                     const std::function<bool(std::string_view)>& write,
                     const std::function<bool()>& ended, Canceller* cancel) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    return Status(Reason::kNotFound,
                  "unable to open log file: " + std::string(std::strerror(errno)));
  }
  Follower follower(options.follow ? path : "");
  struct stat info {};
  ::fstat(fd, &info);
  off_t at = options.tail_lines ? FindTail(fd, info.st_size, *options.tail_lines) : 0;
  LineWriter writer(options, write);
  std::string buffer;
  bool was_ended = !options.follow;
  bool wanted = options.limit_bytes != 0;
  while (wanted) {
    const std::size_t old = buffer.size();
    buffer.resize(old + kBlock);
    const ssize_t n = ::pread(fd, buffer.data() + old, kBlock, at);
    buffer.resize(old + static_cast<std::size_t>(std::max<ssize_t>(n, 0)));
    if (n > 0) {
      at += n;
      std::size_t begin = 0;
      for (auto end = buffer.find('\n'); wanted && end != std::string::npos;
           end = buffer.find('\n', begin)) {
        if (const auto line = ParseLogLine(std::string_view(buffer).substr(begin, end - begin))) {
          wanted = writer.Put(*line);
        }
        begin = end + 1;
      }
      buffer.erase(0, begin);
      if (buffer.size() > kLineBytesMax) {
        buffer.clear();
      }
      continue;
    }
    if (was_ended || n < 0) {
      break;
    }
    ::fstat(fd, &info);
    if (info.st_size < at) {  // the engine began the file anew at its size limit
      at = 0;
      buffer.clear();
      continue;
    }
    // Asked before the last look at the file, so that what was written until then is seen.
    was_ended = ended();
    if (!was_ended && !follower.Wait(cancel)) {
      break;
    }
  }
  ::close(fd);
  return {};
}

std::string TailOfLog(const std::string& path, int lines, std::size_t bytes_max) {
  LogOptions options;
  options.tail_lines = lines;
  std::string out;
  const auto read = ReadLog(
      path, options,
      [&](std::string_view text) {
        out += text;
        if (out.size() > 4 * bytes_max) {
          out.erase(0, out.size() - bytes_max);
        }
        return true;
      },
      [] { return true; }, nullptr);
  if (!read.ok()) {
    return {};
  }
  if (out.size() > bytes_max) {
    out.erase(0, out.size() - bytes_max);
  }
  while (!out.empty() && out.back() == '\n') {
    out.pop_back();
  }
  return out;
}

}  // namespace sublet::node
