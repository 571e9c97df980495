#include "controllers/node_lifecycle_controller.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "controllers/pod_control.h"
#include "kube/object.h"
#include "kube/timestamp.h"

namespace sublet::controllers {
namespace {

using client::ObjectPtr;
using client::Outcome;
using kube::Json;

constexpr std::string_view kLeaseNamespace = "kube-node-lease";

struct ConditionTaint {
  std::string_view condition;
  std::string_view status;
  std::string_view key;
  std::string_view effect;
};
constexpr std::array<ConditionTaint, 8> kTaints = {{
    {"Ready", "False", "node.kubernetes.io/not-ready", "NoSchedule"},
    {"Ready", "False", "node.kubernetes.io/not-ready", "NoExecute"},
    {"Ready", "Unknown", "node.kubernetes.io/unreachable", "NoSchedule"},
    {"Ready", "Unknown", "node.kubernetes.io/unreachable", "NoExecute"},
    {"MemoryPressure", "True", "node.kubernetes.io/memory-pressure", "NoSchedule"},
    {"DiskPressure", "True", "node.kubernetes.io/disk-pressure", "NoSchedule"},
    {"PIDPressure", "True", "node.kubernetes.io/pid-pressure", "NoSchedule"},
    {"NetworkUnavailable", "True", "node.kubernetes.io/network-unavailable", "NoSchedule"},
}};

// Upstream's key of a zone; "" for nodes that name none.
std::string ZoneOf(const client::CachedObject& node) {
  const std::string_view region = node.Label("topology.kubernetes.io/region");
  const std::string_view zone = node.Label("topology.kubernetes.io/zone");
  return region.empty() && zone.empty() ? "" : std::string(region) + "/" + std::string(zone);
}

bool IsOurs(std::string_view key) {
  for (const ConditionTaint& row : kTaints) {
    if (row.key == key) {
      return true;
    }
  }
  return key == "node.kubernetes.io/unschedulable";
}

class NodeLifecycleController final : public Controller {
 public:
  explicit NodeLifecycleController(const Context& context)
      : clock_(context.clock),
        grace_(context.settings.node_grace),
        zones_(context.settings.eviction_rates),
        nodes_(context, kNodes),
        leases_(context, kLeases),
        pods_(context, kPods),
        events_(context.events.As("node-controller")),
        queue_(context.manager.Add(
            {.name = "node-lifecycle",
             .reconcile = [this](const kube::ObjectKey& key) { return Reconcile(key); },
             .needs = {&nodes_.informer(), &leases_.informer(), &pods_.informer()}})) {
    pods_.informer().AddIndex(kNodeIndex, IndexByNode);
    RouteSelf(nodes_, queue_);
    nodes_.informer().AddHandler([this](const ObjectPtr& before, const ObjectPtr& after) {
      LookAgainIf(after ? zones_.Put(after->key.name, ZoneOf(*after), IsReady(*after))
                        : zones_.Remove(before->key.name));
    });
    leases_.informer().AddHandler([this](const ObjectPtr& before, const ObjectPtr& after) {
      if (!before && after->key.namespace_name == kLeaseNamespace) {
        queue_.Add({"", after->key.name});
      }
    });
    // A pod that is bound to a lost node, or was seen late, is not ready either.
    pods_.informer().AddHandler([this](const ObjectPtr& before, const ObjectPtr& after) {
      if (after && !before && PodOf(after).ready && !PodOf(after).node.empty()) {
        const ObjectPtr node = nodes_.Find({"", PodOf(after).node});
        if (node && !IsReady(*node)) {
          queue_.Add(node->key);
        }
      }
    });
  }

 private:
  static bool IsReady(const client::CachedObject& node) {
    const auto value = node.Parse();
    return value.ok() && kube::IsConditionTrue(*value, "Ready");
  }

  void LookAgainIf(bool zone_changed) {
    for (const ObjectPtr& node :
         zone_changed ? nodes_.informer().List() : std::vector<ObjectPtr>()) {
      queue_.Add(node->key);
    }
  }

  Result<Outcome> Reconcile(const kube::ObjectKey& key) {
    const ObjectPtr cached = nodes_.Find(key);
    if (cached == nullptr || cached->deleting()) {
      return Outcome::Done();
    }
    SUBLET_TRY(Json node, cached->Parse());
    SUBLET_TRY(const auto left, LeaseLeft(key.name));
    if (left && left->count() <= 0) {
      SUBLET_RETURN_IF_ERROR(MarkUnknown(node));
      LookAgainIf(zones_.Put(key.name, ZoneOf(*cached), false));  // counted before it is judged
    }
    SUBLET_TRY(const auto turn, WriteTaints(key, node));
    if (!kube::IsConditionTrue(node, "Ready")) {
      SUBLET_RETURN_IF_ERROR(MarkPodsNotReady(key.name));
    }
    // Looked at again when the lease would run out (a renewed one then only moves that moment) or
    // when it is its turn to lose its pods.
    std::chrono::nanoseconds wait = turn;
    if (left && left->count() > 0) {
      wait = wait.count() > 0 ? std::min(wait, *left) : *left;
    }
    return wait.count() > 0 ? Outcome::After(wait) : Outcome::Done();
  }

  // Time until the node's lease runs out; nullopt when it keeps none (mirrored or hand-made nodes).
  Result<std::optional<std::chrono::nanoseconds>> LeaseLeft(const std::string& node) {
    const ObjectPtr lease = leases_.Find({std::string(kLeaseNamespace), node});
    if (lease == nullptr) {
      return std::optional<std::chrono::nanoseconds>();
    }
    SUBLET_TRY(const Json object, lease->Parse());
    const auto renewed = kube::FindTime(kube::FindString(object, {"spec", "renewTime"}));
    if (!renewed) {
      return std::optional<std::chrono::nanoseconds>();
    }
    return std::optional<std::chrono::nanoseconds>(*renewed + grace_ - clock_.Now());
  }

  Result<void> MarkUnknown(Json& node) {
    const std::string now = kube::FormatTime(clock_.Now());
    bool changed = false;
    for (const char* type : {"Ready", "MemoryPressure", "DiskPressure", "PIDPressure"}) {
      const Json* condition = kube::FindCondition(node, type);
      if (condition == nullptr) {
        changed |= kube::SetCondition(
            &node,
            {type, "Unknown", "NodeStatusNeverUpdated", "Kubelet never posted node status.", 0},
            now);
      } else if (kube::FindString(*condition, {"status"}) != "Unknown") {
        changed |= kube::SetCondition(
            &node,
            {type, "Unknown", "NodeStatusUnknown", "Kubelet stopped posting node status.", 0}, now);
      }
    }
    if (!changed) {
      return Ok();
    }
    auto written = nodes_.UpdateStatus(node);
    if (!written.ok()) {
      return std::move(written).error();
    }
    node = std::move(*written);
    events_.Event(client::EventTargetOf(node, "v1", "Node"), "Normal", "NodeNotReady",
                  "Node " + std::string(kube::NameOf(node)) + " status is now: NodeNotReady");
    return Ok();
  }

  // Services stop sending requests to them; their kubelet will say otherwise when it is back.
  Result<void> MarkPodsNotReady(const std::string& node) {
    for (const ObjectPtr& pod : pods_.informer().ByIndex(kNodeIndex, node)) {
      if (!PodOf(pod).ready || PodOf(pod).Finished()) {
        continue;
      }
      Json condition = {{"type", "Ready"},
                        {"status", "False"},
                        {"lastTransitionTime", kube::FormatTime(clock_.Now())}};
      const auto patched =
          pods_.Patch(pod->key, client::PatchType::kStrategicMerge,
                      {{"metadata", {{"uid", pod->uid}}},
                       {"status", {{"conditions", Json::array({std::move(condition)})}}}},
                      "status");
      if (patched.ok()) {
        events_.Event({"v1", "Pod", pod->key.namespace_name, pod->key.name, pod->uid, "", ""},
                      "Warning", "NodeNotReady", "Node is not ready");
      } else if (!patched.error().Is(Reason::kNotFound) && !patched.error().Is(Reason::kConflict)) {
        return patched.error();
      }
    }
    return Ok();
  }

  static bool Has(const Json& taints, const Json& taint) { return Find(taints, taint) != nullptr; }
  static const Json* Find(const Json& taints, const Json& taint) {
    for (const Json& entry : taints) {
      if (entry.value("key", "") == taint["key"] && entry.value("effect", "") == taint["effect"]) {
        return &entry;
      }
    }
    return nullptr;
  }
  // A node that loses its pods already: what changes is only why.
  static bool IsEvicted(const Json& taints) {
    return Has(taints, {{"key", "node.kubernetes.io/not-ready"}, {"effect", "NoExecute"}}) ||
           Has(taints, {{"key", "node.kubernetes.io/unreachable"}, {"effect", "NoExecute"}});
  }

  // The time until the node may get its NoExecute taint; zero when it has it or needs none, or has
  // to wait for its zone.
  Result<std::chrono::nanoseconds> WriteTaints(const kube::ObjectKey& key, const Json& node) {
    Json wanted = Json::array();
    std::chrono::nanoseconds turn{0};
    const Json* have = kube::Find(node, {"spec", "taints"});
    const Json now = have != nullptr && have->is_array() ? *have : Json::array();
    for (const Json& taint : now) {
      if (!IsOurs(kube::FindString(taint, {"key"}))) {
        wanted.push_back(taint);
      }
    }
    for (Json taint : TaintsByCondition(node)) {
      if (const Json* old = Find(now, taint)) {
        taint = *old;  // it keeps the moment it was added
      }
      if (taint["effect"] == "NoExecute") {
        if (zones_.AllDisrupted()) {
          continue;
        }
        if (!IsEvicted(now)) {
          const auto wait = zones_.Ask(key.name, clock_.Monotonic());
          if (!wait || wait->count() > 0) {
            turn = wait.value_or(turn);
            continue;
          }
        }
        if (!taint.contains("timeAdded")) {
          taint["timeAdded"] = kube::FormatTime(clock_.Now());
        }
      }
      wanted.push_back(std::move(taint));
    }
    if (wanted == now) {
      return turn;
    }
    auto written = nodes_.Patch(key, client::PatchType::kMerge,
                                {{"metadata", {{"resourceVersion", kube::ResourceVersionOf(node)}}},
                                 {"spec", {{"taints", std::move(wanted)}}}});
    if (!written.ok()) {
      return std::move(written).error();
    }
    return turn;
  }

  const Clock& clock_;
  const std::chrono::seconds grace_;
  ZoneEvictions zones_;
  Collection nodes_;
  Collection leases_;
  Collection pods_;
  const client::EventRecorder::Source events_;
  client::WorkQueue& queue_;
};

}  // namespace

Json TaintsByCondition(const Json& node) {
  Json taints = Json::array();
  for (const ConditionTaint& row : kTaints) {
    const Json* condition = kube::FindCondition(node, row.condition);
    std::string_view status = condition == nullptr ? "" : kube::FindString(*condition, {"status"});
    if (condition == nullptr && row.condition == "Ready" && row.effect == "NoSchedule") {
      status =
          "False";  // a node that has not reported yet takes no pods; nobody is evicted from it
    }
    if (status == row.status) {
      taints.push_back({{"key", row.key}, {"effect", row.effect}});
    }
  }
  if (kube::FindBool(node, {"spec", "unschedulable"})) {
    taints.push_back({{"key", "node.kubernetes.io/unschedulable"}, {"effect", "NoSchedule"}});
  }
  return taints;
}

std::unique_ptr<Controller> MakeNodeLifecycleController(const Context& context) {
  return std::make_unique<NodeLifecycleController>(context);
}

}  // namespace sublet::controllers
