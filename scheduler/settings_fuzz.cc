// A profile's arguments come from the configuration: no text may crash their parser, and what it
// takes, a usage window or a cron expression among it, is fit for use. What was kept of past use comes
// from a ConfigMap.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "scheduler/profile.h"
#include "scheduler/usage.h"

// Lines "argument=value"; "cron=" is an expression alone, "history=" what was kept.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace sublet::scheduler;
  constexpr Millis kNow = INT64_C(1'767'225'600'000);
  const std::string text(reinterpret_cast<const char*>(data), size);
  Profile profile = *NamedProfile("kai-0.17");
  std::string kept;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string line = text.substr(at, end - at);
    at = end + 1;
    const std::size_t equals = line.find('=');
    if (equals == std::string::npos) {
      continue;
    }
    const std::string key = line.substr(0, equals);
    const std::string value = line.substr(equals + 1);
    if (key == "cron") {
      if (const auto times = CronTimes::Parse(value); times.ok()) {
        const Millis latest = times->LatestAt(kNow);
        // It names its own time, and is never in the future.
        if (latest > kNow || (latest != 0 && times->LatestAt(latest) != latest)) {
          std::abort();
        }
      }
    } else if (key == "history") {
      kept = value;
    } else {
      (void)SetArgument(profile, key, value);
    }
  }
  if (profile.usage.on && profile.usage.Check().ok()) {
    QueueView queue;
    queue.name = "a";
    queue.share.r[kGpu].allocated = 3;
    UsageHistory history(profile.usage);
    (void)history.Decode(kept);
    history.Advance(kNow, {queue}, {4, 5, 6});
    history.Advance(kNow + profile.usage.fetch, {queue}, {4, 5, 6});
    for (const auto& [name, share] : history.Shares()) {
      for (const double part : share) {
        if (!(part >= 0 && part <= 1)) {
          std::abort();
        }
      }
    }
    if (!UsageHistory(profile.usage).Decode(history.Encode())) {
      std::abort();
    }
  }
  return 0;
}
