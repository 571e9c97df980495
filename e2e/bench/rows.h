// The rows of the benchmark: each measures one thing against one server and prints one or more
// lines (measure.h, Row). They write into the namespace `default` and clean nothing up: the script
// starts every server on an empty directory. Threads: one.
#pragma once

#include <string>
#include <vector>

#include "e2e/bench/fleet.h"
#include "e2e/bench/measure.h"

namespace sublet::bench {

struct Setting {
  std::string server;  // how the rows name it
  Target target;
  std::vector<int> pids;
};

// The objects that the rows are about.
RequestText CreateConfigMap(const std::string& name);
RequestText CreateSecret(const std::string& name);

// GET, LIST of 500, create, merge patch, apply: as many as `connections` can do in `seconds`.
// `what` is one of get, list, list-gzip, post, patch, apply.
void MeasureRate(const Setting& setting, const std::string& what, int connections, double seconds);
// Makes the objects that MeasureRate's reads need: ConfigMaps of 1 KB, 500 of them under a label.
void Prepare(const Setting& setting);
// `events` changes of one object, one after the other, as `watchers` connections see them.
void MeasureWatch(const Setting& setting, int watchers, int events);
// `count` secrets at `rate` per second, counted from when each was due.
void MeasurePaced(const Setting& setting, int count, double rate);
// Memory after `count` ConfigMaps were made.
void MeasureObjects(const Setting& setting, int count);
// What `count` watches that see nothing cost.
void MeasureIdleWatchers(const Setting& setting, int count);
// Memory and processor time of a server that nobody asks, over `seconds`.
void MeasureIdle(const Setting& setting, double seconds);
// Creates the definitions in `directory` and waits until all are Established and answer a list.
void MeasureCrds(const Setting& setting, const std::string& directory);
// Starts `command` `runs` times, {dir} in it a fresh folder and {port} a free port, until /readyz
// answers. The process is ended by its id with SIGTERM after each run.
void MeasureStart(const std::string& server, int runs, const std::vector<std::string>& command);
// How often one writer can append 4 KiB and fdatasync in `directory`.
void MeasureDisk(const std::string& directory, double seconds);

// Never returns; prints its port first.
[[noreturn]] void ServeFixed(int port, const std::string& object_path,
                             const std::string& list_path);
// Reads rows from `path` and prints one line per row with all servers and the ratios.
void PrintTable(const std::string& path);

}  // namespace sublet::bench
