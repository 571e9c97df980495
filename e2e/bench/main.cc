// api_load: measures one row of the benchmark against one server, or is the ceiling's server.
//   api_load ROW --server NAME --kubeconfig FILE --pid N[,N] [--connections N] [--seconds S] ...
//   api_load start --server NAME --runs N -- COMMAND...
//   api_load disk DIRECTORY | table FILE | fetch --path P | serve-fixed --object F --list F
// e2e/bench/api.sh calls it; each row is a JSON object on one line.
#include <CLI/CLI.hpp>
#include <cstdio>

#include "e2e/bench/rows.h"

namespace sublet::bench {
namespace {

struct Arguments {
  Setting setting;
  std::string kubeconfig;
  std::string pids;
  int port = 0;
  int connections = 16;
  double seconds = 3;
  int count = 0;
  double rate = 200;
  std::string directory;
  std::string path;
  std::string object;
  std::string list;
  int runs = 5;
  std::vector<std::string> command;
};

void AddServer(CLI::App* row, Arguments* args) {
  row->add_option("--server", args->setting.server, "how the row names the server")->required();
  row->add_option("--kubeconfig", args->kubeconfig, "how to reach it");
  row->add_option("--port", args->port, "how to reach a server that asks for no identity");
  row->add_option("--pid", args->pids, "its processes, for processor time and memory");
}

CLI::App* AddRow(CLI::App& app, Arguments* args, const char* name, const char* what,
                 std::function<void()> run) {
  CLI::App* row = app.add_subcommand(name, what);
  AddServer(row, args);
  row->callback([args, run = std::move(run)] {
    if (args->port != 0) {
      args->setting.target.port = args->port;
    } else {
      args->setting.target = LoadTarget(args->kubeconfig);
    }
    args->setting.pids = ParsePids(args->pids);
    run();
  });
  return row;
}

void AddRows(CLI::App& app, Arguments* args) {
  for (const char* what : {"get", "list", "list-gzip", "post", "patch", "apply"}) {
    CLI::App* row = AddRow(app, args, what, "requests per second", [args, what] {
      MeasureRate(args->setting, what, args->connections, args->seconds);
    });
    row->add_option("--connections", args->connections);
    row->add_option("--seconds", args->seconds);
  }
  AddRow(app, args, "prepare", "makes what get and list read", [args] { Prepare(args->setting); });
  CLI::App* watch = AddRow(app, args, "watch", "latency of an event",
                           [args] { MeasureWatch(args->setting, args->connections, args->count); });
  watch->add_option("--watchers", args->connections)->required();
  watch->add_option("--events", args->count)->required();
  CLI::App* paced = AddRow(app, args, "paced", "secrets at a steady rate",
                           [args] { MeasurePaced(args->setting, args->count, args->rate); });
  paced->add_option("--count", args->count)->required();
  paced->add_option("--rate", args->rate);
  AddRow(app, args, "objects", "memory with many objects",
         [args] { MeasureObjects(args->setting, args->count); })
      ->add_option("--count", args->count)
      ->required();
  AddRow(app, args, "idle-watchers", "memory of watches that see nothing",
         [args] { MeasureIdleWatchers(args->setting, args->count); })
      ->add_option("--count", args->count)
      ->required();
  AddRow(app, args, "idle", "memory and processor of an idle server", [args] {
    MeasureIdle(args->setting, args->seconds);
  })->add_option("--seconds", args->seconds);
  AddRow(app, args, "crds", "many definitions",
         [args] { MeasureCrds(args->setting, args->directory); })
      ->add_option("--dir", args->directory)
      ->required();
  AddRow(app, args, "fetch", "the body of one answer, to standard output",
         [args] {
           Fleet fleet(args->setting.target, 1);
           std::string body;
           if (const int code = fleet.Ask(0, {.path = args->path}, &body); code != 200) {
             Fail(args->path + " was answered " + std::to_string(code));
           }
           std::fwrite(body.data(), 1, body.size(), stdout);
         })
      ->add_option("--path", args->path)
      ->required();
}

int Main(int argc, char** argv) {
  CLI::App app("Load on a Kubernetes API, and what it answers");
  app.require_subcommand(1);
  Arguments args;
  AddRows(app, &args);
  CLI::App* start = app.add_subcommand("start", "from nothing to /readyz");
  start->add_option("--server", args.setting.server)->required();
  start->add_option("--runs", args.runs);
  start->add_option("command", args.command)->required();
  start->callback([&] { MeasureStart(args.setting.server, args.runs, args.command); });
  CLI::App* disk = app.add_subcommand("disk", "appends with fdatasync per second");
  disk->add_option("directory", args.directory)->required();
  disk->callback([&] { MeasureDisk(args.directory, 1); });
  CLI::App* table = app.add_subcommand("table", "all rows of a file");
  table->add_option("file", args.path)->required();
  table->callback([&] { PrintTable(args.path); });
  CLI::App* fixed = app.add_subcommand("serve-fixed", "the ceiling's server");
  fixed->add_option("--object", args.object)->required();
  fixed->add_option("--list", args.list)->required();
  fixed->add_option("--port", args.port);
  fixed->callback([&] { ServeFixed(args.port, args.object, args.list); });
  CLI11_PARSE(app, argc, argv);
  return 0;
}

}  // namespace
}  // namespace sublet::bench

int main(int argc, char** argv) { return sublet::bench::Main(argc, argv); }
