// Rates: a closed loop on each connection, and the paced row, which is an open loop.
#include <algorithm>
#include <cstdio>

#include "e2e/bench/rows.h"

namespace sublet::bench {
namespace {

constexpr char kConfigMaps[] = "/api/v1/namespaces/default/configmaps";
constexpr int kListed = 500;

const std::string& Filler() {
  static const std::string text(900, 'x');
  return text;
}

std::string ConfigMapText(const std::string& name, const std::string& label,
                          const std::string& sequence) {
  return R"({"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":")" + name +
         R"(","namespace":"default","labels":{"bench":")" + label + R"("}},"data":{"text":")" +
         Filler() + R"(","sequence":")" + sequence + "\"}}";
}

RequestText CreateLabelled(const std::string& name, const std::string& label) {
  return {.method = "POST", .path = kConfigMaps, .body = ConfigMapText(name, label, "0")};
}

class Loop {
 public:
  Loop(const Setting& setting, std::string what, int connections, double seconds)
      : setting_(setting),
        what_(std::move(what)),
        seconds_(seconds),
        fleet_(setting.target, connections, what_.starts_with("list") ? 128 * 1024 : 16 * 1024),
        sent_(static_cast<std::size_t>(connections)),
        run_(std::to_string(Clock::now().time_since_epoch().count() / 1000 % 100000000)) {}

  void Run() {
    for (int i = 0; i < fleet_.size() && NeedsObject(); ++i) {
      const int code = fleet_.Ask(i, CreateLabelled(Own(i), "own"));
      if (code != 201 && code != 409) {
        Fail("POST was answered " + std::to_string(code));
      }
    }
    fleet_.on_answer = [this](int index, int code) { OnAnswer(index, code); };
    for (int i = 0; i < fleet_.size(); ++i) {
      SendNext(i);
    }
    PollFor(std::min(0.5, seconds_ / 4));  // warm-up
    latencies_.Clear();
    Usage usage(setting_.pids);
    const auto begin = Clock::now();
    PollFor(seconds_);
    const double wall = std::chrono::duration<double>(Clock::now() - begin).count();
    const std::size_t count = latencies_.size();
    Row row(setting_.server,
            Title() + ", " + std::to_string(fleet_.size()) +
                (fleet_.size() == 1 ? " connection" : " connections"),
            "/s", true);
    row.Value(static_cast<double>(count) / wall)
        .Note("p50_ms", latencies_.Quantile(0.5))
        .Note("p99_ms", latencies_.Quantile(0.99));
    usage.End(count, &row);
    row.Print();
  }

 private:
  bool NeedsObject() const { return what_ == "patch" || what_ == "apply"; }
  std::string Own(int index) const { return "own-" + what_ + "-" + std::to_string(index); }
  std::string Title() const {
    return what_ == "get"         ? "GET 1 KB"
           : what_ == "list"      ? "LIST 500 x 1 KB"
           : what_ == "list-gzip" ? "LIST 500 x 1 KB, gzip"
           : what_ == "post"      ? "durable POST 1 KB"
           : what_ == "patch"     ? "merge patch"
                                  : "apply";
  }
  RequestText Next(int index) {
    const std::string sequence = std::to_string(++sequence_);
    if (what_ == "get") {
      return {.path = std::string(kConfigMaps) + "/listed-" + std::to_string(sequence_ % kListed)};
    }
    if (what_.starts_with("list")) {
      return {.path = std::string(kConfigMaps) + "?labelSelector=bench%3Dlisted&limit=500",
              .gzip = what_ == "list-gzip"};
    }
    if (what_ == "post") {
      return CreateLabelled("made-" + run_ + "-" + sequence, "made");
    }
    const std::string path = std::string(kConfigMaps) + "/" + Own(index);
    if (what_ == "patch") {
      return {.method = "PATCH",
              .path = path,
              .content_type = "application/merge-patch+json",
              .body = R"({"data":{"sequence":")" + sequence + "\"}}"};
    }
    return {.method = "PATCH",
            .path = path + "?fieldManager=bench&force=true",
            .content_type = "application/apply-patch+yaml",
            .body = ConfigMapText(Own(index), "own", sequence)};
  }
  void SendNext(int index) {
    const RequestText request = Next(index);
    sent_[static_cast<std::size_t>(index)] = Clock::now();
    fleet_.Send(index, request);
  }
  void OnAnswer(int index, int code) {
    if (code != 200 && code != 201) {
      Fail(what_ + " was answered " + std::to_string(code));
    }
    latencies_.Add(Clock::now() - sent_[static_cast<std::size_t>(index)]);
    if (!stopping_) {
      SendNext(index);
    }
  }
  void PollFor(double seconds) {
    const auto end = Clock::now() + std::chrono::nanoseconds(static_cast<long>(seconds * 1e9));
    while (Clock::now() < end) {
      fleet_.Poll(std::chrono::milliseconds(20));
    }
  }

  const Setting& setting_;
  const std::string what_;
  const double seconds_;
  Fleet fleet_;
  std::vector<Clock::time_point> sent_;
  const std::string run_;
  Latencies latencies_;
  long sequence_ = 0;
  bool stopping_ = false;
};

}  // namespace

RequestText CreateConfigMap(const std::string& name) { return CreateLabelled(name, "made"); }

RequestText CreateSecret(const std::string& name) {
  return {.method = "POST",
          .path = "/api/v1/namespaces/default/secrets",
          .body = R"({"apiVersion":"v1","kind":"Secret","metadata":{"name":")" + name +
                  R"("},"type":"Opaque","stringData":{"text":")" + Filler() + "\"}}"};
}

void Prepare(const Setting& setting) {
  Fleet fleet(setting.target, 1);
  for (int i = 0; i < kListed; ++i) {
    const int code = fleet.Ask(0, CreateLabelled("listed-" + std::to_string(i), "listed"));
    if (code != 201 && code != 409) {
      Fail("POST was answered " + std::to_string(code));
    }
  }
}

void MeasureRate(const Setting& setting, const std::string& what, int connections, double seconds) {
  Loop(setting, what, connections, seconds).Run();
}

void MeasurePaced(const Setting& setting, int count, double rate) {
  constexpr int kConnections = 32;
  Fleet fleet(setting.target, kConnections);
  std::vector<int> idle;
  for (int i = 0; i < kConnections; ++i) {
    idle.push_back(i);
  }
  std::vector<Clock::time_point> due(kConnections);
  Latencies latencies;
  fleet.on_answer = [&](int index, int code) {
    if (code != 201 && code != 200) {
      Fail("POST of a secret was answered " + std::to_string(code));
    }
    latencies.Add(Clock::now() - due[static_cast<std::size_t>(index)]);
    idle.push_back(index);
  };
  Usage usage(setting.pids);
  const auto begin = Clock::now();
  const std::string run = std::to_string(begin.time_since_epoch().count() / 1000 % 100000000);
  for (int sent = 0; sent < count || static_cast<int>(idle.size()) < kConnections;) {
    const auto next = begin + std::chrono::nanoseconds(static_cast<long>(sent / rate * 1e9));
    const auto now = Clock::now();
    if (sent < count && next <= now && !idle.empty()) {
      const int index = idle.back();
      idle.pop_back();
      due[static_cast<std::size_t>(index)] = next;
      fleet.Send(index, CreateSecret("paced-" + run + "-" + std::to_string(sent)));
      ++sent;
      continue;
    }
    fleet.Poll(std::chrono::milliseconds(next > now && !idle.empty() && sent < count ? 1 : 100));
  }
  Row row(setting.server,
          std::to_string(count) + " secrets at " + std::to_string(static_cast<int>(rate)) +
              "/s, mean latency",
          "ms", false);
  row.Value(latencies.Mean())
      .Note("p50_ms", latencies.Quantile(0.5))
      .Note("p99_ms", latencies.Quantile(0.99));
  usage.End(latencies.size(), &row);
  row.Print();
}

}  // namespace sublet::bench
