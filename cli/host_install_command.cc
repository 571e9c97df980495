#include "cli/host_install_command.h"

#include <cstdio>
#include <nlohmann/json.hpp>

#include "cli/flags.h"
#include "cli/output.h"
#include "cli/tenant/install.h"
#include "cli/tenant/objects.h"
#include "kube/object.h"

namespace sublet::cli {
namespace {

using kube::Json;

Result<void> Install(const HostSession& host, const std::string& image, Progress& progress) {
  progress.Begin("NodeUsage, GpuSlice and GpuNode defined");
  SUBLET_RETURN_IF_ERROR(ApplyObjects(host, HostObjects()));
  if (!image.empty()) {
    progress.Begin("node usage controller applied");
    SUBLET_RETURN_IF_ERROR(ApplyObjects(host, NodeUsageObjects(image)));
  }
  return Ok();
}

}  // namespace

int RunHostInstall(int argc, char** argv) {
  HostFlags flags;
  std::string image;
  bool print = false;
  Flags parser(
      "sublet host install",
      "Puts on a real cluster, once, what tenants share: the kinds NodeUsage, GpuSlice and\n"
      "GpuNode, and with --image the controller that publishes NodeUsage.");
  parser.Text(&flags.context, "--context", "kubeconfig context of the host");
  parser.Text(&image, "--image", "image of sublet, for the controller");
  parser.Bool(&print, "--print", "print the objects instead of applying them");
  if (const auto exit_code = parser.Parse(argc, argv)) {
    return *exit_code;
  }
  if (print) {
    auto objects = HostObjects();
    if (!image.empty()) {
      for (Json& object : NodeUsageObjects(image)) {
        objects.push_back(std::move(object));
      }
    }
    for (const Json& object : objects) {
      std::printf("---\n%s", kube::ToYaml(object).c_str());
    }
    return 0;
  }
  const auto host = OpenHost(flags);
  if (!host.ok()) {
    return Fail(host.error(), "sublet host up");
  }
  Progress progress(false);
  const auto installed = Install(*host, image, progress);
  if (!installed.ok()) {
    progress.Failed();
    return Fail(installed.error());
  }
  progress.Done();
  if (image.empty()) {
    std::fprintf(stderr,
                 "Add --image REF to run the controller that publishes NodeUsage: without it nodes "
                 "are shown whole.\n");
  }
  return 0;
}

}  // namespace sublet::cli
