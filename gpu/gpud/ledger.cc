#include "gpu/gpud/ledger.h"

#include <algorithm>
#include <utility>

namespace sublet::gpu {

void Ledger::SetDevice(const std::string& uuid, std::int64_t memory_bytes, bool is_healthy,
                       std::string health_message, std::int64_t generation_min) {
  Device& device = devices_[uuid];
  device.generation = std::max(device.generation, generation_min);
  if (device.memory_bytes != memory_bytes || device.is_healthy != is_healthy) {
    device.memory_bytes = memory_bytes;
    device.is_healthy = is_healthy;
    ++device.generation;
  }
  device.health_message = std::move(health_message);
}

std::variant<Grant, Denial> Ledger::TryGrant(const std::string& slice,
                                             const std::vector<SliceDevice>& devices) {
  if (const auto held = grants_.find(slice); held != grants_.end()) {
    return held->second;
  }
  for (const SliceDevice& wanted : devices) {
    const auto found = devices_.find(wanted.uuid);
    if (found == devices_.end()) {
      return Denial{std::string(kDeniedUnknownDevice),
                    "no device " + wanted.uuid + " on this node"};
    }
    const Device& device = found->second;
    if (!device.is_healthy) {
      return Denial{std::string(kDeniedUnhealthyDevice),
                    wanted.uuid + " is unhealthy: " + device.health_message};
    }
    if (wanted.memory_bytes <= 0 || wanted.share_milli <= 0) {
      return Denial{std::string(kDeniedInvalidSpec),
                    wanted.uuid + ": bytes and share must be positive"};
    }
    if (wanted.memory_bytes > device.free_bytes()) {
      return Denial{std::string(kDeniedInsufficientMemory),
                    wanted.uuid + ": " + std::to_string(wanted.memory_bytes) + " bytes asked, " +
                        std::to_string(device.free_bytes()) + " free"};
    }
    if (wanted.share_milli > device.free_milli()) {
      return Denial{std::string(kDeniedInsufficientShare),
                    wanted.uuid + ": share " + std::to_string(wanted.share_milli) +
                        "/1000 asked, " + std::to_string(device.free_milli()) + " free"};
    }
  }
  Grant grant;
  for (const SliceDevice& wanted : devices) {
    Device& device = devices_.find(wanted.uuid)->second;
    device.used_bytes += wanted.memory_bytes;
    device.used_milli += wanted.share_milli;
    grant.push_back({wanted, ++device.generation});
  }
  return grants_[slice] = std::move(grant);
}

void Ledger::Restore(const std::string& slice, const Grant& grant) {
  if (grants_.contains(slice)) {
    return;
  }
  for (const GrantedDevice& granted : grant) {
    const auto found = devices_.find(granted.device.uuid);
    if (found == devices_.end()) {
      continue;
    }
    found->second.used_bytes += granted.device.memory_bytes;
    found->second.used_milli += granted.device.share_milli;
    found->second.generation = std::max(found->second.generation, granted.ledger_generation);
  }
  grants_[slice] = grant;
}

bool Ledger::Release(const std::string& slice) {
  const auto held = grants_.find(slice);
  if (held == grants_.end()) {
    return false;
  }
  for (const GrantedDevice& granted : held->second) {
    if (const auto found = devices_.find(granted.device.uuid); found != devices_.end()) {
      found->second.used_bytes -= granted.device.memory_bytes;
      found->second.used_milli -= granted.device.share_milli;
      ++found->second.generation;
    }
  }
  grants_.erase(held);
  return true;
}

const Grant* Ledger::Find(const std::string& slice) const {
  const auto found = grants_.find(slice);
  return found == grants_.end() ? nullptr : &found->second;
}

const Ledger::Device* Ledger::FindDevice(std::string_view uuid) const {
  const auto found = devices_.find(uuid);
  return found == devices_.end() ? nullptr : &found->second;
}

}  // namespace sublet::gpu
