// Container logs: reads the file the engine writes (CRI lines of Podman, JSON lines of Docker) with
// kubectl's options: follow, tail, since, timestamps, byte limit, one stream.
// Source: kubelet kuberuntime/logs. Threads: one per stream; blocks.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/result.h"
#include "node/engine/engine.h"

namespace sublet::node {

struct LogLine {
  std::string_view timestamp;  // as written: RFC 3339 with nanoseconds
  StreamId stream = StreamId::kStdout;
  bool partial = false;  // the line goes on in the next entry
  std::string text;      // without the newline; Docker's escapes undone
};
// One line of a log file in either form; nullopt for what is neither (a line still being written).
std::optional<LogLine> ParseLogLine(std::string_view line);

struct LogOptions {
  bool follow = false;
  bool timestamps = false;
  std::optional<std::int64_t> tail_lines;
  std::optional<WallTime> since;
  std::optional<std::int64_t> limit_bytes;
  std::optional<StreamId> stream;  // nullopt = both
};

// Sends the log to `write` (which returns false when the reader has gone) until its end; with
// follow, until `ended` says that the container has ended and the file is read to its end.
// `cancel` ends a waiting follow. Errors: NotFound (no file), InternalError.
Result<void> ReadLog(const std::string& path, const LogOptions& options,
                     const std::function<bool(std::string_view)>& write,
                     const std::function<bool()>& ended, Canceller* cancel);

// The last lines of a log, at most `bytes_max`; "" when there is none.
std::string TailOfLog(const std::string& path, int lines, std::size_t bytes_max);

}  // namespace sublet::node
