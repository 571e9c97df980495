// PodRecord: what the controllers need of a pod, made once per event; no tree and no bytes of a pod
// are kept by them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "client/informer.h"

namespace sublet::controllers {

struct PodPort {
  std::string name;
  std::string protocol;
  std::int32_t number = 0;
};

struct PodCondition {
  std::string type;
  std::string status;
  std::string reason;
};

// A container that ended.
struct ContainerEnd {
  std::string name;
  std::int64_t exit_code = 0;
  bool is_init = false;
};

struct PodRecord {
  std::string node;
  std::string wanted_node;  // of an unbound pod whose affinity names one node (a DaemonSet's)
  std::string phase;
  std::string reason;
  std::string restart_policy;
  std::string hostname;
  std::string subdomain;
  std::vector<std::string> ips;
  bool ready = false;
  std::optional<WallTime> ready_since;
  std::optional<WallTime> start_time;
  std::optional<WallTime> finished_at;  // the latest end among its containers
  std::int64_t restarts = 0;            // sum over the containers
  std::int64_t restarts_max = 0;        // of one container
  std::int64_t deletion_cost = 0;
  std::optional<std::int64_t> completion_index;
  std::int64_t failed_count = 0;   // batch.kubernetes.io/job-index-failure-count
  std::int64_t ignored_count = 0;  // batch.kubernetes.io/job-index-ignored-failure-count
  bool has_overhead = false;
  bool host_network = false;
  std::vector<PodPort> ports;  // named and unnamed, of all containers
  std::vector<PodCondition> conditions;
  std::vector<ContainerEnd> ends;
  // What the scheduler counts: the larger of the sum of the containers and each init container,
  // with sidecars and overhead.
  std::vector<std::pair<std::string, std::string>> requests;
  std::vector<std::string> claims;           // names of persistent volume claims
  std::vector<std::string> device_claims;    // names of resource claims, as far as they exist
  bool lacks_device_claims = false;          // one that a template makes is not named yet
  std::vector<std::string> toleration_json;  // each toleration, encoded

  bool Finished() const { return phase == "Succeeded" || phase == "Failed"; }
  bool HasCondition(std::string_view type, std::string_view status = "True") const;
};

PodRecord ReadPodRecord(const kube::Json& pod);

inline const PodRecord& PodOf(const client::ObjectPtr& object) { return object->As<PodRecord>(); }
// Neither finished nor being deleted.
bool IsActive(const client::CachedObject& pod);
// Ready, for at least `min_ready_seconds` at `now`. When it only lacks time, *wait is lowered to
// what is left of it.
bool IsAvailable(const client::CachedObject& pod, std::int64_t min_ready_seconds, WallTime now,
                 std::chrono::nanoseconds* wait);

}  // namespace sublet::controllers
