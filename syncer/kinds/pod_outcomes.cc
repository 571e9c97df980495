// What ends or changes the binding of a pod that is on both sides: an earlier binding's host pod,
// deletion from either side, the host's refusal, a binding that the host's scheduler made.
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "kube/object.h"
#include "syncer/kinds/pod_syncer.h"
#include "syncer/kinds/translate_fields.h"

namespace sublet::syncer {
namespace {

using client::Outcome;
using kube::Json;

// How often the host refused this pod, on the virtual pod.
constexpr const char* kRejections = "sublet.dev/rejections";

// True when a container of the pod has ever run.
bool EverStarted(const Json& pod) {
  for (const char* list : {"containerStatuses", "initContainerStatuses"}) {
    const Json* statuses = kube::Find(pod, {"status", list});
    if (statuses == nullptr || !statuses->is_array()) {
      continue;
    }
    for (const Json& status : *statuses) {
      if (kube::Find(status, {"state", "running"}) != nullptr ||
          kube::Find(status, {"state", "terminated"}) != nullptr ||
          kube::FindInt(status, {"restartCount"}) > 0) {
        return true;
      }
    }
  }
  return false;
}

}  // namespace

Result<Outcome> PodSyncer::SyncLeftover(const Json& pod, const Json& host, bool* handled) {
  // The host pod of an earlier binding: the tenant's scheduler has taken it back, or chosen anew.
  *handled = ScheduledByTenant(pod) && !kube::IsDeleting(pod) && !NodeNameOf(host).empty() &&
             NodeNameOf(pod) != NodeNameOf(host);
  if (!*handled) {
    return Outcome::Done();
  }
  if (EverStarted(host)) {
    return DeleteVirtual(pod, 30);  // it ran there; a pod is never run twice
  }
  return kube::IsDeleting(host) ? Result<Outcome>(Outcome::Done()) : DeleteHost(host, 0);
}

Result<Outcome> PodSyncer::SyncDeletion(const Json& pod, const Json& host, bool* handled) {
  *handled = true;
  if (kube::IsDeleting(pod) && !kube::IsDeleting(host)) {
    return DeleteHost(host, kube::FindInt(pod, {"metadata", "deletionGracePeriodSeconds"}, 30));
  }
  if (kube::IsDeleting(host) && !kube::IsDeleting(pod)) {
    SUBLET_TRY(const std::string shown, SyncStatus(pod, host));
    (void)shown;
    return DeleteVirtual(pod, kube::FindInt(host, {"metadata", "deletionGracePeriodSeconds"}, 30));
  }
  if (kube::IsDeleting(host)) {
    // Both end: status keeps flowing, or a Job would never learn how its pod finished.
    SUBLET_TRY(const std::string shown, SyncStatus(pod, host));
    (void)shown;
    const auto grace = kube::FindInt(pod, {"metadata", "deletionGracePeriodSeconds"}, 30);
    if (grace < kube::FindInt(host, {"metadata", "deletionGracePeriodSeconds"}, 30)) {
      return DeleteHost(host, grace);
    }
    return Outcome::Done();
  }
  *handled = false;
  return Outcome::Done();
}

Result<Outcome> PodSyncer::SyncRejection(const Json& pod, const Json& host, bool* handled) {
  // The node's admission refused the pod (OutOfcpu, NodeAffinity, UnexpectedAdmissionError ...): no
  // container ever ran, so it may be placed again.
  *handled = kube::FindString(host, {"status", "phase"}) == "Failed" &&
             !kube::FindString(host, {"status", "reason"}).empty() && !EverStarted(host) &&
             kube::FindString(host, {"status", "reason"}) != "DeadlineExceeded" &&
             kube::FindString(host, {"status", "reason"}) != "Evicted" && ScheduledByTenant(pod);
  if (!*handled) {
    return Outcome::Done();
  }
  const std::string why = std::string(kube::FindString(host, {"status", "reason"})) + ": " +
                          std::string(kube::FindString(host, {"status", "message"}));
  context().reporter.Warn(pod, "RejectedByHost", "the node refused the pod: " + why);
  if (kube::ControllerOf(pod).has_value()) {
    SUBLET_RETURN_IF_ERROR(DeleteHost(host, 0));
    return DeleteVirtual(pod, 0);
  }
  // How long it waits, and whether the node has room by then, is the scheduler's to know (it reads
  // the count): the pod itself says at once that it has no node. The host pod goes last, so that a
  // restart of this process in between finds the refusal again.
  const auto times = std::atoi(std::string(kube::AnnotationOf(pod, kRejections)).c_str());
  SUBLET_RETURN_IF_ERROR(Unbind(pod, why, times + 1));
  return DeleteHost(host, 0);
}

Result<void> PodSyncer::Unbind(const Json& pod, const std::string& why, int times) {
  const kube::ObjectKey key = kube::KeyOf(pod);
  const std::string text = context().reporter.Sanitise(why, key.namespace_name);
  // The count first: a pod that is unbound twice for one refusal would only wait a little longer.
  auto counted =
      PatchVirtual(pod, {{"metadata", {{"annotations", {{kRejections, std::to_string(times)}}}}}});
  if (!counted.ok()) {
    return std::move(counted).error();
  }
  // Differs: Kubernetes never takes a binding back; a bare pod would be lost here.
  const Json binding = {
      {"apiVersion", "v1"},
      {"kind", "Binding"},
      {"metadata",
       {{"name", key.name},
        {"namespace", key.namespace_name},
        {"uid", kube::UidOf(pod)},
        {"annotations",
         {{"sublet.dev/unbind-reason", "RejectedByHost"}, {"sublet.dev/unbind-message", text}}}}},
      {"target", {{"kind", "Node"}, {"name", ""}}}};
  auto unbound = context().virtual_client.Create(VirtualTarget(key, "binding"), binding);
  if (!unbound.ok()) {
    return unbound.error().Is(Reason::kNotFound) ? Ok() : Result<void>(std::move(unbound).error());
  }
  // The cache learns it now: a pod that still looked bound when its host pod is gone would be made
  // on the host once more.
  if (const auto fresh = context().virtual_client.Get(VirtualTarget(key)); fresh.ok()) {
    virtual_informer().NoteWritten(*fresh);
  }
  return Ok();
}

Result<void> PodSyncer::SyncBinding(const Json& pod, const Json& host) {
  if (NodeNameOf(host).empty() || !NodeNameOf(pod).empty()) {
    return Ok();
  }
  const Json binding = {{"apiVersion", "v1"},
                        {"kind", "Binding"},
                        {"metadata",
                         {{"name", kube::FindString(pod, {"metadata", "name"})},
                          {"namespace", kube::KeyOf(pod).namespace_name},
                          {"uid", kube::FindString(pod, {"metadata", "uid"})}}},
                        {"target", {{"kind", "Node"}, {"name", NodeNameOf(host)}}}};
  auto bound = context().virtual_client.Create(VirtualTarget(kube::KeyOf(pod), "binding"), binding);
  if (!bound.ok() && !bound.error().Is(Reason::kConflict)) {
    return std::move(bound).error();
  }
  return Ok();
}

}  // namespace sublet::syncer
