#include "e2e/bench/measure.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>

namespace sublet::bench {

double Latencies::Quantile(double quantile) {
  if (all_.empty()) {
    return 0;
  }
  const auto at = std::min(all_.size() - 1,
                           static_cast<std::size_t>(quantile * static_cast<double>(all_.size())));
  std::nth_element(all_.begin(), all_.begin() + static_cast<std::ptrdiff_t>(at), all_.end());
  return static_cast<double>(all_[at]) / 1e6;
}

double Latencies::Mean() const {
  return all_.empty() ? 0
                      : std::accumulate(all_.begin(), all_.end(), 0.0) /
                            static_cast<double>(all_.size()) / 1e6;
}

double ProcessorSeconds(const std::vector<int>& pids) {
  double sum = 0;
  for (const int pid : pids) {
    const std::string path = "/proc/" + std::to_string(pid) + "/stat";
    std::FILE* file = std::fopen(path.c_str(), "re");
    if (file == nullptr) {
      continue;
    }
    char text[1024] = {};
    const std::size_t got = std::fread(text, 1, sizeof text - 1, file);
    std::fclose(file);
    // The name in parentheses may hold blanks; user and system time are the 12th and 13th after it.
    const char* after = got == 0 ? nullptr : std::strrchr(text, ')');
    long user = 0;
    long system = 0;
    if (after != nullptr &&
        std::sscanf(after + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %ld %ld", &user,
                    &system) == 2) {
      sum += static_cast<double>(user + system) / static_cast<double>(::sysconf(_SC_CLK_TCK));
    }
  }
  return sum;
}

double OwnProcessorSeconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
         static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

double PssMiB(const std::vector<int>& pids) {
  double sum = 0;
  for (const int pid : pids) {
    const std::string path = "/proc/" + std::to_string(pid) + "/smaps_rollup";
    std::FILE* file = std::fopen(path.c_str(), "re");
    if (file == nullptr) {
      continue;
    }
    char line[256];
    double kilobytes = 0;
    while (std::fgets(line, sizeof line, file) != nullptr) {
      if (std::sscanf(line, "Pss: %lf kB", &kilobytes) == 1) {
        sum += kilobytes / 1024;
        break;
      }
    }
    std::fclose(file);
  }
  return sum;
}

std::vector<int> ParsePids(const std::string& text) {
  std::vector<int> pids;
  for (const char* at = text.c_str(); *at != '\0';) {
    char* end = nullptr;
    const long pid = std::strtol(at, &end, 10);
    if (end == at) {
      break;
    }
    pids.push_back(static_cast<int>(pid));
    at = *end == ',' ? end + 1 : end;
  }
  return pids;
}

Row::Row(std::string server, std::string name, std::string unit, bool more_is_better)
    : server_(std::move(server)),
      name_(std::move(name)),
      unit_(std::move(unit)),
      more_is_better_(more_is_better) {}

Row& Row::Value(double value) {
  value_ = value;
  return *this;
}

Row& Row::Note(const std::string& name, double value) {
  notes_.emplace_back(name, value);
  return *this;
}

void Row::Print() const {
  std::printf(R"({"server":"%s","row":"%s","unit":"%s","more":%s,"value":%.4f,"notes":{)",
              server_.c_str(), name_.c_str(), unit_.c_str(), more_is_better_ ? "true" : "false",
              value_);
  const char* comma = "";
  for (const auto& [name, value] : notes_) {
    std::printf(R"(%s"%s":%.4f)", comma, name.c_str(), value);
    comma = ",";
  }
  std::printf("}}\n");
  std::fflush(stdout);
}

Usage::Usage(std::vector<int> pids) : pids_(std::move(pids)) { Begin(); }

void Usage::Begin() {
  server_ = ProcessorSeconds(pids_);
  client_ = OwnProcessorSeconds();
  begin_ = std::chrono::steady_clock::now();
}

void Usage::End(std::size_t count, Row* row) const {
  const double server = ProcessorSeconds(pids_) - server_;
  const double client = OwnProcessorSeconds() - client_;
  const double wall =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
  const double units = static_cast<double>(std::max<std::size_t>(count, 1));
  row->Note("server_us", server / units * 1e6)
      .Note("client_us", client / units * 1e6)
      .Note("cores", (server + client) / wall);
}

}  // namespace sublet::bench
