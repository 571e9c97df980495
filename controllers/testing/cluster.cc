#include "controllers/testing/cluster.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

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
  Create("v1/namespaces",
         {{"apiVersion", "v1"}, {"kind", "Namespace"}, {"metadata", {{"name", namespace_}}}}, "-");
  nodes_ = std::make_unique<node::SimulatedNodes>(client_, std::move(options));
  nodes_->Start();
  EXPECT_TRUE(nodes_->WaitRegistered(After(kPatience)));
  EXPECT_TRUE(AwaitOne("v1/serviceaccounts", "default",
                       [](const Json& account) { return !account.is_null(); }));
}

Cluster::~Cluster() {
  nodes_->Stop();
  plane_->Stop();
  plane_.reset();
  std::filesystem::remove_all(folder_);
}

client::Target Cluster::TargetOf(const std::string& path, const std::string& name,
                                 const std::string& name_space) const {
  const std::size_t slash = path.rfind('/');
  const kube::GroupVersion version = kube::GroupVersion::Parse(path.substr(0, slash));
  const std::string resource = path.substr(slash + 1);
  const bool cluster_scope = name_space == "-" || resource == "nodes" || resource == "namespaces" ||
                             resource == "persistentvolumes" || resource == "storageclasses" ||
                             resource == "clusterroles" || resource == "volumeattributesclasses" ||
                             resource == "priorityclasses";
  return {{version.group, version.version, resource},
          cluster_scope ? "" : (name_space.empty() ? namespace_ : name_space),
          name,
          ""};
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
