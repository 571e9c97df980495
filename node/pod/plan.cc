#include "node/pod/plan.h"

#include <nlohmann/json.hpp>

#include "kube/json_lists.h"
#include "kube/object.h"
#include "kube/quantity.h"

namespace sublet::node {
namespace {

using kube::Find;
using kube::FindBool;
using kube::FindInt;
using kube::FindString;
using kube::Json;
using kube::TextsOf;

// A port as a number or a name.
std::string PortText(const Json* port) {
  if (port == nullptr) {
    return {};
  }
  return port->is_string()           ? port->get<std::string>()
         : port->is_number_integer() ? std::to_string(port->get<std::int64_t>())
                                     : std::string();
}

HandlerPlan ParseHandler(const Json* json) {
  HandlerPlan handler;
  if (json == nullptr) {
    return handler;
  }
  if (const Json* exec = Find(*json, {"exec"})) {
    handler.kind = HandlerPlan::Kind::kExec;
    handler.argv = TextsOf(Find(*exec, {"command"}));
  } else if (const Json* http = Find(*json, {"httpGet"})) {
    handler.kind = HandlerPlan::Kind::kHttp;
    handler.host = FindString(*http, {"host"});
    handler.port = PortText(Find(*http, {"port"}));
    handler.scheme = FindString(*http, {"scheme"}, "HTTP");
    handler.path = FindString(*http, {"path"}, "/");
    if (const Json* headers = Find(*http, {"httpHeaders"}); headers && headers->is_array()) {
      for (const Json& header : *headers) {
        handler.headers.emplace_back(FindString(header, {"name"}), FindString(header, {"value"}));
      }
    }
  } else if (const Json* tcp = Find(*json, {"tcpSocket"})) {
    handler.kind = HandlerPlan::Kind::kTcp;
    handler.host = FindString(*tcp, {"host"});
    handler.port = PortText(Find(*tcp, {"port"}));
  } else if (const Json* grpc = Find(*json, {"grpc"})) {
    handler.kind = HandlerPlan::Kind::kGrpc;
    handler.port = PortText(Find(*grpc, {"port"}));
    handler.grpc_service = FindString(*grpc, {"service"});
  } else if (const Json* sleep = Find(*json, {"sleep"})) {
    handler.kind = HandlerPlan::Kind::kSleep;
    handler.sleep = seconds(FindInt(*sleep, {"seconds"}));
  }
  return handler;
}

std::optional<ProbePlan> ParseProbe(const Json& container, std::string_view member) {
  const Json* json = Find(container, {member});
  if (json == nullptr) {
    return std::nullopt;
  }
  ProbePlan probe;
  probe.handler = ParseHandler(json);
  if (probe.handler.kind == HandlerPlan::Kind::kNone) {
    return std::nullopt;
  }
  probe.initial_delay = seconds(FindInt(*json, {"initialDelaySeconds"}));
  probe.timeout = seconds(std::max<std::int64_t>(1, FindInt(*json, {"timeoutSeconds"}, 1)));
  probe.period = seconds(std::max<std::int64_t>(1, FindInt(*json, {"periodSeconds"}, 10)));
  probe.success_threshold =
      static_cast<int>(std::max<std::int64_t>(1, FindInt(*json, {"successThreshold"}, 1)));
  probe.failure_threshold =
      static_cast<int>(std::max<std::int64_t>(1, FindInt(*json, {"failureThreshold"}, 3)));
  if (const auto grace = FindInt(*json, {"terminationGracePeriodSeconds"}, -1); grace >= 0) {
    probe.termination_grace = seconds(grace);
  }
  return probe;
}

RestartPolicy ParseRestartPolicy(std::string_view text, RestartPolicy fallback) {
  return text == "Always"      ? RestartPolicy::kAlways
         : text == "OnFailure" ? RestartPolicy::kOnFailure
         : text == "Never"     ? RestartPolicy::kNever
                               : fallback;
}

ContainerPlan ParseContainer(const Json& json, ContainerRole role, RestartPolicy pod_policy) {
  ContainerPlan plan;
  plan.spec = &json;
  plan.name = FindString(json, {"name"});
  plan.image = FindString(json, {"image"});
  const std::string_view pull = FindString(json, {"imagePullPolicy"});
  plan.pull_policy = pull == "Always"  ? PullPolicy::kAlways
                     : pull == "Never" ? PullPolicy::kNever
                                       : PullPolicy::kIfNotPresent;
  plan.role = role;
  const std::string_view own_policy = FindString(json, {"restartPolicy"});
  if (role == ContainerRole::kInit) {
    if (own_policy == "Always") {
      plan.role = ContainerRole::kSidecar;
    }
    // An init container is repeated until it succeeds, unless the pod is Never.
    plan.restart_policy = plan.role == ContainerRole::kSidecar  ? RestartPolicy::kAlways
                          : pod_policy == RestartPolicy::kNever ? RestartPolicy::kNever
                                                                : RestartPolicy::kOnFailure;
  } else if (role == ContainerRole::kEphemeral) {
    plan.restart_policy = RestartPolicy::kNever;
  } else {
    plan.restart_policy = ParseRestartPolicy(own_policy, pod_policy);
  }
  plan.startup = ParseProbe(json, "startupProbe");
  plan.readiness = ParseProbe(json, "readinessProbe");
  plan.liveness = ParseProbe(json, "livenessProbe");
  plan.post_start = ParseHandler(Find(json, {"lifecycle", "postStart"}));
  plan.pre_stop = ParseHandler(Find(json, {"lifecycle", "preStop"}));
  plan.stop_signal = FindString(json, {"lifecycle", "stopSignal"});
  plan.termination_path = FindString(json, {"terminationMessagePath"}, "/dev/termination-log");
  plan.fallback_to_logs = FindString(json, {"terminationMessagePolicy"}) == "FallbackToLogsOnError";
  plan.tty = FindBool(json, {"tty"});
  plan.stdin_open = FindBool(json, {"stdin"});
  plan.stdin_once = FindBool(json, {"stdinOnce"});
  plan.target_container = FindString(json, {"targetContainerName"});
  // Only name and image restart a container when they change, as in kubelet since 1.31.
  plan.image_hash = plan.name + "|" + plan.image;
  if (const Json* ports = Find(json, {"ports"}); ports != nullptr && ports->is_array()) {
    for (const Json& port : *ports) {
      if (const auto name = FindString(port, {"name"}); !name.empty()) {
        plan.named_ports.emplace_back(name, static_cast<int>(FindInt(port, {"containerPort"})));
      }
    }
  }
  return plan;
}

void ParseContainers(const Json& spec, std::string_view member, ContainerRole role,
                     RestartPolicy pod_policy, std::vector<ContainerPlan>* out) {
  if (const Json* list = Find(spec, {member}); list != nullptr && list->is_array()) {
    for (const Json& item : *list) {
      out->push_back(ParseContainer(item, role, pod_policy));
    }
  }
}

}  // namespace

const ContainerPlan* PodPlan::Find(std::string_view container_name) const {
  for (const auto* list : {&init_containers, &containers, &ephemeral_containers}) {
    for (const ContainerPlan& container : *list) {
      if (container.name == container_name) {
        return &container;
      }
    }
  }
  return nullptr;
}

std::vector<const ContainerPlan*> PodPlan::All() const {
  std::vector<const ContainerPlan*> all;
  for (const auto* list : {&init_containers, &containers, &ephemeral_containers}) {
    for (const ContainerPlan& container : *list) {
      all.push_back(&container);
    }
  }
  return all;
}

std::shared_ptr<const PodPlan> ParsePod(std::shared_ptr<const Json> object) {
  auto plan = std::make_shared<PodPlan>();
  const Json& pod = *object;
  plan->uid = kube::UidOf(pod);
  plan->namespace_name = kube::NamespaceOf(pod);
  plan->name = kube::NameOf(pod);
  // Pods of a static source carry their hash; the API's mirror of it must not run twice. There are
  // none here, so the uid is the identity.
  static const Json kEmpty = Json::object();
  const Json* found = Find(pod, {"spec"});
  const Json& spec = found != nullptr ? *found : kEmpty;
  plan->restart_policy =
      ParseRestartPolicy(FindString(spec, {"restartPolicy"}), RestartPolicy::kAlways);
  plan->grace = seconds(FindInt(spec, {"terminationGracePeriodSeconds"}, 30));
  if (const auto deadline = FindInt(spec, {"activeDeadlineSeconds"}, -1); deadline >= 0) {
    plan->active_deadline = seconds(deadline);
  }
  plan->host_network = FindBool(spec, {"hostNetwork"});
  plan->host_pid = FindBool(spec, {"hostPID"});
  plan->host_ipc = FindBool(spec, {"hostIPC"});
  plan->share_process_namespace = FindBool(spec, {"shareProcessNamespace"});
  plan->deleting = kube::IsDeleting(pod);
  plan->deletion_grace =
      seconds(FindInt(pod, {"metadata", "deletionGracePeriodSeconds"}, plan->grace.count()));
  plan->runtime_class = FindString(spec, {"runtimeClassName"});
  plan->service_account = FindString(spec, {"serviceAccountName"});
  plan->subdomain = FindString(spec, {"subdomain"});
  plan->node_name = FindString(spec, {"nodeName"});
  plan->hostname = FindString(spec, {"hostname"});
  if (plan->hostname.empty()) {
    // A host name has at most 63 characters and ends with a letter or digit.
    plan->hostname = plan->name.substr(0, 63);
    while (!plan->hostname.empty() &&
           (plan->hostname.back() == '-' || plan->hostname.back() == '.')) {
      plan->hostname.pop_back();
    }
  }
  if (const Json* gates = Find(spec, {"readinessGates"}); gates != nullptr && gates->is_array()) {
    for (const Json& gate : *gates) {
      plan->readiness_gates.emplace_back(FindString(gate, {"conditionType"}));
    }
  }
  ParseContainers(spec, "initContainers", ContainerRole::kInit, plan->restart_policy,
                  &plan->init_containers);
  ParseContainers(spec, "containers", ContainerRole::kMain, plan->restart_policy,
                  &plan->containers);
  ParseContainers(spec, "ephemeralContainers", ContainerRole::kEphemeral, plan->restart_policy,
                  &plan->ephemeral_containers);
  plan->object = std::move(object);
  return plan;
}

std::string QosClassOf(const Json& pod) {
  bool guaranteed = true;
  bool any = false;
  for (const std::string_view member : {"initContainers", "containers"}) {
    const Json* list = Find(pod, {"spec", member});
    if (list == nullptr || !list->is_array()) {
      continue;
    }
    for (const Json& container : *list) {
      for (const std::string_view resource : {"cpu", "memory"}) {
        const auto amount = [&](std::string_view kind) {
          return kube::Quantity::ParseOrZero(FindString(container, {"resources", kind, resource}));
        };
        const kube::Quantity limit = amount("limits");
        const kube::Quantity request = amount("requests");
        any = any || limit.Sign() > 0 || request.Sign() > 0;
        guaranteed = guaranteed && limit.Sign() > 0 && (request.IsZero() || request == limit);
      }
    }
  }
  return !any ? "BestEffort" : guaranteed ? "Guaranteed" : "Burstable";
}

}  // namespace sublet::node
