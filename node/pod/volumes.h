// Volumes: makes the volumes of a pod on the machine, keeps the live ones up to date and takes them
// down. Kinds: emptyDir (disk and memory), configMap, secret, projected, downwardAPI, hostPath,
// persistentVolumeClaim and ephemeral (PersistentVolumes of hostPath or local source).
//
//   ROOT/pods/UID/volumes/NAME     emptyDir, configMap, downwardAPI
//   ROOT/memory/UID/NAME           secret and projected: on one tmpfs of the agent, never on disk
//   ROOT/pods/UID/subpaths/C/I     bind mounts that pin what a subPath named when it was checked
//
// Source: kubelet volumemanager, volume plugins, subpath. Threads: one pod by one thread at a time.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/result.h"
#include "node/engine/engine.h"
#include "node/pod/env.h"
#include "node/pod/payload_volume.h"
#include "node/pod/plan.h"

namespace sublet::node {

struct TokenRequest {
  std::string namespace_name;
  std::string service_account;
  std::string audience;  // "" = the API server's
  std::int64_t expiration_seconds = 3600;
  std::string pod_name;
  std::string pod_uid;
};
struct Token {
  std::string text;
  WallTime expires{};
};

// What volumes need of the API beyond ConfigMaps and Secrets. Threads: any.
class VolumeSource : public ObjectSource {
 public:
  virtual Result<Token> RequestToken(const TokenRequest& request) = 0;
  virtual Result<kube::Json> GetClaim(const std::string& namespace_name,
                                      const std::string& name) = 0;
  virtual Result<kube::Json> GetPersistentVolume(const std::string& name) = 0;
  virtual Result<kube::Json> GetClusterTrustBundle(const std::string& name) = 0;
};

struct VolumesConfig {
  std::string root;  // absolute
};

// Unmounts everything at or below `prefix`, deepest first; says in the log what cannot be.
void UnmountBelow(const std::string& prefix);

class Volumes {
 public:
  Volumes(VolumesConfig config, VolumeSource& source, const Clock& clock)
      : config_(std::move(config)), source_(source), clock_(clock) {}

  // Mounts the tmpfs for secrets. Errors: InternalError.
  Result<void> Prepare();
  // Unmounts everything of ours below the root.
  void TearDownAll();

  // Makes or refreshes every volume of the pod; `facts` may lack the pod's address at first.
  // Returns the moment a token wants to be renewed, if any. Errors: NotFound with kubelet's text
  // (`configmap "x" not found`), BadRequest (unsupported volume kind), the file system's word.
  Result<std::optional<WallTime>> SetUp(const PodPlan& plan, const PodFacts& facts);
  // The mounts of one container. Errors: as SetUp, BadRequest (subPath leaves its volume).
  Result<std::vector<EngineMount>> MountsOf(const PodPlan& plan, const ContainerPlan& container,
                                            const Environment& environment);
  // Unmounts and removes what the pod had. Persistent volumes stay.
  Result<void> TearDown(const std::string& pod_uid);

  std::string PodFolder(const std::string& pod_uid) const;
  VolumeSource& source() { return source_; }

 private:
  struct Made {
    std::string path;
    bool read_only = false;
  };
  Result<Made> SetUpOne(const PodPlan& plan, const PodFacts& facts, const kube::Json& volume,
                        std::optional<WallTime>* renew_at);
  Result<Made> EmptyDir(const PodPlan& plan, const kube::Json& volume);
  Result<Made> Claim(const PodPlan& plan, const std::string& claim_name, bool read_only);
  Result<Made> HostPath(const std::string& path, const std::string& type);
  Result<Payload> BuildPayload(const PodPlan& plan, const PodFacts& facts, const kube::Json& volume,
                               std::optional<WallTime>* renew_at);
  Result<void> AddProjection(const PodPlan& plan, const PodFacts& facts, const kube::Json& source,
                             std::uint32_t mode, std::optional<WallTime>* renew_at,
                             Payload* payload);
  Result<std::string> TokenFor(const PodPlan& plan, const kube::Json& projection,
                               std::optional<WallTime>* renew_at);
  Result<std::string> PinSubPath(const PodPlan& plan, const ContainerPlan& container, int index,
                                 const std::string& volume_path, const std::string& sub_path);

  const VolumesConfig config_;
  VolumeSource& source_;
  const Clock& clock_;

  // What SetUp made, by pod and volume name; filled again by SetUp after a restart.
  Mutex mutex_;
  std::map<std::string, std::map<std::string, Made>> made_ SUBLET_GUARDED_BY(mutex_);
  struct CachedToken {
    Token token;
    WallTime renew_at{};
  };
  std::map<std::string, std::map<std::string, CachedToken>> tokens_ SUBLET_GUARDED_BY(mutex_);
};

}  // namespace sublet::node
