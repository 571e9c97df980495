#include "kube/kinds/registry.h"

#include <algorithm>
#include <array>

#include "kube/kinds/builtin_strategy.h"
#include "kube/schema/builtin_schema.h"

namespace sublet::kube {
namespace {

using schema::BuiltinText;

enum RowFlag : unsigned {
  kGeneration = 1,
  kNeedsVersion = 2,    // an update must name the resourceVersion
  kCreateOnUpdate = 4,  // PUT makes what is not there
  kNoMetadata = 8,      // a request that is answered and not stored
  kScale = 16,
  kAnnotationsCount = 32,     // generation counts changes of annotations too
  kKeepsStatus = 64,          // a create may bring a status
  kGenerationOnUpdate = 128,  // counts changes but starts absent
};

struct Row {
  std::string_view group;
  std::string_view resource;
  unsigned flags = 0;
  Problems (*name_rule)(std::string_view) = &IsDns1123Subdomain;
};

// What distinguishes kinds beyond their schema. A kind without a row has no flags.
// Source: the strategies under k8s.io/kubernetes pkg/registry.
constexpr Row kRows[] = {
    {"", "bindings", kNoMetadata},
    {"", "endpoints", kCreateOnUpdate},
    {"", "events", kCreateOnUpdate},
    {"", "limitranges", kCreateOnUpdate},
    {"", "namespaces", 0, &IsDns1123Label},
    {"", "nodes", kKeepsStatus},
    {"", "pods", kGeneration},
    {"", "podtemplates", kGeneration},
    {"", "replicationcontrollers", kGeneration | kScale},
    {"", "services", kCreateOnUpdate, &IsDns1123Label},
    {"admissionregistration.k8s.io", "mutatingadmissionpolicies", kGeneration | kNeedsVersion},
    {"admissionregistration.k8s.io", "mutatingadmissionpolicybindings",
     kGeneration | kNeedsVersion},
    {"admissionregistration.k8s.io", "mutatingwebhookconfigurations", kGeneration | kNeedsVersion},
    {"admissionregistration.k8s.io", "validatingadmissionpolicies", kGeneration | kNeedsVersion},
    {"admissionregistration.k8s.io", "validatingadmissionpolicybindings",
     kGeneration | kNeedsVersion},
    {"admissionregistration.k8s.io", "validatingwebhookconfigurations",
     kGeneration | kNeedsVersion},
    {"apiextensions.k8s.io", "customresourcedefinitions", kGeneration | kNeedsVersion},
    {"apiregistration.k8s.io", "apiservices", kNeedsVersion},
    {"apps", "daemonsets", kGeneration},
    {"apps", "deployments", kGeneration | kScale | kAnnotationsCount},
    {"apps", "replicasets", kGeneration | kScale},
    {"apps", "statefulsets", kGeneration | kScale, &IsDns1123Label},
    {"authentication.k8s.io", "selfsubjectreviews", kNoMetadata},
    {"authentication.k8s.io", "tokenreviews", kNoMetadata},
    {"authorization.k8s.io", "localsubjectaccessreviews", kNoMetadata},
    {"authorization.k8s.io", "selfsubjectaccessreviews", kNoMetadata},
    {"authorization.k8s.io", "selfsubjectrulesreviews", kNoMetadata},
    {"authorization.k8s.io", "subjectaccessreviews", kNoMetadata},
    {"batch", "cronjobs", kGeneration},
    {"batch", "jobs", kGeneration},
    {"coordination.k8s.io", "leases", kCreateOnUpdate | kNeedsVersion},
    {"discovery.k8s.io", "endpointslices", kGeneration},
    {"events.k8s.io", "events", kCreateOnUpdate},
    {"flowcontrol.apiserver.k8s.io", "flowschemas", kGeneration},
    {"flowcontrol.apiserver.k8s.io", "prioritylevelconfigurations", kGeneration},
    {"networking.k8s.io", "ingressclasses", kGeneration},
    {"networking.k8s.io", "ingresses", kGeneration},
    {"networking.k8s.io", "ipaddresses", 0, &IsIpAddress},
    {"networking.k8s.io", "networkpolicies", kGeneration},
    {"node.k8s.io", "runtimeclasses", kCreateOnUpdate | kNeedsVersion},
    {"policy", "poddisruptionbudgets", kGeneration | kNeedsVersion},
    {"rbac.authorization.k8s.io", "clusterrolebindings", kCreateOnUpdate, &IsPathSegmentName},
    {"rbac.authorization.k8s.io", "clusterroles", kCreateOnUpdate, &IsPathSegmentName},
    {"rbac.authorization.k8s.io", "rolebindings", kCreateOnUpdate, &IsPathSegmentName},
    {"rbac.authorization.k8s.io", "roles", kCreateOnUpdate, &IsPathSegmentName},
    {"resource.k8s.io", "deviceclasses", kGeneration},
    {"resource.k8s.io", "resourceslices", kGeneration},
    {"scheduling.k8s.io", "priorityclasses", kGeneration},
    {"storage.k8s.io", "csidrivers", kGenerationOnUpdate | kNeedsVersion},
    {"storage.k8s.io", "csinodes", kNeedsVersion},
    {"storage.k8s.io", "csistoragecapacities", kNeedsVersion},
    {"storage.k8s.io", "volumeattachments", kNeedsVersion},
};

std::vector<std::string> SplitList(std::string_view text) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const std::size_t comma = std::min(text.find(','), text.size());
    parts.emplace_back(text.substr(0, comma));
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return parts;
}

void ApplyRow(const Row& row, Kind* kind) {
  kind->has_generation = (row.flags & (kGeneration | kGenerationOnUpdate)) != 0;
  kind->generation_starts_absent = (row.flags & kGenerationOnUpdate) != 0;
  kind->allow_unconditional_update = (row.flags & kNeedsVersion) == 0;
  kind->allow_create_on_update = (row.flags & kCreateOnUpdate) != 0;
  kind->has_metadata = (row.flags & kNoMetadata) == 0;
  kind->name_rule = row.name_rule;
  kind->annotations_raise_generation = (row.flags & kAnnotationsCount) != 0;
  kind->keeps_status_on_create = (row.flags & kKeepsStatus) != 0;
  if ((row.flags & kScale) != 0) {
    kind->scale = ScalePaths();
  }
}

std::shared_ptr<Kind> MakeKind(const schema::ResourceRow& row) {
  auto kind = std::make_shared<Kind>();
  kind->gvk = {std::string(BuiltinText(row.group)), std::string(BuiltinText(row.version)),
               std::string(BuiltinText(row.kind))};
  kind->list_kind = kind->gvk.kind + "List";
  kind->resource = BuiltinText(row.name);
  kind->singular = BuiltinText(row.singular);
  kind->namespaced = row.namespaced != 0;
  kind->verbs = SplitList(BuiltinText(row.verbs));
  kind->short_names = SplitList(BuiltinText(row.short_names));
  kind->categories = SplitList(BuiltinText(row.categories));
  kind->storage_version_hash = BuiltinText(row.storage_version_hash);
  kind->storage = {kind->gvk.group, kind->resource};
  kind->stored_as = kind->gvk;
  kind->type = schema::FindType(kind->gvk.group, kind->gvk.version, kind->gvk.kind);
  for (const Row& rule : kRows) {
    if (rule.group == kind->gvk.group && rule.resource == kind->resource) {
      ApplyRow(rule, kind.get());
    }
  }
  // Kinds that two versions share are kept in one place, in the version named here.
  if (kind->gvk.group == "events.k8s.io" && kind->resource == "events") {
    kind->storage = {"", "events"};
    kind->stored_as = {"", "v1", "Event"};
  } else if (kind->gvk.group == "autoscaling" && kind->gvk.version == "v1") {
    kind->stored_as = {"autoscaling", "v2", "HorizontalPodAutoscaler"};
  }
  if ((kind->gvk.group.empty() && kind->resource == "replicationcontrollers") ||
      (kind->gvk.group == "batch" && kind->resource == "jobs")) {
    kind->default_propagation = "Orphan";
  }
  return kind;
}

void AddSubresource(const schema::ResourceRow& row, std::string_view name, Kind* kind) {
  Subresource sub;
  sub.name = name;
  sub.kind.kind = BuiltinText(row.kind);
  sub.kind.group = row.kind_version != 0 ? BuiltinText(row.kind_group) : BuiltinText(row.group);
  sub.kind.version =
      row.kind_version != 0 ? BuiltinText(row.kind_version) : BuiltinText(row.version);
  sub.verbs = SplitList(BuiltinText(row.verbs));
  kind->has_status |= name == "status";
  kind->subresources.push_back(std::move(sub));
}

struct Builtins {
  std::vector<KindPtr> kinds;
  std::vector<GroupVersions> groups;

  Builtins() {
    std::vector<std::shared_ptr<Kind>> made;
    for (const schema::ResourceRow& row : schema::kBuiltinResources) {
      const std::string_view name = BuiltinText(row.name);
      const std::size_t slash = name.find('/');
      if (slash != std::string_view::npos) {
        // Discovery lists a subresource right after its resource.
        SUBLET_CHECK(!made.empty() && made.back()->resource == name.substr(0, slash));
        AddSubresource(row, name.substr(slash + 1), made.back().get());
      } else {
        made.push_back(MakeKind(row));
      }
      const std::string_view group = BuiltinText(row.group);
      const std::string_view version = BuiltinText(row.version);
      if (groups.empty() || groups.back().group != group) {
        groups.push_back({std::string(group), {std::string(version)}});
      } else if (groups.back().versions.back() != version) {
        groups.back().versions.emplace_back(version);
      }
    }
    for (const std::shared_ptr<Kind>& kind : made) {
      kind->strategy = std::make_shared<BuiltinStrategy>(*kind);
    }
    kinds.assign(made.begin(), made.end());
  }
};

const Builtins& All() {
  static const Builtins kBuiltins;
  return kBuiltins;
}

}  // namespace

std::span<const KindPtr> BuiltinKinds() { return All().kinds; }
std::span<const GroupVersions> BuiltinGroups() { return All().groups; }

KindPtr FindBuiltinKind(std::string_view group, std::string_view version, std::string_view kind) {
  for (const KindPtr& one : All().kinds) {
    if (one->gvk.kind == kind && one->gvk.group == group && one->gvk.version == version) {
      return one;
    }
  }
  return nullptr;
}

KindPtr FindBuiltinResource(std::string_view group, std::string_view version,
                            std::string_view resource) {
  for (const KindPtr& one : All().kinds) {
    if (one->resource == resource && one->gvk.group == group && one->gvk.version == version) {
      return one;
    }
  }
  return nullptr;
}

}  // namespace sublet::kube
