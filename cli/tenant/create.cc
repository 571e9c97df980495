// `sublet create`: values, host objects, wait, connect; rolled back when a first creation fails.
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "cli/flags.h"
#include "cli/output.h"
#include "cli/tenant/commands.h"
#include "cli/tenant/endpoint_state.h"
#include "cli/tenant/image.h"
#include "cli/tenant/install.h"
#include "cli/tenant/objects.h"
#include "kube/object.h"

namespace sublet::cli {
namespace {

using kube::Json;

struct CreateFlags {
  std::string name;
  HostFlags host;
  std::vector<std::string> values;
  std::vector<std::string> sets;
  std::string image;
  std::string scheduler_version;
  std::string context_name;
  std::string output;
  bool connect = true;
  bool upgrade = false;
  bool print = false;
  bool create_namespace = true;
  std::int64_t timeout = 120;
};

Result<std::string> ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    return BadRequest("cannot read values file " + path);
  }
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// Files in order, then --set, each file checked by itself so that errors name its lines.
Result<std::string> MergedValues(const CreateFlags& flags) {
  std::string merged;
  for (const std::string& path : flags.values) {
    SUBLET_TRY(const std::string text, ReadFile(path));
    auto checked = config::ParseTenantConfig(text, path);
    if (!checked.ok()) {
      return std::move(checked).error();
    }
    SUBLET_TRY(merged, config::MergeValues(merged, text, path));
  }
  for (const std::string& set : flags.sets) {
    SUBLET_TRY(const std::string alone, config::SetValue("", set));
    auto checked = config::ParseTenantConfig(alone, "--set");
    if (!checked.ok()) {
      return std::move(checked).error();
    }
    SUBLET_TRY(merged, config::SetValue(merged, set));
  }
  if (!flags.scheduler_version.empty()) {
    SUBLET_TRY(const std::string profile, config::ProfileOfVersion(flags.scheduler_version));
    SUBLET_TRY(merged, config::SetValue(merged,
                                        "controlPlane.scheduler.profiles=[{schedulerName: "
                                        "kai-scheduler, profile: " +
                                            profile + "}]"));
  }
  return merged;
}

Result<bool> HasDefaultStorageClass(const HostSession& host) {
  SUBLET_TRY(const Json list,
             host.client.List({{"storage.k8s.io", "v1", "storageclasses"}, "", "", ""}));
  for (const Json& storage_class : list.value("items", Json::array())) {
    if (kube::AnnotationOf(storage_class, "storageclass.kubernetes.io/is-default-class") ==
        "true") {
      return true;
    }
  }
  return false;
}

// What stands in the namespace already. nullopt: free to create.
Result<std::optional<TenantInfo>> Existing(const HostSession& host, const TenantSpec& spec) {
  SUBLET_TRY(auto tenants, ListTenants(host, spec.host_namespace));
  for (TenantInfo& tenant : tenants) {
    if (tenant.name == spec.name) {
      return std::optional<TenantInfo>(std::move(tenant));
    }
    return Status(Reason::kConflict, "namespace " + spec.host_namespace + " already holds tenant " +
                                         tenant.name + "; choose another with -n");
  }
  return std::optional<TenantInfo>();
}

class Creation {
 public:
  Creation(const CreateFlags& flags, const HostSession& host, Progress& progress)
      : flags_(flags), host_(host), progress_(progress) {}

  // What to do after an error; "" when the error says it.
  const std::string& next() const { return next_; }

  Result<std::string> Run(TenantSpec spec, const config::TenantConfig& config) {
    next_ = LookAtPod(spec.name, spec.host_namespace);
    auto context = Try(std::move(spec), config);
    if (!context.ok() && !context.error().Is(Reason::kTimeout)) {
      next_.clear();
    }
    return context;
  }

 private:
  Result<std::string> Try(TenantSpec spec, const config::TenantConfig& config) {
    SUBLET_TRY(const auto existing, Existing(host_, spec));
    if (existing && !flags_.upgrade) {
      if (!flags_.connect) {
        return Status(Reason::kAlreadyExists, "tenant " + spec.name +
                                                  " already exists in namespace " +
                                                  spec.host_namespace +
                                                  "; add --upgrade to change it, or run: sublet "
                                                  "connect " +
                                                  spec.name);
      }
      return Finish(*existing);
    }
    SUBLET_RETURN_IF_ERROR(Prepare(spec, config));
    progress_.Begin("host objects applied");
    auto installed = Install(spec, config);
    if (!installed.ok() && !existing) {
      progress_.Failed();
      Rollback(spec);
      next_ = "sublet create " + spec.name + " --timeout 10m    (if it only needs longer)";
    }
    return installed;
  }

  Result<void> Prepare(TenantSpec& spec, const config::TenantConfig& config) {
    if (spec.image.empty()) {
      progress_.Begin("tenant image ready");
      SUBLET_TRY(spec.image, EnsureTenantImage(host_));
    }
    const auto& plane = config.control_plane;
    if (!plane.persistence_auto) {
      spec.persistent = plane.persistence;
    } else if (const auto there = HasDefaultStorageClass(host_); there.ok()) {
      spec.persistent = *there;
    }
    auto space = host_.client.Get({kNamespaces, "", spec.host_namespace, ""});
    if (space.ok()) {
      spec.create_namespace = kube::AnnotationOf(*space, "sublet.dev/created") == "true";
    } else if (!flags_.create_namespace) {
      return std::move(space).error();
    }
    return Ok();
  }

  Result<std::string> Install(const TenantSpec& spec, const config::TenantConfig& config) {
    SUBLET_RETURN_IF_ERROR(ApplyObjects(host_, TenantObjects(spec, config)));
    SUBLET_TRY(const TenantInfo tenant, FindTenant(host_, spec.name, spec.host_namespace));
    return Finish(tenant);
  }

  Result<std::string> Finish(const TenantInfo& tenant) {
    if (tenant.status == "Paused" || tenant.status == "ScaledDown") {
      return Status(Reason::kConflict, "tenant " + tenant.name + " is " + tenant.status +
                                           "; run: sublet resume " + tenant.name);
    }
    progress_.Begin("tenant " + tenant.name + " serves");
    if (flags_.connect) {
      BeginEndpoint(host_, tenant, flags_.context_name);
    }
    SUBLET_TRY(const TenantAccess access,
               WaitForTenant(host_, tenant, After(std::chrono::seconds(flags_.timeout)),
                             [this](std::string_view text) { progress_.Note(text); }));
    if (!flags_.connect) {
      return std::string();
    }
    progress_.Begin("connected");
    return ConnectTo(host_, tenant, access, flags_.context_name);
  }

  void Rollback(const TenantSpec& spec) {
    progress_.Begin("rolled back");
    RemoveOptions remove;
    remove.name = spec.name;
    remove.host_namespace = spec.host_namespace;
    remove.deadline = After(std::chrono::seconds(30));
    RemoveEndpoint(flags_.context_name.empty()
                       ? TenantContextName(spec.name, spec.host_namespace, host_.context)
                       : flags_.context_name);
    if (!RemoveTenant(host_, remove, [](std::string_view) {}).ok()) {
      progress_.Failed();
    }
  }

  const CreateFlags& flags_;
  const HostSession& host_;
  Progress& progress_;
  std::string next_;
};

int Create(const CreateFlags& flags) {
  if (const auto good = CheckTenantName(flags.name); !good.ok()) {
    return Fail(good.error(), "sublet create team-a");
  }
  const auto values = MergedValues(flags);
  if (!values.ok()) {
    return Fail(values.error());
  }
  const auto config = config::ParseTenantConfig(*values, "the merged values");
  if (!config.ok()) {
    return Fail(config.error());
  }
  TenantSpec spec;
  spec.name = flags.name;
  spec.host_namespace =
      flags.host.namespace_name.empty() ? DefaultNamespace(flags.name) : flags.host.namespace_name;
  spec.image = !flags.image.empty() ? flags.image : config->control_plane.image;
  spec.values = *values;
  spec.create_namespace = flags.create_namespace;
  if (flags.print) {
    if (spec.image.empty()) {
      spec.image = TenantImageName();
    }
    // Without a host to ask, "when it has a default StorageClass" means no.
    spec.persistent = !config->control_plane.persistence_auto && config->control_plane.persistence;
    for (const Json& object : TenantObjects(spec, *config)) {
      std::printf("---\n%s", kube::ToYaml(object).c_str());
    }
    return 0;
  }
  auto host = OpenHostOrOffer(flags.host);
  if (!host.ok()) {
    return Fail(host.error(), "sublet host up");
  }
  Progress progress(flags.output == "json");
  Creation creation(flags, *host, progress);
  const auto context = creation.Run(spec, *config);
  progress.Done();
  if (!context.ok()) {
    return Fail(context.error(), creation.next());
  }
  if (flags.output == "json") {
    std::printf("%s\n", Json{{"name", spec.name},
                             {"namespace", spec.host_namespace},
                             {"context", *context},
                             {"milliseconds", progress.total().count()}}
                            .dump()
                            .c_str());
  } else if (context->empty()) {
    std::fprintf(stderr, "Tenant %s runs in namespace %s. Connect with: sublet connect %s\n",
                 spec.name.c_str(), spec.host_namespace.c_str(), spec.name.c_str());
  } else {
    std::fprintf(stderr,
                 "Tenant %s is yours: kubectl now talks to it (context %s).\n"
                 "Back with: sublet disconnect    Remove with: sublet delete %s\n",
                 spec.name.c_str(), context->c_str(), spec.name.c_str());
  }
  return 0;
}

}  // namespace

int RunCreate(int argc, char** argv) {
  CreateFlags flags;
  Flags parser("sublet create",
               "Creates a tenant: a Kubernetes of its own in one pod of the host.");
  parser.Positional(&flags.name, "NAME", "the tenant's name");
  parser.Text(&flags.host.namespace_name, "-n,--namespace", "host namespace (default sublet-NAME)");
  parser.Text(&flags.host.context, "--context", "kubeconfig context of the host");
  parser.Texts(&flags.values, "-f,--values", "values file; repeatable, later ones win");
  parser.Texts(&flags.sets, "--set", "one value, key.path=value; repeatable");
  parser.Text(&flags.image, "--image", "image of the tenant pod");
  parser.Text(&flags.scheduler_version, "--scheduler-version",
              "behave like this KAI version (v0.7.11); sets the profile");
  parser.Text(&flags.context_name, "--kube-config-context-name", "name of the new context");
  parser.Bool(&flags.connect, "--connect", "write and use a kubeconfig context (default true)");
  parser.Bool(&flags.upgrade, "--upgrade", "change an existing tenant");
  parser.Bool(&flags.print, "--print", "print the host objects instead of applying them");
  parser.Bool(&flags.create_namespace, "--create-namespace", "create the namespace (default true)");
  parser.Duration(&flags.timeout, "--timeout", "how long to wait (default 2m)");
  parser.OneOf(&flags.output, "-o,--output", {"json"}, "print the result as JSON");
  if (const auto exit_code = parser.Parse(argc, argv)) {
    return *exit_code;
  }
  return Create(flags);
}

}  // namespace sublet::cli
