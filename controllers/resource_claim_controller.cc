#include "controllers/resource_claim_controller.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "controllers/pod_control.h"
#include "kube/json_lists.h"
#include "kube/object.h"

namespace sublet::controllers {
namespace {

using client::ObjectPtr;
using client::Outcome;
using kube::ArrayAt;
using kube::Json;

constexpr std::string_view kClaimFinalizer = "resource.kubernetes.io/delete-protection";
constexpr const char* kPodClaimName = "resource.kubernetes.io/pod-claim-name";
constexpr std::string_view kUserIndex = "resource-claims";
constexpr std::string_view kPodOfClaimIndex = "pod";
const ResourceKind kResourceClaims{{"resource.k8s.io", "v1", "resourceclaims"}, "ResourceClaim"};
const ResourceKind kTemplates{{"resource.k8s.io", "v1", "resourceclaimtemplates"},
                              "ResourceClaimTemplate"};

// The pod that a claim was made for, or nothing.
struct ClaimRecord {
  std::string pod_name, pod_uid, pod_claim;
  std::vector<std::pair<std::string, std::string>> users;  // name and uid of pods in reservedFor
  bool other_users = false;
  bool allocated = false;
};

ClaimRecord ReadClaim(const Json& claim) {
  ClaimRecord out;
  for (const kube::OwnerReference& owner : kube::OwnersOf(claim)) {
    if (owner.kind == "Pod" && owner.controller) {
      out.pod_name = owner.name;
      out.pod_uid = owner.uid;
    }
  }
  out.pod_claim = kube::AnnotationOf(claim, kPodClaimName);
  for (const Json& user : ArrayAt(claim, {"status", "reservedFor"})) {
    if (kube::FindString(user, {"resource"}) == "pods") {
      out.users.emplace_back(kube::FindString(user, {"name"}), kube::FindString(user, {"uid"}));
    } else {
      out.other_users = true;
    }
  }
  out.allocated = kube::Find(claim, {"status", "allocation"}) != nullptr;
  return out;
}

class ResourceClaimController final : public Controller {
 public:
  explicit ResourceClaimController(const Context& context)
      : claims_(context, kResourceClaims),
        templates_(context, kTemplates),
        pods_(context, kPods),
        events_(context.events.As("resource_claim")),
        claim_queue_(context.manager.Add(
            {.name = "resource-claim",
             .reconcile = [this](const kube::ObjectKey& key) { return ReconcileClaim(key); },
             .needs = {&claims_.informer(), &pods_.informer()}})),
        pod_queue_(context.manager.Add(
            {.name = "resource-claim-pods",
             .reconcile = [this](const kube::ObjectKey& key) { return ReconcilePod(key); },
             .needs = {&claims_.informer(), &templates_.informer(), &pods_.informer()}})) {
    claims_.informer().AddIndex(kPodOfClaimIndex, [](const client::CachedObject& claim) {
      const auto parsed = claim.Parse();
      return std::vector<std::string>{parsed.ok() ? ReadClaim(*parsed).pod_uid : ""};
    });
    pods_.informer().AddIndex(kUserIndex, [](const client::CachedObject& pod) {
      return pod.As<PodRecord>().lacks_device_claims ? std::vector<std::string>{"lacking"}
                                                     : std::vector<std::string>{};
    });
    RouteSelf(claims_, claim_queue_);
    pods_.informer().AddHandler([this](const ObjectPtr& before, const ObjectPtr& after) {
      if (after && PodOf(after).lacks_device_claims) {
        pod_queue_.Add(after->key);
      }
      if (before && (!after || after->uid != before->uid || !IsActive(*after))) {
        for (const std::string& claim : PodOf(before).device_claims) {
          claim_queue_.Add({before->key.namespace_name, claim});
        }
      }
    });
    // A template that came may be what pods wait for.
    templates_.informer().AddHandler([this](const ObjectPtr&, const ObjectPtr& after) {
      for (const ObjectPtr& pod : pods_.informer().ByIndex(kUserIndex, "lacking")) {
        if (after && pod->key.namespace_name == after->key.namespace_name) {
          pod_queue_.Add(pod->key);
        }
      }
    });
  }

 private:
  // True while the pod with this uid may still use what is reserved for it. The cache may be behind
  // a pod that was just made, so its absence there is asked about.
  Result<bool> Uses(const kube::ObjectKey& key, const std::string& uid) const {
    const ObjectPtr cached = pods_.Find(key);
    if (cached && cached->uid == uid) {
      return !PodOf(cached).Finished() && !(cached->deleting() && PodOf(cached).node.empty());
    }
    const auto live = pods_.GetLive(key);
    if (!live.ok()) {
      return live.error().Is(Reason::kNotFound) ? Result<bool>(false) : Result<bool>(live.error());
    }
    return kube::UidOf(*live) == uid;
  }

  Result<Outcome> ReconcileClaim(const kube::ObjectKey& key) {
    const ObjectPtr cached = claims_.Find(key);
    if (!cached) {
      return Outcome::Done();
    }
    SUBLET_TRY(Json claim, cached->Parse());
    const ClaimRecord record = ReadClaim(claim);
    Json left = Json::array();
    bool changed = false;
    for (const Json& user : ArrayAt(claim, {"status", "reservedFor"})) {
      bool stays = true;
      if (kube::FindString(user, {"resource"}) == "pods") {
        SUBLET_TRY(stays, Uses({key.namespace_name, std::string(kube::FindString(user, {"name"}))},
                               std::string(kube::FindString(user, {"uid"}))));
      }
      changed = changed || !stays;
      if (stays) {
        left.push_back(user);
      }
    }
    // Not whenever nobody is on it: the scheduler may be about to write its allocation.
    const bool ends = left.empty() && (changed || cached->deleting());
    if (changed || (ends && record.allocated)) {
      SUBLET_TRY(claim, WriteUsers(std::move(claim), std::move(left)));
    }
    if (!record.pod_uid.empty() && !cached->deleting()) {
      SUBLET_TRY(const bool used, Uses({key.namespace_name, record.pod_name}, record.pod_uid));
      if (!used) {
        SUBLET_RETURN_IF_ERROR(claims_.Delete(key, cached->uid));
        return Outcome::Done();
      }
    }
    if (ends && kube::RemoveFinalizer(&claim, kClaimFinalizer)) {
      const auto written = claims_.Update(claim);
      if (!written.ok() && !written.error().Is(Reason::kNotFound)) {
        return written.error();
      }
    }
    return Outcome::Done();
  }

  // The claim as written: nobody on it, no devices.
  Result<Json> WriteUsers(Json claim, Json left) {
    if (left.empty()) {
      claim["status"].erase("reservedFor");
      claim["status"].erase("allocation");
      claim["status"].erase("devices");
    } else {
      claim["status"]["reservedFor"] = std::move(left);
    }
    return claims_.UpdateStatus(claim);
  }

  Result<Outcome> ReconcilePod(const kube::ObjectKey& key) {
    const ObjectPtr cached = pods_.Find(key);
    if (!cached || !IsActive(*cached) || !PodOf(cached).lacks_device_claims) {
      return Outcome::Done();
    }
    auto pod = pods_.GetLive(key);
    if (!pod.ok()) {
      return pod.error().Is(Reason::kNotFound) ? Result<Outcome>(Outcome::Done())
                                               : Result<Outcome>(std::move(pod).error());
    }
    Json statuses = kube::Find(*pod, {"status", "resourceClaimStatuses"}) == nullptr
                        ? Json::array()
                        : (*pod)["status"]["resourceClaimStatuses"];
    for (const Json& entry : ArrayAt(*pod, {"spec", "resourceClaims"})) {
      const std::string name(kube::FindString(entry, {"name"}));
      const std::string from(kube::FindString(entry, {"resourceClaimTemplateName"}));
      const bool known = std::any_of(statuses.begin(), statuses.end(), [&](const Json& status) {
        return kube::FindString(status, {"name"}) == name;
      });
      if (from.empty() || known) {
        continue;
      }
      auto made = ClaimFor(*pod, name, from);
      if (!made.ok()) {
        events_.Event(client::EventTargetOf(*pod, "v1", "Pod"), "Warning",
                      "FailedResourceClaimCreation",
                      "PodResourceClaim " + name + ": " + made.error().message());
        return std::move(made).error();
      }
      statuses.push_back({{"name", name}, {"resourceClaimName", *made}});
    }
    const auto patched = pods_.Patch(key, client::PatchType::kStrategicMerge,
                                     {{"metadata", {{"uid", cached->uid}}},
                                      {"status", {{"resourceClaimStatuses", std::move(statuses)}}}},
                                     "status");
    if (!patched.ok() && !patched.error().Is(Reason::kNotFound)) {
      return patched.error();
    }
    return Outcome::Done();
  }

  // The name of the pod's claim, which is made unless it stands.
  Result<std::string> ClaimFor(const Json& pod, const std::string& name, const std::string& from) {
    const std::string uid(kube::UidOf(pod));
    for (const ObjectPtr& claim : claims_.informer().ByIndex(kPodOfClaimIndex, uid)) {
      SUBLET_TRY(const Json parsed, claim->Parse());
      if (ReadClaim(parsed).pod_claim == name) {
        return claim->key.name;
      }
    }
    const std::string space(kube::NamespaceOf(pod));
    const ObjectPtr found = templates_.Find({space, from});
    if (!found) {
      return BadRequest("resource claim template \"" + from + "\" not found");
    }
    SUBLET_TRY(const Json source, found->Parse());
    Json metadata = source.at("spec").value("metadata", Json::object());
    metadata["namespace"] = space;
    metadata["generateName"] = std::string(kube::NameOf(pod)) + "-" + name + "-";
    metadata["annotations"][kPodClaimName] = name;
    metadata["ownerReferences"] = Json::array({{{"apiVersion", "v1"},
                                                {"kind", "Pod"},
                                                {"name", kube::NameOf(pod)},
                                                {"uid", uid},
                                                {"controller", true},
                                                {"blockOwnerDeletion", true}}});
    SUBLET_TRY(const Json made,
               claims_.Create(space, {{"metadata", std::move(metadata)},
                                      {"spec", source.at("spec").value("spec", Json::object())}}));
    return std::string(kube::NameOf(made));
  }

  const Collection claims_;
  const Collection templates_;
  const Collection pods_;
  const client::EventRecorder::Source events_;
  client::WorkQueue& claim_queue_;
  client::WorkQueue& pod_queue_;
};

}  // namespace

std::unique_ptr<Controller> MakeResourceClaimController(const Context& context) {
  return std::make_unique<ResourceClaimController>(context);
}

}  // namespace sublet::controllers
