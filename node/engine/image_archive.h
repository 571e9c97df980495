// Image archives made on the spot: a docker-archive tar with one layer, as POST /images/load takes
// it. The sandbox image and, in tests, images around busybox are made this way, so nothing is ever
// fetched for them. Threads: any.
// Source: Docker Image Specification v1.2 (manifest.json, config, layer.tar).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "node/engine/engine.h"

namespace sublet::node {

struct ArchiveFile {
  std::string path;  // inside the image, without the leading slash; parents are added
  std::string content;
  std::uint32_t mode = 0755;
  std::string link_target;  // when set: a symbolic link
};

struct ImageRecipe {
  std::vector<std::string> tags;  // fully qualified
  std::vector<ArchiveFile> files;
  std::vector<std::string> directories;  // empty ones, mode 0755; "tmp" gets 1777
  std::vector<std::string> entrypoint;
  std::vector<std::string> command;
  std::vector<std::string> env;
  std::string user;
  std::string working_dir;
};

// The archive's bytes; equal recipes give equal bytes (and so the same image id).
std::string BuildImageArchive(const ImageRecipe& recipe);

// Builds and loads. Errors: as ContainerEngine::LoadImage, InternalError (no memory file).
Result<void> LoadRecipe(ContainerEngine& engine, const ImageRecipe& recipe);

// The image every sandbox runs; its name never leaves the machine.
inline constexpr std::string_view kPauseImage = "sublet.dev/pause:1";
// Loads the sandbox image unless it is there.
Result<void> EnsurePauseImage(ContainerEngine& engine);

}  // namespace sublet::node
