#include "server/flow_table.h"

#include <algorithm>
#include <initializer_list>
#include <utility>

#include "apiserver/auth/authenticator.h"
#include "apiserver/registry/object_codec.h"

namespace sublet::server {
namespace {

using namespace apiserver;  // NOLINT(google-build-using-namespace): names little else

std::string UidOf(const storage::Store& store, const Catalog& catalog, const char* kind,
                  const char* name) {
  const Resource* resource = catalog.FindKind("flowcontrol.apiserver.k8s.io", "v1", kind);
  const auto record = resource == nullptr ? std::nullopt : store.Get(resource->type->Key("", name));
  return record ? FactsOf(*record->value).uid : "";
}

}  // namespace

FlowTable::FlowTable(const storage::Store& store, const Catalog& catalog) {
  for (const auto& [schema, level] : std::initializer_list<std::pair<const char*, const char*>>{
           {"exempt", "exempt"},
           {"system-nodes", "system"},
           {"kube-system-service-accounts", "workload-high"},
           {"service-accounts", "workload-low"},
           {"global-default", "global-default"},
           {"catch-all", "catch-all"}}) {
    flows_[schema] = {UidOf(store, catalog, "FlowSchema", schema),
                      UidOf(store, catalog, "PriorityLevelConfiguration", level)};
  }
}

const FlowNames& FlowTable::Of(const User& user) const {
  const auto in = [&](std::string_view group) {
    return std::find(user.groups.begin(), user.groups.end(), group) != user.groups.end();
  };
  if (in(kMastersGroup)) {
    return flows_.at("exempt");
  }
  if (in("system:nodes")) {
    return flows_.at("system-nodes");
  }
  if (in("system:serviceaccounts")) {
    return flows_.at(in("system:serviceaccounts:kube-system") ? "kube-system-service-accounts"
                                                              : "service-accounts");
  }
  return flows_.at(in(kAuthenticatedGroup) ? "global-default" : "catch-all");
}

}  // namespace sublet::server
