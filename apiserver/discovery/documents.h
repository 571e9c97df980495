// The JSON of the discovery documents, made from a catalog.
// Threads: any; pure functions. Source: k8s.io/apimachinery metav1, k8s.io/api apidiscovery.
#pragma once

#include <string>
#include <string_view>

#include "apiserver/registry/catalog.h"
#include "kube/json.h"

namespace sublet::apiserver {

kube::Json ApiVersionsDocument(std::string_view server_address);           // /api
kube::Json ApiGroupListDocument(const Catalog& catalog);                   // /apis
kube::Json ApiGroupDocument(const GroupEntry& group, bool is_standalone);  // /apis/<g>
kube::Json ApiResourceListDocument(const Catalog& catalog, std::string_view group,
                                   std::string_view version);  // /api/v1, /apis/<g>/<v>
// The aggregated form: the core group only, or all others. `version` is "v2" or "v2beta1".
kube::Json AggregatedDocument(const Catalog& catalog, bool core, std::string_view version);

}  // namespace sublet::apiserver
