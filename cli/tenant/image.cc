#include "cli/tenant/image.h"

#include <link.h>
#include <openssl/sha.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>

#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/host/host_command.h"
#include "cli/host/host_state.h"
#include "cli/output.h"
#include "node/engine/image_archive.h"

namespace sublet::cli {
namespace {

constexpr const char* kBusybox = "/bin/busybox";
constexpr const char* kCertificates = "/etc/ssl/certs/ca-certificates.crt";
// What a person expects when looking into the pod.
constexpr std::array<const char*, 16> kApplets = {"sh",   "ls",  "cat",   "echo",     "ps", "top",
                                                  "grep", "ip",  "wget",  "nslookup", "du", "df",
                                                  "id",   "env", "sleep", "vi"};

Result<std::string> ReadBinary(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    return Status(Reason::kNotFound, "cannot read " + path);
  }
  std::ostringstream bytes;
  bytes << file.rdbuf();
  return bytes.str();
}

// The shared objects this process runs with, by the names the loader knows them under: glibc and
// its loader, nothing else in a release build.
std::set<std::string> LoadedLibraries() {
  std::set<std::string> paths;
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* out) {
        if (info->dlpi_name != nullptr && info->dlpi_name[0] == '/') {
          static_cast<std::set<std::string>*>(out)->insert(info->dlpi_name);
        }
        return 0;
      },
      &paths);
  return paths;
}

std::string HashOf(const std::string& bytes) {
  unsigned char digest[SHA256_DIGEST_LENGTH];
  SHA256(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(), digest);
  std::string text;
  for (int i = 0; i < 6; ++i) {
    char byte[3];
    std::snprintf(byte, sizeof(byte), "%02x", digest[i]);
    text += byte;
  }
  return text;
}

std::string NameOf(const std::string& program) {
  return "localhost/sublet:" + std::string(kVersion) + "-" + HashOf(program);
}

// Which file `path` is, and in which state; "" when that cannot be said.
std::string FileIdentity(const std::string& path) {
  struct stat info {};
  if (stat(path.c_str(), &info) != 0) {
    return "";
  }
  std::ostringstream text;
  for (const long long part :
       {static_cast<long long>(info.st_dev), static_cast<long long>(info.st_ino),
        static_cast<long long>(info.st_size), static_cast<long long>(info.st_mtim.tv_sec),
        static_cast<long long>(info.st_mtim.tv_nsec), static_cast<long long>(info.st_ctim.tv_sec),
        static_cast<long long>(info.st_ctim.tv_nsec)}) {
    text << part << ' ';
  }
  return text.str();
}

Result<node::ImageRecipe> Recipe() {
  SUBLET_TRY(std::string program, ReadBinary("/proc/self/exe"));
  node::ImageRecipe recipe;
  recipe.tags = {NameOf(program)};
  recipe.files.push_back({"sublet", std::move(program), 0755, ""});
  for (const std::string& library : LoadedLibraries()) {
    SUBLET_TRY(std::string bytes, ReadBinary(library));
    recipe.files.push_back({library.substr(1), std::move(bytes), 0755, ""});
  }
  auto busybox = ReadBinary(kBusybox);
  if (!busybox.ok()) {
    return Status(Reason::kNotFound,
                  "the tenant image needs busybox-static; run: apt-get install busybox-static");
  }
  recipe.files.push_back({"bin/busybox", std::move(*busybox), 0755, ""});
  for (const char* applet : kApplets) {
    recipe.files.push_back({std::string("bin/") + applet, "", 0777, "busybox"});
  }
  if (auto certificates = ReadBinary(kCertificates); certificates.ok()) {
    recipe.files.push_back(
        {"etc/ssl/certs/ca-certificates.crt", std::move(*certificates), 0644, ""});
  }
  recipe.files.push_back(
      {"etc/passwd", "root:x:0:0::/:/bin/sh\nsublet:x:65532:65532::/data:/bin/sh\n", 0644, ""});
  recipe.files.push_back({"etc/group", "root:x:0:\nsublet:x:65532:\n", 0644, ""});
  recipe.directories = {"data", "tmp", "etc/sublet"};
  recipe.entrypoint = {"/sublet"};
  recipe.env = {"PATH=/bin", "HOME=/data"};
  recipe.user = "65532:65532";
  return recipe;
}

int SaveImage(const std::string& file) {
  const auto recipe = Recipe();
  if (!recipe.ok()) {
    return Fail(recipe.error());
  }
  const std::string archive = node::BuildImageArchive(*recipe);
  std::FILE* out = file == "-" ? stdout : std::fopen(file.c_str(), "wb");
  if (out == nullptr || std::fwrite(archive.data(), 1, archive.size(), out) != archive.size() ||
      std::fflush(out) != 0) {
    return Fail(InternalError("cannot write " + file));
  }
  std::fprintf(stderr, "Saved %s (%zu MiB). Load it with: docker load -i %s\n",
               recipe->tags[0].c_str(), archive.size() >> 20, file.c_str());
  return 0;
}

}  // namespace

std::string TenantImageName() {
  // Hashing the program costs more than most other steps of a create: the answer is kept for as long
  // as the file is the same.
  const std::string kept = HostDirectory() + "/image";
  const std::string file = FileIdentity("/proc/self/exe");
  if (const auto text = ReadBinary(kept); text.ok() && !file.empty() && text->starts_with(file)) {
    return text->substr(file.size());
  }
  const auto program = ReadBinary("/proc/self/exe");
  const std::string name = program.ok() ? NameOf(*program) : "localhost/sublet:unknown";
  if (program.ok() && !file.empty()) {
    const std::string fresh = kept + "." + std::to_string(getpid());
    if (std::ofstream(fresh, std::ios::binary) << file << name) {
      (void)std::rename(fresh.c_str(), kept.c_str());
    }
  }
  return name;
}

Result<std::string> EnsureTenantImage(const HostSession& host) {
  if (!host.embedded) {
    return BadRequest(
        "the host is not the embedded one, so it needs an image from a registry: run "
        "sublet image save, push it, and add --image REF");
  }
  return EnsureEmbeddedImage();
}

Result<std::string> EnsureEmbeddedImage() {
  SUBLET_TRY(const std::string socket, EmbeddedEngineSocket());
  const auto engine = node::OpenEngine(socket);
  const std::string name = TenantImageName();
  const auto there = engine->InspectImage(name);
  if (there.ok()) {
    return name;
  }
  if (!there.error().Is(Reason::kNotFound)) {
    return there.error();
  }
  SUBLET_TRY(const node::ImageRecipe recipe, Recipe());
  SUBLET_RETURN_IF_ERROR(node::LoadRecipe(*engine, recipe));
  return name;
}

Result<HostSession> OpenHostOrOffer(const HostFlags& flags) {
  auto host = OpenHost(flags);
  if (host.ok() || !host.error().Is(Reason::kNotFound) || !flags.context.empty()) {
    return host;
  }
  if (isatty(STDIN_FILENO) == 1) {
    std::fprintf(stderr,
                 "There is no Kubernetes context. Start a host on this machine's container engine? "
                 "[Y/n] ");
    const int answer = std::getchar();
    if (answer == 'n' || answer == 'N') {
      return host;
    }
  } else {
    std::fprintf(stderr, "There is no Kubernetes context; starting the embedded host.\n");
  }
  std::string program = "sublet host";
  std::string up = "up";
  char* arguments[] = {program.data(), up.data(), nullptr};
  if (RunHost(2, arguments) != 0) {
    return Status(Reason::kServiceUnavailable, "the embedded host did not start");
  }
  return OpenHost(flags);
}

int RunImage(int argc, char** argv) {
  std::string action;
  std::string file = "sublet-image.tar";
  Flags parser("sublet image", "Saves the image of tenant pods, to be pushed to a registry.");
  parser.Positional(&action, "ACTION", "save");
  parser.Positional(&file, "FILE", "archive to write, - for standard output", false);
  if (const auto exit_code = parser.Parse(argc, argv)) {
    return *exit_code;
  }
  if (action != "save") {
    return Fail(BadRequest("unknown action \"" + action + "\""), "sublet image save FILE");
  }
  return SaveImage(file);
}

}  // namespace sublet::cli
