#include "controllers/resource_quota_controller.h"

#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "base/mutex.h"
#include "controllers/discovery.h"
#include "controllers/pod_control.h"
#include "kube/object.h"
#include "kube/quota_usage.h"

namespace sublet::controllers {
namespace {

using client::ObjectPtr;
using client::Outcome;
using kube::Json;
using kube::ResourceAmounts;

// Deletions come in droves; one count answers for those of this long.
constexpr std::chrono::milliseconds kGather{50};
// Requests that were under way when a quota got its first status are over by then; they were not
// charged, so it is counted once more.
constexpr std::chrono::seconds kFreshWait{1};
constexpr std::chrono::minutes kResync{5};

class QuotaController final : public Controller {
 public:
  explicit QuotaController(const Context& context)
      : client_(context.client),
        informers_(context.informers),
        quotas_(context, kQuotas),
        pods_(context, kPods),
        services_(context, kServices),
        claims_(context, kClaims),
        queue_(context.manager.Add(
            {.name = "resourcequota",
             .reconcile = [this](const kube::ObjectKey& key) { return Reconcile(key); },
             .workers_max = 2,
             .needs = {&quotas_.informer()}})) {
    quotas_.informer().AddHandler([this](const ObjectPtr& before, const ObjectPtr& after) {
      if (!after) {
        Recount(before->key.namespace_name);
      } else if (!before || IsOff(*before, *after)) {
        queue_.Add(after->key);
      }
    });
    for (const Collection* sized : {&services_, &claims_}) {
      sized->informer().AddHandler([this](const ObjectPtr& before, const ObjectPtr& after) {
        if (before) {
          Recount((after ? after : before)->key.namespace_name);
        }
      });
    }
    pods_.informer().AddHandler([this](const ObjectPtr& before, const ObjectPtr& after) {
      const bool ended = before && after && !PodOf(before).Finished() && PodOf(after).Finished();
      const bool changed = before && after && before->generation != after->generation;
      if (!after || ended || changed) {
        Recount((after ? after : before)->key.namespace_name);
      }
    });
  }

 private:
  // What admission charges changes `used` only; anything else asks for a new count.
  static bool IsOff(const client::CachedObject& before, const client::CachedObject& after) {
    const auto was = before.Parse();
    const auto is = after.Parse();
    if (!was.ok() || !is.ok()) {
      return true;
    }
    const auto differ = [](const Json* a, const Json* b) {
      return (a != nullptr ? *a : Json()) != (b != nullptr ? *b : Json());
    };
    const Json* hard = kube::Find(*is, {"spec", "hard"});
    const Json* used = kube::Find(*is, {"status", "used"});
    // Somebody's own status may leave out what is used.
    return differ(kube::Find(*was, {"spec"}), kube::Find(*is, {"spec"})) ||
           differ(hard, kube::Find(*is, {"status", "hard"})) ||
           (hard != nullptr && (used == nullptr || used->size() != hard->size()));
  }

  void Recount(const std::string& name_space) {
    for (const ObjectPtr& quota : quotas_.informer().ListNamespace(name_space)) {
      queue_.AddAfter(quota->key, kGather);
    }
  }

  // The quota is read before the objects are counted and written only if it is still the one that
  // was read: an object charged in between makes the write fail and the count is done again.
  Result<Outcome> Reconcile(const kube::ObjectKey& key) {
    if (!quotas_.Find(key)) {
      return Outcome::Done();
    }
    auto live = quotas_.GetLive(key);
    if (!live.ok()) {
      return live.error().Is(Reason::kNotFound) ? Result<Outcome>(Outcome::Done())
                                                : Result<Outcome>(live.error());
    }
    Json quota = std::move(*live);
    const Json* wanted = kube::Find(quota, {"spec", "hard"});
    const ResourceAmounts hard = kube::AmountsOf(wanted);
    bool all_watched = true;
    SUBLET_TRY(const ResourceAmounts used, Count(key.namespace_name, quota, hard, &all_watched));
    Json status = {{"hard", wanted != nullptr ? *wanted : Json::object()},
                   {"used", kube::AmountsToJson(used)}};
    const Json* before = kube::Find(quota, {"status"});
    const bool fresh =
        before == nullptr || !before->contains("hard") || (*before)["hard"] != status["hard"];
    if (!fresh && kube::AmountsOf(kube::Find(*before, {"used"})) == used) {
      return Outcome::After(all_watched ? kResync : kFreshWait);
    }
    quota["status"] = std::move(status);
    auto written = quotas_.UpdateStatus(quota);
    if (!written.ok() && !written.error().Is(Reason::kNotFound)) {
      return std::move(written).error();
    }
    return Outcome::After(fresh || !all_watched ? kFreshWait : kResync);
  }

  // What the namespace uses of everything in `hard`; what nothing uses is 0. `all_watched`: whether
  // every deletion since leads to a new count.
  Result<ResourceAmounts> Count(const std::string& name_space, const Json& quota,
                                const ResourceAmounts& hard, bool* all_watched) {
    ResourceAmounts used;
    std::set<kube::GroupVersionResource> kinds;
    for (const auto& [name, limit] : hard) {
      used[name] = kube::Quantity();
      SUBLET_TRY(const auto kind, KindOf(name));
      if (kind) {
        kinds.insert(*kind);
      }
    }
    for (const kube::GroupVersionResource& kind : kinds) {
      *all_watched = WatchKind(kind) && *all_watched;
      SUBLET_TRY(const Json list, client_.List({kind, name_space, "", ""}));
      const Json* items = kube::Find(list, {"items"});
      if (items == nullptr || !items->is_array()) {
        continue;
      }
      for (const Json& object : *items) {
        if (!kube::MatchesScopes(quota, kind.resource, object)) {
          continue;
        }
        for (const auto& [name, amount] : kube::QuotaUsage(kind.group, kind.resource, object)) {
          if (const auto counted = used.find(name); counted != used.end()) {
            counted->second += amount;
          }
        }
      }
    }
    return used;
  }

  // The resource whose objects count as `name`; nullopt for a name that means nothing here.
  Result<std::optional<kube::GroupVersionResource>> KindOf(const std::string& name) {
    using Found = std::optional<kube::GroupVersionResource>;
    if (name.starts_with("count/")) {
      const std::string rest = name.substr(6);
      const std::size_t dot = rest.find('.');
      const std::string plural = rest.substr(0, dot);
      if (dot == std::string::npos) {
        return Found({"", "v1", plural});
      }
      return Served(rest.substr(dot + 1), plural);
    }
    for (const char* plain :
         {"configmaps", "secrets", "replicationcontrollers", "resourcequotas"}) {
      if (name == plain) {
        return Found({"", "v1", plain});
      }
    }
    if (name == "services" || name.starts_with("services.")) {
      return Found(kServices.resource);
    }
    if (name == "persistentvolumeclaims" || name == "requests.storage" ||
        name.find(".storageclass.storage.k8s.io/") != std::string::npos) {
      return Found(kClaims.resource);
    }
    return Found(kPods.resource);
  }

  // In the version the server prefers.
  Result<std::optional<kube::GroupVersionResource>> Served(const std::string& group,
                                                           const std::string& plural) const {
    SUBLET_TRY(const auto resources, Discover(client_));
    for (const DiscoveredResource& found : resources) {
      if (found.namespaced && found.resource.group == group && found.resource.resource == plural) {
        return std::optional(found.resource);
      }
    }
    return std::optional<kube::GroupVersionResource>();
  }

  // Has deletions of such objects lead to a new count. False while that is not so yet: one that goes
  // before the stream is open is told by nobody.
  bool WatchKind(const kube::GroupVersionResource& kind) {
    for (const Collection* own : {&pods_, &services_, &claims_}) {
      if (kind == own->informer().options().resource) {
        return own->informer().synced();
      }
    }
    client::InformerOptions options;
    options.resource = kind;
    options.metadata_only = true;
    options.keep_bytes = false;
    client::Informer& informer = informers_.For(options);
    bool is_new = false;
    {
      const MutexLock lock(mutex_);
      is_new = watched_.insert(kind).second;
    }
    if (is_new) {
      informer.AddHandler([this](const ObjectPtr& before, const ObjectPtr& after) {
        if (!after) {
          Recount(before->key.namespace_name);
        }
      });
    }
    return informer.synced();
  }

  const client::Client client_;
  client::InformerFactory& informers_;
  const Collection quotas_;
  const Collection pods_;
  const Collection services_;
  const Collection claims_;
  client::WorkQueue& queue_;
  Mutex mutex_;
  std::set<kube::GroupVersionResource> watched_ SUBLET_GUARDED_BY(mutex_);
};

}  // namespace

std::unique_ptr<Controller> MakeResourceQuotaController(const Context& context) {
  return std::make_unique<QuotaController>(context);
}

}  // namespace sublet::controllers
