#include "controllers/daemon_set_controller.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "controllers/daemon_pods.h"
#include "controllers/pod_control.h"
#include "controllers/revision_history.h"
#include "controllers/stateful_pods.h"
#include "kube/int_or_string.h"
#include "kube/object.h"

namespace sublet::controllers {
namespace {

using client::ObjectPtr;
using client::Outcome;
using kube::Json;

constexpr std::size_t kDaemonBurst = 250;

struct DaemonNode {
  ObjectPtr object;
  DaemonFit fit;
  std::vector<ObjectPtr> pods;
};

class DaemonSetController final : public Controller {
 public:
  explicit DaemonSetController(const Context& context)
      : clock_(context.clock),
        sets_(context, kDaemonSets),
        nodes_(context, kNodes),
        control_(context, "daemonset-controller"),
        history_(context),
        queue_(context.manager.Add(
            {.name = "daemonset",
             .reconcile = [this](const kube::ObjectKey& key) { return Reconcile(key); },
             .workers_max = 2,
             .needs = {&sets_.informer(), &nodes_.informer(), &control_.pods().informer(),
                       &history_.revisions().informer()}})) {
    AddOwnerIndexes(control_.pods());
    RouteSelf(sets_, queue_);
    RouteToOwners(control_.pods(), sets_, SelectorOf, queue_);
    nodes_.informer().AddHandler([this](const ObjectPtr& before, const ObjectPtr& after) {
      // Heartbeats change nothing here; labels and taints do.
      if (before && after && before->labels == after->labels && SameTaints(*before, *after)) {
        return;
      }
      for (const ObjectPtr& set : sets_.informer().List()) {
        queue_.Add(set->key);
      }
    });
  }

 private:
  static bool SameTaints(const client::CachedObject& before, const client::CachedObject& after) {
    // Taints are part of the spec, so the generation need not tell; compare them.
    const auto a = before.Parse();
    const auto b = after.Parse();
    return a.ok() && b.ok() &&
           a->value("spec", Json()).value("taints", Json()) ==
               b->value("spec", Json()).value("taints", Json());
  }

  Result<Outcome> Reconcile(const kube::ObjectKey& key) {
    const ObjectPtr cached = sets_.Find(key);
    if (!cached) {
      return Outcome::Done();
    }
    SUBLET_TRY(Json set, cached->Parse());
    SUBLET_TRY(const kube::LabelSelector selector, SelectorOf(set));
    if (selector.empty()) {
      return Outcome::Done();
    }
    SUBLET_TRY(std::vector<Revision> revisions, history_.List(sets_, set, selector));
    if (cached->deleting()) {
      return Outcome::Done();
    }
    std::int64_t collisions = kube::FindInt(set, {"status", "collisionCount"});
    SUBLET_TRY(const std::string name, history_.Ensure(set, &revisions, &collisions));
    const std::string hash = name.substr(key.name.size() + 1);
    SUBLET_RETURN_IF_ERROR(Claim(control_.pods(), sets_, set, selector));
    SUBLET_TRY(auto nodes, ByNode(set));
    SUBLET_RETURN_IF_ERROR(Manage(set, hash, nodes));
    SUBLET_TRY(nodes, ByNode(set));
    if (kube::FindString(set, {"spec", "updateStrategy", "type"}, "RollingUpdate") ==
        "RollingUpdate") {
      SUBLET_RETURN_IF_ERROR(RollingUpdate(set, hash, nodes));
      SUBLET_TRY(nodes, ByNode(set));
    }
    std::vector<std::string> live = {name};
    for (const auto& [node, entry] : nodes) {
      for (const ObjectPtr& pod : entry.pods) {
        live.push_back(key.name + "-" + std::string(pod->Label(kRevisionHashLabel)));
      }
    }
    SUBLET_RETURN_IF_ERROR(history_.Truncate(set, revisions, live));
    std::chrono::nanoseconds wait{0};
    SUBLET_RETURN_IF_ERROR(WriteStatus(set, hash, nodes, collisions, &wait));
    return Outcome::After(wait);
  }

  // Every node with its fit and the set's pods on it.
  Result<std::map<std::string, DaemonNode>> ByNode(const Json& set) const {
    std::map<std::string, DaemonNode> out;
    for (const ObjectPtr& node : nodes_.informer().List()) {
      SUBLET_TRY(const Json value, node->Parse());
      out[node->key.name] = {node, FitDaemon(set, value, *node), {}};
    }
    for (const ObjectPtr& pod :
         control_.pods().informer().ByIndex(client::kControllerIndex, kube::UidOf(set))) {
      std::string node = PodOf(pod).node;
      if (node.empty()) {
        node = PodOf(pod).wanted_node;
      }
      out[node].pods.push_back(pod);
    }
    return out;
  }

  Result<void> Manage(const Json& set, const std::string& hash,
                      const std::map<std::string, DaemonNode>& nodes) {
    std::vector<std::string> create;
    std::vector<ObjectPtr> remove;
    for (const auto& [name, node] : nodes) {
      PlanNode(set, hash, name, node, &create, &remove);
    }
    if (create.size() > kDaemonBurst || remove.size() > kDaemonBurst) {
      queue_.Add(kube::KeyOf(set));
      create.resize(std::min(create.size(), kDaemonBurst));
      remove.resize(std::min(remove.size(), kDaemonBurst));
    }
    const BatchResult made = SlowStart(static_cast<int>(create.size()), [&](int i) {
      auto created =
          control_.Create(set, DaemonPod(set, create[static_cast<std::size_t>(i)], hash));
      return created.ok() ? Ok() : Result<void>(std::move(created).error());
    });
    std::optional<Status> error = made.error;
    for (const ObjectPtr& pod : remove) {
      if (auto deleted = control_.Delete(set, *pod); !deleted.ok()) {
        error = std::move(deleted).error();
      }
    }
    if (error) {
      return std::move(*error);
    }
    return Ok();
  }

  void PlanNode(const Json& set, const std::string& hash, const std::string& name,
                const DaemonNode& node, std::vector<std::string>* create,
                std::vector<ObjectPtr>* remove) {
    std::vector<ObjectPtr> running;
    bool replaces = false;
    for (const ObjectPtr& pod : node.pods) {
      if (pod->deleting()) {
        replaces = true;  // its successor waits until it is gone
      } else if (PodOf(pod).phase == "Failed" || PodOf(pod).phase == "Succeeded") {
        const bool failed = PodOf(pod).phase == "Failed";
        control_.events().Event(client::EventTargetOf(set), failed ? "Warning" : "Normal",
                                failed ? "FailedDaemonPod" : "SucceededDaemonPod",
                                "Found " + std::string(failed ? "failed" : "succeeded") +
                                    " daemon pod " + pod->key.Text() + " on node " + name +
                                    ", will try to " + (failed ? "kill" : "delete") + " it");
        remove->push_back(pod);
        replaces = true;
      } else {
        running.push_back(pod);
      }
    }
    if (!node.object || !node.fit.should_continue) {
      remove->insert(remove->end(), running.begin(), running.end());
      return;
    }
    if (running.empty()) {
      if (node.fit.should_run && !replaces) {
        create->push_back(name);
      }
      return;
    }
    // More than one only while a surging update replaces the old by the new.
    std::stable_sort(running.begin(), running.end(), [](const ObjectPtr& a, const ObjectPtr& b) {
      return a->creation_timestamp < b->creation_timestamp;
    });
    ObjectPtr newest;
    ObjectPtr oldest;
    for (const ObjectPtr& pod : running) {
      ObjectPtr& slot = pod->Label(kRevisionHashLabel) == hash ? newest : oldest;
      if (slot) {
        remove->push_back(pod);
      } else {
        slot = pod;
      }
    }
    if (newest && oldest && (PodOf(newest).ready || !PodOf(oldest).ready || MaxSurge(set) == 0)) {
      remove->push_back(oldest);
    }
  }

  static std::int64_t Scaled(const Json& set, std::string_view field, std::int64_t total,
                             std::int64_t fallback) {
    const auto given = kube::IntOrString::FromJson(
        kube::Find(set, {"spec", "updateStrategy", "rollingUpdate", field}));
    if (!given) {
      return fallback;
    }
    const auto scaled = given->Scaled(total, true);
    return scaled.ok() ? *scaled : fallback;
  }
  static std::int64_t MaxSurge(const Json& set) { return Scaled(set, "maxSurge", 100, 0); }

  Result<void> RollingUpdate(const Json& set, const std::string& hash,
                             const std::map<std::string, DaemonNode>& nodes) {
    std::int64_t desired = 0;
    for (const auto& [name, node] : nodes) {
      desired += node.fit.should_run ? 1 : 0;
    }
    const std::int64_t surge = Scaled(set, "maxSurge", desired, 0);
    const std::int64_t unavailable_max =
        std::max<std::int64_t>(surge > 0 ? 0 : 1, Scaled(set, "maxUnavailable", desired, 1));
    std::int64_t unavailable = 0;
    std::int64_t surging = 0;
    std::vector<ObjectPtr> ready_old;
    std::vector<ObjectPtr> dead_old;
    std::vector<std::string> surge_nodes;
    const std::int64_t min_ready = kube::FindInt(set, {"spec", "minReadySeconds"});
    for (const auto& [name, node] : nodes) {
      if (!node.object || !node.fit.should_run) {
        continue;
      }
      bool has_new = false;
      ObjectPtr old;
      bool available = false;
      for (const ObjectPtr& pod : node.pods) {
        const bool up = !pod->deleting() && IsAvailable(*pod, min_ready, clock_.Now(), nullptr);
        available |= up;
        if (pod->Label(kRevisionHashLabel) == hash) {
          has_new = true;
        } else if (!pod->deleting()) {
          old = pod;
        }
      }
      surging += has_new && old ? 1 : 0;
      if (!old || has_new) {
        unavailable += available ? 0 : 1;
        continue;
      }
      if (!available) {
        ++unavailable;
        dead_old.push_back(old);
      } else {
        ready_old.push_back(old);
        surge_nodes.push_back(name);
      }
    }
    for (const ObjectPtr& pod : dead_old) {
      SUBLET_RETURN_IF_ERROR(control_.Delete(set, *pod));
    }
    if (surge > 0) {
      for (const std::string& name : surge_nodes) {
        if (surging >= surge) {
          break;
        }
        ++surging;
        SUBLET_RETURN_IF_ERROR(control_.Create(set, DaemonPod(set, name, hash)));
      }
      return Ok();
    }
    for (const ObjectPtr& pod : ready_old) {
      if (unavailable >= unavailable_max) {
        break;
      }
      ++unavailable;
      SUBLET_RETURN_IF_ERROR(control_.Delete(set, *pod));
    }
    return Ok();
  }

  Result<void> WriteStatus(const Json& set, const std::string& hash,
                           const std::map<std::string, DaemonNode>& nodes, std::int64_t collisions,
                           std::chrono::nanoseconds* wait) {
    std::int64_t desired = 0, current = 0, misscheduled = 0, ready = 0, updated = 0, available = 0;
    const std::int64_t min_ready = kube::FindInt(set, {"spec", "minReadySeconds"});
    for (const auto& [name, node] : nodes) {
      std::vector<ObjectPtr> live;
      for (const ObjectPtr& pod : node.pods) {
        if (!pod->deleting()) {
          live.push_back(pod);
        }
      }
      if (!node.object || !node.fit.should_run) {
        misscheduled += node.object && !node.fit.should_continue && !live.empty() ? 1 : 0;
        misscheduled += node.object && node.fit.should_continue && !live.empty() ? 1 : 0;
        continue;
      }
      ++desired;
      if (live.empty()) {
        continue;
      }
      ++current;
      const ObjectPtr& pod =
          *std::max_element(live.begin(), live.end(), [](const ObjectPtr& a, const ObjectPtr& b) {
            return PodOf(a).ready != PodOf(b).ready ? PodOf(b).ready
                                                    : a->creation_timestamp < b->creation_timestamp;
          });
      ready += PodOf(pod).ready ? 1 : 0;
      available += IsAvailable(*pod, min_ready, clock_.Now(), wait) ? 1 : 0;
      updated += pod->Label(kRevisionHashLabel) == hash ? 1 : 0;
    }
    Json changed = set;
    Json& status = kube::EnsureObject(&changed, "status");
    const auto put = [&status](const char* key, std::int64_t value) {
      if (value != 0) {
        status[key] = value;
      } else {
        status.erase(key);
      }
    };
    status["desiredNumberScheduled"] = desired;
    status["currentNumberScheduled"] = current;
    status["numberMisscheduled"] = misscheduled;
    status["numberReady"] = ready;
    put("updatedNumberScheduled", updated);
    put("numberAvailable", available);
    put("numberUnavailable", desired - available);
    put("observedGeneration", kube::GenerationOf(set));
    put("collisionCount", collisions);
    if (set.value("status", Json()) == status) {
      return Ok();
    }
    auto written = sets_.UpdateStatus(changed);
    if (!written.ok() && !written.error().Is(Reason::kNotFound)) {
      return std::move(written).error();
    }
    return Ok();
  }

  const Clock& clock_;
  const Collection sets_;
  const Collection nodes_;
  const PodControl control_;
  const RevisionHistory history_;
  client::WorkQueue& queue_;
};

}  // namespace

std::unique_ptr<Controller> MakeDaemonSetController(const Context& context) {
  return std::make_unique<DaemonSetController>(context);
}

}  // namespace sublet::controllers
