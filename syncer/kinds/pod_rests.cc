#include "syncer/kinds/pod_rests.h"

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>

#include "kube/object.h"

namespace sublet::syncer {

using client::Outcome;
using kube::Json;

namespace {
constexpr std::chrono::milliseconds kSoonest{1};
}  // namespace

std::size_t HostPodShape(const Json& host_pod) {
  std::string text;
  for (const auto& [key, value] : host_pod.at("metadata").items()) {
    if (key != "resourceVersion" && key != "managedFields") {
      kube::AppendJsonString(key, &text);
      kube::AppendJson(value, &text);
    }
  }
  kube::AppendJson(host_pod.at("spec"), &text);
  return std::hash<std::string>()(text);
}

std::uint64_t PodRests::changes() const {
  MutexLock lock(mutex_);
  return changes_;
}

void PodRests::Keep(const kube::ObjectKey& key, Rest rest, std::uint64_t changes) {
  MutexLock lock(mutex_);
  if (changes_ == changes) {
    rests_[key] = std::move(rest);
  }
}

void PodRests::Forget(const kube::ObjectKey& key) {
  MutexLock lock(mutex_);
  ++changes_;
  rests_.erase(key);
}

std::optional<Outcome> PodRests::Find(const client::CachedObject& virtual_pod,
                                      const client::CachedObject& host_pod) const {
  const MonotonicTime now = clock_.Monotonic();
  MutexLock lock(mutex_);
  const auto found = rests_.find(virtual_pod.key);
  if (found == rests_.end() || found->second.virtual_version != virtual_pod.resource_version ||
      found->second.host_version != host_pod.resource_version || found->second.renew_at <= now) {
    return std::nullopt;
  }
  return Until(found->second.renew_at);
}

std::optional<PodRests::Rest> PodRests::FindBut(const Json& virtual_pod,
                                                std::size_t host_shape) const {
  const MonotonicTime now = clock_.Monotonic();
  MutexLock lock(mutex_);
  const auto found = rests_.find(kube::KeyOf(virtual_pod));
  if (found == rests_.end() ||
      found->second.virtual_version != kube::ResourceVersionOf(virtual_pod) ||
      found->second.host_shape != host_shape || found->second.renew_at <= now) {
    return std::nullopt;
  }
  return found->second;
}

MonotonicTime PodRests::RenewAt(const Outcome& renew) const {
  return renew.again_after.count() > 0 ? clock_.Monotonic() + renew.again_after
                                       : MonotonicTime::max();
}

Outcome PodRests::Until(MonotonicTime renew_at) const {
  if (renew_at == MonotonicTime::max()) {
    return Outcome::Done();
  }
  // At once would mean never.
  return Outcome::After(std::max<MonotonicTime::duration>(renew_at - clock_.Monotonic(), kSoonest));
}

}  // namespace sublet::syncer
