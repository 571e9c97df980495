// Claims and device slices in the state: who is charged for a claim that pods share, and what is
// kept of our own allocations while the API has not caught up with them (scheduler/state.h).
#include <algorithm>

#include "scheduler/claims.h"
#include "scheduler/state.h"

namespace sublet::scheduler {

std::int64_t State::LiveDra(const Task& t) const {
  std::int64_t gpus = 0;
  for (const std::string& name : t.claims) {
    auto it = claims.find(t.ns + "/" + name);
    if (it != claims.end() && (it->second.payer.empty() || it->second.payer == t.uid)) {
      gpus += GpusOf(it->second);
    }
  }
  return gpus;
}

void State::SetDra(Task& t) {
  t.dra = LiveDra(t);
  t.dra_quota = count_dra ? t.dra : 0;
}

std::int64_t State::ClaimGpus(const std::vector<TaskId>& ids) const {
  std::int64_t gpus = 0;
  std::set<std::string> seen;
  for (TaskId id : ids) {
    const Task& t = task(id);
    for (const std::string& name : t.claims) {
      auto it = claims.find(t.ns + "/" + name);
      if (it != claims.end() && (it->second.payer.empty() || it->second.payer == t.uid) &&
          seen.insert(it->first).second) {
        gpus += GpusOf(it->second);
      }
    }
  }
  return gpus;
}

// What a waiting task asks of its queue: of several that wait for one claim, the first by uid does.
std::int64_t State::RequestedDra(const Task& t) const {
  std::int64_t gpus = 0;
  for (const std::string& name : t.claims) {
    auto it = claims.find(t.ns + "/" + name);
    auto users = claim_users_.find(t.ns + "/" + name);
    if (it == claims.end() || users == claim_users_.end() || !it->second.payer.empty()) {
      continue;
    }
    const bool first = std::none_of(users->second.begin(), users->second.end(), [&](TaskId other) {
      return task(other).status == Status::kPending && task(other).uid < t.uid;
    });
    gpus += first ? GpusOf(it->second) : 0;
  }
  return count_dra ? gpus : 0;
}

void State::Recharge(TaskId id) {
  Task& t = task(id);
  const std::int64_t dra = LiveDra(t);
  if (dra == t.dra) {
    return;
  }
  const bool charged = ActiveAllocated(t.status);
  if (charged) {
    ChargeQueues(id, -1);
  }
  for (const Placement& placement : t.placements) {
    Account(placement.node, placement, t, -1);
  }
  const std::int64_t before = t.dra_quota;
  t.dra = dra;
  t.dra_quota = count_dra ? dra : 0;
  t.accepted[kGpu] += t.dra_quota - before;
  if (t.job != kNone && CountsForQuota(t.status)) {
    job(t.job).held[kGpu] += t.dra_quota - before;
  }
  for (const Placement& placement : t.placements) {
    Account(placement.node, placement, t, 1);
  }
  if (charged) {
    ChargeQueues(id, 1);
  }
  if (t.foreign && t.node != kNone) {
    CountNode(t.node);
  }
  ++usage_generation;
}

void State::ShareClaim(const std::string& key) {
  const auto users = claim_users_.find(key);
  const auto it = claims.find(key);
  if (it != claims.end()) {
    ClaimSpec& claim = it->second;
    claim.payer.clear();
    bool active = false;
    for (TaskId id : users == claim_users_.end() ? std::set<TaskId>{} : users->second) {
      const Task& t = task(id);
      if (claim.from_template || t.placements.empty() || !ActiveUsed(t.status)) {
        continue;
      }
      // One that stays is charged rather than one that is leaving.
      const bool stays = ActiveAllocated(t.status);
      if (claim.payer.empty() || (stays && !active) || (stays == active && t.uid < claim.payer)) {
        claim.payer = t.uid;
        active = stays;
      }
    }
  }
  if (users == claim_users_.end()) {
    return;
  }
  for (TaskId id : users->second) {
    if (!task(id).placements.empty()) {
      Recharge(id);
    }
    MarkDirty(id);
    if (task(id).job != kNone) {
      ++job(task(id).job).version;
    }
  }
}

void State::LeaveClaims(TaskId id, bool keep) {
  const Task& t = task(id);
  for (const std::string& name : t.claims) {
    const std::string key = t.ns + "/" + name;
    if (auto users = claim_users_.find(key); users != claim_users_.end()) {
      users->second.erase(id);
      if (users->second.empty()) {
        claim_users_.erase(users);
      }
    }
    if (auto it = claims.find(key); it != claims.end() && !keep && !t.real) {
      ReleaseClaim(*this, it->second, t.uid);
    }
    ShareClaim(key);
  }
}

void State::UpsertClaim(const ClaimSpec& spec) {
  const std::string key = spec.Key();
  ClaimSpec next = spec;
  next.payer.clear();
  const auto known = claims.find(key);
  if (known != claims.end() && known->second.uid == spec.uid) {
    // Our decision is ahead of the API: pods that are being bound hold it.
    const ClaimSpec& old = known->second;
    bool ahead = false;
    for (const std::string& uid : old.reserved_for) {
      const TaskId id = FindTask(uid);
      if (id == kNone || task(id).real || !CountsForQuota(task(id).status) ||
          std::find(next.reserved_for.begin(), next.reserved_for.end(), uid) !=
              next.reserved_for.end()) {
        continue;
      }
      next.reserved_for.push_back(uid);
      ahead = true;
    }
    if (ahead && next.allocated.empty()) {
      next.allocated = old.allocated;
      next.allocated_for = old.allocated_for;
      next.holds = old.holds;
      next.allocated_on = old.allocated_on;
    }
  }
  claims[key] = std::move(next);
  TouchClaims();
  ++capacity_generation;
  ShareClaim(key);
}

void State::DeleteClaim(const std::string& key) {
  claims.erase(key);
  TouchClaims();
  ++capacity_generation;
  ShareClaim(key);
}

void State::UpsertSlice(const DeviceSlice& slice) {
  slices[slice.name] = slice;
  ++slice_generation;
  ++capacity_generation;
}

void State::DeleteSlice(const std::string& name) {
  slices.erase(name);
  ++slice_generation;
  ++capacity_generation;
}

}  // namespace sublet::scheduler
