// Watches: how late an event is at each of many watchers, and what watchers cost that see none.
#include <algorithm>
#include <cstdlib>

#include "e2e/bench/rows.h"

namespace sublet::bench {
namespace {

constexpr char kWatched[] = "/api/v1/namespaces/default/configmaps/watched";

// The revision at which the watches start: that of an empty list.
std::string CurrentRevision(Fleet& fleet) {
  std::string list;
  fleet.Ask(0, {.path = "/api/v1/namespaces/default/configmaps?labelSelector=none%3Dnone"}, &list);
  const std::string key = "\"resourceVersion\":\"";
  const auto at = list.find(key);
  return at == std::string::npos ? "0" : std::to_string(std::atoll(list.c_str() + at + key.size()));
}

RequestText WatchRequest(const std::string& revision) {
  return {.path = "/api/v1/namespaces/default/configmaps?watch=1&resourceVersion=" + revision};
}

}  // namespace

void MeasureWatch(const Setting& setting, int watchers, int events) {
  Fleet fleet(setting.target, watchers + 1, 4096);
  const int code = fleet.Ask(0, CreateConfigMap("watched"));
  if (code != 201 && code != 409) {
    Fail("POST was answered " + std::to_string(code));
  }
  const std::string revision = CurrentRevision(fleet);
  Latencies all;
  Latencies last;
  Clock::time_point sent;
  int waiting = 0;
  bool answered = false;
  fleet.on_answer = [&](int index, int) { answered = answered || index == 0; };
  fleet.on_body = [&](int index, std::string_view body) {
    if (index != 0) {
      const auto lines = std::count(body.begin(), body.end(), '\n');
      for (long i = 0; i < lines; ++i) {
        all.Add(Clock::now() - sent);
        --waiting;
      }
    }
  };
  for (int i = 1; i <= watchers; ++i) {
    fleet.Send(i, WatchRequest(revision));
  }
  // A stream begins without a byte: give the servers the time to set all of them up.
  for (const auto end = Clock::now() + std::chrono::milliseconds(500 + watchers);
       Clock::now() < end;) {
    fleet.Poll(std::chrono::milliseconds(10));
  }
  Usage usage(setting.pids);
  for (int event = 0; event < events; ++event) {
    waiting = watchers;
    answered = false;
    sent = Clock::now();
    fleet.Send(
        0, {.method = "PATCH",
            .path = kWatched,
            .content_type = "application/merge-patch+json",
            .body = R"({"data":{"sequence":")" + std::to_string(event) + "-" + revision + "\"}}"});
    while (waiting > 0 || !answered) {
      fleet.Poll(std::chrono::milliseconds(100));
      if (Clock::now() - sent > std::chrono::seconds(20)) {
        Fail(std::to_string(waiting) + " watchers did not see an event");
      }
    }
    last.Add(Clock::now() - sent);
    for (const auto end = Clock::now() + std::chrono::milliseconds(20); Clock::now() < end;) {
      fleet.Poll(std::chrono::milliseconds(5));
    }
  }
  Row row(
      setting.server,
      "watch, " + std::to_string(watchers) + (watchers == 1 ? " watcher" : " watchers") + ", p99",
      "ms", false);
  row.Value(all.Quantile(0.99))
      .Note("p50_ms", all.Quantile(0.5))
      .Note("last_ms", last.Quantile(0.5));
  usage.End(all.size(), &row);
  row.Print();
}

void MeasureIdleWatchers(const Setting& setting, int count) {
  const double before = PssMiB(setting.pids);
  Fleet fleet(setting.target, count + 1, 4096);
  const std::string revision = CurrentRevision(fleet);
  for (int i = 1; i <= count; ++i) {
    fleet.Send(i, WatchRequest(revision));
  }
  for (const auto end = Clock::now() + std::chrono::seconds(3); Clock::now() < end;) {
    fleet.Poll(std::chrono::milliseconds(50));
  }
  const double after = PssMiB(setting.pids);
  Row row(setting.server, std::to_string(count) + " idle watchers, memory more", "MiB", false);
  row.Value(after - before).Note("kib_each", (after - before) * 1024 / count).Print();
}

}  // namespace sublet::bench
