#include "base/metrics.h"

#include <algorithm>
#include <cstdio>

namespace sublet {
namespace {

std::string Number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.17g", value);
  double parsed = 0;
  char shorter[32];
  std::snprintf(shorter, sizeof shorter, "%.12g", value);
  std::sscanf(shorter, "%lf", &parsed);
  return parsed == value ? shorter : text;
}

void AppendHead(std::string& out, std::string_view name, std::string_view help,
                std::string_view type) {
  out.append("# HELP ").append(name).append(" ").append(help).append("\n");
  out.append("# TYPE ").append(name).append(" ").append(type).append("\n");
}

void AppendLine(std::string& out, std::string_view name, std::string_view suffix,
                std::string_view labels, std::string_view value) {
  out.append(name).append(suffix);
  if (!labels.empty()) {
    out.append("{").append(labels).append("}");
  }
  out.append(" ").append(value).append("\n");
}

void WriteMember(std::string& out, std::string_view name, std::string_view labels,
                 const MetricValue& value) {
  AppendLine(out, name, "", labels, std::to_string(value.Get()));
}

void WriteMember(std::string& out, std::string_view name, std::string_view labels,
                 const MetricHistogram& value) {
  value.WriteTo(out, name, labels);
}

}  // namespace

void MetricHistogram::Observe(double seconds) {
  const auto bucket = std::lower_bound(kBounds.begin(), kBounds.end(), seconds) - kBounds.begin();
  counts_[static_cast<std::size_t>(bucket)].fetch_add(1, std::memory_order_relaxed);
  nanoseconds_.fetch_add(static_cast<std::int64_t>(seconds * 1e9), std::memory_order_relaxed);
}

void MetricHistogram::WriteTo(std::string& out, std::string_view name,
                              std::string_view labels) const {
  const std::string prefix = labels.empty() ? "" : std::string(labels) + ",";
  std::int64_t total = 0;
  for (std::size_t i = 0; i < kBounds.size(); ++i) {
    total += counts_[i].load(std::memory_order_relaxed);
    AppendLine(out, name, "_bucket", prefix + "le=\"" + Number(kBounds[i]) + "\"",
               std::to_string(total));
  }
  total += counts_.back().load(std::memory_order_relaxed);
  AppendLine(out, name, "_bucket", prefix + "le=\"+Inf\"", std::to_string(total));
  AppendLine(out, name, "_sum", labels,
             Number(static_cast<double>(nanoseconds_.load(std::memory_order_relaxed)) / 1e9));
  AppendLine(out, name, "_count", labels, std::to_string(total));
}

template <typename Member>
std::string MetricFamily<Member>::Labels(const std::vector<std::string_view>& values) const {
  std::string text;
  for (std::size_t i = 0; i < label_names_.size(); ++i) {
    text.append(i == 0 ? "" : ",").append(label_names_[i]).append("=\"");
    for (const char c : i < values.size() ? values[i] : std::string_view()) {
      if (c == '"' || c == '\\') {
        text.push_back('\\');
      }
      text.push_back(c == '\n' ? ' ' : c);
    }
    text.push_back('"');
  }
  return text;
}

template <typename Member>
Member& MetricFamily<Member>::With(LabelValues values) {
  std::string labels = Labels(values);
  MutexLock lock(mutex_);
  auto found = members_.find(labels);
  if (found == members_.end() && members_.size() >= kMembersMax) {
    labels = Labels(std::vector<std::string_view>(label_names_.size(), "other"));
    found = members_.find(labels);
  }
  if (found == members_.end()) {
    found = members_.emplace(std::move(labels), std::make_unique<Member>()).first;
  }
  return *found->second;
}

template <typename Member>
void MetricFamily<Member>::WriteTo(std::string& out) const {
  MutexLock lock(mutex_);
  if (members_.empty()) {
    return;
  }
  AppendHead(out, name_, help_, type_);
  for (const auto& [labels, member] : members_) {
    WriteMember(out, name_, labels, *member);
  }
}

template class MetricFamily<MetricValue>;
template class MetricFamily<MetricHistogram>;

MetricFamily<MetricValue>& Metrics::Counter(const std::string& name, const std::string& help,
                                            std::vector<std::string> label_names) {
  MutexLock lock(mutex_);
  auto& family = values_[name];
  if (!family) {
    family =
        std::make_unique<MetricFamily<MetricValue>>(name, help, "counter", std::move(label_names));
  }
  return *family;
}

MetricFamily<MetricValue>& Metrics::Gauge(const std::string& name, const std::string& help,
                                          std::vector<std::string> label_names) {
  MutexLock lock(mutex_);
  auto& family = values_[name];
  if (!family) {
    family =
        std::make_unique<MetricFamily<MetricValue>>(name, help, "gauge", std::move(label_names));
  }
  return *family;
}

MetricFamily<MetricHistogram>& Metrics::Histogram(const std::string& name, const std::string& help,
                                                  std::vector<std::string> label_names) {
  MutexLock lock(mutex_);
  auto& family = histograms_[name];
  if (!family) {
    family = std::make_unique<MetricFamily<MetricHistogram>>(name, help, "histogram",
                                                             std::move(label_names));
  }
  return *family;
}

void Metrics::OnScrape(std::function<void(std::string& out)> write) {
  MutexLock lock(mutex_);
  on_scrape_.push_back(std::move(write));
}

std::string Metrics::Text() const {
  std::string out;
  std::vector<std::function<void(std::string&)>> on_scrape;
  {
    MutexLock lock(mutex_);
    for (const auto& entry : values_) {
      entry.second->WriteTo(out);
    }
    for (const auto& entry : histograms_) {
      entry.second->WriteTo(out);
    }
    on_scrape = on_scrape_;
  }
  for (const auto& write : on_scrape) {
    write(out);
  }
  return out;
}

void Metrics::AppendSample(std::string& out, std::string_view name, std::string_view help,
                           std::string_view type, double value, std::string_view labels) {
  AppendHead(out, name, help, type);
  AppendLine(out, name, "", labels, Number(value));
}

}  // namespace sublet
