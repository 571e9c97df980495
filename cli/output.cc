#include "cli/output.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace sublet::cli {
namespace {

using Milliseconds = std::chrono::milliseconds;

std::string Duration(Milliseconds time) {
  if (time < std::chrono::seconds(1)) {
    return std::to_string(time.count()) + " ms";
  }
  const auto tenths = time.count() / 100;
  return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + " s";
}

std::string& RunningCommand() {
  static std::string name;
  return name;
}

}  // namespace

void SetRunningCommand(std::string name) { RunningCommand() = std::move(name); }

std::string NextStep(const Status& status, std::string_view usual) {
  if (status.Is(Reason::kForbidden) &&
      status.message().find(" is forbidden: User ") != std::string::npos) {
    return "sublet doctor    (what this context may do; rights in one namespace only: add -n "
           "NAMESPACE)";
  }
  if (status.Is(Reason::kNotFound) && status.message().starts_with("contexts \"")) {
    return "kubectl config get-contexts";
  }
  if (status.message().starts_with(kNoContext)) {
    return "sublet host up    (or choose a cluster: kubectl config use-context NAME)";
  }
  const bool says_it = status.message().find("run: ") != std::string::npos ||
                       status.message().find("next: ") != std::string::npos;
  if (!usual.empty() || says_it) {
    return std::string(usual);
  }
  return status.Is(Reason::kBadRequest) && !RunningCommand().empty() ? RunningCommand() + " --help"
                                                                     : "sublet doctor";
}

void SayUnknownAction(std::string_view command, std::string_view action) {
  if (action != "--help" && action != "-h") {
    std::fprintf(stderr, "%.*s: unknown action \"%.*s\"\n", static_cast<int>(command.size()),
                 command.data(), static_cast<int>(action.size()), action.data());
  }
}

Progress::Progress(bool quiet)
    : quiet_(quiet),
      terminal_(isatty(STDERR_FILENO) == 1),
      start_(std::chrono::steady_clock::now()) {}

Progress::~Progress() { End(true); }

void Progress::Begin(std::string_view what) {
  End(true);
  current_ = what;
  phase_start_ = std::chrono::steady_clock::now();
  if (!quiet_ && terminal_) {
    std::fprintf(stderr, "  … %s", current_.c_str());
    std::fflush(stderr);
  }
}

void Progress::Note(std::string_view text) {
  if (quiet_ || text == note_) {
    return;
  }
  note_ = text;
  if (terminal_) {
    std::fprintf(stderr, "\r\033[K  … %s: %s", current_.c_str(), note_.c_str());
    std::fflush(stderr);
  } else {
    std::fprintf(stderr, "    %s\n", note_.c_str());
  }
}

void Progress::Done() { End(true); }
void Progress::Failed() { End(false); }

void Progress::End(bool good) {
  if (current_.empty()) {
    return;
  }
  if (!quiet_) {
    const auto time =
        std::chrono::duration_cast<Milliseconds>(std::chrono::steady_clock::now() - phase_start_);
    std::fprintf(stderr, "%s  %s %-44s %8s\n", terminal_ ? "\r\033[K" : "", good ? "✓" : "✗",
                 current_.c_str(), Duration(time).c_str());
  }
  current_.clear();
  note_.clear();
}

Milliseconds Progress::total() const {
  return std::chrono::duration_cast<Milliseconds>(std::chrono::steady_clock::now() - start_);
}

void Table::Print() const {
  std::vector<std::size_t> widths;
  for (const auto& row : rows_) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i < row.size(); ++i) {
      widths[i] = std::max(widths[i], row[i].size());
    }
  }
  for (const auto& row : rows_) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) {
      line += row[i];
      if (i + 1 < row.size()) {
        line.append(widths[i] - row[i].size() + 2, ' ');
      }
    }
    std::printf("%s\n", line.c_str());
  }
}

int Fail(const Status& status, std::string_view usual) {
  std::fprintf(stderr, "sublet: %s\n", status.message().c_str());
  if (const std::string next = NextStep(status, usual); !next.empty()) {
    std::fprintf(stderr, "  next: %s\n", next.c_str());
  }
  return status.Is(Reason::kBadRequest) ? 2 : 1;
}

}  // namespace sublet::cli
