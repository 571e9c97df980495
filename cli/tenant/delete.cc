// `sublet delete`: the rollback. Removes the context, the local endpoint and everything on the
// host.
#include <cstdio>
#include <nlohmann/json.hpp>

#include "cli/flags.h"
#include "cli/output.h"
#include "cli/tenant/commands.h"
#include "cli/tenant/endpoint_state.h"
#include "cli/tenant/install.h"
#include "cli/tenant/objects.h"

namespace sublet::cli {
namespace {

struct DeleteFlags {
  std::string name;
  HostFlags host;
  std::string output;
  bool wait = true;
  bool keep_volumes = false;
  bool delete_namespace = false;
  bool ignore_not_found = false;
  std::int64_t grace_period = 0;
  std::int64_t timeout = 60;
};

// Contexts and endpoints that lead to this tenant.
void ForgetContexts(const HostSession& host, const std::string& name, const std::string& space) {
  const std::string usual = TenantContextName(name, space, host.context);
  (void)client::RemoveContext(host.kubeconfig_path, usual, host.context);
  RemoveEndpoint(usual);
  for (const EndpointState& state : AllEndpoints()) {
    if (state.tenant == name && state.host_namespace == space && state.parent == host.context) {
      (void)client::RemoveContext(host.kubeconfig_path, state.context, host.context);
      RemoveEndpoint(state.context);
    }
  }
}

int Delete(const DeleteFlags& flags) {
  const auto host = OpenHost(flags.host);
  if (!host.ok()) {
    return Fail(host.error());
  }
  auto tenant = FindTenant(*host, flags.name, flags.host.namespace_name);
  std::string space = flags.host.namespace_name;
  if (tenant.ok()) {
    space = tenant->host_namespace;
  } else if (!tenant.error().Is(Reason::kNotFound)) {
    return Fail(tenant.error());
  } else {
    // A half-deleted or half-created tenant has no StatefulSet; its namespace tells.
    if (space.empty()) {
      space = DefaultNamespace(flags.name);
    }
    const bool left_over =
        host->client.Get({{"", "v1", "services"}, space, flags.name, ""}).ok() ||
        host->client.Get({kSecrets, space, "sublet-config-" + flags.name, ""}).ok();
    const bool asked =
        flags.delete_namespace && host->client.Get({kNamespaces, "", space, ""}).ok();
    if (!left_over && !asked) {
      ForgetContexts(*host, flags.name, space);
      if (flags.ignore_not_found) {
        std::fprintf(stderr, "There is no tenant %s; nothing to do.\n", flags.name.c_str());
        return 0;
      }
      return Fail(tenant.error(), "sublet list");
    }
  }
  Progress progress(flags.output == "json");
  ForgetContexts(*host, flags.name, space);
  RemoveOptions remove;
  remove.name = flags.name;
  remove.host_namespace = space;
  remove.delete_namespace = flags.delete_namespace;
  remove.keep_volumes = flags.keep_volumes;
  remove.grace_seconds = flags.grace_period;
  remove.deadline = After(std::chrono::seconds(flags.wait ? flags.timeout : 0));
  const auto removed =
      RemoveTenant(*host, remove, [&progress](std::string_view what) { progress.Begin(what); });
  if (!removed.ok() && (flags.wait || !removed.error().Is(Reason::kTimeout))) {
    progress.Failed();
    return Fail(removed.error(), "sublet delete " + flags.name);
  }
  progress.Done();
  if (flags.output == "json") {
    std::printf("%s\n", kube::Json{{"name", flags.name},
                                   {"namespace", space},
                                   {"milliseconds", progress.total().count()}}
                            .dump()
                            .c_str());
  } else {
    std::fprintf(stderr, "Tenant %s is gone.\n", flags.name.c_str());
  }
  return 0;
}

}  // namespace

int RunDelete(int argc, char** argv) {
  DeleteFlags flags;
  Flags parser("sublet delete", "Deletes a tenant and everything it had on the host.");
  parser.Positional(&flags.name, "NAME", "the tenant's name");
  parser.Text(&flags.host.namespace_name, "-n,--namespace", "host namespace of the tenant");
  parser.Text(&flags.host.context, "--context", "kubeconfig context of the host");
  parser.Bool(&flags.wait, "--wait", "wait until nothing is left (default true)");
  parser.Bool(&flags.keep_volumes, "--keep-pvc", "keep the volumes of the tenant and its pods");
  parser.Bool(&flags.delete_namespace, "--delete-namespace",
              "delete the host namespace even when create did not make it");
  parser.Bool(&flags.ignore_not_found, "--ignore-not-found",
              "no error when there is no such tenant");
  parser.Duration(&flags.grace_period, "--grace-period",
                  "how long the tenant's pods may take to end (default 0s)");
  parser.Duration(&flags.timeout, "--timeout", "how long to wait (default 1m)");
  parser.OneOf(&flags.output, "-o,--output", {"json"}, "print the result as JSON");
  if (const auto exit_code = parser.Parse(argc, argv)) {
    return *exit_code;
  }
  return Delete(flags);
}

}  // namespace sublet::cli
