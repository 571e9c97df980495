#include "cli/doctor_command.h"

#include <cstdio>
#include <nlohmann/json.hpp>

#include "cli/flags.h"
#include "cli/host_session.h"
#include "cli/output.h"
#include "cli/tenant/endpoint_state.h"
#include "cli/tenant/tenants.h"
#include "kube/object.h"

namespace sublet::cli {
namespace {

using kube::Json;

struct Finding {
  enum class Level { kGood, kNote, kBad };
  Level level = Level::kGood;
  std::string what;
  std::string remedy;
};

class Doctor {
 public:
  explicit Doctor(const HostFlags& flags) : flags_(flags) {}

  const std::vector<Finding>& Examine() {
    const auto host = OpenHost(flags_);
    if (!host.ok()) {
      Bad("no host cluster: " + host.error().message(), "sublet host up");
      return findings_;
    }
    const auto version = host->client.GetRaw("/version");
    if (!version.ok()) {
      Bad("the host (context " + host->context + ") does not answer: " + version.error().message(),
          host->embedded ? "sublet host up" : "kubectl cluster-info --context " + host->context);
      return findings_;
    }
    const auto parsed = kube::ParseJson(*version);
    Good("host " + host->context + " answers, Kubernetes " +
         (parsed.ok() ? std::string(kube::FindString(*parsed, {"gitVersion"})) : "?"));
    Nodes(*host);
    Rights(*host);
    Served(*host, "sublet.dev", "NodeUsage", "what other tenants use is not subtracted from nodes");
    Served(*host, "gpu.sublet.dev", "GpuSlice", "GPU fractions are counted, not enforced");
    Tenants(*host);
    Endpoints();
    return findings_;
  }

 private:
  void Good(std::string what) { findings_.push_back({Finding::Level::kGood, std::move(what), ""}); }
  void Note(std::string what, std::string remedy) {
    findings_.push_back({Finding::Level::kNote, std::move(what), std::move(remedy)});
  }
  void Bad(std::string what, std::string remedy) {
    findings_.push_back({Finding::Level::kBad, std::move(what), std::move(remedy)});
  }

  void Nodes(const HostSession& host) {
    const auto nodes = host.client.List({{"", "v1", "nodes"}, "", "", ""});
    if (!nodes.ok()) {
      return Bad("cannot list the host's nodes: " + nodes.error().message(),
                 "ask for the right to read nodes");
    }
    std::size_t ready = 0;
    const Json items = nodes->value("items", Json::array());
    for (const Json& node : items) {
      ready += kube::IsConditionTrue(node, "Ready") ? 1 : 0;
    }
    const std::string text =
        std::to_string(ready) + " of " + std::to_string(items.size()) + " nodes are Ready";
    ready == 0 ? Bad(text, host.embedded ? "sublet host status" : "kubectl describe nodes")
               : Good(text);
  }

  // What create needs to make.
  void Rights(const HostSession& host) {
    std::string missing;
    for (const auto& [group, resource] : {std::pair<const char*, const char*>{"", "namespaces"},
                                          {"apps", "statefulsets"},
                                          {"rbac.authorization.k8s.io", "clusterroles"}}) {
      const auto review = host.client.Create(
          {{"authorization.k8s.io", "v1", "selfsubjectaccessreviews"}, "", "", ""},
          {{"apiVersion", "authorization.k8s.io/v1"},
           {"kind", "SelfSubjectAccessReview"},
           {"spec",
            {{"resourceAttributes",
              {{"verb", "create"}, {"group", group}, {"resource", resource}}}}}});
      if (!review.ok() || !kube::FindBool(*review, {"status", "allowed"})) {
        missing += (missing.empty() ? "" : ", ") + std::string(resource);
      }
    }
    missing.empty() ? Good("you may create tenants")
                    : Bad("you may not create: " + missing, "use a context with those rights");
  }

  void Served(const HostSession& host, const std::string& group, const char* kind,
              const char* consequence) {
    host.client.GetRaw("/apis/" + group + "/v1alpha1").ok()
        ? Good(std::string("the host serves ") + kind)
        : Note(std::string("the host does not serve ") + kind + ": " + consequence,
               "sublet host install");
  }

  void Tenants(const HostSession& host) {
    const auto tenants = ListTenants(host, "");
    if (!tenants.ok()) {
      return Note("cannot list tenants: " + tenants.error().message(), "");
    }
    Good(std::to_string(tenants->size()) + (tenants->size() == 1 ? " tenant" : " tenants"));
    for (const TenantInfo& tenant : *tenants) {
      if (tenant.status == "Starting") {
        Note("tenant " + tenant.name + " is not ready",
             "kubectl describe pod -n " + tenant.host_namespace + " " + tenant.name + "-0");
      }
    }
  }

  void Endpoints() {
    for (const EndpointState& state : AllEndpoints()) {
      EndpointAnswers(state) ? Good("local endpoint of " + state.tenant +
                                    " answers on 127.0.0.1:" + std::to_string(state.port))
                             : Note("local endpoint of " + state.tenant +
                                        " is not running; kubectl starts it by itself",
                                    "sublet connect " + state.tenant);
    }
  }

  const HostFlags& flags_;
  std::vector<Finding> findings_;
};

}  // namespace

int RunDoctor(int argc, char** argv) {
  HostFlags flags;
  std::string output;
  Flags parser("sublet doctor", "Checks this machine and the host, and says what to do.");
  parser.Text(&flags.context, "--context", "kubeconfig context of the host");
  parser.OneOf(&output, "-o,--output", {"json"}, "print as JSON");
  if (const auto exit_code = parser.Parse(argc, argv)) {
    return *exit_code;
  }
  Doctor doctor(flags);
  bool bad = false;
  Json all = Json::array();
  for (const Finding& finding : doctor.Examine()) {
    const bool good = finding.level == Finding::Level::kGood;
    bad = bad || finding.level == Finding::Level::kBad;
    all.push_back({{"level", good                                     ? "ok"
                             : finding.level == Finding::Level::kNote ? "note"
                                                                      : "bad"},
                   {"what", finding.what},
                   {"next", finding.remedy}});
    if (output != "json") {
      std::printf("%s %s\n",
                  good                                     ? "✓"
                  : finding.level == Finding::Level::kNote ? "-"
                                                           : "✗",
                  finding.what.c_str());
      if (!finding.remedy.empty()) {
        std::printf("    next: %s\n", finding.remedy.c_str());
      }
    }
  }
  if (output == "json") {
    std::printf("%s\n", kube::DumpPretty(all).c_str());
  }
  return bad ? 1 : 0;
}

}  // namespace sublet::cli
