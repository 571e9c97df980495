#include "controllers/node_usage_controller.h"

#include <pthread.h>
#include <signal.h>

#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/log.h"
#include "client/kubeconfig.h"
#include "controllers/pod_record.h"
#include "kube/object.h"
#include "kube/quantity.h"

namespace sublet::controllers {
namespace {

using client::ObjectPtr;
using client::Outcome;
using kube::Json;

const ResourceKind kNodeUsages{{"sublet.dev", "v1alpha1", "nodeusages"}, "NodeUsage"};
// A burst of pods on one node is one write.
constexpr std::chrono::milliseconds kUsageWait{100};
constexpr std::string_view kNodeIndex = "node";

class NodeUsageController final : public Controller {
 public:
  explicit NodeUsageController(const Context& context)
      : client_(context.client),
        nodes_(context, kNodes),
        pods_(context, kPods),
        usages_(context, kNodeUsages),
        queue_(context.manager.Add(
            {.name = "node-usage",
             .reconcile = [this](const kube::ObjectKey& key) { return Reconcile(key); },
             .needs = {&nodes_.informer(), &pods_.informer(), &usages_.informer()}})) {
    pods_.informer().AddIndex(kNodeIndex, [](const client::CachedObject& pod) {
      const auto& record = pod.As<PodRecord>();
      return record.node.empty() || record.Finished() ? std::vector<std::string>{}
                                                      : std::vector<std::string>{record.node};
    });
    for (const Collection* collection : {&nodes_, &usages_}) {
      collection->informer().AddHandler([this](const ObjectPtr& before, const ObjectPtr& after) {
        queue_.AddAfter((after ? after : before)->key, kUsageWait);
      });
    }
    pods_.informer().AddHandler([this](const ObjectPtr& before, const ObjectPtr& after) {
      if (before && after && CountsTheSame(PodOf(before), PodOf(after))) {
        return;
      }
      for (const ObjectPtr& pod : {before, after}) {
        if (pod && !PodOf(pod).node.empty()) {
          queue_.AddAfter({"", PodOf(pod).node}, kUsageWait);
        }
      }
    });
  }

 private:
  // Most changes of a pod are to its status, and take nothing of its node.
  static bool CountsTheSame(const PodRecord& a, const PodRecord& b) {
    return a.node == b.node && a.Finished() == b.Finished() && a.requests == b.requests;
  }

  Result<Outcome> Reconcile(const kube::ObjectKey& key) {
    const ObjectPtr node = nodes_.Find(key);
    const ObjectPtr present = usages_.Find(key);
    if (!node) {
      if (present) {
        SUBLET_RETURN_IF_ERROR(usages_.Delete(key, present->uid));
      }
      return Outcome::Done();
    }
    SUBLET_TRY(const Json value, node->Parse());
    const Json status = StatusOf(key.name, value);
    Json usage;
    if (!present) {
      SUBLET_TRY(usage, usages_.Create(
                            "", {{"metadata",
                                  {{"name", key.name},
                                   {"ownerReferences", Json::array({{{"apiVersion", "v1"},
                                                                     {"kind", "Node"},
                                                                     {"name", key.name},
                                                                     {"uid", node->uid}}})}}}}));
    } else {
      SUBLET_TRY(usage, present->Parse());
    }
    if (usage.value("status", Json()) == status) {
      return Outcome::Done();
    }
    usage["status"] = status;
    SUBLET_RETURN_IF_ERROR(usages_.UpdateStatus(usage));
    return Outcome::Done();
  }

  Json StatusOf(const std::string& name, const Json& node) const {
    std::map<std::string, kube::Quantity> free;
    const Json* allocatable = kube::Find(node, {"status", "allocatable"});
    if (allocatable != nullptr && allocatable->is_object()) {
      for (const auto& [resource, amount] : allocatable->items()) {
        free[resource] =
            kube::Quantity::ParseOrZero(amount.is_string() ? amount.get<std::string>() : "");
      }
    }
    const std::vector<ObjectPtr> pods = pods_.informer().ByIndex(kNodeIndex, name);
    for (const ObjectPtr& pod : pods) {
      for (const auto& [resource, amount] : PodOf(pod).requests) {
        if (const auto found = free.find(resource); found != free.end()) {
          found->second -= kube::Quantity::ParseOrZero(amount);
        }
      }
    }
    if (const auto found = free.find("pods"); found != free.end()) {
      found->second -= kube::Quantity::FromInt(static_cast<std::int64_t>(pods.size()));
    }
    Json out = {{"pods", pods.size()}, {"free", Json::object()}};
    for (auto& [resource, amount] : free) {
      out["free"][resource] = amount.Sign() < 0 ? "0" : amount.Text();
    }
    return out;
  }

  const client::Client client_;
  const Collection nodes_;
  const Collection pods_;
  const Collection usages_;
  client::WorkQueue& queue_;
};

}  // namespace

std::unique_ptr<Controller> MakeNodeUsageController(const Context& context) {
  return std::make_unique<NodeUsageController>(context);
}

int RunNodeUsage(int argc, char** argv) {
  std::string kubeconfig;
  std::string context_name;
  for (int i = 1; i < argc; ++i) {
    const std::string_view flag(argv[i]);
    if ((flag == "--kubeconfig" || flag == "--context") && i + 1 < argc) {
      (flag == "--kubeconfig" ? kubeconfig : context_name) = argv[++i];
    } else {
      std::fprintf(
          stderr,
          "node-usage: unknown flag \"%s\"; allowed are --kubeconfig FILE, --context NAME\n",
          argv[i]);
      return 2;
    }
  }
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  const auto connection = client::FindConnection(kubeconfig, context_name);
  auto made = connection.ok() ? client::Connect(*connection, "sublet-node-usage")
                              : Result<client::Client>(connection.error());
  if (!made.ok()) {
    std::fprintf(stderr, "node-usage: %s\n", made.error().message().c_str());
    return 1;
  }
  const Settings settings;
  client::InformerFactory informers(*made);
  client::EventRecorder events(*made, "node-usage", "", SystemClock());
  client::Manager manager(informers, SystemClock(), 1);
  const Context context{*made, informers, manager, events, SystemClock(), settings};
  const auto controller = MakeNodeUsageController(context);
  manager.Start();
  log::Info("publishing node usage");
  int signal_number = 0;
  sigwait(&signals, &signal_number);
  manager.Stop();
  return 0;
}

}  // namespace sublet::controllers
