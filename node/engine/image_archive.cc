#include "node/engine/image_archive.h"

#include <openssl/evp.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>

#include "kube/json.h"

// The program of pause.c, built beside this file (node/CMakeLists.txt names it).
__asm__(
    ".section .rodata\n"
    ".global sublet_pause_begin\n"
    ".global sublet_pause_end\n"
    "sublet_pause_begin:\n"
    ".incbin \"" SUBLET_PAUSE_PROGRAM
    "\"\n"
    "sublet_pause_end:\n"
    ".previous\n");
extern "C" const char sublet_pause_begin[];
extern "C" const char sublet_pause_end[];

namespace sublet::node {
namespace {

using kube::Json;

constexpr std::size_t kBlock = 512;

std::string Sha256(std::string_view data) {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int length = 0;
  SUBLET_CHECK(EVP_Digest(data.data(), data.size(), digest, &length, EVP_sha256(), nullptr) == 1);
  std::string hex;
  char text[3];
  for (unsigned int i = 0; i < length; ++i) {
    std::snprintf(text, sizeof(text), "%02x", digest[i]);
    hex += text;
  }
  return hex;
}

void PutOctal(char* field, std::size_t width, std::uint64_t value) {
  std::snprintf(field, width, "%0*llo", static_cast<int>(width - 1),
                static_cast<unsigned long long>(value));
}

// One ustar member. type: '0' file, '2' link, '5' directory. Names stay below 100 bytes here; a
// longer one is split at a slash into the prefix field.
void PutMember(std::string* tar, std::string name, char type, std::uint32_t mode,
               std::string_view content, const std::string& link) {
  char head[kBlock] = {};
  std::string prefix;
  if (name.size() > 99) {
    const auto slash = name.rfind('/', 154);
    prefix = name.substr(0, slash);
    name = name.substr(slash + 1);
  }
  SUBLET_CHECK(name.size() < 100 && link.size() < 100 && prefix.size() < 155);
  std::memcpy(head, name.data(), name.size());
  PutOctal(head + 100, 8, mode);
  PutOctal(head + 108, 8, 0);
  PutOctal(head + 116, 8, 0);
  PutOctal(head + 124, 12, content.size());
  PutOctal(head + 136, 12, 0);
  head[156] = type;
  std::memcpy(head + 157, link.data(), link.size());
  std::memcpy(head + 257, "ustar\00000", 8);
  std::memcpy(head + 345, prefix.data(), prefix.size());
  std::memset(head + 148, ' ', 8);
  unsigned int sum = 0;
  for (const char c : head) {
    sum += static_cast<unsigned char>(c);
  }
  PutOctal(head + 148, 7, sum);
  tar->append(head, kBlock);
  tar->append(content);
  tar->append((kBlock - content.size() % kBlock) % kBlock, '\0');
}

void PutEnd(std::string* tar) { tar->append(2 * kBlock, '\0'); }

void PutDirectory(std::string* tar, std::set<std::string>* known, const std::string& path) {
  if (path.empty() || !known->insert(path).second) {
    return;
  }
  if (const auto slash = path.rfind('/'); slash != std::string::npos) {
    PutDirectory(tar, known, path.substr(0, slash));
  }
  PutMember(tar, path + "/", '5', path == "tmp" ? 01777 : 0755, {}, {});
}

std::string BuildLayer(const ImageRecipe& recipe) {
  std::string tar;
  std::set<std::string> known;
  for (const std::string& directory : recipe.directories) {
    PutDirectory(&tar, &known, directory);
  }
  for (const ArchiveFile& file : recipe.files) {
    if (const auto slash = file.path.rfind('/'); slash != std::string::npos) {
      PutDirectory(&tar, &known, file.path.substr(0, slash));
    }
    if (file.link_target.empty()) {
      PutMember(&tar, file.path, '0', file.mode, file.content, {});
    } else {
      PutMember(&tar, file.path, '2', 0777, {}, file.link_target);
    }
  }
  PutEnd(&tar);
  return tar;
}

}  // namespace

std::string BuildImageArchive(const ImageRecipe& recipe) {
  const std::string layer = BuildLayer(recipe);
#if defined(__aarch64__)
  const char* architecture = "arm64";
#else
  const char* architecture = "amd64";
#endif
  Json config = {
      {"architecture", architecture}, {"os", "linux"}, {"created", "2026-01-01T00:00:00Z"}};
  Json& process = config["config"];
  process = Json::object();
  process["Env"] = recipe.env;
  process["Entrypoint"] = recipe.entrypoint;
  process["Cmd"] = recipe.command;
  process["User"] = recipe.user;
  process["WorkingDir"] = recipe.working_dir;
  config["rootfs"] = {{"type", "layers"}, {"diff_ids", {"sha256:" + Sha256(layer)}}};
  const std::string config_text = kube::Dump(config);
  const std::string config_name = Sha256(config_text) + ".json";
  Json entry = {{"Config", config_name}, {"RepoTags", recipe.tags}, {"Layers", {"l0/layer.tar"}}};
  Json manifest = Json::array();
  manifest.push_back(std::move(entry));

  std::string archive;
  PutMember(&archive, config_name, '0', 0644, config_text, {});
  PutMember(&archive, "l0/", '5', 0755, {}, {});
  PutMember(&archive, "l0/layer.tar", '0', 0644, layer, {});
  PutMember(&archive, "manifest.json", '0', 0644, kube::Dump(manifest), {});
  PutEnd(&archive);
  return archive;
}

Result<void> LoadRecipe(ContainerEngine& engine, const ImageRecipe& recipe) {
  const std::string archive = BuildImageArchive(recipe);
  const int fd = ::memfd_create("image", MFD_CLOEXEC);
  if (fd < 0) {
    return InternalError(std::string("memfd_create: ") + std::strerror(errno));
  }
  std::size_t written = 0;
  while (written < archive.size()) {
    const ssize_t n = ::write(fd, archive.data() + written, archive.size() - written);
    if (n <= 0) {
      ::close(fd);
      return InternalError(std::string("writing the image archive: ") + std::strerror(errno));
    }
    written += static_cast<std::size_t>(n);
  }
  ::lseek(fd, 0, SEEK_SET);
  auto loaded = engine.LoadImage(fd);
  ::close(fd);
  return loaded;
}

Result<void> EnsurePauseImage(ContainerEngine& engine) {
  auto present = engine.InspectImage(std::string(kPauseImage));
  if (present.ok()) {
    return {};
  }
  if (!present.error().Is(Reason::kNotFound)) {
    return std::move(present).error();
  }
  ImageRecipe recipe;
  recipe.tags = {std::string(kPauseImage)};
  ArchiveFile program;
  program.path = "pause";
  program.content.assign(sublet_pause_begin, sublet_pause_end);
  recipe.files = {std::move(program)};
  recipe.entrypoint = {"/pause"};
  return LoadRecipe(engine, recipe);
}

}  // namespace sublet::node
