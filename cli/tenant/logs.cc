// `sublet logs`: the log of a tenant's control plane.
#include <cstdio>

#include "cli/flags.h"
#include "cli/output.h"
#include "cli/tenant/commands.h"

namespace sublet::cli {

int RunLogs(int argc, char** argv) {
  HostFlags flags;
  std::string name;
  std::int64_t tail = -1;
  bool follow = false;
  bool previous = false;
  Flags parser("sublet logs", "Prints the log of a tenant's control plane.");
  parser.Positional(&name, "NAME", "the tenant's name");
  parser.Text(&flags.namespace_name, "-n,--namespace", "host namespace of the tenant");
  parser.Text(&flags.context, "--context", "kubeconfig context of the host");
  parser.Bool(&follow, "-f,--follow", "go on as lines come");
  parser.Bool(&previous, "-p,--previous", "of the instance before the last restart");
  parser.Number(&tail, "--tail", "only the last lines");
  if (const auto exit_code = parser.Parse(argc, argv)) {
    return *exit_code;
  }
  const auto host = OpenHost(flags);
  if (!host.ok()) {
    return Fail(host.error());
  }
  const auto tenant = FindTenant(*host, name, flags.namespace_name);
  if (!tenant.ok()) {
    return Fail(tenant.error(), "sublet list");
  }
  client::HttpRequest request;
  request.target = "/api/v1/namespaces/" + tenant->host_namespace + "/pods/" + tenant->name +
                   "-0/log?container=syncer";
  request.target += follow ? "&follow=true" : "";
  request.target += previous ? "&previous=true" : "";
  request.target += tail >= 0 ? "&tailLines=" + std::to_string(tail) : "";
  auto stream = host->client.transport().OpenStream(request);
  if (!stream.ok()) {
    return tenant->status == "Paused"
               ? Fail(Status(Reason::kConflict,
                             "tenant " + tenant->name + " is paused, nothing of it runs"),
                      "sublet resume " + tenant->name)
               : Fail(stream.error(), LookAtPod(tenant->name, tenant->host_namespace));
  }
  for (;;) {
    auto chunk = (*stream)->Next(Deadline::max());
    if (!chunk.ok()) {
      return Fail(chunk.error());
    }
    if (!*chunk) {
      return 0;
    }
    std::fwrite((**chunk)->data(), 1, (**chunk)->size(), stdout);
    std::fflush(stdout);
  }
}

}  // namespace sublet::cli
