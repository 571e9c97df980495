#include "controllers/pod_control.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "kube/object.h"
#include "kube/timestamp.h"

namespace sublet::controllers {
namespace {

using kube::Json;

constexpr std::string_view kOrphanIndex = "orphan";

std::uint32_t Fnv32a(std::string_view text, std::uint32_t hash = 2166136261U) {
  for (const char c : text) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 16777619U;
  }
  return hash;
}

bool IsNormalRefusal(const Status& error) {
  return error.Is(Reason::kNotFound) || error.Is(Reason::kInvalid) || error.Is(Reason::kConflict);
}

// Adds a controller reference; the uid in the patch refuses a successor of the same name.
Result<void> Adopt(const Collection& collection, const Json& owner,
                   const client::CachedObject& object) {
  Json owners = Json::array();
  const kube::OwnerReference reference = kube::ControllerReference(owner);
  owners.push_back({{"apiVersion", reference.api_version},
                    {"kind", reference.kind},
                    {"name", reference.name},
                    {"uid", reference.uid},
                    {"controller", true},
                    {"blockOwnerDeletion", true}});
  const auto patched = collection.Patch(
      object.key, client::PatchType::kStrategicMerge,
      {{"metadata", {{"uid", object.uid}, {"ownerReferences", std::move(owners)}}}});
  return patched.ok() || IsNormalRefusal(patched.error()) ? Ok() : Result<void>(patched.error());
}

Result<void> Release(const Collection& collection, const Json& owner,
                     const client::CachedObject& object) {
  const Json patch = {
      {"metadata",
       {{"uid", object.uid},
        {"ownerReferences",
         Json::array({{{"$patch", "delete"}, {"uid", std::string(kube::UidOf(owner))}}})}}}};
  const auto patched = collection.Patch(object.key, client::PatchType::kStrategicMerge, patch);
  return patched.ok() || IsNormalRefusal(patched.error()) ? Ok() : Result<void>(patched.error());
}

}  // namespace

std::string HashOf(const Json& value, std::int64_t collision_count) {
  std::uint32_t hash = Fnv32a(kube::Dump(value));
  if (collision_count > 0) {
    hash = Fnv32a(std::to_string(collision_count), hash);
  }
  // As apimachinery's SafeEncodeString: no vowels, no look-alikes.
  static constexpr std::string_view kAlphabet = "bcdfghjklmnpqrstvwxz2456789";
  std::string out = std::to_string(hash);
  for (char& c : out) {
    c = kAlphabet[static_cast<unsigned char>(c) % kAlphabet.size()];
  }
  return out;
}

Json PodFromTemplate(const Json& pod_template, const Json& owner) {
  Json pod = {{"metadata", Json::object()}};
  if (const Json* metadata = kube::Find(pod_template, {"metadata"}); metadata != nullptr) {
    for (const char* key : {"labels", "annotations", "finalizers"}) {
      if (const Json* value = kube::Find(*metadata, {key}); value != nullptr) {
        pod["metadata"][key] = *value;
      }
    }
  }
  if (const Json* spec = kube::Find(pod_template, {"spec"}); spec != nullptr) {
    pod["spec"] = *spec;
  }
  pod["metadata"]["namespace"] = kube::NamespaceOf(owner);
  pod["metadata"]["generateName"] = std::string(kube::NameOf(owner)) + "-";
  kube::SetOwner(&pod, kube::ControllerReference(owner));
  return pod;
}

PodControl::PodControl(const Context& context, const std::string& component)
    : pods_(context, kPods), events_(context.events.As(component)) {}

Result<Json> PodControl::Create(const Json& owner, Json pod) const {
  auto created = pods_.Create(std::string(kube::NamespaceOf(owner)), std::move(pod));
  const client::EventTarget about = client::EventTargetOf(owner);
  if (created.ok()) {
    events_.Event(about, "Normal", "SuccessfulCreate",
                  "Created pod: " + std::string(kube::NameOf(*created)));
  } else if (std::none_of(
                 created.error().details().causes.begin(), created.error().details().causes.end(),
                 [](const StatusCause& cause) { return cause.reason == "NamespaceTerminating"; })) {
    events_.Event(about, "Warning", "FailedCreate", "Error creating: " + created.error().message());
  }
  return created;
}

Result<void> PodControl::Delete(const Json& owner, const client::CachedObject& pod) const {
  auto deleted = pods_.Delete(pod.key, pod.uid);
  const client::EventTarget about = client::EventTargetOf(owner);
  if (deleted.ok()) {
    events_.Event(about, "Normal", "SuccessfulDelete", "Deleted pod: " + pod.key.name);
  } else {
    events_.Event(about, "Warning", "FailedDelete", "Error deleting: " + deleted.error().message());
  }
  return deleted;
}

void AddOwnerIndexes(const Collection& collection) {
  collection.informer().AddIndex(client::kControllerIndex, client::IndexByController);
  collection.informer().AddIndex(kOrphanIndex, [](const client::CachedObject& object) {
    return object.controller() == nullptr ? std::vector<std::string>{object.key.namespace_name}
                                          : std::vector<std::string>{};
  });
}

Result<std::vector<client::ObjectPtr>> Claim(
    const Collection& collection, const Collection& owners, const Json& owner,
    const kube::LabelSelector& selector,
    const std::function<bool(const client::CachedObject&)>& accept) {
  const std::string uid(kube::UidOf(owner));
  const bool owner_deleting = kube::IsDeleting(owner);
  std::vector<client::ObjectPtr> out;
  std::optional<Status> failure;
  for (const auto& object : collection.informer().ByIndex(client::kControllerIndex, uid)) {
    if (selector.Matches(object->labels)) {
      out.push_back(object);
    } else if (!owner_deleting) {
      if (auto released = Release(collection, owner, *object); !released.ok()) {
        failure = released.error();
      }
    }
  }
  bool checked = false;
  for (const auto& object :
       collection.informer().ByIndex(kOrphanIndex, std::string(kube::NamespaceOf(owner)))) {
    if (owner_deleting || object->deleting() || !selector.Matches(object->labels) ||
        (accept && !accept(*object))) {
      continue;
    }
    if (!checked) {
      // The cache may not know yet that the owner is going away; adopting then would undo an
      // orphaning.
      SUBLET_TRY(const Json live, owners.GetLive(kube::KeyOf(owner)));
      if (kube::UidOf(live) != uid || kube::IsDeleting(live)) {
        break;
      }
      checked = true;
    }
    if (auto adopted = Adopt(collection, owner, *object); !adopted.ok()) {
      failure = adopted.error();
    } else if (const auto now = collection.Find(object->key);
               now && now->controller() != nullptr && now->controller()->uid == uid) {
      out.push_back(now);
    }
  }
  if (failure) {
    return std::move(*failure);
  }
  std::sort(out.begin(), out.end(), [](const auto& a, const auto& b) { return a->key < b->key; });
  return out;
}

void RouteSelf(const Collection& collection, client::WorkQueue& queue) {
  collection.informer().AddHandler(
      [&queue](const client::ObjectPtr& before, const client::ObjectPtr& after) {
        queue.Add((after ? after : before)->key);
      });
}

void RouteToOwners(const Collection& collection, const Collection& owners,
                   const std::function<Result<kube::LabelSelector>(const Json&)>& selector_of,
                   client::WorkQueue& queue) {
  const std::string owner_kind = owners.kind().kind;
  client::Informer& owner_informer = owners.informer();
  const auto add_owner = [&queue, owner_kind](const client::CachedObject& object) {
    const kube::OwnerReference* owner = object.controller();
    if (owner != nullptr && owner->kind == owner_kind) {
      queue.Add({object.key.namespace_name, owner->name});
    }
    return owner != nullptr;
  };
  collection.informer().AddHandler(
      [add_owner, selector_of, &owner_informer, &queue](const client::ObjectPtr& before,
                                                        const client::ObjectPtr& after) {
        if (before) {
          add_owner(*before);
        }
        if (!after || add_owner(*after) || after->deleting()) {
          return;
        }
        // An orphan that has changed since it was looked at: somebody may want it.
        if (before && before->labels == after->labels && before->controller() == nullptr) {
          return;
        }
        for (const auto& owner : owner_informer.ListNamespace(after->key.namespace_name)) {
          const auto object = owner->Parse();
          if (!object.ok()) {
            continue;
          }
          if (const auto selector = selector_of(*object);
              selector.ok() && !selector->empty() && selector->Matches(after->labels)) {
            queue.Add(owner->key);
          }
        }
      });
}

std::vector<std::string> IndexByNode(const client::CachedObject& pod) {
  const std::string& node = pod.As<PodRecord>().node;
  return node.empty() ? std::vector<std::string>() : std::vector<std::string>{node};
}

Result<void> MarkDisrupted(const Collection& pods, const client::CachedObject& pod,
                           const std::string& reason, const std::string& message,
                           const std::string& phase, WallTime now) {
  Json status = {{"conditions", Json::array({{{"type", "DisruptionTarget"},
                                              {"status", "True"},
                                              {"reason", reason},
                                              {"message", message},
                                              {"lastTransitionTime", kube::FormatTime(now)}}})}};
  if (!phase.empty()) {
    status["phase"] = phase;
  }
  const auto patched =
      pods.Patch(pod.key, client::PatchType::kStrategicMerge,
                 {{"metadata", {{"uid", pod.uid}}}, {"status", std::move(status)}}, "status");
  if (!patched.ok() && !patched.error().Is(Reason::kNotFound) &&
      !patched.error().Is(Reason::kConflict)) {
    return patched.error();
  }
  return Ok();
}

void SortForDeletion(std::vector<client::ObjectPtr>* pods,
                     const std::function<int(const client::CachedObject&)>& crowd) {
  const auto phase_rank = [](const PodRecord& pod) {
    return pod.phase == "Pending" ? 0 : pod.phase == "Unknown" ? 1 : 2;
  };
  std::stable_sort(pods->begin(), pods->end(), [&](const auto& a, const auto& b) {
    const PodRecord& x = PodOf(a);
    const PodRecord& y = PodOf(b);
    if (x.node.empty() != y.node.empty()) {
      return x.node.empty();
    }
    if (phase_rank(x) != phase_rank(y)) {
      return phase_rank(x) < phase_rank(y);
    }
    if (x.ready != y.ready) {
      return !x.ready;
    }
    if (x.deletion_cost != y.deletion_cost) {
      return x.deletion_cost < y.deletion_cost;
    }
    const int crowd_a = crowd ? crowd(*a) : 0;
    const int crowd_b = crowd ? crowd(*b) : 0;
    if (crowd_a != crowd_b) {
      return crowd_a > crowd_b;
    }
    if (x.ready && x.ready_since != y.ready_since) {
      return x.ready_since.value_or(WallTime::max()) > y.ready_since.value_or(WallTime::max());
    }
    if (x.restarts_max != y.restarts_max) {
      return x.restarts_max > y.restarts_max;
    }
    return a->creation_timestamp > b->creation_timestamp;
  });
}

BatchResult SlowStart(int count, const std::function<Result<void>(int)>& run) {
  BatchResult out;
  int next = 0;
  for (int batch = 1; next < count && !out.error; batch *= 2) {
    const int end = std::min(count, next + batch);
    for (; next < end; ++next) {
      if (auto done = run(next); done.ok()) {
        ++out.succeeded;
      } else if (!out.error) {
        out.error = std::move(done).error();
      }
    }
  }
  return out;
}

Result<kube::LabelSelector> SelectorOf(const Json& owner) {
  return kube::LabelSelector::FromJson(kube::Find(owner, {"spec", "selector"}));
}

}  // namespace sublet::controllers
