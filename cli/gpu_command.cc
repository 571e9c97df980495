#include "cli/gpu_command.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>
#include <thread>

#include "cli/flags.h"
#include "cli/host/host_state.h"
#include "cli/host_session.h"
#include "cli/output.h"
#include "gpu/api/codec.h"
#include "gpu/cli_view.h"
#include "gpu/gpud/gpud.h"
#include "kube/quantity.h"

namespace sublet::cli {
namespace {

using kube::Json;

int List(int argc, char** argv) {
  HostFlags flags;
  std::string output;
  Flags parser("sublet gpu list",
               "The GPUs of the host: what is free, and which slices hold the rest.");
  parser.Text(&flags.context, "--context", "kubeconfig context of the host");
  parser.OneOf(&output, "-o,--output", {"json"}, "print as JSON");
  if (const auto exit_code = parser.Parse(argc, argv)) {
    return *exit_code;
  }
  const auto host = OpenHost(flags);
  if (!host.ok()) {
    return Fail(host.error(), "sublet host up --gpus 2");
  }
  const auto node_list = host->client.List({gpu::NodeResource(), "", "", ""});
  if (!node_list.ok()) {
    return Fail(node_list.error(), "sublet host install");
  }
  const auto slice_list = host->client.List({gpu::SliceResource(), "", "", ""});
  if (!slice_list.ok()) {
    return Fail(slice_list.error());
  }
  std::vector<gpu::GpuNode> nodes;
  for (const Json& item : node_list->value("items", Json::array())) {
    if (auto node = gpu::NodeFromJson(item); node.ok()) {
      nodes.push_back(std::move(*node));
    }
  }
  std::vector<gpu::GpuSlice> slices;
  for (const Json& item : slice_list->value("items", Json::array())) {
    if (auto slice = gpu::SliceFromJson(item); slice.ok()) {
      slices.push_back(std::move(*slice));
    }
  }
  if (output == "json") {
    std::printf("%s\n", kube::DumpPretty(gpu::GpuListToJson(nodes, slices)).c_str());
  } else {
    std::fputs(gpu::FormatGpuList(nodes, slices).c_str(), stdout);
  }
  return 0;
}

// gpud's /status document over its admin socket.
Result<Json> ReadStatus(const std::string& socket_path) {
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, socket_path.c_str(), sizeof(address.sun_path) - 1);
  std::string text;
  if (fd >= 0 && connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0) {
    const std::string request = "GET /status HTTP/1.0\r\n\r\n";
    (void)!write(fd, request.data(), request.size());
    char buffer[8192];
    for (ssize_t got = 0;
         (got = read(fd, buffer, sizeof(buffer))) > 0 && text.size() < (8u << 20);) {
      text.append(buffer, static_cast<std::size_t>(got));
    }
  }
  if (fd >= 0) {
    close(fd);
  }
  const auto body = text.find("\r\n\r\n");
  if (body == std::string::npos) {
    return Status(Reason::kNotFound, "no gpud answers at " + socket_path);
  }
  return kube::ParseJson(std::string_view(text).substr(body + 4));
}

// The frame from the top left corner; what an earlier one left over is cleared line by line, so
// that nothing flickers.
std::string Screen(const std::string& frame) {
  std::string out = "\033[H";
  for (const char c : frame) {
    out += c == '\n' ? "\033[K\n" : std::string(1, c);
  }
  return out + "\033[2mevery second; Ctrl-C ends\033[0m\033[K\033[J";
}

int Top(int argc, char** argv) {
  std::string output;
  std::string socket_path = HostDirectory() + "/gpud/admin.sock";
  bool watch = false;
  bool once = false;
  Flags parser(
      "sublet gpu top",
      "What each slice of this node's GPUs uses and gets: live on a terminal, once elsewhere.");
  parser.Text(&socket_path, "--socket", "gpud's admin socket (default: the embedded host's)");
  parser.Bool(&watch, "-w,--watch", "again every second, also where it is no terminal");
  parser.Bool(&once, "--once", "one second's look, also on a terminal");
  parser.OneOf(&output, "-o,--output", {"json"}, "print as JSON");
  if (const auto exit_code = parser.Parse(argc, argv)) {
    return *exit_code;
  }
  auto before = ReadStatus(socket_path);
  if (!before.ok()) {
    return Fail(before.error(), "sublet host up --gpus 2");
  }
  const bool is_screen = isatty(STDOUT_FILENO) == 1 && output.empty() && !once;
  const bool is_live = (watch || is_screen) && !once;
  do {
    std::this_thread::sleep_for(std::chrono::seconds(1));
    auto now = ReadStatus(socket_path);
    if (!now.ok()) {
      return Fail(now.error(), "sublet host up");
    }
    if (output == "json") {
      const Json top = gpu::GpuTopToJson(*now, &*before);
      // A stream is one document a line.
      std::printf("%s\n", (is_live ? kube::Dump(top) : kube::DumpPretty(top)).c_str());
    } else {
      const std::string frame = gpu::FormatGpuTop(*now, &*before);
      std::fputs(is_screen ? Screen(frame).c_str() : frame.c_str(), stdout);
    }
    std::fflush(stdout);
    before = std::move(now);
  } while (is_live);
  return 0;
}

}  // namespace

int RunGpu(int argc, char** argv) {
  const std::string action = argc > 1 ? argv[1] : "--help";
  if (action == "list") {
    return List(argc - 1, argv + 1);
  }
  if (action == "top") {
    return Top(argc - 1, argv + 1);
  }
  const bool help = action == "--help" || action == "-h";
  SayUnknownAction("sublet gpu", action);
  std::fprintf(help ? stdout : stderr,
               "usage: sublet gpu <action>\n"
               "  list   the GPUs of the host, what is free and who holds the rest\n"
               "  top    what each slice uses and gets, live\n");
  return help ? 0 : 2;
}

int RunGpudCommand(int argc, char** argv) {
  gpu::GpudOptions options;
  std::string kubeconfig;
  std::string memory = "16Gi";
  std::int64_t simulate = 0;
  Flags parser("sublet gpud", "Manages the GPUs of one node: slices, memory caps, compute leases.");
  parser.Text(&options.node_name, "--node-name", "name of the Node");
  parser.Text(&kubeconfig, "--kubeconfig", "how to reach the API (default: the pod's account)");
  parser.Text(&options.run_folder, "--run-dir", "sockets and lock (default /run/sublet/gpud)");
  parser.Text(&options.install_folder, "--install-dir",
              "files mounted into containers (default /var/lib/sublet/gpu)");
  parser.Text(&options.cdi.cdi_folder, "--cdi-dir", "where CDI specs go (default /var/run/cdi)");
  parser.Text(&options.nvml_path, "--nvml", "the driver's NVML library");
  parser.Number(&simulate, "--simulate", "this many simulated GPUs instead of the machine's");
  parser.Text(&options.simulated.model, "--model", "model of the simulated GPUs");
  parser.Text(&memory, "--memory", "memory of each simulated GPU (default 16Gi)");
  if (const auto exit_code = parser.Parse(argc, argv)) {
    return *exit_code;
  }
  const auto bytes = kube::Quantity::Parse(memory);
  if (!bytes.ok() || bytes->Value() < (1 << 20)) {
    return Fail(BadRequest("--memory \"" + memory + "\" is no amount of memory; write 16Gi"));
  }
  if (options.node_name.empty() || simulate < 0 || simulate > 16) {
    return Fail(BadRequest("--node-name is required; --simulate takes 0 to 16"));
  }
  options.simulated.count = static_cast<int>(simulate);
  options.simulated.memory_bytes = static_cast<std::uint64_t>(bytes->Value());
  const auto connection = client::FindConnection(kubeconfig, "");
  if (!connection.ok()) {
    return Fail(connection.error());
  }
  auto client = client::Connect(*connection, "sublet-gpud");
  if (!client.ok()) {
    return Fail(client.error());
  }
  options.client = std::make_shared<client::Client>(std::move(*client));
  return gpu::RunGpud(options);
}

}  // namespace sublet::cli
