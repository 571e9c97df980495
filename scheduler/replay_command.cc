// `sublet scheduler replay`: its arguments and what it prints.
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <sstream>

#include "kube/json.h"
#include "scheduler/replay.h"

namespace sublet::scheduler {

namespace {

using kube::Json;

Json ReportJson(const ReplayReport& report) {
  return {{"profile", report.profile},
          {"pods", report.pods},
          {"placed", report.placed},
          {"evictions", report.evictions},
          {"waitSeconds",
           {{"mean", report.wait_mean_s},
            {"p50", report.wait_p50_s},
            {"p95", report.wait_p95_s},
            {"max", report.wait_max_s}}},
          {"gpuUtilisation", report.gpu_utilisation},
          {"fairness", report.fairness},
          {"makespanSeconds", static_cast<double>(report.makespan) / 1000}};
}

std::string PlaceText(const ReplayReport& report, const std::string& pod) {
  const auto found = report.places.find(pod);
  if (found == report.places.end()) {
    return "never placed";
  }
  char wait[48];
  std::snprintf(wait, sizeof wait, " after %.3g s",
                static_cast<double>(found->second.second) / 1000);
  return found->second.first + wait;
}

std::vector<std::string> Different(const std::vector<ReplayReport>& reports) {
  std::set<std::string> names;
  for (const ReplayReport& report : reports) {
    for (const auto& [name, place] : report.places) {
      names.insert(name);
    }
  }
  std::vector<std::string> out;
  for (const std::string& name : names) {
    for (const ReplayReport& report : reports) {
      if (PlaceText(report, name) != PlaceText(reports[0], name)) {
        out.push_back(name);
        break;
      }
    }
  }
  return out;
}

void PrintReports(const std::vector<ReplayReport>& reports) {
  const auto row = [&](const char* name, const auto& text) {
    std::printf("%-18s", name);
    for (const ReplayReport& report : reports) {
      std::printf(" %20s", text(report).c_str());
    }
    std::printf("\n");
  };
  const auto number = [](double value) {
    char text[48];
    std::snprintf(text, sizeof text, "%.4g", value);
    return std::string(text);
  };
  row("PROFILE", [](const ReplayReport& r) { return r.profile; });
  row("pods placed", [](const ReplayReport& r) {
    return std::to_string(r.placed) + " of " + std::to_string(r.pods);
  });
  row("evictions", [](const ReplayReport& r) { return std::to_string(r.evictions); });
  row("wait mean (s)", [&](const ReplayReport& r) { return number(r.wait_mean_s); });
  row("wait p50 (s)", [&](const ReplayReport& r) { return number(r.wait_p50_s); });
  row("wait p95 (s)", [&](const ReplayReport& r) { return number(r.wait_p95_s); });
  row("wait max (s)", [&](const ReplayReport& r) { return number(r.wait_max_s); });
  row("GPU utilisation",
      [&](const ReplayReport& r) { return number(r.gpu_utilisation * 100) + " %"; });
  row("fairness (1=even)", [&](const ReplayReport& r) { return number(r.fairness); });
  row("makespan (s)",
      [&](const ReplayReport& r) { return number(static_cast<double>(r.makespan) / 1000); });
  const std::vector<std::string> different = Different(reports);
  std::printf("\n%zu pods differ%s\n", different.size(), different.empty() ? "" : ":");
  for (std::size_t i = 0; i < different.size() && i < 50; ++i) {
    std::printf("  %s\n", different[i].c_str());
    for (const ReplayReport& report : reports) {
      std::printf("    %-10s %s\n", report.profile.c_str(),
                  PlaceText(report, different[i]).c_str());
    }
  }
}

void PrintJson(const std::vector<ReplayReport>& reports) {
  Json out = {{"profiles", Json::array()}, {"differences", Json::array()}};
  for (const ReplayReport& report : reports) {
    out["profiles"].push_back(ReportJson(report));
  }
  for (const std::string& name : Different(reports)) {
    Json difference = {{"pod", name}};
    for (const ReplayReport& report : reports) {
      difference[report.profile] = PlaceText(report, name);
    }
    out["differences"].push_back(std::move(difference));
  }
  std::printf("%s\n", kube::DumpPretty(out).c_str());
}

struct ReplayOptions {
  std::string file;
  std::vector<Profile> profiles;
  bool json = false;
};

void PrintUsage(std::FILE* to) {
  std::fprintf(to,
               "usage: sublet scheduler replay FILE --profile A [--profile B ...] [-o json]\n"
               "  FILE: kubectl get "
               "nodes,pods,queues.scheduling.run.ai,podgroups.scheduling.run.ai,priorityclasses "
               "-A -o json\n"
               "Prints what each profile would have made of it, side by side: pods placed, waits, "
               "utilisation, fairness,\nand the pods whose fate differs.\n");
}

// nullopt, and the reason on stderr, for bad arguments.
std::optional<ReplayOptions> OptionsFrom(const std::vector<std::string>& args) {
  ReplayOptions out;
  auto& [file, profiles, json] = out;
  for (std::size_t i = 0; i < args.size(); ++i) {
    const bool value = i + 1 < args.size();
    if (args[i] == "--profile" && value) {
      Result<Profile> profile = NamedProfile(args[++i]);
      if (!profile.ok()) {
        std::fprintf(stderr, "sublet scheduler replay: %s\n", profile.error().message().c_str());
        return std::nullopt;
      }
      profiles.push_back(std::move(*profile));
    } else if ((args[i] == "-o" || args[i] == "--output") && value && args[i + 1] == "json") {
      json = true;
      ++i;
    } else if (file.empty() && !args[i].starts_with("-")) {
      file = args[i];
    } else {
      file.clear();
      break;
    }
  }
  if (file.empty() || profiles.empty()) {
    PrintUsage(stderr);
    return std::nullopt;
  }
  return out;
}

}  // namespace

int RunReplayCommand(const std::vector<std::string>& args) {
  if (!args.empty() && (args[0] == "--help" || args[0] == "-h")) {
    PrintUsage(stdout);
    return 0;
  }
  const std::optional<ReplayOptions> options = OptionsFrom(args);
  if (!options) {
    return 2;
  }
  std::ifstream in(options->file);
  std::stringstream text;
  text << in.rdbuf();
  const auto history =
      in ? ReadHistory(text.str()) : Result<History>(NotFound({"", "file"}, options->file));
  if (!history.ok()) {
    std::fprintf(stderr, "sublet scheduler replay: %s: %s\n", options->file.c_str(),
                 history.error().message().c_str());
    return 1;
  }
  std::vector<ReplayReport> reports;
  for (const Profile& profile : options->profiles) {
    reports.push_back(Replay(*history, profile));
  }
  if (options->json) {
    PrintJson(reports);
  } else {
    PrintReports(reports);
  }
  return 0;
}

}  // namespace sublet::scheduler
