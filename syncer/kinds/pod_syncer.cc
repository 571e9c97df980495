#include "syncer/kinds/pod_syncer.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "gpu/api/guard.h"
#include "gpu/api/types.h"
#include "kube/object.h"
#include "kube/pod_security.h"
#include "kube/timestamp.h"
#include "syncer/kinds/node_syncer.h"
#include "syncer/kinds/translate_fields.h"

namespace sublet::syncer {
namespace {

using client::Outcome;
using kube::Json;

// How old a bound pod without its slice gets before the tenant is told.
constexpr auto kSliceWaitShown = std::chrono::seconds(3);
constexpr std::chrono::seconds kNodeRetry(15);

bool WantsGpu(const Json& pod) { return gpu::UseOf(pod) != gpu::GpuUse::kNone; }

// A merge patch that turns `from` into `to`: what is gone becomes null; lists are replaced.
Json Difference(const Json& from, const Json& to) {
  Json patch = Json::object();
  for (const auto& [key, value] : to.items()) {
    const auto found = from.find(key);
    if (found == from.end() || *found != value) {
      patch[key] = value;
    }
  }
  for (const auto& [key, value] : from.items()) {
    if (!to.contains(key)) {
      patch[key] = nullptr;
    }
  }
  return patch;
}

// Whether nobody changed more than the status between two versions of a pod.
bool OnlyStatusDiffers(const Json& before, const Json& after) {
  for (const char* field : {"generation", "labels", "annotations", "ownerReferences", "finalizers",
                            "deletionTimestamp", "deletionGracePeriodSeconds"}) {
    const Json* was = kube::Find(before, {"metadata", field});
    const Json* is = kube::Find(after, {"metadata", field});
    if ((was == nullptr) != (is == nullptr) || (was != nullptr && *was != *is)) {
      return false;
    }
  }
  return before.at("spec") == after.at("spec");
}

}  // namespace

PodSyncer::PodSyncer(SyncContext& context)
    : TranslatedKind(context, {"pods", "/v1, Kind=Pod", false}, {"", "v1", "pods"}, "Pod"),
      tokens_(context),
      rests_(context.clock) {}

void PodSyncer::Watch(Enqueue enqueue) {
  namespaces_ = &context().VirtualInformer("", "v1", "namespaces", "Namespace");
  services_ = &context().VirtualInformer("", "v1", "services", "Service");
  client::InformerOptions nodes_shown;
  nodes_shown.resource = {"", "v1", "nodes"};
  nodes_shown.kind = "Node";
  nodes_shown.label_selector = NodeSelectorText(context().config);
  nodes_ = &context().host_informers.For(nodes_shown);
  TranslatedKind::Watch(enqueue);
  // A label of a Namespace stands on the host pods of that namespace.
  namespaces_->AddHandler(
      [this, enqueue](const client::ObjectPtr& before, const client::ObjectPtr& after) {
        if (before != nullptr && after != nullptr && before->labels != after->labels) {
          for (const auto& pod : virtual_informer().ListNamespace(after->key.name)) {
            rests_.Forget(pod->key);
            enqueue(pod->key);
          }
        }
      });
  if (!context().host_has_gpu) {
    return;
  }
  client::InformerOptions slices;
  slices.resource = {std::string(gpu::kGroup), std::string(gpu::kVersion),
                     std::string(gpu::kSliceResource)};
  slices.kind = std::string(gpu::kSliceKind);
  slices.namespace_name = context().tenant.host_namespace;
  slices_ = &context().host_informers.For(slices);
  virtual_informer().AddIndex("uid", [](const client::CachedObject& object) {
    return std::vector<std::string>{object.uid};
  });
  slices_->AddHandler(
      [this, enqueue](const client::ObjectPtr& before, const client::ObjectPtr& after) {
        // A slice is named by the UID of its pod.
        for (const auto& pod :
             virtual_informer().ByIndex("uid", (after != nullptr ? after : before)->key.name)) {
          rests_.Forget(pod->key);
          enqueue(pod->key);
        }
      });
  client::InformerOptions nodes;
  nodes.resource = {std::string(gpu::kGroup), std::string(gpu::kVersion),
                    std::string(gpu::kNodeResource)};
  nodes.kind = std::string(gpu::kNodeKind);
  gpu_nodes_ = &context().host_informers.For(nodes);
}

bool PodSyncer::ScheduledByTenant(const Json& pod) const {
  if (context().config.host_schedules_all) {
    return false;
  }
  const auto& names = context().config.host_schedulers;
  const auto name = kube::FindString(pod, {"spec", "schedulerName"}, "default-scheduler");
  return std::find(names.begin(), names.end(), name) == names.end();
}

std::optional<std::string> PodSyncer::SliceOf(const Json& pod) const {
  if (!WantsGpu(pod) || gpu_nodes_ == nullptr ||
      gpu_nodes_->Get({"", std::string(NodeNameOf(pod))}) == nullptr) {
    return "";
  }
  const std::string uid(kube::FindString(pod, {"metadata", "uid"}));
  const auto slice = slices_->Get({context().tenant.host_namespace, uid});
  if (slice == nullptr) {
    return std::nullopt;
  }
  const auto object = slice->Parse();
  const bool granted = object.ok() && kube::FindString(*object, {"status", "phase"}) == "Granted" &&
                       kube::FindString(*object, {"spec", "node"}) == NodeNameOf(pod);
  return granted ? std::optional(uid) : std::nullopt;
}

std::string PodSyncer::Objection(const Json& pod) const {
  const auto& config = context().config;
  std::string text = kube::DescribeViolations(kube::CheckPodSecurity(
      config.pod_security, pod.at("spec"), pod.value("metadata", Json::object())));
  if (!text.empty()) {
    return "violates the tenant's Pod Security standard \"" + config.pod_security + "\": " + text;
  }
  for (const char* list : {"containers", "initContainers", "ephemeralContainers"}) {
    const Json* containers = kube::Find(pod, {"spec", list});
    if (containers == nullptr || !containers->is_array()) {
      continue;
    }
    for (const Json& container : *containers) {
      // Differs: baseline lets an explicit allowPrivilegeEscalation: true pass; on a shared host it
      // is refused unless the tenant's standard is privileged.
      if (config.pod_security != "privileged" && !config.pod_security.empty() &&
          kube::FindBool(container, {"securityContext", "allowPrivilegeEscalation"})) {
        return "container \"" + std::string(kube::FindString(container, {"name"})) +
               "\" must not set securityContext.allowPrivilegeEscalation=true";
      }
    }
  }
  // Admission said the same; this holds for pods that are older than the rule or its switch.
  if (const auto guarded =
          gpu::GuardPod(pod, config.gpu_enforced ? gpu::Enforce::kOn : gpu::Enforce::kOff);
      !guarded.ok()) {
    return guarded.error().message();
  }
  return "";
}

void PodSyncer::TellLimits(const Json& pod) const {
  Reporter& reporter = context().reporter;
  if (!ScheduledByTenant(pod)) {
    if (WantsGpu(pod)) {
      reporter.Warn(pod, "FractionNotEnforced",
                    "a scheduler of the host places this pod: its GPU share is counted there, not "
                    "enforced");
    }
    for (const auto& [key, value] : context().config.pods.node_selector) {
      const auto asked = kube::FindString(pod, {"spec", "nodeSelector", key}, value);
      if (asked != value) {
        reporter.Warn(pod, "SelectorOverridden",
                      "nodeSelector " + key + "=" + std::string(asked) + " becomes " + key + "=" +
                          value + ": the tenant's nodes are those");
      }
    }
  }
  const auto priority_class = kube::FindString(pod, {"spec", "priorityClassName"});
  if (kube::FindInt(pod, {"spec", "priority"}) > 0 &&
      (!context().config.pods.sync_priority_classes || priority_class.starts_with("system-"))) {
    reporter.Normal(pod, "PriorityWithinTenant",
                    "priority class " + std::string(priority_class) +
                        " counts within the tenant; on the host the pod has the default priority");
  }
}

PodContext PodSyncer::ContextOf(const Json& pod, std::string slice) const {
  PodContext result;
  result.tenant = context().tenant;
  result.policy = &context().config.pods;
  result.workload_service_account = "sublet-workload-" + context().tenant.name;
  result.api_address = context().api_address;
  result.dns_address = context().dns_address;
  if (context().config.set_owner) {
    result.owner_reference = context().owner_reference;
  }
  result.scheduled_by_tenant = ScheduledByTenant(pod);
  result.gpu_slice = std::move(slice);
  // Not only where our gpud is: NVIDIA's runtime may be the default of any host.
  result.hide_gpus = !WantsGpu(pod);
  return result;
}

Result<Outcome> PodSyncer::SyncToHost(const Json& pod) {
  const std::uint64_t changes = rests_.changes();
  if (kube::IsDeleting(pod)) {
    return DeleteVirtual(pod, 0);
  }
  const std::string phase(kube::FindString(pod, {"status", "phase"}));
  if (phase == "Succeeded" || phase == "Failed") {
    return Outcome::Done();
  }
  if (kube::Find(pod, {"status", "startTime"}) != nullptr) {
    // It ran and its host twin is gone: a pod is never run twice.
    return DeleteVirtual(pod, 0);
  }
  if (ScheduledByTenant(pod) && NodeNameOf(pod).empty()) {
    return Outcome::Done();
  }
  if (const std::string objection = Objection(pod); !objection.empty()) {
    context().reporter.Warn(pod, "SyncError", "not created on the host: " + objection);
    return Outcome::Done();
  }
  if (!NodeNameOf(pod).empty() && nodes_->Get({"", std::string(NodeNameOf(pod))}) == nullptr) {
    context().reporter.Warn(pod, "SyncError",
                            "not created on the host: node \"" + std::string(NodeNameOf(pod)) +
                                "\" is not one of the tenant's nodes");
    return Outcome::After(kNodeRetry);
  }
  const auto slice = SliceOf(pod);
  if (!slice) {
    // The slice informer brings it back. A pod that its scheduler bound waits here for a moment
    // only; one that named its node itself has nobody who asks for a slice.
    const Json* scheduled = kube::FindCondition(pod, "PodScheduled");
    const auto bound = kube::FindTime(
        scheduled != nullptr ? kube::FindString(*scheduled, {"lastTransitionTime"})
                             : kube::FindString(pod, {"metadata", "creationTimestamp"}));
    if (!bound || context().clock.Now() - *bound > kSliceWaitShown) {
      context().reporter.Warn(pod, "GpuSliceMissing",
                              "not created on the host: node \"" + std::string(NodeNameOf(pod)) +
                                  "\" has granted this pod no GPU slice");
      return Outcome::Done();
    }
    return Outcome::After(kSliceWaitShown);
  }
  TellLimits(pod);
  PodContext pod_context = ContextOf(pod, *slice);
  Json labels;
  if (const auto space = namespaces_->Get({"", kube::KeyOf(pod).namespace_name});
      space != nullptr) {
    labels = Json::object();
    for (const auto& [key, value] : space->labels) {
      labels[key] = value;
    }
    pod_context.namespace_labels = &labels;
  }
  std::vector<Json> services;
  if (kube::FindBool(pod, {"spec", "enableServiceLinks"}, true)) {
    for (const auto& service : services_->ListNamespace(kube::KeyOf(pod).namespace_name)) {
      SUBLET_TRY(Json parsed, service->Parse());
      services.push_back(std::move(parsed));
    }
  }
  for (const Json& service : services) {
    pod_context.services.push_back(&service);
  }
  SUBLET_TRY(HostPod wanted, TranslatePod(pod, pod_context));
  SUBLET_TRY(const std::string name,
             context().mapping.Claim(info().name, kube::KeyOf(pod), NameFormula(kube::KeyOf(pod))));
  wanted.pod["metadata"]["name"] = name;
  SUBLET_TRY(const Outcome renew, tokens_.Ensure(pod, wanted, TokenSecrets::Expect::kAbsent));
  Json made;
  SUBLET_TRY(const Outcome created, CreateHost(wanted.pod, &made));
  (void)created;
  SettleMade(pod, made, wanted, renew, changes);
  return renew;
}

Result<std::string> PodSyncer::SyncStatus(const Json& pod, const Json& host) {
  const Json patch = Difference(pod.value("status", Json::object()), VirtualStatus(pod, host));
  if (patch.empty()) {
    return std::string(kube::ResourceVersionOf(pod));
  }
  const auto written = context().virtual_client.Patch(
      VirtualTarget(kube::KeyOf(pod), "status"), client::PatchType::kMerge, {{"status", patch}});
  if (!written.ok()) {
    return written.error().Is(Reason::kNotFound) ? Result<std::string>(std::string())
                                                 : Result<std::string>(written.error());
  }
  virtual_informer().NoteWritten(*written);
  return OnlyStatusDiffers(pod, *written) ? std::string(kube::ResourceVersionOf(*written)) : "";
}

Result<bool> PodSyncer::SyncSpec(const Json& pod, const Json& host, const HostPod& wanted) {
  if (const std::string objection = Objection(pod); !objection.empty()) {
    context().reporter.Warn(pod, "SyncError", "change not carried to the host: " + objection);
    return false;
  }
  Json patch = HostPodPatch(host, wanted.pod);
  auto resized = SyncResources(host, wanted);
  if (Json* notes = kube::Find(patch, {"metadata", "annotations"});
      !resized.ok() && notes != nullptr) {
    notes->erase(std::string(kResourcesAnnotation));  // not carried: tried again
  }
  auto patched = PatchHost(host, patch);
  if (!patched.ok()) {
    return std::move(patched).error();
  }
  SUBLET_RETURN_IF_ERROR(resized);
  SUBLET_RETURN_IF_ERROR(SyncEphemeralContainers(pod, host));
  return patch.is_null() && !pod.at("spec").contains("ephemeralContainers");
}

Result<void> PodSyncer::SyncGates(const Json& pod, const Json& host) {
  const Json patch = GatesPatch(pod, host);
  if (patch.is_null()) {
    return Ok();
  }
  auto patched = context().host_client.Patch(
      HostTarget(kube::FindString(host, {"metadata", "name"}), "status"),
      client::PatchType::kStrategicMerge, patch);
  if (!patched.ok() && !patched.error().Is(Reason::kNotFound)) {
    return std::move(patched).error();
  }
  return Ok();
}

Result<void> PodSyncer::SyncResources(const Json& host, const HostPod& wanted) {
  const Json patch = HostPodResize(host, wanted.pod);
  if (patch.is_null()) {
    return Ok();
  }
  auto resized = context().host_client.Patch(
      HostTarget(kube::FindString(host, {"metadata", "name"}), "resize"),
      client::PatchType::kStrategicMerge, patch);
  if (!resized.ok() && !resized.error().Is(Reason::kNotFound)) {
    return std::move(resized).error();
  }
  return Ok();
}

Result<void> PodSyncer::SyncEphemeralContainers(const Json& pod, const Json& host) {
  const Json wanted = TranslateEphemeralContainers(pod, ContextOf(pod, ""));
  const Json* have = kube::Find(host, {"spec", "ephemeralContainers"});
  if (wanted.size() <= (have == nullptr ? 0 : have->size())) {
    return Ok();
  }
  auto patched =
      PatchHost(host, {{"spec", {{"ephemeralContainers", wanted}}}}, "ephemeralcontainers");
  if (!patched.ok()) {
    return std::move(patched).error();
  }
  return Ok();
}

Result<Outcome> PodSyncer::Sync(const Json& pod, const Json& host) {
  const std::uint64_t changes = rests_.changes();
  if (ReadHostRecord(host).virtual_uid != kube::FindString(pod, {"metadata", "uid"})) {
    // The twin of a predecessor with the same name: it goes, and its end brings this key back.
    return DeleteHost(host, 0);
  }
  bool handled = false;
  SUBLET_TRY(const Outcome leftover, SyncLeftover(pod, host, &handled));
  if (handled) {
    return leftover;
  }
  SUBLET_TRY(const Outcome deletion, SyncDeletion(pod, host, &handled));
  if (handled) {
    return deletion;
  }
  SUBLET_TRY(const Outcome rejection, SyncRejection(pod, host, &handled));
  if (handled) {
    return rejection;
  }
  SUBLET_RETURN_IF_ERROR(SyncBinding(pod, host));
  SUBLET_TRY(std::string version, SyncStatus(pod, host));
  SUBLET_RETURN_IF_ERROR(SyncGates(pod, host));
  const Json additions = HostAdditionsPatch(pod, host, context().config.pods.extra_keys);
  SUBLET_TRY(const Outcome shown, PatchVirtual(pod, additions));
  (void)shown;
  const std::size_t shape = HostPodShape(host);
  if (const auto rest = rests_.FindBut(pod, shape); rest && additions.is_null()) {
    rests_.Keep(
        kube::KeyOf(pod),
        {std::move(version), std::string(kube::ResourceVersionOf(host)), rest->renew_at, shape},
        changes);
    return rests_.Until(rest->renew_at);
  }
  PodContext pod_context = ContextOf(pod, SliceOf(pod).value_or(""));
  Json labels = Json::object();
  if (const auto space = namespaces_->Get({"", kube::KeyOf(pod).namespace_name});
      space != nullptr) {
    for (const auto& [key, value] : space->labels) {
      labels[key] = value;
    }
    pod_context.namespace_labels = &labels;
  }
  SUBLET_TRY(const HostPod wanted, TranslatePod(pod, pod_context));
  SUBLET_TRY(const bool nothing_carried, SyncSpec(pod, host, wanted));
  const std::string phase(kube::FindString(host, {"status", "phase"}));
  Outcome next = Outcome::Done();
  if (phase != "Succeeded" && phase != "Failed") {
    SUBLET_TRY(next, tokens_.Ensure(pod, wanted));
  }
  if (nothing_carried && additions.is_null() && NodeNameOf(pod) == NodeNameOf(host) &&
      kube::Find(pod, {"spec", "readinessGates"}) == nullptr) {
    rests_.Keep(kube::KeyOf(pod),
                {std::move(version), std::string(kube::ResourceVersionOf(host)),
                 rests_.RenewAt(next), shape},
                changes);
  }
  return next;
}

void PodSyncer::SettleMade(const Json& pod, const Json& made, const HostPod& wanted,
                           const Outcome& renew, std::uint64_t changes) {
  const bool as_wanted =
      NodeNameOf(pod) == NodeNameOf(made) && HostPodPatch(made, wanted.pod).is_null() &&
      HostAdditionsPatch(pod, made, context().config.pods.extra_keys).is_null() &&
      Difference(pod.value("status", Json::object()), VirtualStatus(pod, made)).empty() &&
      !pod.at("spec").contains("ephemeralContainers") &&
      kube::Find(pod, {"spec", "readinessGates"}) == nullptr;
  if (as_wanted) {
    rests_.Keep(
        kube::KeyOf(pod),
        {std::string(kube::ResourceVersionOf(pod)), std::string(kube::ResourceVersionOf(made)),
         rests_.RenewAt(renew), HostPodShape(made)},
        changes);
  }
}

std::optional<Outcome> PodSyncer::Settled(const client::CachedObject& pod,
                                          const client::CachedObject& host) {
  return rests_.Find(pod, host);
}

Result<Outcome> PodSyncer::Gone(const kube::ObjectKey& key) {
  rests_.Forget(key);
  SUBLET_RETURN_IF_ERROR(tokens_.Remove(key));
  return TranslatedKind::Gone(key);
}

}  // namespace sublet::syncer
