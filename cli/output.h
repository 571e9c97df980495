// What a person sees: phases of a long step with their times, tables, errors with the next command.
// Progress goes to standard error, results to standard output, so that `-o json` stays clean.
// Threads: one.
#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace sublet::cli {

// Phases of a command. On a terminal the running phase is shown while it lasts.
class Progress {
 public:
  // quiet: print nothing (for --print and -o json).
  explicit Progress(bool quiet);
  ~Progress();

  // Ends the phase before with its time and starts `what` ("tenant pod started").
  void Begin(std::string_view what);
  // A remark below the running phase ("waiting for the image").
  void Note(std::string_view text);
  // Ends the running phase.
  void Done();
  // The running phase failed.
  void Failed();
  std::chrono::milliseconds total() const;

 private:
  void End(bool good);

  const bool quiet_;
  const bool terminal_;
  std::string current_;
  std::string note_;
  std::chrono::steady_clock::time_point phase_start_;
  std::chrono::steady_clock::time_point start_;
};

// Left-aligned columns, two spaces apart.
class Table {
 public:
  explicit Table(std::vector<std::string> header) : rows_{std::move(header)} {}
  void Row(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  std::size_t size() const { return rows_.size() - 1; }
  void Print() const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

// Which command runs ("sublet create"), for the next step after a wrong flag or file.
void SetRunningCommand(std::string name);
// How the message of an error begins when there is no cluster to talk to.
inline constexpr std::string_view kNoContext = "no Kubernetes context is set";
// The one next command after `status`: `usual`, unless rights or a missing context are what is wrong.
// "" only when the message itself says what to run.
std::string NextStep(const Status& status, std::string_view usual);
// "sublet: MESSAGE" and what to do next on a line of its own. Returns 1, or 2 for a BadRequest.
int Fail(const Status& status, std::string_view next = "");
// "sublet host: unknown action "x"" on standard error, unless help was asked for.
void SayUnknownAction(std::string_view command, std::string_view action);

}  // namespace sublet::cli
