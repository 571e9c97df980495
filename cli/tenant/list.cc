// `sublet list` and `sublet describe`.
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "cli/flags.h"
#include "cli/output.h"
#include "cli/tenant/commands.h"
#include "cli/tenant/tenants.h"
#include "kube/object.h"
#include "kube/timestamp.h"

namespace sublet::cli {
namespace {

using kube::Json;

Json Shown(const TenantInfo& tenant) {
  return {{"name", tenant.name},       {"namespace", tenant.host_namespace},
          {"status", tenant.status},   {"version", tenant.version},
          {"created", tenant.created}, {"connected", tenant.connected}};
}

std::string Age(const TenantInfo& tenant) {
  return kube::HumanAge(tenant.created, SystemClock().Now());
}

// The values the tenant was made with, as stored on the host.
std::string ValuesOf(const HostSession& host, const TenantInfo& tenant) {
  const auto secret =
      host.client.Get({kSecrets, tenant.host_namespace, "sublet-config-" + tenant.name, ""});
  if (!secret.ok()) {
    return "";
  }
  return DecodeSecret(*secret, "config.yaml");
}

struct Counts {
  std::int64_t pods = 0;
  std::int64_t running = 0;
  std::int64_t slices = 0;
};

Result<Counts> CountWorkloads(const HostSession& host, const TenantInfo& tenant) {
  client::ListOptions ours;
  ours.label_selector = "sublet.dev/managed-by=" + tenant.name;
  Counts counts;
  SUBLET_TRY(const Json pods, host.client.List({kPods, tenant.host_namespace, "", ""}, ours));
  for (const Json& pod : pods.value("items", Json::array())) {
    ++counts.pods;
    counts.running += kube::FindString(pod, {"status", "phase"}) == "Running" ? 1 : 0;
  }
  const auto slices = host.client.List(
      {{"gpu.sublet.dev", "v1alpha1", "gpuslices"}, tenant.host_namespace, "", ""});
  if (slices.ok()) {
    counts.slices = static_cast<std::int64_t>(slices->value("items", Json::array()).size());
  }
  return counts;
}

int Describe(const std::string& name, const HostFlags& flags, const std::string& output) {
  const auto host = OpenHost(flags);
  if (!host.ok()) {
    return Fail(host.error(), "sublet host up");
  }
  const auto tenant = FindTenant(*host, name, flags.namespace_name);
  if (!tenant.ok()) {
    return Fail(tenant.error(), "sublet list");
  }
  const auto counts = CountWorkloads(*host, *tenant);
  if (!counts.ok()) {
    return Fail(counts.error());
  }
  const std::string values = ValuesOf(*host, *tenant);
  Json shown = Shown(*tenant);
  shown["hostPods"] = counts->pods;
  shown["hostPodsRunning"] = counts->running;
  shown["gpuSlices"] = counts->slices;
  shown["values"] = values;
  shown["context"] = TenantContextName(tenant->name, tenant->host_namespace, host->context);
  if (output == "json") {
    std::printf("%s\n", kube::DumpPretty(shown).c_str());
    return 0;
  }
  if (output == "yaml") {
    std::fputs(kube::ToYaml(shown).c_str(), stdout);
    return 0;
  }
  const auto line = [](const char* title, const std::string& text) {
    std::printf("%-12s %s\n", title, text.c_str());
  };
  line("Name:", tenant->name);
  line("Namespace:", tenant->host_namespace);
  line("Status:", tenant->status);
  line("Version:", tenant->version);
  line("Created:", tenant->created + " (" + Age(*tenant) + " ago)");
  line("Store:", "SQLite, /data/state.db in pod " + tenant->name + "-0");
  line("Host pods:",
       std::to_string(counts->pods) + " (" + std::to_string(counts->running) + " running)");
  line("GPU slices:", std::to_string(counts->slices));
  line("Context:", shown["context"].get<std::string>());
  std::printf("Values:\n");
  std::string indented = values.empty() ? "(defaults)\n" : values;
  std::size_t at = 0;
  for (int lines = 0; at < indented.size() && lines < 50; ++lines) {
    const auto end = indented.find('\n', at);
    std::printf("  %s\n", indented.substr(at, end - at).c_str());
    at = end == std::string::npos ? indented.size() : end + 1;
  }
  return 0;
}

}  // namespace

int RunList(int argc, char** argv) {
  HostFlags host_flags;
  std::string output;
  Flags parser("sublet list", "Lists the tenants of the host.");
  parser.Text(&host_flags.namespace_name, "-n,--namespace", "only this host namespace");
  parser.Text(&host_flags.context, "--context", "kubeconfig context of the host");
  parser.OneOf(&output, "-o,--output", {"table", "json"}, "format (default table)");
  if (const auto exit_code = parser.Parse(argc, argv)) {
    return *exit_code;
  }
  const auto host = OpenHost(host_flags);
  if (!host.ok()) {
    return Fail(host.error(), "sublet host up");
  }
  const auto tenants = ListTenants(*host, host_flags.namespace_name);
  if (!tenants.ok()) {
    return Fail(tenants.error());
  }
  if (output == "json") {
    Json all = Json::array();
    for (const TenantInfo& tenant : *tenants) {
      all.push_back(Shown(tenant));
    }
    std::printf("%s\n", kube::DumpPretty(all).c_str());
    return 0;
  }
  if (tenants->empty()) {
    std::fprintf(stderr, "No tenants. Make one with: sublet create team-a\n");
    return 0;
  }
  Table table({"NAME", "NAMESPACE", "STATUS", "VERSION", "CONNECTED", "AGE"});
  for (const TenantInfo& tenant : *tenants) {
    table.Row({tenant.name, tenant.host_namespace, tenant.status, tenant.version,
               tenant.connected ? "True" : "", Age(tenant)});
  }
  table.Print();
  return 0;
}

int RunDescribe(int argc, char** argv) {
  HostFlags host_flags;
  std::string name;
  std::string output;
  Flags parser("sublet describe", "Shows one tenant: status, values, what it runs on the host.");
  parser.Positional(&name, "NAME", "the tenant's name");
  parser.Text(&host_flags.namespace_name, "-n,--namespace", "host namespace of the tenant");
  parser.Text(&host_flags.context, "--context", "kubeconfig context of the host");
  parser.OneOf(&output, "-o,--output", {"json", "yaml"}, "print as JSON or YAML");
  if (const auto exit_code = parser.Parse(argc, argv)) {
    return *exit_code;
  }
  return Describe(name, host_flags, output);
}

}  // namespace sublet::cli
