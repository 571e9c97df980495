// OpenApi: /openapi/v3 (index and one document per group version) and /openapi/v2. Documents are
// written when asked for and not kept; their hashes come from what they are made of, so that the
// index costs nothing and clients keep what did not change.
// Threads: any.
#pragma once

#include <string>
#include <string_view>

#include "apiserver/handlers/api_context.h"
#include "apiserver/openapi/schema_text.h"

namespace sublet::apiserver {

// Answers /openapi/v3, /openapi/v3/..., /openapi/v2. False when the path is none of them.
bool ServeOpenApi(Call& call);

// Writes the paths and definitions of one group version (kV3), or of all (kV2; group_version is
// ignored then).
void EmitOpenApi(const Catalog& catalog, const ApiContext& context, SpecVersion version,
                 const kube::GroupVersion& group_version, const SpecSink& paths,
                 const SpecSink& definitions);

// The schema of a custom resource's definition: apiVersion, kind and metadata are put in; for v2
// what v2 cannot say is left out. Made in crd/ from the stored CustomResourceDefinition.
std::string CustomSchemaText(const Resource& resource, const ApiContext& context,
                             SpecVersion version, std::string_view metadata_ref);

}  // namespace sublet::apiserver
