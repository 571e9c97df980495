// What DELETE of one object and of a collection share: reading the options, answering.
#pragma once

#include <string_view>

#include "apiserver/handlers/api_context.h"
#include "apiserver/handlers/delete_object.h"
#include "apiserver/handlers/options.h"

namespace sublet::apiserver {

// From the body (JSON, YAML or protobuf DeleteOptions) or the query. Errors: BadRequest, Invalid,
// UnsupportedMediaType.
Result<DeleteOptions> ReadDeleteOptions(const Call& call);

// 200 with a Success status or the object, 202 for the old orphanDependents=false.
void AnswerDelete(Call& call, const DeleteOptions& options, Result<DeleteOutcome> result,
                  std::string_view name);

}  // namespace sublet::apiserver
