#include "node/agent/object_source.h"

#include <nlohmann/json.hpp>

#include "base/log.h"
#include "kube/timestamp.h"

namespace sublet::node {
namespace {

using kube::Find;
using kube::FindString;
using kube::Json;

// Calls `visit` with every item of the list at `path`.
template <typename Visit>
void EachItem(const Json& object, std::initializer_list<std::string_view> path, Visit&& visit) {
  const Json* list = Find(object, path);
  if (list != nullptr && list->is_array()) {
    for (const Json& item : *list) {
      visit(item);
    }
  }
}

}  // namespace

ApiObjects::~ApiObjects() {
  MutexLock lock(mutex_);
  watched_.clear();  // the factory ends with its informers
}

std::set<ApiObjects::Key> ApiObjects::References(const PodPlan& plan) {
  std::set<Key> keys;
  const auto add = [&](const char* resource, std::string_view name) {
    if (!name.empty()) {
      keys.insert(Key{resource, plan.namespace_name, std::string(name)});
    }
  };
  const auto add_source = [&](const Json& source) {
    add("configmaps", FindString(source, {"configMap", "name"}));
    add("secrets", FindString(source, {"secret", "secretName"}));
    add("secrets", FindString(source, {"secret", "name"}));
  };
  EachItem(*plan.object, {"spec", "volumes"}, [&](const Json& volume) {
    add_source(volume);
    EachItem(volume, {"projected", "sources"}, add_source);
  });
  EachItem(*plan.object, {"spec", "imagePullSecrets"},
           [&](const Json& item) { add("secrets", FindString(item, {"name"})); });
  for (const ContainerPlan* container : plan.All()) {
    EachItem(*container->spec, {"envFrom"}, [&](const Json& item) {
      add("configmaps", FindString(item, {"configMapRef", "name"}));
      add("secrets", FindString(item, {"secretRef", "name"}));
    });
    EachItem(*container->spec, {"env"}, [&](const Json& item) {
      add("configmaps", FindString(item, {"valueFrom", "configMapKeyRef", "name"}));
      add("secrets", FindString(item, {"valueFrom", "secretKeyRef", "name"}));
    });
  }
  return keys;
}

void ApiObjects::Register(const PodPlan& plan) {
  for (const Key& key : References(plan)) {
    client::Informer* fresh = nullptr;
    {
      MutexLock lock(mutex_);
      const auto it = watched_.find(key);
      if (it != watched_.end()) {
        it->second.pods.insert(plan.uid);
        continue;
      }
      if (watched_.size() >= kWatchesMax) {
        log::Warn("too many objects to watch; this one is read when needed",
                  {{"kind", key.resource}, {"namespace", key.namespace_name}, {"name", key.name}});
        continue;
      }
      client::InformerOptions options;
      options.resource = {"", "v1", key.resource};
      options.namespace_name = key.namespace_name;
      options.field_selector = "metadata.name=" + key.name;
      fresh = &informers_.For(options);
      Watched& watched = watched_[key];
      watched.informer = fresh;
      watched.pods.insert(plan.uid);
    }
    fresh->AddHandler(
        [this, key](const client::ObjectPtr&, const client::ObjectPtr&) { Changed(key); });
  }
}

void ApiObjects::Changed(const Key& key) {
  std::set<std::string> pods;
  {
    MutexLock lock(mutex_);
    if (const auto it = watched_.find(key); it != watched_.end()) {
      pods = it->second.pods;
    }
  }
  for (const std::string& uid : pods) {
    on_change_(uid);
  }
}

void ApiObjects::Unregister(const std::string& pod_uid) {
  std::vector<client::Informer*> unused;
  {
    MutexLock lock(mutex_);
    for (auto it = watched_.begin(); it != watched_.end();) {
      it->second.pods.erase(pod_uid);
      if (it->second.pods.empty()) {
        unused.push_back(it->second.informer);
        it = watched_.erase(it);
      } else {
        ++it;
      }
    }
  }
  for (client::Informer* informer : unused) {
    informers_.Remove(*informer);
  }
}

std::size_t ApiObjects::watches() const {
  MutexLock lock(mutex_);
  return watched_.size();
}

Result<std::shared_ptr<const Json>> ApiObjects::Get(const Key& key) {
  {
    // Under the lock, so that the informer cannot be removed meanwhile; the look-up itself is
    // quick.
    MutexLock lock(mutex_);
    const auto it = watched_.find(key);
    if (it != watched_.end() && it->second.informer->synced()) {
      const client::ObjectPtr object = it->second.informer->Get({key.namespace_name, key.name});
      if (object != nullptr) {
        SUBLET_TRY(Json parsed, object->Parse());
        return std::make_shared<const Json>(std::move(parsed));
      }
    }
  }
  // Not watched, or not there as far as the watch knows: the server has the last word.
  client::Target target;
  target.resource = {"", "v1", key.resource};
  target.namespace_name = key.namespace_name;
  target.name = key.name;
  SUBLET_TRY(Json object, client_.Get(target));
  return std::make_shared<const Json>(std::move(object));
}

Result<std::shared_ptr<const Json>> ApiObjects::GetConfigMap(const std::string& namespace_name,
                                                             const std::string& name) {
  return Get(Key{"configmaps", namespace_name, name});
}

Result<std::shared_ptr<const Json>> ApiObjects::GetSecret(const std::string& namespace_name,
                                                          const std::string& name) {
  return Get(Key{"secrets", namespace_name, name});
}

Result<Token> ApiObjects::RequestToken(const TokenRequest& request) {
  client::Target target;
  target.resource = {"", "v1", "serviceaccounts"};
  target.namespace_name = request.namespace_name;
  target.name = request.service_account.empty() ? "default" : request.service_account;
  target.subresource = "token";
  Json body = {{"apiVersion", "authentication.k8s.io/v1"}, {"kind", "TokenRequest"}};
  Json& spec = body["spec"];
  spec["expirationSeconds"] = request.expiration_seconds;
  spec["audiences"] = Json::array();
  if (!request.audience.empty()) {
    spec["audiences"].push_back(request.audience);
  }
  spec["boundObjectRef"] = {
      {"apiVersion", "v1"}, {"kind", "Pod"}, {"name", request.pod_name}, {"uid", request.pod_uid}};
  SUBLET_TRY(const Json answer, client_.Create(target, body));
  Token token;
  token.text = FindString(answer, {"status", "token"});
  SUBLET_TRY(token.expires, kube::ParseTime(FindString(answer, {"status", "expirationTimestamp"})));
  return token;
}

Result<Json> ApiObjects::GetClaim(const std::string& namespace_name, const std::string& name) {
  client::Target target;
  target.resource = {"", "v1", "persistentvolumeclaims"};
  target.namespace_name = namespace_name;
  target.name = name;
  return client_.Get(target);
}

Result<Json> ApiObjects::GetPersistentVolume(const std::string& name) {
  client::Target target;
  target.resource = {"", "v1", "persistentvolumes"};
  target.name = name;
  return client_.Get(target);
}

Result<Json> ApiObjects::GetClusterTrustBundle(const std::string& name) {
  client::Target target;
  target.resource = {"certificates.k8s.io", "v1beta1", "clustertrustbundles"};
  target.name = name;
  return client_.Get(target);
}

}  // namespace sublet::node
