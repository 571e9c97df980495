#include "cli/commands.h"

#include "cli/version_command.h"
#include "server/serve_command.h"

namespace sublet::cli {

const std::vector<Command>& Commands() {
  static const std::vector<Command> commands = {
      {"serve", "serve one control plane's API", "Roles", server::RunServe},
      {"version", "print the version", "Other", RunVersion},
  };
  return commands;
}

}  // namespace sublet::cli
