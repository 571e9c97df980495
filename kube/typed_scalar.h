// One scalar of a built-in type, checked and brought to its canonical spelling. Used by typed.cc.
// Threads: any.
#pragma once

#include <cstdint>
#include <string>

#include "kube/json.h"
#include "kube/schema/schema.h"

namespace sublet::kube {

enum class ScalarOutcome : std::uint8_t {
  kOk,
  kWrongType,  // the caller words it; `problem` is the Go type it wanted, "" for the field's own
  kProblem,    // `problem` is the decoder's whole sentence
};

// `value` is not null.
ScalarOutcome NormalizeScalar(schema::ValueKind kind, Json* value, std::string* problem);

}  // namespace sublet::kube
