#include "cli/commands.h"

#include "cli/version_command.h"

namespace sublet::cli {

const std::vector<Command>& Commands() {
  static const std::vector<Command> commands = {
      {"version", "print the version", "Other", RunVersion},
  };
  return commands;
}

}  // namespace sublet::cli
