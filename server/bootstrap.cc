#include "server/bootstrap.h"

#include <nlohmann/json.hpp>

#include "apiserver/auth/default_policy.h"
#include "apiserver/registry/object_codec.h"
#include "base/check.h"
#include "base/random.h"
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
      object["metadata"]["uid"] = RandomUuid();
      object["metadata"]["creationTimestamp"] = created;
      ops.push_back(PutOf(*resource->type, object, std::move(key), 0));
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
