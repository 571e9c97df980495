#include "controllers/replica_set_controller.h"

#include <map>
#include <nlohmann/json.hpp>

#include "controllers/pod_control.h"
#include "kube/object.h"
#include "kube/timestamp.h"

namespace sublet::controllers {
namespace {

using client::ObjectPtr;
using client::Outcome;
using kube::Json;

constexpr int kReplicaBurst = 500;  // creations or deletions per reconcile

// What differs between the two kinds.
struct Variant {
  const ResourceKind* kind;
  const char* name;
  const char* component;
  bool label_map_selector;  // ReplicationController: spec.selector is a plain map
};
const Variant kReplicaSetVariant{&kReplicaSets, "replicaset", "replicaset-controller", false};
const Variant kReplicationVariant{&kReplicationControllers, "replicationcontroller",
                                  "replication-controller", true};

struct Counts {
  std::int64_t replicas = 0;
  std::int64_t fully_labeled = 0;
  std::int64_t ready = 0;
  std::int64_t available = 0;
  std::int64_t terminating = 0;
};

// What went wrong while creating or deleting, for the ReplicaFailure condition.
struct Failure {
  const char* reason;
  std::string message;
};

class ReplicaController final : public Controller {
 public:
  ReplicaController(const Context& context, const Variant& variant)
      : variant_(variant),
        clock_(context.clock),
        owners_(context, *variant.kind),
        control_(context, variant.component),
        queue_(context.manager.Add(
            {.name = variant.name,
             .reconcile = [this](const kube::ObjectKey& key) { return Reconcile(key); },
             .workers_max = 4,
             .needs = {&owners_.informer(), &control_.pods().informer()}})) {
    AddOwnerIndexes(control_.pods());
    RouteSelf(owners_, queue_);
    RouteToOwners(
        control_.pods(), owners_, [this](const Json& owner) { return Selector(owner); }, queue_);
    if (!variant.label_map_selector) {
      // Related sets of one Deployment are ranked together when pods are deleted.
      AddOwnerIndexes(owners_);
    }
  }

 private:
  Result<kube::LabelSelector> Selector(const Json& owner) const {
    if (!variant_.label_map_selector) {
      return SelectorOf(owner);
    }
    const Json* labels = kube::Find(owner, {"spec", "selector"});
    if (labels == nullptr || labels->empty()) {
      return kube::LabelSelector::Nothing();
    }
    return kube::LabelSelector::FromLabels(labels);
  }

  Result<Outcome> Reconcile(const kube::ObjectKey& key) {
    const ObjectPtr cached = owners_.Find(key);
    if (!cached) {
      return Outcome::Done();
    }
    SUBLET_TRY(const Json owner, cached->Parse());
    SUBLET_TRY(const kube::LabelSelector selector, Selector(owner));
    SUBLET_TRY(std::vector<ObjectPtr> claimed, Claim(control_.pods(), owners_, owner, selector));
    std::optional<Failure> failure;
    std::optional<Status> error;
    if (!cached->deleting()) {
      error = Manage(owner, claimed, &failure);
      if (auto again = Owned(owner, selector); !again.empty() || claimed.empty()) {
        claimed = std::move(again);
      }
    }
    std::chrono::nanoseconds wait{0};
    const Counts counts = Count(owner, claimed, &wait);
    SUBLET_RETURN_IF_ERROR(WriteStatus(owner, counts, failure, cached->deleting()));
    if (error) {
      return std::move(*error);
    }
    return Outcome::After(wait);
  }

  // The pods as they are after this reconcile's own writes.
  std::vector<ObjectPtr> Owned(const Json& owner, const kube::LabelSelector& selector) const {
    auto out = control_.pods().informer().ByIndex(client::kControllerIndex, kube::UidOf(owner));
    std::erase_if(out, [&](const ObjectPtr& pod) { return !selector.Matches(pod->labels); });
    return out;
  }

  std::optional<Status> Manage(const Json& owner, const std::vector<ObjectPtr>& pods,
                               std::optional<Failure>* failure) {
    std::vector<ObjectPtr> active;
    for (const ObjectPtr& pod : pods) {
      if (IsActive(*pod)) {
        active.push_back(pod);
      }
    }
    const std::int64_t wanted = kube::FindInt(owner, {"spec", "replicas"}, 1);
    const std::int64_t missing = wanted - static_cast<std::int64_t>(active.size());
    BatchResult result;
    if (missing > 0) {
      const Json* pod_template = kube::Find(owner, {"spec", "template"});
      const Json pod =
          PodFromTemplate(pod_template != nullptr ? *pod_template : Json::object(), owner);
      result =
          SlowStart(static_cast<int>(std::min<std::int64_t>(missing, kReplicaBurst)), [&](int) {
            auto created = control_.Create(owner, pod);
            return created.ok() ? Ok() : Result<void>(std::move(created).error());
          });
      if (result.error) {
        *failure = Failure{"FailedCreate", result.error->message()};
      }
    } else if (missing < 0) {
      RankForDeletion(owner, &active);
      const std::int64_t count = std::min<std::int64_t>(-missing, kReplicaBurst);
      for (std::int64_t i = 0; i < count; ++i) {
        if (auto deleted = control_.Delete(owner, *active[static_cast<std::size_t>(i)]);
            !deleted.ok()) {
          result.error = deleted.error();
          *failure = Failure{"FailedDelete", result.error->message()};
        }
      }
    }
    if (!result.error && std::abs(missing) > kReplicaBurst) {
      queue_.Add(kube::KeyOf(owner));
    }
    return std::move(result.error);
  }

  // Pods of all sets with the same controller count for how crowded a node is.
  void RankForDeletion(const Json& owner, std::vector<ObjectPtr>* pods) const {
    std::map<std::string, int> per_node;
    const auto count = [&](const std::string& uid) {
      for (const ObjectPtr& pod :
           control_.pods().informer().ByIndex(client::kControllerIndex, uid)) {
        if (IsActive(*pod) && !PodOf(pod).node.empty()) {
          ++per_node[PodOf(pod).node];
        }
      }
    };
    const auto parent = kube::ControllerOf(owner);
    if (parent && !variant_.label_map_selector) {
      for (const ObjectPtr& sibling :
           owners_.informer().ByIndex(client::kControllerIndex, parent->uid)) {
        count(sibling->uid);
      }
    } else {
      count(std::string(kube::UidOf(owner)));
    }
    SortForDeletion(pods, [&](const client::CachedObject& pod) {
      const auto found = per_node.find(pod.As<PodRecord>().node);
      return found != per_node.end() ? found->second : 0;
    });
  }

  Counts Count(const Json& owner, const std::vector<ObjectPtr>& pods,
               std::chrono::nanoseconds* wait) const {
    Counts out;
    const auto template_labels = kube::LabelSelector::FromLabels(
        kube::Find(owner, {"spec", "template", "metadata", "labels"}));
    const std::int64_t min_ready = kube::FindInt(owner, {"spec", "minReadySeconds"});
    for (const ObjectPtr& pod : pods) {
      if (!IsActive(*pod)) {
        out.terminating += pod->deleting() && !PodOf(pod).Finished() ? 1 : 0;
        continue;
      }
      ++out.replicas;
      out.fully_labeled += template_labels.Matches(pod->labels) ? 1 : 0;
      out.ready += PodOf(pod).ready ? 1 : 0;
      out.available += IsAvailable(*pod, min_ready, clock_.Now(), wait) ? 1 : 0;
    }
    return out;
  }

  Result<void> WriteStatus(const Json& owner, const Counts& counts,
                           const std::optional<Failure>& failure, bool deleting) {
    Json updated = owner;
    Json& status = kube::EnsureObject(&updated, "status");
    const auto put = [&status](const char* key, std::int64_t value) {
      if (value != 0) {
        status[key] = value;
      } else {
        status.erase(key);
      }
    };
    status["replicas"] = counts.replicas;
    put("fullyLabeledReplicas", counts.fully_labeled);
    put("readyReplicas", counts.ready);
    put("availableReplicas", counts.available);
    if (!variant_.label_map_selector) {
      status["terminatingReplicas"] = counts.terminating;
    }
    put("observedGeneration", kube::GenerationOf(owner));
    if (failure) {
      kube::SetCondition(&updated,
                         {.type = "ReplicaFailure",
                          .status = "True",
                          .reason = failure->reason,
                          .message = failure->message},
                         kube::FormatTime(clock_.Now()));
    } else if (!deleting) {
      DropCondition(&status);
    }
    const Json* before = kube::Find(owner, {"status"});
    if (before != nullptr && *before == status) {
      return Ok();
    }
    auto written = owners_.UpdateStatus(updated);
    if (!written.ok() && !written.error().Is(Reason::kNotFound)) {
      return std::move(written).error();
    }
    return Ok();
  }

  static void DropCondition(Json* status) {
    if (Json* conditions = kube::Find(*status, {"conditions"});
        conditions != nullptr && conditions->is_array()) {
      for (auto at = conditions->begin(); at != conditions->end();) {
        at = kube::FindString(*at, {"type"}) == "ReplicaFailure" ? conditions->erase(at) : at + 1;
      }
      if (conditions->empty()) {
        status->erase("conditions");
      }
    }
  }

  const Variant& variant_;
  const Clock& clock_;
  const Collection owners_;
  const PodControl control_;
  client::WorkQueue& queue_;
};

}  // namespace

std::unique_ptr<Controller> MakeReplicaSetController(const Context& context) {
  return std::make_unique<ReplicaController>(context, kReplicaSetVariant);
}

std::unique_ptr<Controller> MakeReplicationController(const Context& context) {
  return std::make_unique<ReplicaController>(context, kReplicationVariant);
}

}  // namespace sublet::controllers
