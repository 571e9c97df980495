// The change of one object, shared by PUT, the four kinds of PATCH and the subresources: read what
// stands, make what shall stand, check it, commit it against the revision that was read, and run
// again after a lost race.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "apiserver/handlers/api_context.h"
#include "apiserver/handlers/options.h"
#include "kube/json.h"

namespace sublet::apiserver {

struct UpdateJob {
  CallPtr call;
  WriteOptions options;
  // Makes the whole new object (decoded, defaulted) from the live one in this call's version;
  // `live` is null when there is none and allow_create is set. Called once per attempt.
  std::function<Result<kube::Json>(const kube::Json* live)> make;
  // Shows the stored object as this call's body kind, and folds that back (scale); null = as it is.
  std::function<void(Call& call, int code, const storage::ValuePtr& value)> answer;
  bool allow_create = false;
  bool tracks_itself = false;  // make writes managedFields (apply)
  std::string uid;             // precondition from the body of a PUT; "" = none
  int attempt = 0;
};

// Answers 200, or 201 when it created. Threads: any; does not block.
void RunUpdate(std::shared_ptr<UpdateJob> job);

// True when removing the last finalizer ends an object that is being deleted.
bool EndsDeletion(const kube::Json& object, const kube::Json& live);

}  // namespace sublet::apiserver
