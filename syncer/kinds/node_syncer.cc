#include "syncer/kinds/node_syncer.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "kube/object.h"
#include "kube/quantity.h"
#include "syncer/kinds/translate_fields.h"
#include "syncer/node_usage.h"
#include "syncer/translated_kind.h"

namespace sublet::syncer {
namespace {

using kube::Json;
using kube::Quantity;

constexpr std::string_view kNodeIndex = "node";

MirrorKind NodeKind(const SyncConfig& config) {
  return {{"nodes", "/v1, Kind=Node", true},
          {"", "v1", "nodes"},
          "Node",
          {},
          NodeSelectorText(config),
          /*has_status=*/true};
}

Quantity QuantityOf(const Json& value) {
  return value.is_string() ? Quantity::ParseOrZero(value.get<std::string>())
                           : Quantity::ParseOrZero(kube::Dump(value));
}

// The requests of a pod's containers, the larger of the sum and any init container's.
std::map<std::string, Quantity> RequestsOf(const Json& pod) {
  std::map<std::string, Quantity> total;
  const Json* spec = kube::Find(pod, {"spec"});
  if (spec == nullptr) {
    return total;
  }
  const auto requests = [](const Json& container) {
    std::map<std::string, Quantity> out;
    const Json* wanted = kube::Find(container, {"resources", "requests"});
    if (wanted != nullptr && wanted->is_object()) {
      for (const auto& [name, amount] : wanted->items()) {
        out[name] = QuantityOf(amount);
      }
    }
    return out;
  };
  for (const Json& container : spec->value("containers", Json::array())) {
    for (const auto& [name, amount] : requests(container)) {
      total[name] += amount;
    }
  }
  std::map<std::string, Quantity> sidecars;
  for (const Json& container : spec->value("initContainers", Json::array())) {
    const bool sidecar = kube::FindString(container, {"restartPolicy"}) == "Always";
    for (const auto& [name, amount] : requests(container)) {
      if (sidecar) {
        sidecars[name] += amount;
        total[name] += amount;
      } else {
        const Quantity needed = sidecars[name] + amount;
        total[name] = std::max(total[name], needed);
      }
    }
  }
  total["pods"] = Quantity::FromInt(1);
  return total;
}

}  // namespace

std::string NodeSelectorText(const SyncConfig& config) {
  std::string selector;
  for (const auto& [key, value] : config.node_labels) {
    selector += (selector.empty() ? "" : ",") + key + "=" + value;
  }
  return selector;
}

PodUse ReadPodUse(const Json& pod) {
  const auto phase = kube::FindString(pod, {"status", "phase"});
  const bool is_over = phase == "Succeeded" || phase == "Failed";
  return {std::string(kube::FindString(pod, {"spec", "nodeName"})),
          is_over ? std::map<std::string, Quantity>() : RequestsOf(pod)};
}

Json TenantAllocatable(const Json& allocatable, const Json& free,
                       const std::map<std::string, Quantity>& own) {
  Json out = Json::object();
  for (const auto& [name, amount] : allocatable.items()) {
    const Quantity whole = QuantityOf(amount);
    Quantity mine = free.contains(name) ? QuantityOf(free[name]) : Quantity();
    if (mine.Sign() < 0) {
      mine = Quantity();
    }
    if (const auto found = own.find(name); found != own.end()) {
      mine += found->second;
    }
    out[name] = (mine < whole ? mine : whole).Text();
  }
  return out;
}

NodeSyncer::NodeSyncer(SyncContext& context) : MirrorSyncer(context, NodeKind(context.config)) {}

void NodeSyncer::Watch(Enqueue enqueue) {
  MirrorSyncer::Watch(enqueue);
  if (!context().host_has_node_usage) {
    return;
  }
  client::InformerOptions usages;
  usages.resource = {std::string(kNodeUsageGroup), std::string(kNodeUsageVersion),
                     std::string(kNodeUsageResource)};
  usages.kind = kNodeUsageKind;
  usages_ = &context().host_informers.For(usages);
  usages_->AddHandler([enqueue](const client::ObjectPtr& before, const client::ObjectPtr& after) {
    enqueue((after != nullptr ? after : before)->key);
  });
  // Own pods by node. The host's own copies count: NodeUsage counts those too.
  pods_ = &context().HostInformer("", "v1", "pods", "Pod");
  pods_->AddIndex(kNodeIndex, [](const client::CachedObject& pod) {
    return std::vector<std::string>{pod.As<HostRecord>().use.node};
  });
}

std::optional<Json> NodeSyncer::Show(const Json& host) const {
  const std::string name(kube::NameOf(host));
  Json shown = *MirrorSyncer::Show(host);
  Json& spec = shown["spec"] = Json::object();
  const Json host_spec = host.value("spec", Json::object());
  CopyFields(host_spec, spec, {"unschedulable"});
  // A taint that enforced tolerations cover is none for the tenant.
  Json taints = Json::array();
  const Json& enforced = context().config.pods.enforced_tolerations;
  for (const Json& taint : host_spec.value("taints", Json::array())) {
    const bool covered =
        enforced.is_array() &&
        std::any_of(enforced.begin(), enforced.end(), [&taint](const Json& toleration) {
          const auto key = kube::FindString(toleration, {"key"});
          const auto effect = kube::FindString(toleration, {"effect"});
          return (key.empty() || key == kube::FindString(taint, {"key"})) &&
                 (effect.empty() || effect == kube::FindString(taint, {"effect"}));
        });
    if (!covered) {
      taints.push_back(taint);
    }
  }
  if (!taints.empty()) {
    spec["taints"] = std::move(taints);
  }
  const Json from = host.value("status", Json::object());
  Json& status = shown["status"] = Json::object();
  CopyFields(from, status, {"capacity", "allocatable", "conditions", "nodeInfo", "addresses"});
  // A tenant's API reaches containers through the host's, never through a node; every Node has these
  // members, and without them here each look at the node would take them away again.
  status["daemonEndpoints"] = {{"kubeletEndpoint", {{"Port", 0}}}};
  const auto usage = usages_ == nullptr ? nullptr : usages_->Get({"", name});
  if (usage != nullptr && status.contains("allocatable")) {
    const auto object = usage->Parse();
    std::map<std::string, Quantity> own;
    for (const auto& pod : pods_->ByIndex(kNodeIndex, name)) {
      for (const auto& [resource, amount] : pod->As<HostRecord>().use.requests) {
        own[resource] += amount;
      }
    }
    if (object.ok()) {
      const Json* free = kube::Find(*object, {"status", "free"});
      status["allocatable"] =
          TenantAllocatable(status["allocatable"], free == nullptr ? Json::object() : *free, own);
    }
  }
  return shown;
}

}  // namespace sublet::syncer
