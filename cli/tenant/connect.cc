// `sublet connect`, `sublet disconnect` and the credential plugin: contexts come and go here.
#include <sys/wait.h>
#include <unistd.h>

#include <climits>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "base/base64.h"
#include "cli/flags.h"
#include "cli/host/process.h"
#include "cli/output.h"
#include "cli/tenant/commands.h"
#include "cli/tenant/endpoint_state.h"

namespace sublet::cli {
namespace {

using kube::Json;

Json ClusterEntry(const EndpointState& state, const TenantAccess& access) {
  return {{"server", "https://127.0.0.1:" + std::to_string(state.port)},
          {"certificate-authority-data", EncodeBase64(access.ca_pem)},
          {"tls-server-name", access.server_name}};
}

// kubectl asks us for the certificate; that is the moment to see that the endpoint lives.
Json PluginUser(const EndpointState& state) {
  return {{"exec",
           {{"apiVersion", "client.authentication.k8s.io/v1"},
            {"command", OwnPath()},
            {"args", Json::array({"credential", state.context})},
            {"interactiveMode", "Never"},
            {"provideClusterInfo", false}}}};
}

Json CertificateUser(const TenantAccess& access) {
  return {{"client-certificate-data", EncodeBase64(access.certificate_pem)},
          {"client-key-data", EncodeBase64(access.key_pem)}};
}

// A whole kubeconfig with the certificate inside, for other programs.
std::string Standalone(const EndpointState& state, const TenantAccess& access) {
  const Json config = {
      {"apiVersion", "v1"},
      {"kind", "Config"},
      {"current-context", state.context},
      {"clusters",
       Json::array({{{"name", state.context}, {"cluster", ClusterEntry(state, access)}}})},
      {"users", Json::array({{{"name", state.context}, {"user", CertificateUser(access)}}})},
      {"contexts",
       Json::array({{{"name", state.context},
                     {"context", {{"cluster", state.context}, {"user", state.context}}}}})}};
  return kube::ToYaml(config);
}

// The endpoint's order to run, in its file. True when it is new, or for another port.
Result<bool> OrderEndpoint(const HostSession& host, const TenantInfo& tenant,
                           const std::string& context, std::uint16_t wanted_port,
                           EndpointState* state) {
  auto known = LoadEndpoint(context);
  if (known.ok()) {
    *state = std::move(*known);
  }
  const std::uint16_t before = state->port;
  state->context = context;
  state->parent = host.context;
  state->tenant = tenant.name;
  state->host_namespace = tenant.host_namespace;
  if (wanted_port != 0) {
    state->port = wanted_port;
  } else if (state->port == 0) {
    SUBLET_TRY(state->port, FreePort());
  }
  const bool is_new = state->port != before;
  if (is_new) {
    SUBLET_RETURN_IF_ERROR(SaveEndpoint(*state));
  }
  return is_new;
}

Result<EndpointState> OpenEndpoint(const HostSession& host, const TenantInfo& tenant,
                                   const TenantAccess& access, const std::string& context,
                                   std::uint16_t wanted_port) {
  EndpointState state;
  SUBLET_RETURN_IF_ERROR(OrderEndpoint(host, tenant, context, wanted_port, &state));
  // First the process, which writes its id into the file, then the file once more.
  SUBLET_RETURN_IF_ERROR(EnsureEndpoint(state));
  state.paused = false;
  state.certificate_pem = access.certificate_pem;
  state.key_pem = access.key_pem;
  SUBLET_RETURN_IF_ERROR(SaveEndpoint(state));
  return state;
}

// Runs the user's command with a kubeconfig of its own. Returns its exit code.
int RunInside(const std::string& kubeconfig, const std::vector<std::string>& command) {
  char path[] = "/tmp/sublet-kubeconfig-XXXXXX";
  const int fd = mkstemp(path);
  if (fd < 0 ||
      write(fd, kubeconfig.data(), kubeconfig.size()) != static_cast<ssize_t>(kubeconfig.size())) {
    return Fail(InternalError("cannot write a temporary kubeconfig"));
  }
  close(fd);
  const pid_t child = fork();
  if (child == 0) {
    setenv("KUBECONFIG", path, 1);
    std::vector<char*> arguments;
    for (const std::string& word : command) {
      arguments.push_back(const_cast<char*>(word.c_str()));
    }
    arguments.push_back(nullptr);
    execvp(arguments[0], arguments.data());
    std::fprintf(stderr, "sublet: cannot run %s\n", arguments[0]);
    _exit(127);
  }
  int status = 0;
  waitpid(child, &status, 0);
  unlink(path);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

struct ConnectFlags {
  std::string name;
  HostFlags host;
  std::string context_name;
  std::string server;
  std::int64_t port = 0;
  std::int64_t timeout = 120;
  bool print = false;
};

int Connect(const ConnectFlags& flags, const Flags& parser) {
  const bool quiet = flags.print || parser.has_rest();
  const auto host = OpenHost(flags.host);
  if (!host.ok()) {
    return Fail(host.error(), "sublet host up");
  }
  const auto tenant = FindTenant(*host, flags.name, flags.host.namespace_name);
  if (!tenant.ok()) {
    return Fail(tenant.error(), "sublet list");
  }
  // A paused tenant is woken, as its users expect; one that was scaled down by hand is not touched.
  if (const auto woken = WakeTenant(*host, *tenant); !woken.ok()) {
    return Fail(woken.error(), "sublet resume " + tenant->name);
  }
  if (tenant->status == "ScaledDown") {
    return Fail(Status(Reason::kConflict, "tenant " + tenant->name + " is " + tenant->status),
                "sublet resume " + tenant->name);
  }
  Progress progress(quiet);
  progress.Begin("tenant " + tenant->name + " serves");
  const auto access = WaitForTenant(*host, *tenant, After(std::chrono::seconds(flags.timeout)),
                                    [&progress](std::string_view text) { progress.Note(text); });
  if (!access.ok()) {
    progress.Failed();
    return Fail(access.error(), access.error().Is(Reason::kTimeout)
                                    ? LookAtPod(tenant->name, tenant->host_namespace)
                                    : "");
  }
  progress.Done();
  const std::string context =
      flags.context_name.empty()
          ? TenantContextName(tenant->name, tenant->host_namespace, host->context)
          : flags.context_name;
  if (quiet) {
    auto state =
        OpenEndpoint(*host, *tenant, *access, context, static_cast<std::uint16_t>(flags.port));
    if (!state.ok()) {
      return Fail(state.error());
    }
    const std::string kubeconfig = Standalone(*state, *access);
    if (!parser.has_rest()) {
      std::fputs(kubeconfig.c_str(), stdout);
      return 0;
    }
    if (parser.rest().empty()) {
      return Fail(BadRequest("nothing stands behind \"--\""),
                  "sublet connect " + flags.name + " -- kubectl get pods");
    }
    return RunInside(kubeconfig, parser.rest());
  }
  const auto written = ConnectTo(*host, *tenant, *access, context);
  if (!written.ok()) {
    return Fail(written.error());
  }
  std::fprintf(stderr,
               "kubectl now talks to tenant %s (context %s). Back with: sublet disconnect\n",
               tenant->name.c_str(), written->c_str());
  return 0;
}

// Asks the host only when the tenant was paused on this machine. Errors: Conflict (it still is).
Result<void> CheckAwake(EndpointState& state) {
  if (!state.paused) {
    return Ok();
  }
  HostFlags flags;
  flags.context = state.parent;
  SUBLET_TRY(const HostSession host, OpenHost(flags));
  SUBLET_TRY(const TenantInfo tenant, FindTenant(host, state.tenant, state.host_namespace));
  if (tenant.status == "Paused") {
    return Status(Reason::kConflict,
                  "tenant " + state.tenant + " is paused; run: sublet resume " + state.tenant);
  }
  state.paused = false;
  return SaveEndpoint(state);
}

}  // namespace

void BeginEndpoint(const HostSession& host, const TenantInfo& tenant,
                   const std::string& context_name) {
  EndpointState state;
  const std::string context =
      context_name.empty() ? TenantContextName(tenant.name, tenant.host_namespace, host.context)
                           : context_name;
  if (const auto is_new = OrderEndpoint(host, tenant, context, 0, &state); is_new.ok() && *is_new) {
    (void)StartEndpoint(state);  // ConnectTo sees whether it runs
  }
}

Result<std::string> ConnectTo(const HostSession& host, const TenantInfo& tenant,
                              const TenantAccess& access, std::string context_name) {
  if (context_name.empty()) {
    context_name = TenantContextName(tenant.name, tenant.host_namespace, host.context);
  }
  SUBLET_TRY(const EndpointState state, OpenEndpoint(host, tenant, access, context_name, 0));
  client::ContextEntry entry;
  entry.name = context_name;
  entry.cluster = ClusterEntry(state, access);
  entry.user = PluginUser(state);
  entry.namespace_name = "default";
  SUBLET_RETURN_IF_ERROR(client::WriteContext(host.kubeconfig_path, entry));
  return context_name;
}

int RunConnect(int argc, char** argv) {
  ConnectFlags flags;
  Flags parser("sublet connect",
               "Makes a tenant the current kubeconfig context, or runs a command in it:\n"
               "  sublet connect team-a\n  sublet connect team-a -- kubectl get pods");
  parser.Positional(&flags.name, "NAME", "the tenant's name");
  parser.Text(&flags.host.namespace_name, "-n,--namespace", "host namespace of the tenant");
  parser.Text(&flags.host.context, "--context", "kubeconfig context of the host");
  parser.Bool(&flags.print, "--print", "print a kubeconfig and change nothing");
  parser.Text(&flags.context_name, "--kube-config-context-name", "name of the new context");
  parser.Number(&flags.port, "--local-port", "port of the local endpoint (default: a free one)");
  parser.Duration(&flags.timeout, "--timeout", "how long to wait (default 2m)");
  if (const auto exit_code = parser.Parse(argc, argv)) {
    return *exit_code;
  }
  return Connect(flags, parser);
}

int RunDisconnect(int argc, char** argv) {
  Flags parser("sublet disconnect", "Switches kubectl back to the host's context.");
  if (const auto exit_code = parser.Parse(argc, argv)) {
    return *exit_code;
  }
  const auto kubeconfig = client::Kubeconfig::Load();
  if (!kubeconfig.ok()) {
    return Fail(kubeconfig.error());
  }
  const std::string current = kubeconfig->current_context();
  std::string parent;
  if (const auto tenant = ParseTenantContext(current)) {
    parent = tenant->parent;
  } else if (const auto state = LoadEndpoint(current); state.ok()) {
    parent = state->parent;  // a context with a name of the user's choice
  } else {
    return Fail(Status(Reason::kNotFound, "the current context \"" + current +
                                              "\" is not a tenant's, there is nothing to leave"),
                "sublet list");
  }
  const auto removed =
      client::RemoveContext(client::Kubeconfig::Paths("").front(), current, parent);
  if (!removed.ok()) {
    return Fail(removed.error());
  }
  RemoveEndpoint(current);
  std::fprintf(stderr, "Disconnected; kubectl talks to %s again.\n",
               parent.empty() ? "no cluster" : parent.c_str());
  return 0;
}

int RunCredential(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "sublet credential: for kubectl's use; it takes a context name\n");
    return 2;
  }
  auto state = LoadEndpoint(argv[1]);
  if (!state.ok()) {
    return Fail(state.error(), "sublet connect NAME");
  }
  if (const auto awake = CheckAwake(*state); !awake.ok()) {
    return Fail(awake.error());
  }
  if (const auto alive = EnsureEndpoint(*state); !alive.ok()) {
    return Fail(alive.error());
  }
  std::printf(
      "%s\n",
      Json{{"apiVersion", "client.authentication.k8s.io/v1"},
           {"kind", "ExecCredential"},
           {"status",
            {{"clientCertificateData", state->certificate_pem}, {"clientKeyData", state->key_pem}}}}
          .dump()
          .c_str());
  return 0;
}

}  // namespace sublet::cli
