// What the workload controllers do with pods in the same way: make them from a template, delete
// them, adopt and release them, choose which go first. Source: kube-controller-manager
// pkg/controller/controller_utils.go, controller_ref_manager.go.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "controllers/context.h"
#include "controllers/pod_record.h"
#include "kube/label_selector.h"

namespace sublet::controllers {

// A short name-safe hash of a value: the template hash in names and labels. Differs: not the digits
// Kubernetes computes (they hash Go's memory layout); same length and letters.
std::string HashOf(const kube::Json& value, std::int64_t collision_count);

// The pod that `template` ({metadata, spec}) asks for, owned by `owner`; generateName is the
// owner's name and a dash unless a name is set later.
kube::Json PodFromTemplate(const kube::Json& pod_template, const kube::Json& owner);

// Writes pods for one kind of controller and says so in Events on the owner.
class PodControl {
 public:
  PodControl(const Context& context, const std::string& component);

  const Collection& pods() const { return pods_; }
  // Creates; Event SuccessfulCreate or FailedCreate on `owner`.
  Result<kube::Json> Create(const kube::Json& owner, kube::Json pod) const;
  // Deletes; Event SuccessfulDelete or FailedDelete.
  Result<void> Delete(const kube::Json& owner, const client::CachedObject& pod) const;
  const client::EventRecorder::Source& events() const { return events_; }

 private:
  Collection pods_;
  client::EventRecorder::Source events_;
};

// The objects of `collection` that belong to `owner`: those it controls and its selector matches,
// after adopting orphans that match and releasing controlled ones that do not. `accept` may refuse
// an orphan (nullptr accepts all). The collection needs the indexes of AddOwnerIndexes. A failed
// adoption is an error only when the server's reason is not NotFound, Invalid or Conflict.
Result<std::vector<client::ObjectPtr>> Claim(
    const Collection& collection, const Collection& owners, const kube::Json& owner,
    const kube::LabelSelector& selector,
    const std::function<bool(const client::CachedObject&)>& accept = nullptr);
void AddOwnerIndexes(const Collection& collection);

// Adds the owners' keys to `queue` when an object of `collection` changes: the controlling owner of
// kind `owner_kind`, and for an orphan every owner in its namespace whose selector matches its
// labels.
void RouteToOwners(const Collection& collection, const Collection& owners,
                   const std::function<Result<kube::LabelSelector>(const kube::Json&)>& selector_of,
                   client::WorkQueue& queue);
// Adds every changed object of `collection` itself.
void RouteSelf(const Collection& collection, client::WorkQueue& queue);

// Index of pods by the node they are bound to.
inline constexpr std::string_view kNodeIndex = "node";
std::vector<std::string> IndexByNode(const client::CachedObject& pod);

// Writes the condition DisruptionTarget=True with this reason, and `phase` unless it is empty.
// A pod that is gone is success.
Result<void> MarkDisrupted(const Collection& pods, const client::CachedObject& pod,
                           const std::string& reason, const std::string& message,
                           const std::string& phase, WallTime now);

// Sorts so that the pods to delete first stand first: unassigned, pending, not ready, cheap,
// crowded on a node, lately ready, restarted, young. `crowd` gives how many related pods share a
// pod's node.
void SortForDeletion(std::vector<client::ObjectPtr>* pods,
                     const std::function<int(const client::CachedObject&)>& crowd);

// Runs do(0), do(1), ... in batches of 1, 2, 4, ...; a batch with a failure is the last one.
// Returns how many succeeded and the first error.
struct BatchResult {
  int succeeded = 0;
  std::optional<Status> error;
};
BatchResult SlowStart(int count, const std::function<Result<void>(int)>& run);

// spec.selector of apps kinds.
Result<kube::LabelSelector> SelectorOf(const kube::Json& owner);

}  // namespace sublet::controllers
