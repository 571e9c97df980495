// ApiObjects: ConfigMaps, Secrets, tokens and claims for the pods of this node, with a node's
// rights: each ConfigMap and Secret is watched by its name (metadata.name=...), as long as a pod
// refers to it, and its pods are told when it changes. Beyond kWatchesMax objects are read when
// needed instead. Source: kubelet configmap/secret managers (watch based); Node authorization.
// Threads: any; calls may block for the API server.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "client/client.h"
#include "client/informer.h"
#include "node/pod/volumes.h"

namespace sublet::node {

class ApiObjects final : public VolumeSource {
 public:
  // Called with the uid of a pod whose ConfigMap or Secret changed; from the informers' thread.
  using OnChange = std::function<void(const std::string& pod_uid)>;

  ApiObjects(client::Client client, client::InformerFactory& informers, OnChange on_change)
      : client_(std::move(client)), informers_(informers), on_change_(std::move(on_change)) {}
  ~ApiObjects() override;

  // Begins to watch what the pod refers to; calling again with a changed pod adds what is new.
  void Register(const PodPlan& plan) SUBLET_EXCLUDES(mutex_);
  void Unregister(const std::string& pod_uid) SUBLET_EXCLUDES(mutex_);
  std::size_t watches() const SUBLET_EXCLUDES(mutex_);

  Result<std::shared_ptr<const kube::Json>> GetConfigMap(const std::string& namespace_name,
                                                         const std::string& name) override;
  Result<std::shared_ptr<const kube::Json>> GetSecret(const std::string& namespace_name,
                                                      const std::string& name) override;
  Result<Token> RequestToken(const TokenRequest& request) override;
  Result<kube::Json> GetClaim(const std::string& namespace_name, const std::string& name) override;
  Result<kube::Json> GetPersistentVolume(const std::string& name) override;
  Result<kube::Json> GetClusterTrustBundle(const std::string& name) override;

  static constexpr std::size_t kWatchesMax = 512;

 private:
  struct Key {
    std::string resource;
    std::string namespace_name;
    std::string name;
    auto operator<=>(const Key&) const = default;
  };
  struct Watched {
    client::Informer* informer = nullptr;
    std::set<std::string> pods;
  };
  static std::set<Key> References(const PodPlan& plan);
  Result<std::shared_ptr<const kube::Json>> Get(const Key& key);
  void Changed(const Key& key);

  const client::Client client_;
  client::InformerFactory& informers_;
  const OnChange on_change_;
  mutable Mutex mutex_;
  std::map<Key, Watched> watched_ SUBLET_GUARDED_BY(mutex_);
};

}  // namespace sublet::node
