// The files gpud carries for containers: the libraries and programs of gpu/hooks and gpu/simulator,
// as the build made them. Threads: any; constant.
#pragma once

#include <string_view>
#include <vector>

namespace sublet::gpu {

struct EmbeddedFile {
  std::string_view name;
  std::string_view bytes;
};

const std::vector<EmbeddedFile>& EmbeddedFiles();

}  // namespace sublet::gpu
