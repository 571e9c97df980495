#include "cli/version_command.h"

#include <cstdio>
#include <cstring>

#include "cli/commands.h"

namespace sublet::cli {

int RunVersion(int argc, char** argv) {
  const bool json = argc > 2 &&
                    (std::strcmp(argv[1], "-o") == 0 || std::strcmp(argv[1], "--output") == 0) &&
                    std::strcmp(argv[2], "json") == 0;
  if (argc > 1 && !json) {
    std::fprintf(stderr, "usage: sublet version [-o json]\n");
    return 2;
  }
  std::printf(json ? "{\"version\": \"%.*s\", \"kubernetes\": \"v1.36.0\"}\n"
                   : "sublet %.*s (serves Kubernetes v1.36)\n",
              static_cast<int>(kVersion.size()), kVersion.data());
  return 0;
}

}  // namespace sublet::cli
