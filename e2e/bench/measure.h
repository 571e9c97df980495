// What is measured beside the answers: latencies, processor time and memory of the server's
// processes, and the line in which a row is reported. Threads: one.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace sublet::bench {

// Latencies of one row, in nanoseconds.
class Latencies {
 public:
  void Add(std::chrono::nanoseconds one) { all_.push_back(one.count()); }
  void Clear() { all_.clear(); }
  std::size_t size() const { return all_.size(); }
  // `quantile` in 0..1, in milliseconds; 0 without samples.
  double Quantile(double quantile);
  double Mean() const;

 private:
  std::vector<std::int64_t> all_;
};

// Seconds of processor time that `pids` have used since they started, all threads.
double ProcessorSeconds(const std::vector<int>& pids);
double OwnProcessorSeconds();
// Proportional set size of `pids`, in MiB.
double PssMiB(const std::vector<int>& pids);
// "12,34" to numbers.
std::vector<int> ParsePids(const std::string& text);

// One row of the table: printed as a JSON object on one line.
class Row {
 public:
  // `more_is_better` decides how a ratio is formed.
  Row(std::string server, std::string name, std::string unit, bool more_is_better);
  Row& Value(double value);
  Row& Note(const std::string& name, double value);
  void Print() const;

 private:
  std::string server_;
  std::string name_;
  std::string unit_;
  bool more_is_better_;
  double value_ = 0;
  std::vector<std::pair<std::string, double>> notes_;
};

// Processor time of server and client between two points.
class Usage {
 public:
  explicit Usage(std::vector<int> pids);
  void Begin();
  // Adds to `row` what one of `count` units cost on both sides, and the cores that were busy.
  void End(std::size_t count, Row* row) const;

 private:
  const std::vector<int> pids_;
  double server_ = 0;
  double client_ = 0;
  std::chrono::steady_clock::time_point begin_;
};

}  // namespace sublet::bench
