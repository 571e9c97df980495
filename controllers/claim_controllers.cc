#include "controllers/claim_controllers.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "controllers/pod_control.h"
#include "kube/object.h"
#include "kube/quantity.h"

namespace sublet::controllers {
namespace {

using client::ObjectPtr;
using client::Outcome;
using kube::Json;

constexpr std::string_view kClaimFinalizer = "kubernetes.io/pvc-protection";
constexpr std::string_view kVolumeFinalizer = "kubernetes.io/pv-protection";
constexpr std::string_view kAttributesFinalizer = "kubernetes.io/vac-protection";
constexpr std::string_view kSelectedNode = "volume.kubernetes.io/selected-node";
constexpr std::string_view kProvisionedBy = "pv.kubernetes.io/provisioned-by";
constexpr std::string_view kClaimIndex = "claim";
const ResourceKind kAttributesClasses{{"storage.k8s.io", "v1", "volumeattributesclasses"},
                                      "VolumeAttributesClass"};

std::string ClassOf(const Json& object) {
  return std::string(kube::FindString(object, {"spec", "storageClassName"}));
}

bool ModesCover(const Json& volume, const Json& claim) {
  const Json* offered = kube::Find(volume, {"spec", "accessModes"});
  const Json* asked = kube::Find(claim, {"spec", "accessModes"});
  return offered != nullptr && asked != nullptr &&
         std::all_of(asked->begin(), asked->end(), [&](const Json& mode) {
           return std::find(offered->begin(), offered->end(), mode) != offered->end();
         });
}

void IndexByClaim(const Collection& pods) {
  pods.informer().AddIndex(kClaimIndex, [](const client::CachedObject& pod) {
    std::vector<std::string> out;
    for (const std::string& claim : pod.As<PodRecord>().claims) {
      out.push_back(pod.key.namespace_name + "/" + claim);
    }
    return out;
  });
}

kube::Quantity SizeOf(const Json& object, std::initializer_list<std::string_view> path) {
  return kube::Quantity::ParseOrZero(kube::FindString(object, path));
}

class VolumeBinder final : public Controller {
 public:
  explicit VolumeBinder(const Context& context)
      : settings_(context.settings),
        claims_(context, kClaims),
        volumes_(context, kVolumes),
        classes_(context, kStorageClasses),
        pods_(context, kPods),
        events_(context.events.As("persistentvolume-controller")),
        claim_queue_(context.manager.Add(
            {.name = "claim-binder",
             .reconcile = [this](const kube::ObjectKey& key) { return ReconcileClaim(key); },
             .needs = {&claims_.informer(), &volumes_.informer(), &classes_.informer(),
                       &pods_.informer()}})),
        volume_queue_(context.manager.Add(
            {.name = "volume-binder",
             .reconcile = [this](const kube::ObjectKey& key) { return ReconcileVolume(key); },
             .needs = {&claims_.informer(), &volumes_.informer()}})) {
    RouteSelf(claims_, claim_queue_);
    RouteSelf(volumes_, volume_queue_);
    claims_.informer().AddHandler([this](const ObjectPtr&, const ObjectPtr& after) {
      if (!after) {  // the volume it was bound to is released
        for (const ObjectPtr& volume : volumes_.informer().List()) {
          volume_queue_.Add(volume->key);
        }
      }
    });
    volumes_.informer().AddHandler([this](const ObjectPtr&, const ObjectPtr&) { QueuePending(); });
    classes_.informer().AddHandler([this](const ObjectPtr&, const ObjectPtr&) { QueuePending(); });
    IndexByClaim(pods_);
    pods_.informer().AddHandler([this](const ObjectPtr& before, const ObjectPtr& after) {
      // Just placed: what waited for its first consumer has one.
      if (after && !PodOf(after).node.empty() && (!before || PodOf(before).node.empty())) {
        for (const std::string& claim : PodOf(after).claims) {
          claim_queue_.Add({after->key.namespace_name, claim});
        }
      }
    });
  }

 private:
  // The node of a claim whose class waits for the first consumer: what a scheduler has chosen, or
  // where a pod that uses the claim was placed. Differs: Kubernetes' scheduler names the node on the
  // claim and binds the pod after it; here the pod is bound first and its node waits those
  // milliseconds, so any scheduler will do.
  std::string NodeOf(const Json& claim) const {
    if (const auto chosen = kube::AnnotationOf(claim, kSelectedNode); !chosen.empty()) {
      return std::string(chosen);
    }
    const kube::ObjectKey key{std::string(kube::NamespaceOf(claim)),
                              std::string(kube::NameOf(claim))};
    for (const ObjectPtr& pod : pods_.informer().ByIndex(kClaimIndex, key.Text())) {
      if (!PodOf(pod).node.empty() && !PodOf(pod).Finished()) {
        return PodOf(pod).node;
      }
    }
    return "";
  }

  void QueuePending() {
    for (const ObjectPtr& claim : claims_.informer().List()) {
      claim_queue_.Add(claim->key);
    }
  }

  Result<Outcome> ReconcileClaim(const kube::ObjectKey& key) {
    const ObjectPtr cached = claims_.Find(key);
    if (!cached || cached->deleting()) {
      return Outcome::Done();
    }
    SUBLET_TRY(Json claim, cached->Parse());
    if (kube::FindString(claim, {"status", "phase"}) == "Bound") {
      return Outcome::Done();
    }
    const std::string named(kube::FindString(claim, {"spec", "volumeName"}));
    SUBLET_TRY(std::optional<Json> volume, FindVolume(claim, named));
    if (!volume && named.empty()) {
      SUBLET_TRY(volume, Provision(claim));
    }
    if (!volume) {
      return Outcome::Done();
    }
    return Bind(std::move(*volume), std::move(claim));
  }

  // The smallest free volume that fits, or the one the claim names.
  Result<std::optional<Json>> FindVolume(const Json& claim, const std::string& named) const {
    const kube::Quantity asked = SizeOf(claim, {"spec", "resources", "requests", "storage"});
    std::optional<Json> best;
    for (const ObjectPtr& object : volumes_.informer().List()) {
      if (object->deleting() || (!named.empty() && object->key.name != named)) {
        continue;
      }
      SUBLET_TRY(Json volume, object->Parse());
      const std::string_view uid = kube::FindString(volume, {"spec", "claimRef", "uid"});
      const bool reserved =
          kube::FindString(volume, {"spec", "claimRef", "name"}) == kube::NameOf(claim) &&
          kube::FindString(volume, {"spec", "claimRef", "namespace"}) == kube::NamespaceOf(claim) &&
          (uid.empty() || uid == kube::UidOf(claim));
      const bool free = kube::Find(volume, {"spec", "claimRef"}) == nullptr;
      if ((!free && !reserved) || ClassOf(volume) != ClassOf(claim) || !ModesCover(volume, claim) ||
          SizeOf(volume, {"spec", "capacity", "storage"}) < asked) {
        continue;
      }
      if (reserved) {
        return std::optional<Json>(std::move(volume));
      }
      if (const Json* labels = kube::Find(claim, {"spec", "selector"}); labels != nullptr) {
        const auto selector = kube::LabelSelector::FromJson(labels);
        if (!selector.ok() || !selector->MatchesObject(volume)) {
          continue;
        }
      }
      if (!best || SizeOf(volume, {"spec", "capacity", "storage"}) <
                       SizeOf(*best, {"spec", "capacity", "storage"})) {
        best = std::move(volume);
      }
    }
    return best;
  }

  Result<std::optional<Json>> Provision(const Json& claim) {
    const ObjectPtr cached = classes_.Find({"", ClassOf(claim)});
    if (!cached || settings_.local_volume_root.empty()) {
      return std::optional<Json>();
    }
    SUBLET_TRY(const Json storage_class, cached->Parse());
    if (kube::FindString(storage_class, {"provisioner"}) != kLocalPathProvisioner) {
      return std::optional<Json>();
    }
    const bool waits =
        kube::FindString(storage_class, {"volumeBindingMode"}) == "WaitForFirstConsumer";
    const std::string node = waits ? NodeOf(claim) : "";
    if (waits && node.empty()) {
      events_.Event(client::EventTargetOf(claim, "v1", "PersistentVolumeClaim"), "Normal",
                    "WaitForFirstConsumer",
                    "waiting for first consumer to be created before binding");
      return std::optional<Json>();
    }
    const std::string name = "pvc-" + std::string(kube::UidOf(claim));
    Json spec = {
        {"capacity", {{"storage", claim["spec"]["resources"]["requests"]["storage"]}}},
        {"accessModes", claim["spec"]["accessModes"]},
        {"persistentVolumeReclaimPolicy",
         kube::FindString(storage_class, {"reclaimPolicy"}, "Delete")},
        {"storageClassName", ClassOf(claim)},
        {"volumeMode", "Filesystem"},
        {"claimRef", ReferenceTo(claim)},
        {"hostPath",
         {{"path", settings_.local_volume_root + "/" + name}, {"type", "DirectoryOrCreate"}}}};
    if (!node.empty()) {
      spec["nodeAffinity"]["required"]["nodeSelectorTerms"] =
          Json::array({{{"matchExpressions", Json::array({{{"key", "kubernetes.io/hostname"},
                                                           {"operator", "In"},
                                                           {"values", Json::array({node})}}})}}});
    }
    auto created = volumes_.Create(
        "", {{"metadata",
              {{"name", name},
               {"annotations", {{std::string(kProvisionedBy), kLocalPathProvisioner}}}}},
             {"spec", std::move(spec)}});
    if (!created.ok()) {
      if (created.error().Is(Reason::kAlreadyExists)) {
        SUBLET_TRY(Json live, volumes_.GetLive({"", name}));
        return std::optional<Json>(std::move(live));
      }
      return std::move(created).error();
    }
    events_.Event(client::EventTargetOf(claim, "v1", "PersistentVolumeClaim"), "Normal",
                  "ProvisioningSucceeded", "Successfully provisioned volume " + name);
    return std::optional<Json>(std::move(*created));
  }

  static Json ReferenceTo(const Json& claim) {
    return {{"kind", "PersistentVolumeClaim"},
            {"apiVersion", "v1"},
            {"namespace", kube::NamespaceOf(claim)},
            {"name", kube::NameOf(claim)},
            {"uid", kube::UidOf(claim)}};
  }

  // Volume first: once it names the claim, every later step can be done again.
  Result<Outcome> Bind(Json volume, Json claim) {
    if (kube::FindString(volume, {"spec", "claimRef", "uid"}) != kube::UidOf(claim)) {
      volume["spec"]["claimRef"] = ReferenceTo(claim);
      kube::SetAnnotation(&volume, "pv.kubernetes.io/bound-by-controller", "yes");
      SUBLET_TRY(volume, volumes_.Update(volume));
    }
    if (kube::FindString(volume, {"status", "phase"}) != "Bound") {
      volume["status"]["phase"] = "Bound";
      SUBLET_TRY(volume, volumes_.UpdateStatus(volume));
    }
    if (kube::FindString(claim, {"spec", "volumeName"}).empty()) {
      claim["spec"]["volumeName"] = kube::NameOf(volume);
      kube::SetAnnotation(&claim, "pv.kubernetes.io/bound-by-controller", "yes");
    }
    if (kube::AnnotationOf(claim, "pv.kubernetes.io/bind-completed").empty()) {
      kube::SetAnnotation(&claim, "pv.kubernetes.io/bind-completed", "yes");
      SUBLET_TRY(claim, claims_.Update(claim));
    }
    claim["status"]["phase"] = "Bound";
    claim["status"]["accessModes"] = volume["spec"]["accessModes"];
    claim["status"]["capacity"] = volume["spec"]["capacity"];
    SUBLET_RETURN_IF_ERROR(claims_.UpdateStatus(claim));
    return Outcome::Done();
  }

  Result<Outcome> ReconcileVolume(const kube::ObjectKey& key) {
    const ObjectPtr cached = volumes_.Find(key);
    if (!cached) {
      return Outcome::Done();
    }
    SUBLET_TRY(Json volume, cached->Parse());
    const std::string uid(kube::FindString(volume, {"spec", "claimRef", "uid"}));
    if (uid.empty()) {
      return SetPhase(std::move(volume), "Available");
    }
    const ObjectPtr claim =
        claims_.Find({std::string(kube::FindString(volume, {"spec", "claimRef", "namespace"})),
                      std::string(kube::FindString(volume, {"spec", "claimRef", "name"}))});
    if (claim && claim->uid == uid) {
      claim_queue_.Add(claim->key);
      return Outcome::Done();
    }
    const std::string policy(kube::FindString(volume, {"spec", "persistentVolumeReclaimPolicy"}));
    if (policy != "Delete" || kube::AnnotationOf(volume, kProvisionedBy) != kLocalPathProvisioner) {
      return SetPhase(std::move(volume), "Released");
    }
    RemoveFolder(std::string(kube::FindString(volume, {"spec", "hostPath", "path"})));
    // Its finalizer goes with the volume protection below.
    SUBLET_RETURN_IF_ERROR(volumes_.Delete(key, cached->uid));
    return Outcome::Done();
  }

  // Only folders right below the root are ours.
  void RemoveFolder(const std::string& path) const {
    const std::filesystem::path folder(path);
    if (!settings_.local_volume_root.empty() &&
        folder.parent_path() == std::filesystem::path(settings_.local_volume_root) &&
        folder.filename().string().starts_with("pvc-")) {
      std::error_code ignored;
      std::filesystem::remove_all(folder, ignored);
    }
  }

  Result<Outcome> SetPhase(Json volume, const char* phase) {
    if (kube::FindString(volume, {"status", "phase"}) == phase) {
      return Outcome::Done();
    }
    volume["status"]["phase"] = phase;
    SUBLET_RETURN_IF_ERROR(volumes_.UpdateStatus(volume));
    return Outcome::Done();
  }

  const Settings& settings_;
  const Collection claims_;
  const Collection volumes_;
  const Collection classes_;
  const Collection pods_;
  const client::EventRecorder::Source events_;
  client::WorkQueue& claim_queue_;
  client::WorkQueue& volume_queue_;
};

// Whether a claim or a volume has, or is about to have, the attributes of the class `name`.
bool NamesAttributes(const Json& object, std::string_view name) {
  return kube::FindString(object, {"spec", "volumeAttributesClassName"}) == name ||
         kube::FindString(object, {"status", "currentVolumeAttributesClassName"}) == name ||
         kube::FindString(
             object, {"status", "modifyVolumeStatus", "targetVolumeAttributesClassName"}) == name;
}

// A claim that is being deleted goes when the last pod that uses it is finished or gone; a volume
// when it is no longer bound; a class of volume attributes when no claim and no volume names it.
class ClaimProtection final : public Controller {
 public:
  explicit ClaimProtection(const Context& context)
      : claims_(context, kClaims),
        volumes_(context, kVolumes),
        pods_(context, kPods),
        claim_queue_(context.manager.Add(
            {.name = "pvc-protection",
             .reconcile = [this](const kube::ObjectKey& key) { return ReconcileClaim(key); },
             .needs = {&claims_.informer(), &pods_.informer()}})),
        volume_queue_(context.manager.Add(
            {.name = "pv-protection",
             .reconcile = [this](const kube::ObjectKey& key) { return ReconcileVolume(key); },
             .needs = {&volumes_.informer(), &claims_.informer()}})),
        attributes_(context, kAttributesClasses),
        attributes_queue_(context.manager.Add(
            {.name = "vac-protection",
             .reconcile = [this](const kube::ObjectKey& key) { return ReconcileAttributes(key); },
             .needs = {&attributes_.informer(), &volumes_.informer(), &claims_.informer()}})) {
    RouteSelf(attributes_, attributes_queue_);
    for (const Collection* users : {&claims_, &volumes_}) {
      users->informer().AddHandler([this](const ObjectPtr& before, const ObjectPtr&) {
        if (before) {
          QueueAttributes();
        }
      });
    }
    IndexByClaim(pods_);
    RouteSelf(claims_, claim_queue_);
    RouteSelf(volumes_, volume_queue_);
    claims_.informer().AddHandler([this](const ObjectPtr&, const ObjectPtr& after) {
      if (!after) {
        for (const ObjectPtr& volume : volumes_.informer().List()) {
          volume_queue_.Add(volume->key);
        }
      }
    });
    pods_.informer().AddHandler([this](const ObjectPtr& before, const ObjectPtr& after) {
      if (before && (!after || PodOf(after).Finished())) {
        for (const std::string& claim : PodOf(before).claims) {
          claim_queue_.Add({before->key.namespace_name, claim});
        }
      }
    });
  }

 private:
  Result<Outcome> ReconcileClaim(const kube::ObjectKey& key) {
    const ObjectPtr cached = claims_.Find(key);
    if (!cached || !cached->deleting()) {
      return Outcome::Done();
    }
    for (const ObjectPtr& pod : pods_.informer().ByIndex(kClaimIndex, key.Text())) {
      if (!PodOf(pod).Finished()) {
        return Outcome::Done();
      }
    }
    return Release(claims_, *cached, kClaimFinalizer);
  }

  Result<Outcome> ReconcileVolume(const kube::ObjectKey& key) {
    const ObjectPtr cached = volumes_.Find(key);
    if (!cached || !cached->deleting()) {
      return Outcome::Done();
    }
    SUBLET_TRY(const Json volume, cached->Parse());
    const ObjectPtr claim =
        claims_.Find({std::string(kube::FindString(volume, {"spec", "claimRef", "namespace"})),
                      std::string(kube::FindString(volume, {"spec", "claimRef", "name"}))});
    if (claim && claim->uid == kube::FindString(volume, {"spec", "claimRef", "uid"})) {
      return Outcome::Done();
    }
    return Release(volumes_, *cached, kVolumeFinalizer);
  }

  // What was in use may no longer be: those that wait to go are looked at again.
  void QueueAttributes() {
    for (const ObjectPtr& attributes : attributes_.informer().List()) {
      if (attributes->deleting()) {
        attributes_queue_.Add(attributes->key);
      }
    }
  }

  Result<Outcome> ReconcileAttributes(const kube::ObjectKey& key) {
    const ObjectPtr cached = attributes_.Find(key);
    if (!cached || !cached->deleting()) {
      return Outcome::Done();
    }
    for (const Collection* users : {&claims_, &volumes_}) {
      for (const ObjectPtr& user : users->informer().List()) {
        SUBLET_TRY(const Json object, user->Parse());
        if (NamesAttributes(object, key.name)) {
          return Outcome::Done();
        }
      }
    }
    return Release(attributes_, *cached, kAttributesFinalizer);
  }

  static Result<Outcome> Release(const Collection& collection, const client::CachedObject& object,
                                 std::string_view finalizer) {
    SUBLET_TRY(Json value, object.Parse());
    if (!kube::RemoveFinalizer(&value, finalizer)) {
      return Outcome::Done();
    }
    const Json patch = {{"metadata",
                         {{"uid", object.uid},
                          {"resourceVersion", object.resource_version},
                          {"finalizers", value["metadata"].value("finalizers", Json::array())}}}};
    const auto patched = collection.Patch(object.key, client::PatchType::kMerge, patch);
    if (!patched.ok() && !patched.error().Is(Reason::kNotFound)) {
      return patched.error();
    }
    return Outcome::Done();
  }

  const Collection claims_;
  const Collection volumes_;
  const Collection pods_;
  client::WorkQueue& claim_queue_;
  client::WorkQueue& volume_queue_;
  const Collection attributes_;
  client::WorkQueue& attributes_queue_;
};

}  // namespace

std::unique_ptr<Controller> MakeVolumeBinder(const Context& context) {
  return std::make_unique<VolumeBinder>(context);
}
std::unique_ptr<Controller> MakeClaimProtection(const Context& context) {
  return std::make_unique<ClaimProtection>(context);
}

}  // namespace sublet::controllers
