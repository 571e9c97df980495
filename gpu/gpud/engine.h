// Engine: the part of gpud that serves containers: one socket folder per slice, processes known by
// pid, pidfd and cgroup, pages, leases, and the comparison with what the driver shows.
//
// Two threads. "gpud-engine" owns every slice, socket and page and never blocks but in epoll; the
// others talk to it with Call. "gpud-driver" asks the driver (which may block) five times a second
// and whenever a process died, and hands the answer over.
//
// A restarted gpud finds the processes of its predecessor in the state file, takes the usage page
// from one that lives, and goes on; clients notice the closed socket and connect again.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/result.h"
#include "gpu/api/types.h"
#include "gpu/gpud/arbiter.h"
#include "gpu/gpud/driver.h"

namespace sublet::gpu {

enum class UnmanagedPolicy : std::uint8_t { kReport, kKill };

struct EngineOptions {
  std::string socket_root;  // SOCKET_ROOT/SLICE/gpud.sock
  std::string state_file;   // "" = remember nothing
  bool check_cgroups = true;
  UnmanagedPolicy unmanaged = UnmanagedPolicy::kKill;
  std::chrono::milliseconds unmanaged_grace{2000};
  std::chrono::milliseconds poll{200};
  std::chrono::milliseconds utilization_poll{1000};  // how often the driver is asked who was busy
  // A slice that the driver shows busy beyond its share and twice beyond its turns, beside others,
  // so long: an Event; three times so long (and kKill): its busiest process ends.
  std::chrono::milliseconds share_grace{10000};
  std::chrono::milliseconds held_max{2000};  // a dead process's bytes are kept at most so long
  std::uint64_t over_cap_slack_bytes = std::uint64_t{64} << 20;
  // What a context is assumed to take until one was seen.
  std::uint64_t context_bytes = std::uint64_t{400} << 20;
  std::size_t connections_max = 1024;  // per slice; more are refused
};

struct EngineSlice {
  std::string name;  // the GpuSlice's: also the folder's
  std::string name_space;
  std::string pod;
  std::string tenant;
  std::vector<GrantedDevice> devices;
  ComputePolicy compute;
  Enforce enforce = Enforce::kOn;
};

// Something the slice's owner should know: becomes an Event.
struct EngineEvent {
  std::string slice;  // "" = the node's business
  std::string reason;
  std::string message;
};

struct SliceDeviceStatus {
  std::string uuid;
  std::uint64_t cap_bytes = 0;
  std::uint64_t used_bytes = 0;
  std::uint64_t peak_bytes = 0;
  std::uint64_t held_bytes = 0;
  std::uint64_t drift_bytes = 0;
  std::uint64_t class_bytes[8] = {};
  std::uint64_t refusals = 0;
  std::int32_t share_milli = 0;
  std::int64_t weight = 0;
  Nanoseconds busy = 0;  // measured turns, and the driver's samples of the time it was alone
  Nanoseconds wait = 0;
  std::uint64_t turns = 0;
  std::uint64_t overruns = 0;
  bool is_open = false;
  bool is_waiting = false;
};

struct SliceStatus {
  EngineSlice slice;
  int processes = 0;
  std::uint64_t ungated = 0;
  std::uint64_t passthrough = 0;
  std::uint64_t private_tables = 0;
  std::uint64_t unmanaged = 0;
  std::vector<SliceDeviceStatus> devices;
};

struct EngineStatus {
  std::vector<SliceStatus> slices;  // by name
  double reconcile_seconds = 0;     // the last round of the driver thread
  std::uint64_t unmanaged_total = 0;
  std::uint64_t refused_hellos = 0;
  std::map<std::string, std::string> unhealthy;  // UUID → why; the driver does not answer for it
};

class Engine {
 public:
  using OnEvent = std::function<void(const EngineEvent&)>;

  // `driver` may be null (no device: nothing is compared). on_event runs on the engine's thread and
  // must only hand over.
  Engine(EngineOptions options, std::unique_ptr<GpuDriver> driver, OnEvent on_event);
  ~Engine();  // Stop
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Errors: InternalError (epoll, folders).
  Result<void> Start();
  void Stop();  // idempotent; joins. Sockets are closed, folders stay.

  // Opens the slice for its container; afterwards it is ready. Idempotent. Threads: any; blocks
  // until the socket listens. Errors: BadRequest (a UUID that is none), InternalError,
  // ServiceUnavailable (stopped).
  Result<void> AddSlice(const EngineSlice& slice);
  // (The calls below answer empty once the engine has stopped.)
  // Closes it. Its processes keep their pages and are no longer served.
  void RemoveSlice(const std::string& name);
  // Known processes that live, and whether bytes of dead ones are still held. Unknown slice: 0.
  int ProcessesOf(const std::string& name);
  EngineStatus ReadStatus();
  // The folder that is mounted at /run/sublet/gpu.
  std::string FolderOf(const std::string& name) const;
  // The driver's last inventory. Errors: ServiceUnavailable.
  Result<DriverInventory> Inventory();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace sublet::gpu
