#include "controllers/namespace_controller.h"

#include <map>
#include <nlohmann/json.hpp>

#include "base/log.h"
#include "controllers/discovery.h"
#include "kube/object.h"
#include "kube/timestamp.h"

namespace sublet::controllers {
namespace {

using client::ObjectPtr;
using client::Outcome;
using kube::Json;

constexpr std::string_view kNamespaceFinalizer = "kubernetes";

// What is still there after a sweep.
struct Remains {
  std::map<std::string, int> resources;   // "pods." -> how many
  std::map<std::string, int> finalizers;  // finalizer -> on how many objects
  std::vector<std::string> errors;
  std::optional<std::string> discovery_error;
  bool empty() const { return resources.empty() && errors.empty() && !discovery_error; }
};

std::string GroupResourceText(const kube::GroupVersionResource& resource) {
  return resource.resource + "." + resource.group;
}

std::string JoinCounts(const std::map<std::string, int>& counts, const std::string& middle,
                       const std::string& end) {
  std::string out;
  for (const auto& [name, count] : counts) {
    out += (out.empty() ? "" : ", ") + name + middle + std::to_string(count) + end;
  }
  return out;
}

class NamespaceController final : public Controller {
 public:
  explicit NamespaceController(const Context& context)
      : client_(context.client),
        clock_(context.clock),
        namespaces_(context, kNamespaces),
        pods_(context, kPods),
        queue_(context.manager.Add(
            {.name = "namespace",
             .reconcile = [this](const kube::ObjectKey& key) { return Reconcile(key); },
             .workers_max = 2,
             .needs = {&namespaces_.informer()}})) {
    namespaces_.informer().AddHandler([this](const ObjectPtr&, const ObjectPtr& after) {
      if (after && after->deleting()) {
        queue_.Add(after->key);
      }
    });
    // The end of a pod may be what a namespace waits for.
    pods_.informer().AddHandler([this](const ObjectPtr& before, const ObjectPtr& after) {
      if (!after) {
        const ObjectPtr name = namespaces_.Find({"", before->key.namespace_name});
        if (name && name->deleting()) {
          queue_.Add(name->key);
        }
      }
    });
  }

 private:
  Result<Outcome> Reconcile(const kube::ObjectKey& key) {
    const ObjectPtr cached = namespaces_.Find(key);
    if (!cached || !cached->deleting()) {
      return Outcome::Done();
    }
    SUBLET_TRY(Json object, cached->Parse());
    if (!HasSpecFinalizer(object)) {
      return Outcome::Done();
    }
    const Remains remains = Empty(key.name);
    SUBLET_RETURN_IF_ERROR(WriteConditions(&object, remains));
    if (!remains.empty()) {
      // Objects with finalizers and pods with grace go in their own time; nothing tells when the
      // last one of any kind went, so the wait doubles.
      int& tries = TriesOf(key.name);
      const auto wait = std::chrono::milliseconds(50) * (1 << std::min(tries++, 7));
      return Outcome::After(wait);
    }
    ForgetTries(key.name);
    return Finalize(std::move(object));
  }

  static bool HasSpecFinalizer(const Json& object) {
    const Json* finalizers = kube::Find(object, {"spec", "finalizers"});
    if (finalizers == nullptr || !finalizers->is_array()) {
      return false;
    }
    return std::any_of(finalizers->begin(), finalizers->end(),
                       [](const Json& entry) { return entry == kNamespaceFinalizer; });
  }

  Remains Empty(const std::string& name) const {
    Remains out;
    SweepOne(kPods.resource, true, name, &out);
    if (!out.empty()) {
      return out;  // pods see their secrets, services and policies to their end
    }
    const auto resources = Discover(client_);
    if (!resources.ok()) {
      out.discovery_error = resources.error().message();
      return out;
    }
    for (const DiscoveredResource& resource : *resources) {
      if (resource.namespaced && resource.Has("delete") && resource.Has("list") &&
          resource.resource != kPods.resource) {
        SweepOne(resource.resource, resource.Has("deletecollection"), name, &out);
      }
    }
    return out;
  }

  // Deletes everything of one resource and counts what is left.
  void SweepOne(const kube::GroupVersionResource& resource, bool whole, const std::string& name,
                Remains* out) const {
    const client::Target target{resource, name, "", ""};
    const client::DeleteOptions options{.propagation_policy = "Background"};
    auto listed = client_.List(target, {.metadata_only = true});
    if (listed.ok() && CountOf(*listed) > 0) {
      if (whole) {
        static_cast<void>(Failed(client_.DeleteCollection(target, {}, options), resource, out));
      } else {
        for (const Json& item : (*listed)["items"]) {
          client::Target one = target;
          one.name = kube::NameOf(item);
          static_cast<void>(Failed(client_.Delete(one, options), resource, out));
        }
      }
      listed = client_.List(target, {.metadata_only = true});
    }
    if (Failed(listed, resource, out) || CountOf(*listed) == 0) {
      return;
    }
    out->resources[GroupResourceText(resource)] = static_cast<int>(CountOf(*listed));
    for (const Json& item : (*listed)["items"]) {
      const Json* finalizers = kube::Find(item, {"metadata", "finalizers"});
      for (const Json& finalizer : finalizers != nullptr ? *finalizers : Json::array()) {
        ++out->finalizers[finalizer.is_string() ? finalizer.get<std::string>() : ""];
      }
    }
  }

  static std::size_t CountOf(const Json& list) {
    const Json* items = kube::Find(list, {"items"});
    return items != nullptr && items->is_array() ? items->size() : 0;
  }

  static bool Failed(const Result<Json>& answer, const kube::GroupVersionResource& resource,
                     Remains* out) {
    if (answer.ok()) {
      return false;
    }
    // The kind itself went away (a CRD deleted meanwhile): so did its objects.
    if (!answer.error().Is(Reason::kNotFound) && !answer.error().Is(Reason::kMethodNotAllowed)) {
      out->errors.push_back(GroupResourceText(resource) + ": " + answer.error().message());
    }
    return true;
  }

  Result<void> WriteConditions(Json* object, const Remains& remains) {
    const Json before = *object;
    const std::string now = kube::FormatTime(clock_.Now());
    const auto put = [&](const char* type, bool bad, const char* reason_bad,
                         const char* reason_good, const std::string& message_bad,
                         const char* message_good) {
      kube::SetCondition(object,
                         {.type = type,
                          .status = bad ? "True" : "False",
                          .reason = bad ? reason_bad : reason_good,
                          .message = bad ? message_bad : message_good},
                         now);
    };
    std::string errors;
    for (const std::string& error : remains.errors) {
      errors += (errors.empty() ? "" : ", ") + error;
    }
    put("NamespaceDeletionDiscoveryFailure", remains.discovery_error.has_value(), "DiscoveryFailed",
        "ResourcesDiscovered",
        "Discovery failed for some groups, 1 failing: " + remains.discovery_error.value_or(""),
        "All resources successfully discovered");
    put("NamespaceDeletionGroupVersionParsingFailure", false, "", "ParsedGroupVersions", "",
        "All legacy kube types successfully parsed");
    put("NamespaceDeletionContentFailure", !remains.errors.empty(), "ContentDeletionFailed",
        "ContentDeleted",
        "Failed to delete all resource types, " + std::to_string(remains.errors.size()) +
            " remaining: " + errors,
        "All content successfully deleted, may be waiting on finalization");
    put("NamespaceContentRemaining", !remains.resources.empty(), "SomeResourcesRemain",
        "ContentRemoved",
        "Some resources are remaining: " +
            JoinCounts(remains.resources, " has ", " resource instances"),
        "All content successfully removed");
    put("NamespaceFinalizersRemaining", !remains.finalizers.empty(), "SomeFinalizersRemain",
        "ContentHasNoFinalizers",
        "Some content in the namespace has finalizers remaining: " +
            JoinCounts(remains.finalizers, " in ", " resource instances"),
        "All content-preserving finalizers finished");
    // A namespace that empties at once gets its conditions with the last write, unseen.
    if (remains.empty() || before == *object) {
      return Ok();
    }
    SUBLET_TRY(*object, namespaces_.UpdateStatus(*object));
    return Ok();
  }

  Result<Outcome> Finalize(Json object) {
    Json& finalizers = object["spec"]["finalizers"];
    for (auto at = finalizers.begin(); at != finalizers.end();) {
      at = *at == kNamespaceFinalizer ? finalizers.erase(at) : at + 1;
    }
    const kube::ObjectKey key = kube::KeyOf(object);
    const std::string uid(kube::UidOf(object));
    auto answer = client_.Update(namespaces_.TargetOf(key, "finalize"), object);
    if (!answer.ok() && !answer.error().Is(Reason::kNotFound)) {
      return std::move(answer).error();
    }
    return Outcome::Done();
  }

  int& TriesOf(const std::string& name) {
    MutexLock lock(mutex_);
    return tries_[name];
  }
  void ForgetTries(const std::string& name) {
    MutexLock lock(mutex_);
    tries_.erase(name);
  }

  const client::Client client_;
  const Clock& clock_;
  const Collection namespaces_;
  const Collection pods_;
  client::WorkQueue& queue_;
  Mutex mutex_;
  std::map<std::string, int> tries_ SUBLET_GUARDED_BY(mutex_);  // one entry per stuck namespace
};

}  // namespace

std::unique_ptr<Controller> MakeNamespaceController(const Context& context) {
  return std::make_unique<NamespaceController>(context);
}

}  // namespace sublet::controllers
