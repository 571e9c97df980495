#include "node/agent/node_registration.h"

#include <pthread.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "base/log.h"
#include "kube/object.h"
#include "kube/timestamp.h"

namespace sublet::node {
namespace {

using kube::Find;
using kube::Json;

constexpr std::chrono::seconds kLeaseRenewal{10};
constexpr int kLeaseDurationSeconds = 40;
constexpr std::chrono::minutes kStatusInterval{5};

client::Target NodeTarget(const std::string& name, const char* subresource = "") {
  client::Target target;
  target.resource = {"", "v1", "nodes"};
  target.name = name;
  target.subresource = subresource;
  return target;
}

// The status without its heartbeat times and the free amounts behind them.
Json WithoutHeartbeats(Json status) {
  if (status.contains("conditions")) {
    for (Json& condition : status["conditions"]) {
      condition.erase("lastHeartbeatTime");
    }
  }
  return status;
}

}  // namespace

void NodeRegistration::LookAtEngine() {
  auto ping = engine_.Ping();
  facts_.engine_ready = ping.ok();
  facts_.engine_error = ping.ok() ? "" : ping.error().message();
  if (auto info = engine_.Info(); info.ok()) {
    facts_.engine = *info;
  }
  facts_.machine = ReadMachineFacts(root_);
}

Result<void> NodeRegistration::Register() {
  LookAtEngine();
  Json wanted = MakeNode(facts_);
  auto node = client_.Create({{"", "v1", "nodes"}, "", "", ""}, wanted);
  if (!node.ok() && node.error().Is(Reason::kAlreadyExists)) {
    node = client_.Get(NodeTarget(facts_.name));
    if (node.ok()) {
      // Labels of ours that are missing or stale; those of others stay.
      Json patch = {{"metadata", {{"labels", wanted["metadata"]["labels"]}}}};
      auto patched =
          client_.Patch(NodeTarget(facts_.name), client::PatchType::kStrategicMerge, patch);
      if (!patched.ok()) {
        return std::move(patched).error();
      }
    }
  }
  if (!node.ok()) {
    return std::move(node).error();
  }
  node_uid_ = kube::UidOf(*node);
  delete last_status_;
  last_status_ = new Json(node->contains("status") ? (*node)["status"] : Json::object());
  SUBLET_RETURN_IF_ERROR(WriteStatus(true));
  return RenewLease();
}

void NodeRegistration::Start() {
  thread_ = std::thread([this] {
    ::pthread_setname_np(::pthread_self(), "node");
    Run();
  });
}

void NodeRegistration::Stop() {
  {
    MutexLock lock(mutex_);
    stopped_ = true;
  }
  changed_.NotifyAll();
  if (thread_.joinable()) {
    thread_.join();
  }
  delete last_status_;
  last_status_ = nullptr;
}

void NodeRegistration::Run() {
  for (;;) {
    {
      MutexLock lock(mutex_);
      const MonotonicTime next = std::chrono::steady_clock::now() + kLeaseRenewal;
      while (!stopped_ && std::chrono::steady_clock::now() < next) {
        changed_.WaitUntil(mutex_, next);
      }
      if (stopped_) {
        return;
      }
    }
    LookAtEngine();
    auto written = WriteStatus(false);
    if (!written.ok() && written.error().Is(Reason::kNotFound)) {
      written = Register();  // somebody deleted the Node
    }
    auto renewed = RenewLease();
    if (!written.ok() || !renewed.ok()) {
      log::Warn("cannot report the node's state",
                {{"error", written.ok() ? renewed.error() : written.error()}});
    }
  }
}

Result<void> NodeRegistration::WriteStatus(bool always) {
  const MonotonicTime now = clock_.Monotonic();
  Json fresh = MakeNodeStatus(facts_, *last_status_, clock_.Now());
  if (!always && now < status_written_ + kStatusInterval &&
      WithoutHeartbeats(fresh) == WithoutHeartbeats(*last_status_)) {
    return {};
  }
  Json patch = {{"status", fresh}};
  SUBLET_TRY(const Json answer, client_.Patch(NodeTarget(facts_.name, "status"),
                                              client::PatchType::kStrategicMerge, patch));
  status_written_ = now;
  // What the server answered holds what others added meanwhile.
  *last_status_ = fresh;
  if (const Json* capacity = Find(answer, {"status", "capacity"})) {
    (*last_status_)["capacity"] = *capacity;
  }
  if (const Json* allocatable = Find(answer, {"status", "allocatable"})) {
    (*last_status_)["allocatable"] = *allocatable;
  }
  return {};
}

Result<void> NodeRegistration::RenewLease() {
  client::Target target;
  target.resource = {"coordination.k8s.io", "v1", "leases"};
  target.namespace_name = "kube-node-lease";
  target.name = facts_.name;
  Json lease = {
      {"apiVersion", "coordination.k8s.io/v1"},
      {"kind", "Lease"},
      {"metadata",
       {{"name", facts_.name},
        {"namespace", "kube-node-lease"},
        {"ownerReferences",
         {{{"apiVersion", "v1"}, {"kind", "Node"}, {"name", facts_.name}, {"uid", node_uid_}}}}}},
      {"spec",
       {{"holderIdentity", facts_.name},
        {"leaseDurationSeconds", kLeaseDurationSeconds},
        {"renewTime", kube::FormatMicroTime(clock_.Now())}}}};
  const Json patch = {{"spec", lease["spec"]}};
  auto renewed = client_.Patch(target, client::PatchType::kMerge, patch);
  if (!renewed.ok() && renewed.error().Is(Reason::kNotFound)) {
    renewed = client_.Create(target, lease);
  }
  return renewed.ok() ? Ok() : Result<void>(std::move(renewed).error());
}

}  // namespace sublet::node
