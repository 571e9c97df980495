// ControllerRevisions: the history of a StatefulSet's or DaemonSet's template, for kubectl rollout
// history and undo.
// Source: kube-controller-manager pkg/controller/history.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "controllers/pod_control.h"

namespace sublet::controllers {

struct Revision {
  client::ObjectPtr object;
  std::string name;
  std::int64_t number = 0;
  kube::Json data;
};

// The stored data of a template: {"spec":{"template":{..., "$patch":"replace"}}}.
kube::Json RevisionDataOf(const kube::Json& owner);

class RevisionHistory {
 public:
  explicit RevisionHistory(const Context& context);
  const Collection& revisions() const { return revisions_; }

  // The owner's revisions, oldest first; orphans that match are adopted.
  Result<std::vector<Revision>> List(const Collection& owners, const kube::Json& owner,
                                     const kube::LabelSelector& selector) const;

  // Makes the revision of the owner's present template the newest in *history: finds an equal one
  // and renumbers it, or creates it. Returns its name. `collision_count` is raised when another
  // template has the same name.
  Result<std::string> Ensure(const kube::Json& owner, std::vector<Revision>* history,
                             std::int64_t* collision_count) const;

  // Deletes the oldest revisions above the owner's limit; those named in `live` stay.
  Result<void> Truncate(const kube::Json& owner, const std::vector<Revision>& history,
                        const std::vector<std::string>& live) const;

 private:
  Result<std::string> Create(const kube::Json& owner, const kube::Json& data, std::int64_t number,
                             std::vector<Revision>* history, std::int64_t* collision_count) const;

  Collection revisions_;
};

}  // namespace sublet::controllers
