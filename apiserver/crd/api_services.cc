#include "apiserver/crd/api_services.h"

#include <map>
#include <nlohmann/json.hpp>

#include "apiserver/registry/builtin.h"
#include "apiserver/registry/kind_ops.h"
#include "apiserver/registry/object_codec.h"
#include "base/log.h"
#include "base/random.h"
#include "kube/object.h"
#include "kube/timestamp.h"

namespace sublet::apiserver {
namespace {

using kube::Json;

// Who looks after an APIService, and how; "onstart" marks those of built-in groups.
constexpr const char* kManaged = "kube-aggregator.kubernetes.io/automanaged";
constexpr const char* kManagedHere = "true";

Json MakeApiService(const kube::GroupVersion& version, const std::string& now) {
  Json condition = {{"type", "Available"},
                    {"status", "True"},
                    {"reason", "Local"},
                    {"message", "Local APIServices are always available"},
                    {"lastTransitionTime", now}};
  return {{"apiVersion", "apiregistration.k8s.io/v1"},
          {"kind", "APIService"},
          {"metadata",
           {{"name", version.version + "." + version.group},
            {"uid", RandomUuid()},
            {"creationTimestamp", now},
            {"labels", {{kManaged, kManagedHere}}}}},
          {"spec",
           {{"group", version.group},
            {"version", version.version},
            {"groupPriorityMinimum", 1000},
            {"versionPriority", 100}}},
          {"status", {{"conditions", Json::array({std::move(condition)})}}}};
}

storage::Op PutOf(const ApiContext& context, const Resource& resource,
                  const kube::GroupVersion& version, std::string key) {
  const WallTime now = context.clock->Now();
  Json object = MakeApiService(version, kube::FormatTime(now));
  TrackUpdate(resource, object, nullptr, "kube-apiserver", "", now);
  EncodedObject encoded = EncodeObject(object, *resource.type);
  storage::Op op;
  op.kind = storage::Op::Kind::kPut;
  op.key = std::move(key);
  op.expected = 0;
  op.bytes = std::move(encoded.bytes);
  op.revision_offset = encoded.revision_offset;
  op.attachment = std::move(encoded.facts);
  return op;
}

void Write(const ApiContext& context, storage::Op op) {
  const std::string key = op.key;
  std::vector<storage::Op> ops;
  ops.push_back(std::move(op));
  context.store->Transact(std::move(ops), [key](Result<storage::TxnResult> result) {
    if (!result.ok()) {
      log::Warn("an APIService was not written", {{"key", key}, {"error", result.error()}});
    }
  });
}

}  // namespace

void SyncApiServices(const ApiContext& context) {
  const CatalogPtr catalog = context.catalog->Get();
  const Resource* resource = catalog->Find("apiregistration.k8s.io", "v1", "apiservices");
  const std::string& prefix = resource->type->prefix;
  std::map<std::string, kube::GroupVersion> missing;  // by key
  for (const auto& custom : catalog->resources()) {
    if (custom->kind->is_custom) {
      missing.emplace(prefix + custom->version() + "." + custom->group(),
                      kube::GroupVersion{custom->group(), custom->version()});
    }
  }
  const auto list = context.store->List(prefix, "", 0, 0);
  if (!list.ok()) {
    log::Warn("APIServices cannot be listed", {{"error", list.error()}});
    return;
  }
  for (const auto& record : list->records) {
    if (missing.erase(record.key) > 0) {
      continue;
    }
    std::string_view managed;
    if (!FactsOf(*record.value).FindLabel(kManaged, &managed) || managed != kManagedHere) {
      continue;
    }
    storage::Op op;
    op.kind = storage::Op::Kind::kDelete;
    op.key = record.key;
    op.expected = record.mod_revision;
    Write(context, std::move(op));
  }
  for (auto& [key, version] : missing) {
    Write(context, PutOf(context, *resource, version, key));
  }
}

}  // namespace sublet::apiserver
