#include "server/bootstrap.h"

#include <nlohmann/json.hpp>

#include "apiserver/auth/default_policy.h"
#include "apiserver/registry/kind_ops.h"
#include "apiserver/registry/object_codec.h"
#include "base/check.h"
#include "base/random.h"
#include "kube/object.h"
#include "kube/timestamp.h"

namespace sublet::server {
namespace {

constexpr std::string_view kRbacGroup = "rbac.authorization.k8s.io/";

storage::Op PutOf(const apiserver::StoredType& type, const kube::Json& object, std::string key,
                  storage::Revision expected) {
  auto encoded = apiserver::EncodeObject(object, type);
  storage::Op op;
  op.key = std::move(key);
  op.expected = expected;
  op.bytes = std::move(encoded.bytes);
  op.revision_offset = encoded.revision_offset;
  op.attachment = std::move(encoded.facts);
  return op;
}

// metadata.managedFields of a first object, as Kubernetes has them: what the server fills in by
// itself belongs to nobody, and a status is applied by the loop that looks after it.
void TrackFirst(const apiserver::Resource& resource, WallTime now, kube::Json& object) {
  const std::string kind(kube::FindString(object, {"kind"}));
  kube::Json tracked = object;
  kube::EraseMember(&tracked, "status");
  kube::Json* spec = kube::Find(tracked, {"spec"});
  if (kind == "Namespace") {
    kube::EraseMember(&tracked, "spec");
  } else if (kind == "Service" && spec != nullptr) {
    kube::EraseMember(spec, "clusterIPs");
    kube::EraseMember(spec, "ipFamilies");
  } else if (kind == "ClusterRole" && kube::Find(tracked, {"aggregationRule"}) != nullptr) {
    kube::EraseMember(&tracked, "rules");
  }
  const bool flow = kind == "FlowSchema" || kind == "PriorityLevelConfiguration";
  const std::string manager =
      flow ? "api-priority-and-fairness-config-producer-v1" : "kube-apiserver";
  apiserver::TrackUpdate(resource, tracked, nullptr, manager, "", now);
  if (kind == "FlowSchema" || kind == "ServiceCIDR") {
    kube::Json applied = {{"apiVersion", object["apiVersion"]},
                          {"kind", kind},
                          {"metadata", {{"name", object["metadata"]["name"]}}},
                          {"status", object["status"]}};
    for (kube::Json& condition : applied["status"]["conditions"]) {
      if (kube::FindString(condition, {"reason"}).empty()) {
        kube::EraseMember(&condition, "reason");
      }
    }
    auto merged = apiserver::ApplyConfig(resource, applied, &tracked,
                                         flow ? "api-priority-and-fairness-config-consumer-v1"
                                              : "kubernetes-service-cidr-controller",
                                         true, "status", now);
    SUBLET_CHECK(merged.ok());
    tracked = std::move(*merged);
  }
  if (const kube::Json* fields = kube::Find(tracked, {"metadata", "managedFields"})) {
    object["metadata"]["managedFields"] = *fields;
  }
}

// Service kubernetes follows the address it stands for. Nobody else may change a cluster IP, so
// this is done where the API is not serving yet. nullopt: nothing to change.
std::optional<kube::Json> FollowAddress(kube::Json stored, const kube::Json& wanted) {
  const auto ip = kube::FindString(wanted, {"spec", "clusterIP"});
  if (kube::FindString(stored, {"spec", "clusterIP"}) == ip) {
    return std::nullopt;
  }
  stored["spec"]["clusterIP"] = ip;
  stored["spec"]["clusterIPs"] = wanted["spec"]["clusterIPs"];
  return stored;
}

bool IsApiService(std::string_view kind, const kube::Json& object) {
  return kind == "Service" && kube::FindString(object, {"metadata", "name"}) == "kubernetes";
}

}  // namespace

Result<void> Bootstrap(storage::Store& store, const apiserver::Catalog& catalog, WallTime now,
                       const std::vector<kube::Json>& objects) {
  std::vector<storage::Op> ops;
  const std::string created = kube::FormatTime(now);
  for (const kube::Json& wanted : objects) {
    const auto api_version = kube::FindString(wanted, {"apiVersion"});
    const auto version = kube::GroupVersion::Parse(api_version);
    const apiserver::Resource* resource =
        catalog.FindKind(version.group, version.version, kube::FindString(wanted, {"kind"}));
    SUBLET_CHECK(resource != nullptr && resource->type != nullptr);
    std::string key = resource->type->Key(kube::FindString(wanted, {"metadata", "namespace"}),
                                          kube::FindString(wanted, {"metadata", "name"}));
    const auto stored = store.Get(key);
    if (!stored) {
      kube::Json object = wanted;
      if (kube::Json* conditions = kube::Find(object, {"status", "conditions"})) {
        for (kube::Json& condition : *conditions) {
          condition["lastTransitionTime"] = created;
        }
      }
      object["metadata"]["uid"] = RandomUuid();
      object["metadata"]["creationTimestamp"] = created;
      TrackFirst(*resource, now, object);
      ops.push_back(PutOf(*resource->type, object, std::move(key), 0));
    } else if (IsApiService(kube::FindString(wanted, {"kind"}), wanted)) {
      if (const auto changed = FollowAddress(apiserver::ParseStored(*stored->value), wanted)) {
        ops.push_back(PutOf(*resource->type, *changed, std::move(key), stored->mod_revision));
      }
    } else if (api_version.starts_with(kRbacGroup)) {
      const auto changed =
          apiserver::ReconcileDefault(apiserver::ParseStored(*stored->value), wanted);
      if (changed) {
        ops.push_back(PutOf(*resource->type, *changed, std::move(key), stored->mod_revision));
      }
    }
  }
  if (ops.empty()) {
    return {};
  }
  SUBLET_TRY(const auto result, store.TransactSync(std::move(ops)));
  if (!result.committed) {
    return InternalError("the first objects changed while they were written");
  }
  return {};
}

}  // namespace sublet::server
