// NodeRestriction: a node's agent writes its own Node, its own pods and its own lease, nothing
// else. Source: k8s.io/kubernetes plugin/pkg/admission/noderestriction.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "apiserver/admission/registry.h"
#include "apiserver/text.h"
#include "kube/object.h"

namespace sublet::apiserver {
namespace {

using kube::Json;

constexpr std::string_view kNodePrefix = "system:node:";

// The name of the node that asks; "" for everybody else.
std::string NodeOf(const User& user) {
  const bool in_group =
      std::find(user.groups.begin(), user.groups.end(), "system:nodes") != user.groups.end();
  if (!in_group || !user.name.starts_with(kNodePrefix)) {
    return "";
  }
  return user.name.substr(kNodePrefix.size());
}

Status Refuse(const AdmissionRequest& request, std::string_view why) {
  return AdmissionForbidden(request, why);
}

// Labels below kubernetes.io and k8s.io that a node may give itself.
bool MayLabel(std::string_view key) {
  static constexpr std::string_view kAllowed[] = {"kubernetes.io/hostname",
                                                  "kubernetes.io/arch",
                                                  "kubernetes.io/os",
                                                  "beta.kubernetes.io/arch",
                                                  "beta.kubernetes.io/os",
                                                  "node.kubernetes.io/instance-type",
                                                  "beta.kubernetes.io/instance-type",
                                                  "topology.kubernetes.io/region",
                                                  "topology.kubernetes.io/zone",
                                                  "failure-domain.beta.kubernetes.io/region",
                                                  "failure-domain.beta.kubernetes.io/zone",
                                                  "node.kubernetes.io/windows-build"};
  if (std::find(std::begin(kAllowed), std::end(kAllowed), key) != std::end(kAllowed)) {
    return true;
  }
  const auto domain = key.substr(0, key.find('/'));
  if (domain == key) {
    return true;
  }
  if (domain == "kubelet.kubernetes.io" || domain.ends_with(".kubelet.kubernetes.io") ||
      domain == "node.kubernetes.io" || domain.ends_with(".node.kubernetes.io")) {
    return true;
  }
  return domain != "kubernetes.io" && !domain.ends_with(".kubernetes.io") && domain != "k8s.io" &&
         !domain.ends_with(".k8s.io");
}

Result<void> CheckLabels(const AdmissionRequest& request, const std::string& node) {
  const Json* labels = kube::LabelsOf(*request.object);
  if (labels == nullptr || !labels->is_object()) {
    return Ok();
  }
  std::string refused;
  for (auto it = labels->begin(); it != labels->end(); ++it) {
    const bool changed = request.old_object == nullptr ||
                         kube::LabelOf(*request.old_object, it.key()) !=
                             (it->is_string() ? it->get_ref<const std::string&>() : std::string());
    if (changed && !MayLabel(it.key())) {
      refused += (refused.empty() ? "" : ", ") + it.key();
    }
  }
  if (!refused.empty()) {
    return Refuse(request, "node " + Quoted(node) + " is not allowed to " +
                               (request.old_object == nullptr ? "set" : "modify") +
                               " the following labels: " + refused);
  }
  return Ok();
}

Result<void> CheckNode(const AdmissionRequest& request, const std::string& node) {
  std::string name = request.name;
  if (name.empty() && request.object != nullptr) {
    name = kube::NameOf(*request.object);
  }
  if (name != node) {
    return Refuse(request,
                  "node " + Quoted(node) + " is not allowed to modify node " + Quoted(name));
  }
  if (request.operation == Operation::kDelete) {
    return Refuse(request,
                  "node " + Quoted(node) + " is not allowed to delete node " + Quoted(name));
  }
  if (request.operation == Operation::kUpdate && request.subresource.empty()) {
    const Json* before = kube::Find(*request.old_object, {"spec", "taints"});
    const Json* after = kube::Find(*request.object, {"spec", "taints"});
    const bool same =
        (before == nullptr || before->empty()) == (after == nullptr || after->empty()) &&
        (before == nullptr || after == nullptr || *before == *after);
    if (!same) {
      return Refuse(request, "node " + Quoted(node) + " is not allowed to modify taints");
    }
  }
  return CheckLabels(request, node);
}

Result<void> CheckPod(const AdmissionRequest& request, const std::string& node) {
  const auto node_of = [](const Json& pod) { return kube::FindString(pod, {"spec", "nodeName"}); };
  if (request.subresource == "status") {
    if (node_of(*request.old_object) != node) {
      return Refuse(request, "node " + Quoted(node) +
                                 " can only update pod status for pods with spec.nodeName set to "
                                 "itself");
    }
    return Ok();
  }
  if (request.subresource == "eviction") {
    return Ok();
  }
  switch (request.operation) {
    case Operation::kCreate:
      if (kube::AnnotationOf(*request.object, "kubernetes.io/config.mirror").empty()) {
        return Refuse(request,
                      "pod does not have \"kubernetes.io/config.mirror\" annotation, node " +
                          Quoted(node) + " can only create mirror pods");
      }
      if (node_of(*request.object) != node) {
        return Refuse(request, "node " + Quoted(node) +
                                   " can only create pods with spec.nodeName set to itself");
      }
      return Ok();
    case Operation::kDelete:
      if (node_of(*request.old_object) != node) {
        return Refuse(request, "node " + Quoted(node) +
                                   " can only delete pods with spec.nodeName set to itself");
      }
      return Ok();
    default:
      return Refuse(request, "unexpected operation UPDATE, node " + Quoted(node) +
                                 " can only create and delete mirror pods");
  }
}

Result<void> CheckLease(const AdmissionRequest& request, const std::string& node) {
  constexpr std::string_view kSpace = "kube-node-lease";
  if (request.namespace_name != kSpace) {
    return Refuse(request, "can only access leases in the \"kube-node-lease\" system namespace");
  }
  std::string name = request.name;
  if (name.empty() && request.object != nullptr) {
    name = kube::NameOf(*request.object);
  }
  if (name != node) {
    return Refuse(request, "can only access node lease with the same name as the requesting node");
  }
  return Ok();
}

Result<void> Check(AdmissionRequest& request) {
  const std::string node = NodeOf(*request.user);
  if (node.empty()) {
    return Ok();
  }
  if (request.Is("", "pods")) {
    return CheckPod(request, node);
  }
  if (request.Is("", "nodes")) {
    return CheckNode(request, node);
  }
  if (request.Is("coordination.k8s.io", "leases")) {
    return CheckLease(request, node);
  }
  if (request.Is("storage.k8s.io", "csinodes")) {
    std::string name = request.name;
    if (name.empty() && request.object != nullptr) {
      name = kube::NameOf(*request.object);
    }
    if (name != node) {
      return Refuse(request, "can only access CSINode with the same name as the requesting node");
    }
  }
  return Ok();
}

}  // namespace

AdmissionPlugin NodeRestriction(const AdmissionEnvironment&) {
  AdmissionPlugin plugin;
  plugin.name = "NodeRestriction";
  plugin.operations = Operations({Operation::kCreate, Operation::kUpdate, Operation::kDelete});
  plugin.mutate = [](AdmissionRequest& request) { return Check(request); };
  return plugin;
}

}  // namespace sublet::apiserver
