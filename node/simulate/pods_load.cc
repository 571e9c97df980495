// pods_load KUBECONFIG PODS CONNECTIONS [SCHEDULER GPUS]: creates that many pods in namespace
// "load" over that many connections, waits on a watch until all are Running, deletes them without
// grace and waits until all are gone. Prints one line of JSON: seconds and rates. It does as little
// as it can besides: it shares the machine with what is measured. Used by e2e/bench/simulated.sh.
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "client/client.h"
#include "client/kubeconfig.h"

namespace sublet {
namespace {

using kube::Json;
using Seconds = std::chrono::duration<double>;

constexpr std::chrono::minutes kPatience{10};
const client::Target kPods{{"", "v1", "pods"}, "load", "", ""};

Json PodNamed(const std::string& name, const std::string& scheduler, int gpus) {
  Json pod = {
      {"apiVersion", "v1"},
      {"kind", "Pod"},
      {"metadata", {{"name", name}, {"labels", {{"app", "load"}}}}},
      {"spec",
       {{"terminationGracePeriodSeconds", 0},
        {"containers",
         Json::array({{{"name", "c"},
                       {"image", "busybox"},
                       {"resources", {{"requests", {{"cpu", "100m"}, {"memory", "64Mi"}}}}}}})}}}};
  if (!scheduler.empty()) {
    pod["spec"]["schedulerName"] = scheduler;
  }
  if (gpus > 0) {
    pod["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] = std::to_string(gpus);
  }
  return pod;
}

[[noreturn]] void Give(const std::string& what, const Status& status) {
  std::fprintf(stderr, "pods_load: %s: %s\n", what.c_str(), status.message().c_str());
  std::exit(1);
}

// The text between `before` and the next quote; "" when it is not there.
std::string_view Between(std::string_view text, std::string_view before) {
  const std::size_t at = text.find(before);
  if (at == std::string_view::npos) {
    return {};
  }
  text.remove_prefix(at + before.size());
  return text.substr(0, text.find('"'));
}

struct Progress {
  std::vector<MonotonicTime> created, bound, running;
  int running_count = 0;
  int gone_count = 0;
};

// A watch on the pods that goes on where it was when the server ends it: upstream's does that to a
// client that falls behind, and on two cores every client does.
class PodWatch {
 public:
  PodWatch(const client::Client& client, std::string resource_version)
      : client_(client), resource_version_(std::move(resource_version)) {
    Open();
  }
  // The next frame; it lives until the next call.
  std::string_view Next(Deadline deadline) {
    for (;;) {
      auto frame = stream_->Next(deadline);
      if (frame.ok() && *frame) {
        frame_ = std::move(**frame);
        const std::string_view text = *frame_;
        if (Between(text, "\"type\":\"") == "ERROR") {
          Give("watch", Status(Reason::kExpired, std::string(text)));
        }
        if (const std::string_view version = Between(text, "\"resourceVersion\":\"");
            !version.empty()) {
          resource_version_ = version;
        }
        return text;
      }
      if (++ended_ > kEndedMax || std::chrono::steady_clock::now() >= deadline) {
        Give("watch",
             frame.ok() ? Status(Reason::kServiceUnavailable, "the server ends it again and again")
                        : frame.error());
      }
      Open();
    }
  }
  int ended() const { return ended_; }

 private:
  static constexpr int kEndedMax = 100;
  void Open() {
    client::WatchOptions options;
    options.resource_version = resource_version_;
    auto opened = client_.OpenWatchStream(kPods, options);
    if (!opened.ok()) {
      Give("watch", opened.error());
    }
    stream_ = std::move(*opened);
  }

  const client::Client& client_;
  std::string resource_version_;
  std::unique_ptr<client::Stream> stream_;
  client::Chunk frame_;
  int ended_ = 0;
};

// Reads the watch until `done`; frames are searched, not parsed.
template <typename Done>
void Follow(PodWatch& watch, Progress* progress, Done done) {
  const Deadline deadline = After(kPatience);
  while (!done()) {
    const std::string_view text = watch.Next(deadline);
    const std::string_view name = Between(text, "\"name\":\"load-");
    if (name.empty()) {
      continue;
    }
    const auto index = static_cast<std::size_t>(std::atoi(std::string(name).c_str()));
    const MonotonicTime now = std::chrono::steady_clock::now();
    if (Between(text, "\"type\":\"") == "DELETED") {
      ++progress->gone_count;
    } else if (progress->running[index] == MonotonicTime()) {
      if (progress->bound[index] == MonotonicTime() &&
          text.find("\"nodeName\":\"") != std::string_view::npos) {
        progress->bound[index] = now;
      }
      if (text.find("\"phase\":\"Running\"") != std::string_view::npos) {
        progress->running[index] = now;
        ++progress->running_count;
      }
    }
  }
}

double Percentile(const std::vector<MonotonicTime>& from, const std::vector<MonotonicTime>& to,
                  double part) {
  std::vector<double> spans;
  for (std::size_t i = 0; i < from.size(); ++i) {
    spans.push_back(Seconds(to[i] - from[i]).count() * 1000);
  }
  std::sort(spans.begin(), spans.end());
  return spans[static_cast<std::size_t>(part * static_cast<double>(spans.size() - 1))];
}

int Main(const std::string& kubeconfig, int pods, int connections, const std::string& scheduler,
         int gpus) {
  const auto connection = client::FindConnection(kubeconfig, "");
  if (!connection.ok()) {
    Give("kubeconfig", connection.error());
  }
  const auto client = client::Connect(*connection, "pods-load/1");
  if (!client.ok()) {
    Give("connect", client.error());
  }
  static_cast<void>(
      client
          ->Create({{"", "v1", "namespaces"}, "", "", ""},
                   {{"apiVersion", "v1"}, {"kind", "Namespace"}, {"metadata", {{"name", "load"}}}})
          .ok());
  // Pods are refused until the namespace has its account.
  for (int i = 0; i < 200; ++i) {
    if (client->Get({{"", "v1", "serviceaccounts"}, "load", "default", ""}).ok()) {
      break;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  const auto list = client->List(kPods);
  if (!list.ok()) {
    Give("list", list.error());
  }
  PodWatch watch(*client, (*list)["metadata"]["resourceVersion"].get<std::string>());
  const auto count = static_cast<std::size_t>(pods);
  Progress progress{std::vector<MonotonicTime>(count), std::vector<MonotonicTime>(count),
                    std::vector<MonotonicTime>(count)};
  std::atomic<int> next{0};
  std::atomic<std::int64_t> created_ns{0};
  const MonotonicTime begin = std::chrono::steady_clock::now();
  std::vector<std::thread> writers;
  for (int i = 0; i < connections; ++i) {
    writers.emplace_back([&] {
      for (int pod = next++; pod < pods; pod = next++) {
        progress.created[static_cast<std::size_t>(pod)] = std::chrono::steady_clock::now();
        const auto made =
            client->Create(kPods, PodNamed("load-" + std::to_string(pod), scheduler, gpus),
                           {.reads_answer = false});
        if (!made.ok()) {
          Give("create", made.error());
        }
      }
      created_ns = (std::chrono::steady_clock::now() - begin).count();
    });
  }
  Follow(watch, &progress, [&] { return progress.running_count == pods; });
  const double running = Seconds(std::chrono::steady_clock::now() - begin).count();
  for (std::thread& writer : writers) {
    writer.join();
  }
  const double created = static_cast<double>(created_ns.load()) / 1e9;
  const MonotonicTime end = std::chrono::steady_clock::now();
  const auto swept = client->DeleteCollection(kPods, {}, {.grace_period_seconds = 0});
  if (!swept.ok()) {
    Give("delete", swept.error());
  }
  Follow(watch, &progress, [&] { return progress.gone_count == pods; });
  const double gone = Seconds(std::chrono::steady_clock::now() - end).count();
  std::printf(
      "{\"pods\":%d,\"created_s\":%.3f,\"running_s\":%.3f,\"pods_per_s\":%.0f,"
      "\"bound_p50_ms\":%.1f,\"bound_p99_ms\":%.1f,\"running_p50_ms\":%.1f,\"gone_s\":%.3f,\"watch_"
      "ended\":%d}\n",
      pods, created, running, pods / running, Percentile(progress.created, progress.bound, 0.5),
      Percentile(progress.created, progress.bound, 0.99),
      Percentile(progress.created, progress.running, 0.5), gone, watch.ended());
  return 0;
}

}  // namespace
}  // namespace sublet

int main(int argc, char** argv) {
  if (argc != 4 && argc != 6) {
    std::fprintf(stderr, "use: pods_load KUBECONFIG PODS CONNECTIONS [SCHEDULER GPUS]\n");
    return 2;
  }
  return sublet::Main(argv[1], std::atoi(argv[2]), std::atoi(argv[3]), argc > 4 ? argv[4] : "",
                      argc > 5 ? std::atoi(argv[5]) : 0);
}
