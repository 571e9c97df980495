// The engine's leases, and the comparison of what processes say with what the driver shows.
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

#include "base/log.h"
#include "gpu/gpud/engine_impl.h"
#include "gpu/gpud/identity.h"

namespace sublet::gpu {
namespace {

constexpr int kOverCapPolls = 3;
constexpr int kSilentPolls = 3;
constexpr std::size_t kUnmanagedMax = 4096;
// The driver's samples are coarse: so many points mean nothing, and others below it are not
// disturbed.
constexpr std::int64_t kSampleErrorPercent = 10;
constexpr std::int64_t kBusyOthersPercent = 5;

int PlaceOf(const EngineSlice& slice, const std::string& uuid) {
  for (std::size_t i = 0; i < slice.devices.size(); ++i) {
    if (slice.devices[i].device.uuid == uuid) {
      return static_cast<int>(i);
    }
  }
  return -1;
}

}  // namespace

void Engine::Impl::StepDevice(Device& device, Nanoseconds now) {
  const auto uuid_of = [&]() -> const std::string& {
    for (const auto& [uuid, candidate] : devices) {
      if (&candidate == &device) {
        return uuid;
      }
    }
    static const std::string none;
    return none;
  };
  const std::string& uuid = uuid_of();
  device.next_step = device.arbiter.Step(
      now,
      [&](int id) {
        Slice* slice = Find(id);
        const int place = slice == nullptr ? -1 : PlaceOf(slice->config, uuid);
        return place < 0 ? LeaseObservation{} : slice->pages->Observe(place);
      },
      [&](int id, const LeaseWord& word) {
        Slice* slice = Find(id);
        const int place = slice == nullptr ? -1 : PlaceOf(slice->config, uuid);
        if (place >= 0) {
          slice->pages->SetLease(place, word);
          const LeaseAccount* account = device.arbiter.FindAccount(id);
          slice->pages->SetBusy(place,
                                account == nullptr ? 0 : static_cast<std::uint64_t>(account->used));
        }
      });
}

void Engine::Impl::StepAll(Nanoseconds now) {
  for (auto& [uuid, device] : devices) {
    if (device.next_step != 0 && now >= device.next_step) {
      StepDevice(device, now);
    }
  }
  for (const auto& [id, slice] : slices) {
    if (slice.config.devices.size() > 1) {
      Gather(slice, now);
    }
  }
}

void Engine::Impl::Gather(const Slice& slice, Nanoseconds now) {
  std::vector<Device*> mine;
  std::vector<Arbiter*> arbiters;
  for (const GrantedDevice& granted : slice.config.devices) {
    mine.push_back(&devices[granted.device.uuid]);
    arbiters.push_back(&mine.back()->arbiter);
  }
  for (const std::size_t summoned : GatherTurns(arbiters, slice.id)) {
    StepDevice(*mine[summoned], now);
  }
}

void Engine::Impl::ReleaseDead(const Snapshot& snapshot, Nanoseconds now) {
  std::erase_if(held, [&](const Held& item) {
    Slice* slice = Find(item.slice);
    if (slice == nullptr) {
      return true;
    }
    const auto list = snapshot.processes.find(item.index);
    const bool known = list != snapshot.processes.end() && snapshot.poll >= item.poll;
    const bool shown = !known || std::any_of(list->second.begin(), list->second.end(),
                                             [&](const DriverProcess& process) {
                                               return process.pid == item.pid;
                                             });
    if (shown && now < item.until) {
      return false;
    }
    if (shown) {
      on_event({slice->config.name, "GpuMemoryHeldByDriver",
                "the driver still shows memory of process " + std::to_string(item.pid) +
                    ", which is dead"});
    }
    slice->pages->ReleaseHeld(item.device, item.bytes);
    needs_repair = true;
    return true;
  });
}

void Engine::Impl::KillLargest(Slice& slice, int device, const std::vector<DriverProcess>& list) {
  const DriverProcess* largest = nullptr;
  for (const DriverProcess& process : list) {
    if (slice.processes.contains(process.pid) &&
        (largest == nullptr || process.bytes > largest->bytes)) {
      largest = &process;
    }
  }
  if (largest == nullptr) {
    return;
  }
  on_event({slice.config.name, "GpuMemoryOverCap",
            "process " + std::to_string(largest->pid) +
                " ended: the driver shows more than the slice's " +
                std::to_string(
                    slice.config.devices[static_cast<std::size_t>(device)].device.memory_bytes) +
                " bytes"});
  syscall(SYS_pidfd_send_signal, slice.processes.at(largest->pid).pidfd, SIGKILL, nullptr, 0);
}

// What the driver shows for the slice's processes against what they charged.
void Engine::Impl::CompareSlice(Slice& slice, const Snapshot& snapshot) {
  for (std::size_t i = 0; i < slice.config.devices.size(); ++i) {
    Device& device = devices[slice.config.devices[i].device.uuid];
    const auto list = snapshot.processes.find(device.index);
    if (list == snapshot.processes.end() || slice.config.enforce == Enforce::kOff) {
      continue;
    }
    const int place = static_cast<int>(i);
    std::uint64_t shown = 0;
    for (const DriverProcess& process : list->second) {
      const auto known = slice.processes.find(process.pid);
      if (known == slice.processes.end()) {
        continue;
      }
      shown += process.bytes;
      // A process that has charged a context and nothing else shows what a context takes.
      const std::uint64_t charged = slice.pages->SlotBytes(known->second.slot, place);
      if (charged > 0 && charged == device.context_bytes && process.bytes > charged) {
        device.context_bytes = process.bytes;
        for (auto& [id, other] : slices) {
          for (std::size_t j = 0; j < other.config.devices.size(); ++j) {
            if (other.config.devices[j].device.uuid == slice.config.devices[i].device.uuid) {
              other.pages->SetContextBytes(static_cast<int>(j), device.context_bytes);
            }
          }
        }
      }
    }
    std::uint64_t charged = slice.pages->Held(place);
    for (const auto& [pid, process] : slice.processes) {
      charged += slice.pages->SlotBytes(process.slot, place);
    }
    // Both sides move while we look: only what three rounds in a row agree on is believed.
    const std::uint64_t surplus = shown > charged ? shown - charged : 0;
    const std::uint64_t drift = std::min({surplus, slice.drift_low[0][i], slice.drift_low[1][i]});
    slice.drift_low[1][i] = slice.drift_low[0][i];
    slice.drift_low[0][i] = surplus;
    slice.pages->SetDrift(place, drift);
    const std::uint64_t cap =
        static_cast<std::uint64_t>(slice.config.devices[i].device.memory_bytes);
    slice.over_cap_polls[i] =
        shown > cap + options.over_cap_slack_bytes ? slice.over_cap_polls[i] + 1 : 0;
    if (slice.over_cap_polls[i] >= kOverCapPolls) {
      slice.over_cap_polls[i] = 0;
      if (options.unmanaged == UnmanagedPolicy::kKill) {
        KillLargest(slice, place, list->second);
      } else {
        on_event({slice.config.name, "GpuMemoryOverCap",
                  "the driver shows more than the slice's bytes"});
      }
    }
  }
}

// The driver's samples of who was busy. A slice alone on its device is not measured by turns, so
// this is what it used. One that shares has its turns to show for what the driver saw: work that
// goes past the gate (private tables of the driver, a second copy of it in a process that is known)
// has none.
void Engine::Impl::CompareShares(Slice& slice, const Snapshot& snapshot) {
  const std::size_t count = slice.config.devices.size();
  slice.solo_busy.resize(count);
  slice.turns_used.resize(count);
  slice.over_share.resize(count);
  slice.over_share_said.resize(count);
  for (std::size_t i = 0; i < count; ++i) {
    const Device& device = devices[slice.config.devices[i].device.uuid];
    const auto list = snapshot.utilization.find(device.index);
    const LeaseWord* word = device.arbiter.FindWord(slice.id);
    const LeaseAccount* account = device.arbiter.FindAccount(slice.id);
    if (list == snapshot.utilization.end() || word == nullptr || account == nullptr) {
      continue;
    }
    std::int64_t percent = 0;
    std::int64_t of_others = 0;
    const DriverUtilization* busiest = nullptr;
    for (const DriverUtilization& used : list->second) {
      if (slice.processes.contains(used.pid)) {
        percent += used.percent;
        busiest = busiest == nullptr || used.percent > busiest->percent ? &used : busiest;
      } else {
        of_others += used.percent;
      }
    }
    percent = std::min<std::int64_t>(percent, 100);
    const Nanoseconds in_turns = account->used - slice.turns_used[i];
    slice.turns_used[i] = account->used;
    const bool is_alone = word->is_open && !word->is_contended;
    if (is_alone) {
      slice.solo_busy[i] += snapshot.utilization_over / 100 * percent;
    }
    const std::int64_t explained =
        std::clamp<std::int64_t>(in_turns * 100 / snapshot.utilization_over, 0, 100);
    const std::int64_t share = slice.config.devices[i].device.share_milli / 10;
    if (is_alone || of_others < kBusyOthersPercent || slice.config.enforce == Enforce::kOff ||
        percent <= share + kSampleErrorPercent || percent <= 2 * explained + kSampleErrorPercent) {
      slice.over_share[i] = 0;
      slice.over_share_said[i] = false;
      continue;
    }
    slice.over_share[i] += snapshot.utilization_over;
    const Nanoseconds grace = std::chrono::nanoseconds(options.share_grace).count();
    const std::string what = "the driver shows it busy for " + std::to_string(percent) +
                             " % of the time, its turns were " + std::to_string(explained) +
                             " %, its share is " + std::to_string(share) + " %";
    if (slice.over_share[i] >= grace && !slice.over_share_said[i]) {
      slice.over_share_said[i] = true;
      on_event({slice.config.name, "GpuShareExceeded", what});
    }
    if (slice.over_share[i] >= 3 * grace && options.unmanaged == UnmanagedPolicy::kKill &&
        busiest != nullptr) {
      slice.over_share[i] = 0;
      slice.over_share_said[i] = false;
      on_event({slice.config.name, "GpuShareExceeded",
                what + "; process " + std::to_string(busiest->pid) + " was ended"});
      syscall(SYS_pidfd_send_signal, slice.processes.at(busiest->pid).pidfd, SIGKILL, nullptr, 0);
    }
  }
}

// Processes on a device that never came to us: their own copy of the driver's library, direct
// ioctl, or a process of the node's own. In a slice's container they end; elsewhere they are
// reported.
void Engine::Impl::FindUnmanaged(const Snapshot& snapshot, Nanoseconds now) {
  std::map<int, std::pair<std::uint64_t, Nanoseconds>> seen;
  for (const auto& [index, list] : snapshot.processes) {
    for (const DriverProcess& process : list) {
      bool managed = process.pid == getpid();
      for (const auto& [id, slice] : slices) {
        managed = managed || slice.processes.contains(process.pid);
      }
      if (managed || seen.size() >= kUnmanagedMax) {
        continue;
      }
      const std::uint64_t start = ProcessStartTime(process.pid);
      const auto before = unmanaged.find(process.pid);
      if (start == 0) {
        continue;
      }
      const bool is_known = before != unmanaged.end() && before->second.first == start;
      const Nanoseconds first = is_known ? before->second.second : now;
      // A first-seen time of 0 says: dealt with.
      seen[process.pid] = {start, first};
      if (first == 0 || now - first < std::chrono::nanoseconds(options.unmanaged_grace).count()) {
        continue;
      }
      seen[process.pid].second = 0;
      ++unmanaged_total;
      Slice* owner = nullptr;
      const std::string mounted = MountedSlice(process.pid);
      const std::string cgroup = ProcessCgroup(process.pid);
      for (auto& [id, slice] : slices) {
        if (slice.config.name == mounted ||
            (options.check_cgroups && !slice.cgroup.empty() && slice.cgroup != "/" &&
             IsWithinCgroup(cgroup, slice.cgroup))) {
          owner = &slice;
        }
      }
      const std::string what = "process " + std::to_string(process.pid) + " uses " +
                               std::to_string(process.bytes) + " bytes of device " +
                               std::to_string(index) + " past the slice";
      if (owner == nullptr) {
        on_event({"", "UnmanagedGpuProcess", what + ", cgroup " + cgroup});
        continue;
      }
      ++owner->unmanaged;
      const bool kills =
          options.unmanaged == UnmanagedPolicy::kKill && owner->config.enforce == Enforce::kOn;
      on_event({owner->config.name, "UnmanagedGpuProcess", what + (kills ? "; it was ended" : "")});
      const int pidfd = kills ? OpenPidfd(process.pid, start) : -1;
      if (pidfd >= 0) {
        syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, nullptr, 0);
        close(pidfd);
      }
    }
  }
  unmanaged = std::move(seen);
}

// A device for which the driver stops answering is unhealthy, until it answers again.
void Engine::Impl::WatchHealth(const Snapshot& snapshot) {
  for (const DriverDevice& device : inventory.devices) {
    int& silent = silent_polls[device.index];
    silent = snapshot.processes.contains(device.index) ? 0 : silent + 1;
    const bool was = unhealthy.contains(device.uuid);
    if (silent >= kSilentPolls && !was) {
      unhealthy[device.uuid] = "the driver does not answer for the device";
    } else if (silent == 0 && was) {
      unhealthy.erase(device.uuid);
    } else {
      continue;
    }
    on_event({"", was ? "GpuHealthy" : "GpuUnhealthy", device.uuid});
    for (const auto& [id, slice] : slices) {
      if (!was && PlaceOf(slice.config, device.uuid) >= 0) {
        on_event({slice.config.name, "GpuUnhealthy", "device " + device.uuid + " does not answer"});
      }
    }
  }
}

void Engine::Impl::Reconcile(const Snapshot& snapshot) {
  const Nanoseconds now = MonotonicNs();
  reconcile_seconds = snapshot.seconds;
  WatchHealth(snapshot);
  ReleaseDead(snapshot, now);
  for (auto& [id, slice] : slices) {
    CompareSlice(slice, snapshot);
    if (snapshot.utilization_over > 0) {
      CompareShares(slice, snapshot);
    }
  }
  FindUnmanaged(snapshot, now);
}

EngineStatus Engine::Impl::MakeStatus() {
  EngineStatus status;
  status.reconcile_seconds = reconcile_seconds;
  status.unmanaged_total = unmanaged_total;
  status.refused_hellos = refused_hellos;
  status.unhealthy = unhealthy;
  for (const auto& [name, id] : slice_ids) {
    Slice& slice = slices.at(id);
    SliceStatus out;
    out.slice = slice.config;
    out.processes = static_cast<int>(slice.processes.size());
    out.ungated = slice.pages->Ungated();
    out.passthrough = slice.pages->Passthrough();
    out.private_tables = slice.pages->PrivateTables();
    out.unmanaged = slice.unmanaged;
    for (std::size_t i = 0; i < slice.config.devices.size(); ++i) {
      const int place = static_cast<int>(i);
      const SliceDevice& granted = slice.config.devices[i].device;
      SliceDeviceStatus device;
      device.uuid = granted.uuid;
      device.cap_bytes = static_cast<std::uint64_t>(granted.memory_bytes);
      device.used_bytes = slice.pages->Total(place);
      device.peak_bytes = slice.pages->Peak(place);
      device.held_bytes = slice.pages->Held(place);
      device.drift_bytes = slice.pages->Drift(place);
      for (int charge = 0; charge < kChargesMax; ++charge) {
        device.class_bytes[charge] = slice.pages->ClassBytes(place, static_cast<Charge>(charge));
      }
      device.refusals = slice.pages->Refusals(place);
      device.share_milli = granted.share_milli;
      device.weight =
          slice.config.compute.weight > 0 ? slice.config.compute.weight : granted.share_milli;
      device.wait = static_cast<Nanoseconds>(slice.pages->WaitNs(place));
      const LeaseObservation seen = slice.pages->Observe(place);
      device.is_waiting = seen.is_waiting;
      if (const LeaseAccount* account = devices[granted.uuid].arbiter.FindAccount(id)) {
        device.busy = account->used + (i < slice.solo_busy.size() ? slice.solo_busy[i] : 0);
        device.turns = account->turns;
        device.overruns = account->overruns;
      }
      out.devices.push_back(device);
    }
    status.slices.push_back(std::move(out));
  }
  return status;
}

}  // namespace sublet::gpu
