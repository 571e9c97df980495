// Metrics: counters, gauges and histograms that GET /metrics shows in Prometheus' text format. A
// family has one name and fixed label names; its members are found by their label values and stay
// valid as long as the registry. Threads: any; Add, Set and Observe are lock-free. Bounds: a family
// holds at most kMembersMax members; further ones share a member whose label values are all
// "other", so that no client can fill the memory with invented resources.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/mutex.h"

namespace sublet {

class MetricValue {
 public:
  void Add(std::int64_t by = 1) { value_.fetch_add(by, std::memory_order_relaxed); }
  void Set(std::int64_t to) { value_.store(to, std::memory_order_relaxed); }
  std::int64_t Get() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<std::int64_t> value_{0};
};

// Seconds, in buckets from 0.5 ms to 60 s.
class MetricHistogram {
 public:
  static constexpr std::array<double, 16> kBounds = {
      0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60};
  void Observe(double seconds);
  void WriteTo(std::string& out, std::string_view name, std::string_view labels) const;

 private:
  std::array<std::atomic<std::int64_t>, kBounds.size() + 1> counts_{};
  std::atomic<std::int64_t> nanoseconds_{0};
};

using LabelValues = std::initializer_list<std::string_view>;

template <typename Member>
class MetricFamily {
 public:
  static constexpr std::size_t kMembersMax = 2048;
  MetricFamily(std::string name, std::string help, std::string type,
               std::vector<std::string> label_names)
      : name_(std::move(name)),
        help_(std::move(help)),
        type_(std::move(type)),
        label_names_(std::move(label_names)) {}
  // As many values as the family has label names.
  Member& With(LabelValues values) SUBLET_EXCLUDES(mutex_);
  void WriteTo(std::string& out) const SUBLET_EXCLUDES(mutex_);

 private:
  std::string Labels(const std::vector<std::string_view>& values) const;

  const std::string name_;
  const std::string help_;
  const std::string type_;
  const std::vector<std::string> label_names_;
  mutable Mutex mutex_;
  std::map<std::string, std::unique_ptr<Member>, std::less<>> members_ SUBLET_GUARDED_BY(mutex_);
};

class Metrics {
 public:
  // Families are named once; asking again for a name gives the same family.
  MetricFamily<MetricValue>& Counter(const std::string& name, const std::string& help,
                                     std::vector<std::string> label_names);
  MetricFamily<MetricValue>& Gauge(const std::string& name, const std::string& help,
                                   std::vector<std::string> label_names);
  MetricFamily<MetricHistogram>& Histogram(const std::string& name, const std::string& help,
                                           std::vector<std::string> label_names);
  // `write` appends whole families itself (values read at scrape time).
  void OnScrape(std::function<void(std::string& out)> write);

  std::string Text() const;
  // Appends "# HELP", "# TYPE" and one sample; for OnScrape.
  static void AppendSample(std::string& out, std::string_view name, std::string_view help,
                           std::string_view type, double value, std::string_view labels = "");

 private:
  mutable Mutex mutex_;
  std::map<std::string, std::unique_ptr<MetricFamily<MetricValue>>> values_
      SUBLET_GUARDED_BY(mutex_);
  std::map<std::string, std::unique_ptr<MetricFamily<MetricHistogram>>> histograms_
      SUBLET_GUARDED_BY(mutex_);
  std::vector<std::function<void(std::string&)>> on_scrape_ SUBLET_GUARDED_BY(mutex_);
};

}  // namespace sublet
