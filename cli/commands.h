// The verbs of `sublet`, in the order of `sublet --help`. Adding one is its files plus one line in
// commands.cc. A verb is listed only when it works.
#pragma once

#include <string_view>
#include <vector>

namespace sublet::cli {

struct Command {
  std::string_view name;
  std::string_view help;   // one line; "" = hidden (started by sublet itself)
  std::string_view group;  // heading in the help text
  // argv[0] is "sublet NAME". Returns the exit code: 0 done, 1 failed, 2 wrong usage.
  int (*run)(int argc, char** argv);
};

const std::vector<Command>& Commands();

inline constexpr std::string_view kVersion = "v0.1.0";

}  // namespace sublet::cli
