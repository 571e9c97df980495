#include "scheduler/service/pod_grouper.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/log.h"
#include "kube/object.h"

namespace sublet::scheduler {
namespace {

using client::Outcome;
using kube::Json;

constexpr std::size_t kAppliedMax = 10000;
constexpr std::size_t kClassesMax = 1000;
constexpr int kOwnersMax = 8;
constexpr const char* kSkip = "kai.scheduler/skip-podgrouper";

bool Skipped(const Json& object) {
  const auto value = kube::AnnotationOf(object, kSkip);
  return !value.empty() && value != "false";
}

// The plural of an owner's kind, as every API names it: enough for what owns pods.
std::string PluralOf(std::string_view kind) {
  std::string plural;
  for (const char c : kind) {
    plural += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  const char last = plural.empty() ? ' ' : plural.back();
  if (last == 's' || last == 'x') {
    return plural + "es";
  }
  if (last == 'y') {
    return plural.substr(0, plural.size() - 1) + "ies";
  }
  return plural + "s";
}

}  // namespace

PodGrouper::PodGrouper(client::Client client, client::InformerFactory& informers,
                       client::Manager& manager, client::EventRecorder& recorder,
                       std::function<bool(const std::string&)> is_ours,
                       std::function<bool(const std::string&)> jobs_per_pod)
    : client_(std::move(client)),
      pods_([&informers]() -> client::Informer& {
        client::InformerOptions options;
        options.resource = {"", "v1", "pods"};
        return informers.For(options);
      }()),
      recorder_(recorder),
      is_ours_(std::move(is_ours)),
      jobs_per_pod_(std::move(jobs_per_pod)) {
  client::ControllerOptions controller;
  controller.name = "pod-grouper";
  controller.workers_max = 4;
  controller.reconcile = [this](const kube::ObjectKey& key) { return Reconcile(key); };
  client::WorkQueue& queue = manager.Add(std::move(controller));
  pods_.AddHandler([this, &queue](const client::ObjectPtr&, const client::ObjectPtr& after) {
    if (after == nullptr) {
      return;
    }
    const auto& record = after->As<PodRecord>();
    if (record.group_annotation.empty() && record.unbound_pending &&
        is_ours_(record.scheduler_name)) {
      queue.Add(after->key);
    }
  });
}

Result<std::vector<Json>> PodGrouper::Owners(const Json& pod) {
  std::vector<Json> owners;
  auto reference = kube::ControllerOf(pod);
  const std::string space(kube::NamespaceOf(pod));
  while (reference && owners.size() < kOwnersMax) {
    const auto version = kube::GroupVersion::Parse(reference->api_version);
    auto owner = client_.Get({{version.group, version.version, PluralOf(reference->kind)},
                              reference->kind == "Node" ? "" : space,
                              reference->name,
                              ""});
    if (!owner.ok()) {
      if (owner.error().Is(Reason::kNotFound)) {
        break;
      }
      return std::move(owner).error();
    }
    owners.push_back(std::move(*owner));
    reference = kube::ControllerOf(owners.back());
  }
  return owners;
}

Result<void> PodGrouper::ApplyGroup(const Json& group, bool raises_minimum) {
  const std::string key =
      std::string(kube::NamespaceOf(group)) + "/" + std::string(kube::NameOf(group));
  {
    MutexLock lock(mutex_);
    if (applied_.contains(key) && !raises_minimum) {
      return Ok();
    }
  }
  const client::Target collection{{"scheduling.run.ai", "v2alpha2", "podgroups"},
                                  std::string(kube::NamespaceOf(group)),
                                  "",
                                  ""};
  auto created = client_.Create(collection, group);
  // A group that stands already keeps what others wrote into it (queue, markUnschedulable, ...).
  if (!created.ok() && !created.error().Is(Reason::kAlreadyExists)) {
    return std::move(created).error();
  }
  if (!created.ok() && raises_minimum) {
    client::Target target = collection;
    target.name = std::string(kube::NameOf(group));
    Json spec = {{"minMember", group.at("spec").at("minMember")}};
    if (group.at("spec").contains("subGroups")) {
      spec["subGroups"] = group.at("spec").at("subGroups");
    }
    const auto raised =
        client_.Patch(target, client::PatchType::kMerge, {{"spec", std::move(spec)}});
    if (!raised.ok() && !raised.error().Is(Reason::kNotFound)) {
      return raised.error();
    }
  }
  MutexLock lock(mutex_);
  if (applied_.size() >= kAppliedMax) {
    applied_.clear();
  }
  applied_.insert(key);
  return Ok();
}

bool PodGrouper::ClassExists(const std::string& name) {
  {
    MutexLock lock(mutex_);
    if (classes_.contains(name)) {
      return true;
    }
  }
  const auto found = client_.Get({{"scheduling.k8s.io", "v1", "priorityclasses"}, "", name, ""});
  // What cannot be asked is believed: only a class that is not there is passed over.
  if (!found.ok()) {
    return !found.error().Is(Reason::kNotFound);
  }
  MutexLock lock(mutex_);
  if (classes_.size() >= kClassesMax) {
    classes_.clear();
  }
  classes_.insert(name);
  return true;
}

Result<Outcome> PodGrouper::Reconcile(const kube::ObjectKey& key) {
  const auto cached = pods_.Get(key);
  if (cached == nullptr || !cached->As<PodRecord>().group_annotation.empty()) {
    return Outcome::Done();
  }
  const std::string scheduler = cached->As<PodRecord>().scheduler_name;
  auto pod = client_.Get({{"", "v1", "pods"}, key.namespace_name, key.name, ""});
  if (!pod.ok()) {
    return pod.error().Is(Reason::kNotFound) ? Result<Outcome>(Outcome::Done())
                                             : Result<Outcome>(std::move(pod).error());
  }
  SUBLET_TRY(auto owners, Owners(*pod));
  if (Skipped(*pod) || std::any_of(owners.begin(), owners.end(), Skipped)) {
    return Outcome::Done();
  }
  SettleOwners(&*pod, &owners);
  if (const std::string name = PodGangOf(*pod, owners); !name.empty()) {
    SUBLET_TRY(Json gang,
               client_.Get(
                   {{"scheduler.grove.io", "v1alpha1", "podgangs"}, key.namespace_name, name, ""}));
    AddPodGang(std::move(gang), &owners);
  }
  const GroupPlan plan = PlanGroup(*pod, owners, jobs_per_pod_(scheduler));
  if (!plan.problem.empty()) {
    recorder_.As("podgrouper")
        .Event({"v1", "Pod", key.namespace_name, key.name, std::string(kube::UidOf(*pod)), "", ""},
               "Warning", "PodGrouperWarning", plan.problem);
    return sublet::Status(Reason::kInvalid, plan.problem);
  }
  const Json group = MakePodGroup(*pod, owners, plan,
                                  [this](const std::string& name) { return ClassExists(name); });
  SUBLET_RETURN_IF_ERROR(ApplyGroup(group, plan.raises_minimum));
  Json metadata = {{"annotations", {{"pod-group-name", plan.name}}}};
  if (!plan.sub_group.empty()) {
    metadata["labels"]["kai.scheduler/subgroup-name"] = plan.sub_group;
  }
  auto linked = client_.Patch({{"", "v1", "pods"}, key.namespace_name, key.name, ""},
                              client::PatchType::kMerge, {{"metadata", std::move(metadata)}});
  if (!linked.ok() && !linked.error().Is(Reason::kNotFound)) {
    return std::move(linked).error();
  }
  return Outcome::Done();
}

}  // namespace sublet::scheduler
