// Request bodies: from bytes in one of the accepted formats to a checked, defaulted tree of the
// kind the URL names, with Kubernetes' sentences for everything that can be wrong.
// Threads: any.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "apiserver/handlers/api_context.h"
#include "apiserver/handlers/options.h"
#include "base/result.h"
#include "kube/json.h"

namespace sublet::apiserver {

struct RawBody {
  kube::Json tree;
  // What is wrong with fields that stand twice, in words; only looked for when asked.
  std::vector<std::string> duplicate_fields;
};

// Bytes to a tree. `expected` is named in the error of a body that is no JSON at all.
// Errors: UnsupportedMediaType, BadRequest (malformed), RequestEntityTooLarge.
Result<RawBody> ParseBody(const Call& call, bool find_duplicates,
                          const kube::Kind* expected = nullptr);

// What a body must be.
struct BodyTarget {
  const kube::Kind* kind = nullptr;
  bool needs_type = false;  // custom resources: apiVersion and kind must stand in the body
};

// ParseBody, then: type matches, JSON types fit, unknown and duplicate fields warned of or refused,
// defaults filled. Errors: BadRequest with the texts of Kubernetes' decoders.
Result<kube::Json> DecodeBody(Call& call, const BodyTarget& target, FieldValidation validation);

// The second half, for trees that come from elsewhere (patched objects). `context` is "" or
// "patch": for patches problems are answered 422 on the field "patch", whose value is shown as what
// `patched_text` makes (none = the JSON of `tree`); it is called only when there is a problem.
Result<void> DecodeTree(Call& call, const kube::Kind& kind, FieldValidation validation,
                        std::vector<std::string> duplicates, kube::Json& tree, bool is_patch,
                        const std::function<std::string()>& patched_text = {});

}  // namespace sublet::apiserver
