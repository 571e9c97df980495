// The creation of one object, shared by POST, create-on-update and server-side apply of something
// new.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "apiserver/handlers/api_context.h"
#include "apiserver/handlers/options.h"
#include "kube/json.h"

namespace sublet::apiserver {

struct CreateInput {
  WriteOptions options;
  kube::Json object;     // decoded, defaulted, namespace checked
  bool tracked = false;  // managedFields are right already (apply)
  // An object of this name that appeared meanwhile is no error: run again and update it.
  bool again_when_taken = false;
  // Runs the whole request again, on the pool: after a lost race on a companion or on a generated
  // name. Bounded by `attempt`.
  std::function<void(int attempt)> again;
  int attempt = 0;
};

// Admission, system fields, validation, commit, answer (201). Threads: any; does not block.
void CreateObject(CallPtr call, CreateInput input);

}  // namespace sublet::apiserver
