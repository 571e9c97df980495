#include "controllers/testing/cluster.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "controllers/daemon_pods.h"
#include "kube/object.h"

namespace sublet::controllers::testing {
namespace {

using kube::Json;

constexpr std::chrono::seconds kPatience{20};

std::unique_ptr<server::ControlPlane> Open(const std::string& folder) {
  server::ControlPlaneOptions options;
  options.data_directory = folder + "/data";
  options.role = server::Role::kHost;
  auto plane = server::ControlPlane::Open(options);
  if (!plane.ok()) {
    ADD_FAILURE() << plane.error().message();
    std::abort();
  }
  return std::move(*plane);
}

std::string MakeFolder() {
  char pattern[] = "/tmp/sublet-controllers-XXXXXX";
  return mkdtemp(pattern);
}

}  // namespace

Cluster::Cluster(node::SimulateOptions options)
    : folder_(MakeFolder()),
      plane_(Open(folder_)),
      client_(plane_->Loopback("test"), "controllers-test/1") {
  Create("v1/namespaces", {{"apiVersion", "v1"}, {"kind", "Namespace"}, {"metadata", {{"name", namespace_}}}}, "-");
  nodes_ = std::make_unique<node::SimulatedNodes>(client_, std::move(options));
  nodes_->Start();
  EXPECT_TRUE(nodes_->WaitRegistered(After(kPatience)));
  EXPECT_TRUE(AwaitOne("v1/serviceaccounts", "default", [](const Json& account) { return !account.is_null(); }));
  BindPods();
}

Cluster::~Cluster() {
  informers_->Stop();
  nodes_->Stop();
  plane_->Stop();
  plane_.reset();
  std::filesystem::remove_all(folder_);
}

void Cluster::BindPods() {
  informers_ = std::make_unique<client::InformerFactory>(client_);
  client::Informer& pods = informers_->For({.resource = {"", "v1", "pods"}});
  pods.AddHandler([this, next = std::make_shared<int>(0)](const client::ObjectPtr&,
                                                         const client::ObjectPtr& pod) {
    if (!pod || pod->deleting()) {
      return;
    }
    const auto value = pod->Parse();
    if (!value.ok() || !kube::FindString(*value, {"spec", "nodeName"}).empty()) {
      return;
    }
    const std::string wanted = DaemonNodeOf(*value);
    const std::string node = wanted.empty() ? "sim-" + std::to_string((*next)++ % 2) : wanted;
    const client::Target target{{"", "v1", "pods"}, pod->key.namespace_name, pod->key.name, "binding"};
    const auto bound = client_.Create(target, {{"apiVersion", "v1"},
                                               {"kind", "Binding"},
                                               {"metadata", {{"name", pod->key.name}}},
                                               {"target", {{"kind", "Node"}, {"name", node}}}});
    // A server without that subresource takes the node's name in the pod itself.
    if (!bound.ok() && (bound.error().Is(Reason::kNotFound) ||
                        bound.error().Is(Reason::kMethodNotAllowed))) {
      client::Target whole = target;
      whole.subresource = "";
      static_cast<void>(
          client_.Patch(whole, client::PatchType::kMerge, {{"spec", {{"nodeName", node}}}}).ok());
    }
  });
  informers_->Start();
}

client::Target Cluster::TargetOf(const std::string& path, const std::string& name,
                                 const std::string& name_space) const {
  const std::size_t slash = path.rfind('/');
  const kube::GroupVersion version = kube::GroupVersion::Parse(path.substr(0, slash));
  const std::string resource = path.substr(slash + 1);
  const bool cluster_scope = name_space == "-" || resource == "nodes" || resource == "namespaces" ||
                             resource == "persistentvolumes" || resource == "storageclasses" ||
                             resource == "clusterroles";
  return {{version.group, version.version, resource},
          cluster_scope ? "" : (name_space.empty() ? namespace_ : name_space), name, ""};
}

Json Cluster::Create(const std::string& path, const Json& object, const std::string& name_space) {
  auto created = client_.Create(TargetOf(path, "", name_space), object);
  EXPECT_TRUE(created.ok()) << created.error().message();
  return created.ok() ? *created : Json();
}

Json Cluster::Patch(const std::string& path, const std::string& name, const Json& patch,
                    const std::string& subresource) {
  client::Target target = TargetOf(path, name);
  target.subresource = subresource;
  auto patched = client_.Patch(target, client::PatchType::kMerge, patch);
  EXPECT_TRUE(patched.ok()) << patched.error().message();
  return patched.ok() ? *patched : Json();
}

void Cluster::Delete(const std::string& path, const std::string& name, const std::string& policy) {
  const auto deleted = client_.Delete(TargetOf(path, name), {.propagation_policy = policy});
  EXPECT_TRUE(deleted.ok()) << deleted.error().message();
}

Json Cluster::Get(const std::string& path, const std::string& name) {
  auto got = client_.Get(TargetOf(path, name));
  return got.ok() ? *got : Json();
}

Json Cluster::List(const std::string& path, const std::string& label_selector) {
  auto list = client_.List(TargetOf(path), {.label_selector = label_selector});
  EXPECT_TRUE(list.ok()) << list.error().message();
  return list.ok() ? (*list)["items"] : Json::array();
}

bool Cluster::Await(const std::string& path, const std::function<bool(const Json&)>& condition,
                    const std::string& label_selector) {
  const Deadline deadline = After(kPatience);
  auto watch = client_.OpenWatch(TargetOf(path), {.send_initial_events = true});
  if (!watch.ok()) {
    last_ = watch.error().message();
    return false;
  }
  for (;;) {
    const Json items = List(path, label_selector);
    if (condition(items)) {
      return true;
    }
    last_ = kube::DumpPretty(items);
    const auto event = (*watch)->Next(deadline);
    if (!event.ok() || !*event) {
      return false;
    }
  }
}

bool Cluster::AwaitOne(const std::string& path, const std::string& name,
                       const std::function<bool(const Json&)>& condition) {
  return Await(path, [&](const Json& items) {
    for (const Json& item : items) {
      if (kube::NameOf(item) == name) {
        return condition(item);
      }
    }
    return condition(nullptr);
  });
}

Json PodTemplate(const std::string& app, const std::string& image) {
  return {{"metadata", {{"labels", {{"app", app}}}}},
          {"spec",
           {{"terminationGracePeriodSeconds", 0},
            {"containers", Json::array({{{"name", "c"}, {"image", image}}})}}}};
}

Json Deployment(const std::string& name, int replicas) {
  return {{"apiVersion", "apps/v1"},
          {"kind", "Deployment"},
          {"metadata", {{"name", name}}},
          {"spec",
           {{"replicas", replicas},
            {"selector", {{"matchLabels", {{"app", name}}}}},
            {"template", PodTemplate(name)}}}};
}

}  // namespace sublet::controllers::testing
