// The table: one line per row with all servers, their ratios and what bounds ours.
#include <cstdio>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "e2e/bench/rows.h"
#include "kube/json.h"

namespace sublet::bench {
namespace {

struct Line {
  std::string unit;
  bool more = true;
  std::map<std::string, kube::Json> by_server;
};

double ValueOf(const kube::Json& row) { return row.at("value").get<double>(); }

double NoteOf(const kube::Json& row, const char* name) {
  const kube::Json* note = kube::Find(row, {"notes", name});
  return note == nullptr ? 0 : note->get<double>();
}

std::string Format(const char* format, double value) {
  char text[64];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

std::string Number(double value) {
  return Format(value >= 100 ? "%.0f" : value >= 10 ? "%.1f" : "%.2f", value);
}

std::string Cell(const Line& line, const char* server) {
  const auto found = line.by_server.find(server);
  if (found == line.by_server.end()) {
    return "-";
  }
  std::string text = Number(ValueOf(found->second));
  if (const double p50 = NoteOf(found->second, "p50_ms"); p50 > 0) {
    text += " (" + Number(p50);
    const double p99 = NoteOf(found->second, "p99_ms");
    text += p99 > 0 ? "/" + Number(p99) + ")" : ")";
  }
  return text;
}

// How many times better than `server`; "-" when one of both is missing.
std::string Ratio(const Line& line, const char* server, bool as_percent) {
  const auto ours = line.by_server.find("sublet");
  const auto other = line.by_server.find(server);
  if (ours == line.by_server.end() || other == line.by_server.end() || ValueOf(ours->second) <= 0 ||
      ValueOf(other->second) <= 0) {
    return "-";
  }
  double ratio = ValueOf(ours->second) / ValueOf(other->second);
  if (!line.more) {
    ratio = 1 / ratio;
  }
  return as_percent ? Format("%.0f %%", ratio * 100) : Number(ratio) + "x";
}

std::string Bound(const Line& line) {
  const auto found = line.by_server.find("sublet");
  const double cores = found == line.by_server.end() ? 0 : NoteOf(found->second, "cores");
  if (cores == 0) {
    return "";
  }
  std::string cost = "server " + Number(NoteOf(found->second, "server_us")) + " us + client " +
                     Number(NoteOf(found->second, "client_us")) + " us, " + Number(cores) +
                     " cores busy";
  // Processor time compares also on a machine that others use meanwhile.
  for (const char* other : {"upstream", "ceiling"}) {
    if (const auto at = line.by_server.find(other); at != line.by_server.end()) {
      cost += std::string("; ") + other + "'s server " + Number(NoteOf(at->second, "server_us")) +
              " us";
    }
  }
  return (cores > 1.6 ? "processor: " : "waiting: ") + cost;
}

}  // namespace

void PrintTable(const std::string& path) {
  std::ifstream file(path);
  std::vector<std::string> order;
  std::map<std::string, Line> lines;
  for (std::string text; std::getline(file, text);) {
    const auto row = kube::ParseJson(text);
    if (!row.ok()) {
      continue;
    }
    const std::string name(kube::FindString(row.value(), {"row"}));
    Line& line = lines[name];
    if (line.by_server.empty()) {
      order.push_back(name);
    }
    line.unit = std::string(kube::FindString(row.value(), {"unit"}));
    line.more = kube::FindBool(row.value(), {"more"});
    line.by_server[std::string(kube::FindString(row.value(), {"server"}))] = row.value();
  }
  std::printf("%-42s %-11s %22s %22s %22s %9s %9s  %s\n", "row", "unit", "sublet (p50/p99 ms)",
              "upstream", "ceiling", "/upstream", "/ceiling", "what bounds sublet");
  for (const auto& name : order) {
    const Line& line = lines[name];
    std::printf("%-42s %-11s %22s %22s %22s %9s %9s  %s\n", name.c_str(), line.unit.c_str(),
                Cell(line, "sublet").c_str(), Cell(line, "upstream").c_str(),
                Cell(line, "ceiling").c_str(), Ratio(line, "upstream", false).c_str(),
                Ratio(line, "ceiling", true).c_str(), Bound(line).c_str());
  }
}

}  // namespace sublet::bench
