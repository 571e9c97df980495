// TokenSecrets: the host Secret that holds a pod's service account tokens, made from real
// TokenRequests of the tenant's API and renewed at 80 % of their life. A token never stands in a
// Pod object and is worth nothing at the host's API. Threads: the pod syncer's workers, one per
// pod.
#pragma once

#include <map>
#include <string>

#include "base/mutex.h"
#include "client/reconciler.h"
#include "syncer/kind_syncer.h"
#include "syncer/kinds/pod_translate.h"

namespace sublet::syncer {

class TokenSecrets {
 public:
  explicit TokenSecrets(SyncContext& context) : context_(context) {}

  // What is known about the Secret: kAbsent saves looking for one that a new pod does not have.
  enum class Expect : std::uint8_t { kPresent, kAbsent };
  // Creates or renews the Secret `wanted.token_secret` when its tokens are missing or due.
  // Returns when to come back (0 = the pod mounts no token).
  Result<client::Outcome> Ensure(const kube::Json& virtual_pod, const HostPod& wanted,
                                 Expect expect = Expect::kPresent);
  // Removes it; a missing one is fine.
  Result<void> Remove(const kube::ObjectKey& virtual_pod);

 private:
  struct Known {
    std::string token_set;
    MonotonicTime renew_at;
  };
  Result<std::string> RequestToken(const kube::Json& virtual_pod, const PodToken& token);
  // Remembers when `pod` is due next and says so.
  client::Outcome Remember(const kube::ObjectKey& pod, std::string token_set,
                           std::chrono::seconds life);

  SyncContext& context_;
  Mutex mutex_;
  // One entry per running pod: every status change would otherwise read the Secret again.
  std::map<kube::ObjectKey, Known> known_ SUBLET_GUARDED_BY(mutex_);
};

}  // namespace sublet::syncer
