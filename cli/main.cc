// The one executable: looks up the verb and runs it.
#include <cstdio>
#include <string>
#include <vector>

#include "base/nearest.h"
#include "cli/commands.h"

namespace {

using sublet::cli::Command;
using sublet::cli::Commands;

void PrintHelp(std::FILE* out) {
  std::fputs(
      "Sublet: virtual Kubernetes clusters per tenant, with GPU fractions that are enforced.\n\n"
      "  sublet host up --gpus 2      a host on this machine, when there is no cluster\n"
      "  sublet create team-a         a Kubernetes of its own; kubectl talks to it\n"
      "  sublet delete team-a         and nothing is left\n\n"
      "Usage: sublet <command> [flags]     sublet <command> --help tells more\n",
      out);
  std::string_view group;
  for (const Command& command : Commands()) {
    if (command.help.empty()) {
      continue;
    }
    if (command.group != group) {
      group = command.group;
      std::fprintf(out, "\n%.*s:\n", static_cast<int>(group.size()), group.data());
    }
    std::fprintf(out, "  %-12.*s %.*s\n", static_cast<int>(command.name.size()),
                 command.name.data(), static_cast<int>(command.help.size()), command.help.data());
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view verb = argc > 1 ? argv[1] : "";
  if (verb.empty() || verb == "--help" || verb == "-h" || verb == "help") {
    PrintHelp(stdout);
    return verb.empty() ? 2 : 0;
  }
  const std::string_view wanted = verb == "--version" ? "version" : verb;
  for (const Command& command : Commands()) {
    if (command.name == wanted) {
      std::string name = "sublet " + std::string(command.name);
      std::vector<char*> arguments{name.data()};
      arguments.insert(arguments.end(), argv + 2, argv + argc);
      arguments.push_back(nullptr);
      return command.run(static_cast<int>(arguments.size()) - 1, arguments.data());
    }
  }
  std::vector<std::string> names;
  for (const Command& command : Commands()) {
    names.emplace_back(command.name);
  }
  const std::string meant = sublet::NearestWord(wanted, names);
  std::fprintf(stderr, "sublet: unknown command \"%s\";%s sublet --help lists them\n", argv[1],
               meant.empty() ? "" : (" did you mean " + meant + "?").c_str());
  return 2;
}
