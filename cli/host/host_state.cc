#include "cli/host/host_state.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "kube/json.h"

namespace sublet::cli {
namespace {

using kube::Json;

std::string StateFile() { return HostDirectory() + "/host.json"; }

}  // namespace

std::string HostDirectory() {
  const char* state = std::getenv("XDG_STATE_HOME");
  const char* home = std::getenv("HOME");
  std::string path = state != nullptr && *state == '/' ? state
                     : home != nullptr                 ? std::string(home) + "/.local/state"
                                                       : "/tmp/sublet-" + std::to_string(getuid());
  path += "/sublet/host";
  for (std::size_t at = 1; at <= path.size(); ++at) {
    if (at == path.size() || path[at] == '/') {
      mkdir(path.substr(0, at).c_str(), 0700);
    }
  }
  return path;
}

std::string BootId() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(file, id);
  return id;
}

std::optional<HostState> LoadHostState() {
  std::ifstream file(StateFile());
  if (!file) {
    return std::nullopt;
  }
  std::ostringstream text;
  text << file.rdbuf();
  const auto json = kube::ParseJson(text.str());
  if (!json.ok()) {
    return std::nullopt;
  }
  HostState state;
  state.engine_socket = kube::FindString(*json, {"engineSocket"});
  state.port = static_cast<std::uint16_t>(kube::FindInt(*json, {"port"}));
  state.gpus = kube::FindInt(*json, {"gpus"});
  state.nodes = kube::FindInt(*json, {"nodes"});
  state.version = kube::FindString(*json, {"version"});
  state.boot_id = kube::FindString(*json, {"bootId"});
  for (const Json& process : json->value("processes", Json::array())) {
    state.processes.push_back({std::string(kube::FindString(process, {"name"})),
                               kube::FindInt(process, {"pid"}),
                               static_cast<std::uint64_t>(kube::FindInt(process, {"startTicks"}))});
  }
  return state;
}

Result<void> SaveHostState(const HostState& state) {
  Json json = {{"engineSocket", state.engine_socket},
               {"port", state.port},
               {"gpus", state.gpus},
               {"nodes", state.nodes},
               {"version", state.version},
               {"bootId", BootId()},
               {"processes", Json::array()}};
  for (const Process& process : state.processes) {
    json["processes"].push_back(
        {{"name", process.name}, {"pid", process.pid}, {"startTicks", process.start_ticks}});
  }
  const std::string fresh = StateFile() + ".new";
  std::ofstream out(fresh, std::ios::trunc);
  out << json.dump(1) << "\n";
  out.close();
  if (!out || rename(fresh.c_str(), StateFile().c_str()) != 0) {
    return InternalError("cannot write " + StateFile() + ": " + std::strerror(errno));
  }
  return Ok();
}

Result<std::string> EmbeddedEngineSocket() {
  const auto state = LoadHostState();
  if (!state || state->engine_socket.empty()) {
    return Status(Reason::kNotFound, "the embedded host is not up; run: sublet host up");
  }
  return state->engine_socket;
}

}  // namespace sublet::cli
