// `sublet pause` and `sublet resume`: the control plane scaled to zero and its workloads removed;
// volumes, Services and the tenant's state stay.
#include <cstdio>
#include <nlohmann/json.hpp>
#include <thread>

#include "cli/flags.h"
#include "cli/output.h"
#include "cli/tenant/commands.h"
#include "cli/tenant/endpoint_state.h"
#include "kube/object.h"
#include "kube/timestamp.h"

namespace sublet::cli {
namespace {

using kube::Json;

struct PauseFlags {
  std::string name;
  HostFlags host;
  std::int64_t timeout = 60;
};

std::optional<int> ParsePause(PauseFlags& flags, const char* name, const char* help, int argc,
                              char** argv) {
  Flags parser(name, help);
  parser.Positional(&flags.name, "NAME", "the tenant's name");
  parser.Text(&flags.host.namespace_name, "-n,--namespace", "host namespace of the tenant");
  parser.Text(&flags.host.context, "--context", "kubeconfig context of the host");
  parser.Duration(&flags.timeout, "--timeout", "how long to wait (default 1m)");
  return parser.Parse(argc, argv);
}

Result<void> Scale(const HostSession& host, const TenantInfo& tenant, int replicas,
                   const Json& annotations) {
  auto patched = host.client.Patch(
      {kStatefulSets, tenant.host_namespace, tenant.name, ""}, client::PatchType::kMerge,
      {{"metadata", {{"annotations", annotations}}}, {"spec", {{"replicas", replicas}}}});
  if (!patched.ok()) {
    return std::move(patched).error();
  }
  return Ok();
}

Result<void> WaitForPodsGone(const HostSession& host, const TenantInfo& tenant, Deadline deadline) {
  client::ListOptions ours;
  ours.label_selector = "sublet.dev/managed-by=" + tenant.name;
  while (std::chrono::steady_clock::now() < deadline) {
    SUBLET_TRY(const Json pods, host.client.List({kPods, tenant.host_namespace, "", ""}, ours));
    const auto own = host.client.Get({kPods, tenant.host_namespace, tenant.name + "-0", ""});
    if (pods.value("items", Json::array()).empty() && !own.ok()) {
      return Ok();
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  return Timeout("some pods of tenant " + tenant.name + " are still ending");
}

// So that kubectl is told at once what it would else try for a minute (RunCredential).
void NotePaused(const HostSession& host, const TenantInfo& tenant) {
  for (EndpointState& state : AllEndpoints()) {
    if (state.tenant == tenant.name && state.host_namespace == tenant.host_namespace &&
        state.parent == host.context) {
      state.paused = true;
      (void)SaveEndpoint(state);
    }
  }
}

Result<void> Pause(const HostSession& host, const TenantInfo& tenant, const PauseFlags& flags,
                   Progress& progress) {
  NotePaused(host, tenant);
  progress.Begin("control plane stopped");
  SUBLET_RETURN_IF_ERROR(
      Scale(host, tenant, 0,
            {{"sublet.dev/paused", "true"},
             {"sublet.dev/paused-date", kube::FormatTime(SystemClock().Now())}}));
  // The control plane goes first, or it would make the pods anew.
  client::DeleteOptions now;
  now.grace_period_seconds = 1;
  (void)host.client.Delete({kPods, tenant.host_namespace, tenant.name + "-0", ""}, now);
  progress.Begin("workloads removed");
  client::ListOptions ours;
  ours.label_selector = "sublet.dev/managed-by=" + tenant.name;
  auto swept = host.client.DeleteCollection({kPods, tenant.host_namespace, "", ""}, ours, {});
  if (!swept.ok()) {
    return std::move(swept).error();
  }
  return WaitForPodsGone(host, tenant, After(std::chrono::seconds(flags.timeout)));
}

Result<void> Resume(const HostSession& host, const TenantInfo& tenant, const PauseFlags& flags,
                    Progress& progress) {
  if (tenant.status == "ScaledDown") {
    return Status(Reason::kConflict, "tenant " + tenant.name +
                                         " was scaled down by hand, not paused; run: kubectl scale "
                                         "statefulset -n " +
                                         tenant.host_namespace + " " + tenant.name +
                                         " --replicas=1");
  }
  progress.Begin("tenant " + tenant.name + " serves");
  SUBLET_RETURN_IF_ERROR(WakeTenant(host, tenant));
  SUBLET_TRY(const TenantAccess access,
             WaitForTenant(host, tenant, After(std::chrono::seconds(flags.timeout)),
                           [&progress](std::string_view text) { progress.Note(text); }));
  (void)access;
  return Ok();
}

int RunEither(PauseFlags& flags, bool pause) {
  const auto host = OpenHost(flags.host);
  if (!host.ok()) {
    return Fail(host.error());
  }
  const auto tenant = FindTenant(*host, flags.name, flags.host.namespace_name);
  if (!tenant.ok()) {
    return Fail(tenant.error(), "sublet list");
  }
  Progress progress(false);
  const auto done =
      pause ? Pause(*host, *tenant, flags, progress) : Resume(*host, *tenant, flags, progress);
  if (!done.ok()) {
    progress.Failed();
    return Fail(done.error(), done.error().Is(Reason::kTimeout)
                                  ? LookAtPod(tenant->name, tenant->host_namespace)
                                  : "");
  }
  progress.Done();
  std::fprintf(stderr,
               pause ? "Tenant %s is paused. Wake it with: sublet resume %s\n"
                     : "Tenant %s runs. Use it with: sublet connect %s\n",
               flags.name.c_str(), flags.name.c_str());
  return 0;
}

}  // namespace

int RunPause(int argc, char** argv) {
  PauseFlags flags;
  if (const auto exit_code = ParsePause(
          flags, "sublet pause",
          "Stops a tenant and its workloads; state, volumes and Services stay.", argc, argv)) {
    return *exit_code;
  }
  return RunEither(flags, true);
}

Result<void> WakeTenant(const HostSession& host, const TenantInfo& tenant) {
  if (tenant.status != "Paused") {
    return Ok();
  }
  return Scale(host, tenant, 1,
               {{"sublet.dev/paused", nullptr}, {"sublet.dev/paused-date", nullptr}});
}

int RunResume(int argc, char** argv) {
  PauseFlags flags;
  if (const auto exit_code =
          ParsePause(flags, "sublet resume", "Starts a paused tenant again.", argc, argv)) {
    return *exit_code;
  }
  return RunEither(flags, false);
}

}  // namespace sublet::cli
