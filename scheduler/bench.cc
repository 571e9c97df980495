#include "scheduler/bench.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <map>

#include "scheduler/engine.h"

namespace sublet::scheduler {

namespace {

constexpr Millis kNow = 1'800'000'000'000;

struct Size {
  int nodes = 500;
  int jobs = 4000;
};

std::string Padded(const char* prefix, int number) {
  char text[64];
  std::snprintf(text, sizeof text, "%s-%06d", prefix, number);
  return text;
}

void AddNodes(Engine& engine, int count) {
  for (int i = 0; i < count; ++i) {
    NodeSpec node;
    node.name = Padded("node", i);
    node.cpu = 128'000;
    node.memory = INT64_C(1) << 40;
    node.gpus = 8;
    node.labels = {{"nvidia.com/gpu.count", "8"}, {"nvidia.com/gpu.memory", "81500"}};
    engine.Apply(node);
  }
}

void AddQueue(Engine& engine, const std::string& name, const std::string& parent, double gpus) {
  QueueSpec queue;
  queue.name = name;
  queue.parent = parent;
  queue.cpu.quota = queue.memory.quota = kUnlimited;
  queue.gpu.quota = gpus;
  engine.Apply(queue);
}

// A group of `pods` pods of `gpus` each; on `node` when it is not empty.
void AddJob(Engine& engine, int number, const std::string& queue, int pods, int gpus,
            const std::string& node = "") {
  PodGroupSpec group;
  group.ns = "bench";
  group.name = Padded("job", number);
  group.uid = group.name;
  group.queue = queue;
  group.scheduler_name = "kai-scheduler";
  group.priority = 50;
  group.created = kNow - 1'000'000 + number;
  group.last_start = node.empty() ? 0 : kNow - 500'000;
  group.root.pod_sets.push_back({"default", pods, std::nullopt});
  engine.Apply(group);
  for (int i = 0; i < pods; ++i) {
    PodSpec pod;
    pod.ns = "bench";
    pod.name = group.name + "-" + std::to_string(i);
    pod.uid = pod.name;
    pod.group = group.Key();
    pod.scheduler_name = "kai-scheduler";
    pod.request.cpu = 1000;
    pod.request.memory = INT64_C(1) << 30;
    pod.request.gpu_count = gpus;
    pod.created = group.created;
    pod.node = node;
    pod.phase = node.empty() ? Phase::kPending : Phase::kRunning;
    engine.Apply(pod);
  }
}

struct Figures {
  double load_ms = 0, decide_ms = 0,
         cpu_ms = 0;  // cpu_ms: of the deciding, on a busy machine the better figure
  std::size_t binds = 0, evictions = 0, promises = 0, verdicts = 0;
};

double MsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
      .count();
}

Figures Measure(Engine& engine, const std::function<void()>& load,
                const std::function<void()>& events) {
  Figures figures;
  auto start = std::chrono::steady_clock::now();
  load();
  engine.Run(kNow);  // what was loaded is settled before the clock starts
  figures.load_ms = MsSince(start);
  const std::clock_t cpu = std::clock();
  start = std::chrono::steady_clock::now();
  events();
  for (bool again = true; again;) {
    const CycleResult result = engine.Run(kNow + 1000);
    for (const Decision& decision : result.decisions) {
      figures.binds += decision.kind == Decision::Kind::kBind ? 1 : 0;
      figures.evictions += decision.kind == Decision::Kind::kEvict ? 1 : 0;
      figures.promises += decision.kind == Decision::Kind::kPipeline ? 1 : 0;
    }
    figures.verdicts += result.verdicts.size();
    again = result.more;
  }
  figures.decide_ms = MsSince(start);
  figures.cpu_ms = static_cast<double>(std::clock() - cpu) * 1000 / CLOCKS_PER_SEC;
  return figures;
}

Figures RunShape(const std::string& shape, const Size& size, const Profile& profile) {
  Engine engine({profile});
  const int devices = size.nodes * 8;
  const auto base = [&] {
    AddNodes(engine, size.nodes);
    AddQueue(engine, "root", "", devices);
    AddQueue(engine, "a", "root", devices / 2);
    AddQueue(engine, "b", "root", devices / 2);
  };
  const auto filled = [&](int jobs) {
    base();
    for (int i = 0; i < jobs; ++i) {
      AddJob(engine, i, "a", 1, 1, Padded("node", i / 8 % size.nodes));
    }
  };
  if (shape == "fill") {
    return Measure(engine, base, [&] {
      for (int i = 0; i < size.jobs; ++i) {
        AddJob(engine, i, i % 2 == 0 ? "a" : "b", 1, 1);
      }
    });
  }
  if (shape == "gang") {
    return Measure(engine, base, [&] { AddJob(engine, 0, "a", size.jobs, 1); });
  }
  if (shape == "reclaim-one") {
    return Measure(
        engine, [&] { filled(size.jobs); }, [&] { AddJob(engine, size.jobs, "b", 1, 1); });
  }
  if (shape == "unschedulable") {
    return Measure(
        engine, [&] { filled(size.jobs); }, [&] { AddJob(engine, size.jobs, "b", 1, 9); });
  }
  if (shape == "many-queues") {
    const int queues = std::max(1, size.jobs / 10);
    return Measure(
        engine,
        [&] {
          AddNodes(engine, size.nodes);
          AddQueue(engine, "root", "", devices);
          for (int i = 0; i < queues; ++i) {
            AddQueue(engine, Padded("queue", i), "root", static_cast<double>(devices) / queues);
          }
        },
        [&] {
          for (int i = 0; i < size.jobs; ++i) {
            AddJob(engine, i, Padded("queue", i % queues), 1, 1);
          }
        });
  }
  // cycle: the pods take one millicore each so that any number fits beside the one that arrives.
  return Measure(
      engine,
      [&] {
        base();
        for (int i = 0; i < size.jobs; ++i) {
          AddJob(engine, i, "a", 1, 0, Padded("node", i % size.nodes));
        }
      },
      [&] { AddJob(engine, size.jobs, "b", 1, 1); });
}

long PeakKib() {
  long peak = 0;
  if (std::FILE* file = std::fopen("/proc/self/status", "r")) {
    char line[256];
    while (std::fgets(line, sizeof line, file) != nullptr) {
      if (std::sscanf(line, "VmHWM: %ld", &peak) == 1) {
        break;
      }
    }
    std::fclose(file);
  }
  return peak;
}

// 0 when it was asked for, as `help` says.
int PrintUsage(const std::string& asked) {
  const bool help = asked == "--help" || asked == "-h";
  std::fprintf(
      help ? stdout : stderr,
      "usage: sublet scheduler bench [--shape S] [--nodes N] [--jobs M] [--profile P] "
      "[--repeat R]\n"
      "  --shape S     fill (unless said otherwise), gang, reclaim-one, unschedulable, "
      "many-queues or cycle\n"
      "  --nodes N     nodes of eight GPUs (500)\n"
      "  --jobs M      jobs of one GPU, or pods of the gang (4000)\n"
      "  --profile P   default, kai-0.7, kai-0.9, kai-0.13 (unless said otherwise), "
      "kai-0.17\n"
      "  --repeat R    times, a line each (1)\n"
      "Prints milliseconds from the first event in to the last decision out, loading apart.\n");
  return help ? 0 : 2;
}

}  // namespace

int RunBenchCommand(const std::vector<std::string>& args) {
  std::map<std::string, std::string> options{{"--shape", "fill"},
                                             {"--nodes", "500"},
                                             {"--jobs", "4000"},
                                             {"--profile", "kai-0.13"},
                                             {"--repeat", "1"}};
  for (std::size_t i = 0; i < args.size(); i += 2) {
    if (options.count(args[i]) == 0 || i + 1 >= args.size()) {
      return PrintUsage(args[i]);
    }
    options[args[i]] = args[i + 1];
  }
  static const std::vector<std::string> kShapes{"fill",          "gang",        "reclaim-one",
                                                "unschedulable", "many-queues", "cycle"};
  const Size size{std::atoi(options["--nodes"].c_str()), std::atoi(options["--jobs"].c_str())};
  const Result<Profile> profile = NamedProfile(options["--profile"]);
  if (std::find(kShapes.begin(), kShapes.end(), options["--shape"]) == kShapes.end() ||
      size.nodes < 1 || size.nodes > 100'000 || size.jobs < 1 || size.jobs > 1'000'000 ||
      !profile.ok()) {
    std::fprintf(stderr, "unknown shape or profile, or a size out of range\n");
    return 2;
  }
  for (int i = 0; i < std::clamp(std::atoi(options["--repeat"].c_str()), 1, 1000); ++i) {
    const Figures figures = RunShape(options["--shape"], size, *profile);
    std::printf(
        "shape=%s nodes=%d jobs=%d loaded_ms=%.1f decided_ms=%.3f cpu_ms=%.3f binds=%zu "
        "evictions=%zu promises=%zu verdicts=%zu peak_kib=%ld\n",
        options["--shape"].c_str(), size.nodes, size.jobs, figures.load_ms, figures.decide_ms,
        figures.cpu_ms, figures.binds, figures.evictions, figures.promises, figures.verdicts,
        PeakKib());
  }
  return 0;
}

}  // namespace sublet::scheduler
