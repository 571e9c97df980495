// PodRests: which pods need no look. A pod whose two sides were brought to agree rests until one of
// them changes, or until its token has to be renewed; most changes of a host pod are to its status,
// and then the status is all there is to carry.
// Threads: any; synchronises itself.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/mutex.h"
#include "client/informer.h"
#include "client/reconciler.h"

namespace sublet::syncer {

// Tells host pods apart that differ in more than status and resourceVersion.
std::size_t HostPodShape(const kube::Json& host_pod);

class PodRests {
 public:
  // Both sides as they were when nothing was left to do but what `renew_at` says.
  struct Rest {
    std::string virtual_version;
    std::string host_version;
    MonotonicTime renew_at;  // max(): never
    std::size_t host_shape = 0;
  };

  // `clock` outlives this.
  explicit PodRests(const Clock& clock) : clock_(clock) {}

  // How often Forget was called: asked before a pod is read, told to Keep after.
  std::uint64_t changes() const;
  // From now on `key` rests; not when something was forgotten since `changes`, which this look at the
  // pod may have missed.
  void Keep(const kube::ObjectKey& key, Rest rest, std::uint64_t changes);
  void Forget(const kube::ObjectKey& key);

  // What to do for two sides that are as they rested; nullopt when they are not, or the time has come.
  std::optional<client::Outcome> Find(const client::CachedObject& virtual_pod,
                                      const client::CachedObject& host_pod) const;
  // The rest of a virtual pod that is as it was, beside a host pod that differs in its status at most.
  std::optional<Rest> FindBut(const kube::Json& virtual_pod, std::size_t host_shape) const;

  // When to come back, both ways.
  MonotonicTime RenewAt(const client::Outcome& renew) const;
  client::Outcome Until(MonotonicTime renew_at) const;

 private:
  const Clock& clock_;
  mutable Mutex mutex_;
  std::map<kube::ObjectKey, Rest> rests_ SUBLET_GUARDED_BY(mutex_);  // one entry per pod
  std::uint64_t changes_ SUBLET_GUARDED_BY(mutex_) = 0;
};

}  // namespace sublet::syncer
