// PodPlan: a pod's specification in the form the node agent decides on, made once per change of the
// object. Pure; used by decide.cc, status.cc, worker.cc and the probes.
// Source: k8s.io/api core/v1 PodSpec; kubelet kuberuntime (which containers there are, in which
// order). Threads: immutable after ParsePod; shared freely.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "kube/json.h"

namespace sublet::node {

using std::chrono::seconds;

enum class ContainerRole : std::uint8_t { kInit, kSidecar, kMain, kEphemeral };
enum class RestartPolicy : std::uint8_t { kAlways, kOnFailure, kNever };
enum class PullPolicy : std::uint8_t { kIfNotPresent, kAlways, kNever };

// One thing to do inside or against a container: a probe's or a hook's handler.
struct HandlerPlan {
  enum class Kind : std::uint8_t { kNone, kExec, kHttp, kTcp, kGrpc, kSleep };
  Kind kind = Kind::kNone;
  std::vector<std::string> argv;
  std::string host;    // "" = the pod's address
  std::string port;    // number or name of a container port
  std::string scheme;  // HTTP, HTTPS
  std::string path;
  std::vector<std::pair<std::string, std::string>> headers;
  std::string grpc_service;
  seconds sleep{0};
};

struct ProbePlan {
  HandlerPlan handler;
  seconds initial_delay{0};
  seconds timeout{1};
  seconds period{10};
  int success_threshold = 1;
  int failure_threshold = 3;
  std::optional<seconds> termination_grace;
};

struct ContainerPlan {
  std::string name;
  ContainerRole role = ContainerRole::kMain;
  std::string image;
  PullPolicy pull_policy = PullPolicy::kIfNotPresent;
  RestartPolicy restart_policy = RestartPolicy::kAlways;  // the effective one
  std::optional<ProbePlan> startup;
  std::optional<ProbePlan> readiness;
  std::optional<ProbePlan> liveness;
  HandlerPlan post_start;
  HandlerPlan pre_stop;
  std::string stop_signal;  // "" = the image's
  std::string termination_path;
  bool fallback_to_logs = false;
  bool tty = false;
  bool stdin_open = false;
  bool stdin_once = false;
  std::string target_container;  // of an ephemeral container
  std::string image_hash;        // changes when the container must be replaced
  // The container's JSON inside PodPlan::object.
  const kube::Json* spec = nullptr;
  // Container ports by name, for probes.
  std::vector<std::pair<std::string, int>> named_ports;
};

struct PodPlan {
  std::string uid;
  std::string namespace_name;
  std::string name;
  RestartPolicy restart_policy = RestartPolicy::kAlways;
  seconds grace{30};
  std::optional<seconds> active_deadline;
  bool host_network = false;
  bool host_pid = false;
  bool host_ipc = false;
  bool share_process_namespace = false;
  bool deleting = false;
  seconds deletion_grace{30};  // metadata.deletionGracePeriodSeconds while deleting
  std::string runtime_class;
  std::string service_account;
  std::string hostname;
  std::string subdomain;
  std::string node_name;
  std::vector<std::string> readiness_gates;
  std::vector<ContainerPlan> init_containers;  // in order, sidecars among them
  std::vector<ContainerPlan> containers;
  std::vector<ContainerPlan> ephemeral_containers;
  std::shared_ptr<const kube::Json> object;

  const ContainerPlan* Find(std::string_view container_name) const;
  // init, main, ephemeral: every container once.
  std::vector<const ContainerPlan*> All() const;
  // "namespace/name" for texts.
  std::string Text() const { return namespace_name + "/" + name; }
  // "name_namespace(uid)" as kubelet's messages have it.
  std::string Full() const { return name + "_" + namespace_name + "(" + uid + ")"; }
};

// Reads what the API server has accepted; fields of a wrong type count as absent.
std::shared_ptr<const PodPlan> ParsePod(std::shared_ptr<const kube::Json> object);

// BestEffort, Burstable or Guaranteed. Source: kubelet qos.GetPodQOS.
std::string QosClassOf(const kube::Json& pod);

}  // namespace sublet::node
