#include "cli/commands.h"

#include "cli/completion_command.h"
#include "cli/doctor_command.h"
#include "cli/gpu_command.h"
#include "cli/host/host_command.h"
#include "cli/node_command.h"
#include "cli/scheduler_command.h"
#include "cli/tenant/commands.h"
#include "cli/tenant/image.h"
#include "cli/version_command.h"
#include "controllers/node_usage_controller.h"
#include "server/serve_command.h"

namespace sublet::cli {

const std::vector<Command>& Commands() {
  static const std::vector<Command> commands = {
      {"create", "make a tenant and connect to it", "Tenants", RunCreate},
      {"connect", "use a tenant with kubectl, or run one command in it", "Tenants", RunConnect},
      {"disconnect", "go back to the host's context", "Tenants", RunDisconnect},
      {"list", "list the tenants of the host", "Tenants", RunList},
      {"describe", "show one tenant", "Tenants", RunDescribe},
      {"pause", "stop a tenant and its workloads, keep its state", "Tenants", RunPause},
      {"resume", "start a paused tenant", "Tenants", RunResume},
      {"logs", "the log of a tenant's control plane", "Tenants", RunLogs},
      {"delete", "remove a tenant and everything it had", "Tenants", RunDelete},
      {"host", "the embedded host: up, down, status, logs; install on a real cluster", "Host",
       RunHost},
      {"gpu", "GPUs and slices: list, top", "Host", RunGpu},
      {"scheduler", "why a pod waits, queues, case files, benchmark", "Host", RunScheduler},
      {"doctor", "check this machine and the host, say what to do", "Other", RunDoctor},
      {"image", "save the image of tenant pods", "Other", RunImage},
      {"completion", "shell completion for bash, zsh, fish", "Other", RunCompletion},
      {"version", "print the version", "Other", RunVersion},
      {"serve", "serve one control plane's API", "Roles", server::RunServe},
      {"node", "run the pods of one node, or simulate nodes", "Roles", RunNodeCommand},
      {"node-usage", "publish what is free on each node of a real cluster", "Roles",
       controllers::RunNodeUsage},
      {"gpud", "manage the GPUs of one node", "Roles", RunGpudCommand},
      {"endpoint", "", "", RunEndpoint},
      {"credential", "", "", RunCredential},
  };
  return commands;
}

}  // namespace sublet::cli
