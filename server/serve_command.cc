#include "server/serve_command.h"

#include <signal.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <cstdio>

#include "apiserver/auth/pki.h"
#include "base/log.h"
#include "server/control_plane.h"
#include "server/idle_memory.h"

namespace sublet::server {
namespace {

constexpr int kUsage = 2;
// The parts behind the API make their first objects within this time.
constexpr int kSettleSeconds = 3;
constexpr int kIdleCheckSeconds = 30;

int Refuse(const std::string& message) {
  std::fprintf(stderr, "sublet serve: %s\n", message.c_str());
  return kUsage;
}

// "127.0.0.1:6443", "[::1]:6443", ":6443" (every address).
bool ParseListen(const std::string& text, std::string* address_out, std::uint16_t* port_out) {
  const auto colon = text.rfind(':');
  if (colon == std::string::npos) {
    return false;
  }
  std::string address = text.substr(0, colon);
  if (address.size() > 2 && address.front() == '[' && address.back() == ']') {
    address = address.substr(1, address.size() - 2);
  } else if (address.find(':') != std::string::npos) {
    return false;
  }
  const std::string port = text.substr(colon + 1);
  unsigned number = 0;
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), number);
  if (port.empty() || error != std::errc() || end != port.data() + port.size() || number > 65535) {
    return false;
  }
  *address_out = address.empty() ? "0.0.0.0" : address;
  *port_out = static_cast<std::uint16_t>(number);
  return true;
}

struct Flags {
  std::string listen = "127.0.0.1:6443";
  std::string pod_listen;
  std::string node_kubeconfig;
  std::string config_path;
  std::string role = "tenant";
  std::string log_level = "info";
  bool check = false;
};

int ParseFlags(int argc, char** argv, Flags* flags, ControlPlaneOptions* options, bool* help) {
  CLI::App app("Serve the Kubernetes API of one virtual cluster from one directory.");
  app.name(argv[0]);
  app.add_option("--data-dir", options->data_directory, "directory of the control plane's state")
      ->required();
  app.add_option("--listen", flags->listen, "ADDRESS:PORT to serve on; port 0 takes a free one")
      ->capture_default_str();
  app.add_option("--pod-listen", flags->pod_listen,
                 "a second ADDRESS:PORT, where pods reach the API; the address may appear later");
  app.add_option("--write-kubeconfig", options->kubeconfig_path,
                 "file that receives an administrator's kubeconfig");
  app.add_option("--write-node-kubeconfig", flags->node_kubeconfig,
                 "NODE=FILE that receives the credentials of a node agent");
  app.add_option("--config", flags->config_path, "values file, as `sublet create --values` takes");
  app.add_option("--role", flags->role, "tenant or host")->capture_default_str();
  app.add_option("--tenant", options->tenant, "name of this tenant on its host; syncs its pods");
  app.add_option("--host-namespace", options->host_namespace,
                 "the tenant's namespace on the host (default: $POD_NAMESPACE)");
  app.add_option("--host-kubeconfig", options->host_kubeconfig,
                 "how to reach the host (default: $KUBECONFIG, or the pod's service account)");
  app.add_option("--dns-listen", options->dns_listen, "ADDRESS:PORT of the tenant's nameserver");
  app.add_flag("--api-only", options->api_only,
               "serve the API alone: no controllers, no scheduler, no syncer");
  app.add_flag("--check", flags->check, "only say whether flags, values and state can be used");
  app.add_option("--log-level", flags->log_level, "debug, info, warn or error")
      ->capture_default_str();
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    std::fputs(app.help().c_str(), stdout);
    *help = true;
    return 0;
  } catch (const CLI::ParseError& error) {
    return Refuse(std::string(error.what()) + "\n" + argv[0] + " --help lists the flags");
  }
  if (!flags->pod_listen.empty() &&
      !ParseListen(flags->pod_listen, &options->pod_listen_address, &options->pod_listen_port)) {
    return Refuse("--pod-listen \"" + flags->pod_listen + "\": allowed is ADDRESS:PORT");
  }
  if (const auto equals = flags->node_kubeconfig.find('='); !flags->node_kubeconfig.empty()) {
    if (equals == 0 || equals == std::string::npos || equals + 1 == flags->node_kubeconfig.size()) {
      return Refuse("--write-node-kubeconfig \"" + flags->node_kubeconfig +
                    "\": allowed is NODE=FILE");
    }
    options->node_name = flags->node_kubeconfig.substr(0, equals);
    options->node_kubeconfig_path = flags->node_kubeconfig.substr(equals + 1);
  }
  if (!ParseListen(flags->listen, &options->listen_address, &options->listen_port)) {
    return Refuse("--listen \"" + flags->listen +
                  "\": allowed is ADDRESS:PORT, for example 127.0.0.1:6443 or [::1]:6443");
  }
  if (flags->role != "tenant" && flags->role != "host") {
    return Refuse("--role \"" + flags->role + "\": allowed are tenant, host");
  }
  options->role = flags->role == "host" ? Role::kHost : Role::kTenant;
  if (const char* in_pod = std::getenv("POD_NAMESPACE");
      options->host_namespace.empty() && in_pod != nullptr) {
    options->host_namespace = in_pod;
  }
  if (!options->tenant.empty() && options->role == Role::kHost) {
    return Refuse("--tenant \"" + options->tenant + "\": allowed with --role tenant only");
  }
  if (!options->tenant.empty() && options->host_namespace.empty()) {
    return Refuse("--host-namespace: required with --tenant outside a pod");
  }
  if (!options->tenant.empty() && options->api_only) {
    return Refuse("--api-only: allowed without --tenant only");
  }
  constexpr std::pair<const char*, log::Level> kLevels[] = {{"debug", log::Level::kDebug},
                                                            {"info", log::Level::kInfo},
                                                            {"warn", log::Level::kWarn},
                                                            {"error", log::Level::kError}};
  for (const auto& [name, level] : kLevels) {
    if (flags->log_level == name) {
      log::SetLevel(level);
      return 0;
    }
  }
  return Refuse("--log-level \"" + flags->log_level + "\": allowed are debug, info, warn, error");
}

int ReadConfig(const std::string& path, config::TenantConfig* config) {
  const auto text = apiserver::ReadWholeFile(path);
  if (!text.ok()) {
    return Refuse("--config: " + text.error().message());
  }
  auto parsed = config::ParseTenantConfig(*text, path);
  if (!parsed.ok()) {
    return Refuse(parsed.error().message());
  }
  *config = std::move(*parsed);
  return 0;
}

// Waits for a signal; what only the start or a busy time needed is given back meanwhile.
int WaitForSignal(const sigset_t& signals) {
  IdleMemory idle;
  for (timespec wait{.tv_sec = kSettleSeconds, .tv_nsec = 0};; wait.tv_sec = kIdleCheckSeconds) {
    const int signal_number = sigtimedwait(&signals, nullptr, &wait);
    if (signal_number > 0) {
      return signal_number;
    }
    idle.Check();
  }
}

}  // namespace

int RunServe(int argc, char** argv) {
  Flags flags;
  ControlPlaneOptions options;
  bool help = false;
  if (const int code = ParseFlags(argc, argv, &flags, &options, &help); code != 0 || help) {
    return code;
  }
  if (!flags.config_path.empty()) {
    if (const int code = ReadConfig(flags.config_path, &options.config); code != 0) {
      return code;
    }
  }
  if (flags.check) {
    const auto usable = ControlPlane::Check(options);
    if (!usable.ok()) {
      std::fprintf(stderr, "sublet serve --check: %s\n", usable.error().message().c_str());
      return usable.error().Is(Reason::kBadRequest) ? kUsage : 1;
    }
    std::printf("%s can be served\n", options.data_directory.c_str());
    return 0;
  }
  // Before any thread starts, so that all of them leave these signals to this one.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  ::signal(SIGPIPE, SIG_IGN);

  auto opened = ControlPlane::Open(options);
  if (!opened.ok()) {
    std::fprintf(stderr, "sublet serve: %s\n", opened.error().message().c_str());
    return opened.error().Is(Reason::kBadRequest) ? kUsage : 1;
  }
  std::printf(
      "sublet serves %s from %s%s%s\n", (*opened)->url().c_str(), options.data_directory.c_str(),
      options.kubeconfig_path.empty() ? "" : ", kubeconfig ", options.kubeconfig_path.c_str());
  std::fflush(stdout);
  const int signal_number = WaitForSignal(signals);
  log::Info("stopping", {{"signal", signal_number}});
  (*opened)->Stop();
  return 0;
}

}  // namespace sublet::server
