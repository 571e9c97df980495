// GpuDriver: what gpud knows about the node's devices, and the memory cap as far as the driver
// itself can hold it. Two backends behind one interface: NVML without caps (the interceptor holds
// them) and NVML with per-cgroup caps (driver r615 and newer), chosen by what the library offers.
// Threads: one at a time (gpud's driver thread); calls may block for milliseconds inside the
// driver.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"

namespace sublet::gpu {

struct DriverDevice {
  std::string uuid;
  std::string model;
  std::int32_t index = 0;
  std::int32_t minor = 0;  // /dev/nvidiaN
  std::uint64_t total_bytes = 0;
  std::uint64_t reserved_bytes = 0;  // the driver's own
  int compute_major = 0;
  int compute_minor = 0;
  bool is_healthy = true;
  std::string health_message;
};

struct DriverProcess {
  int pid = 0;  // on the node
  std::uint64_t bytes = 0;
};

// What part of the time since the last question a process had work on the device.
struct DriverUtilization {
  int pid = 0;  // on the node
  std::uint32_t percent = 0;
};

struct DriverInventory {
  std::string driver_version;
  std::string cuda_version;  // "13.0"
  std::vector<DriverDevice> devices;
};

class GpuDriver {
 public:
  virtual ~GpuDriver() = default;
  // Errors: ServiceUnavailable (driver not loaded).
  virtual Result<DriverInventory> Inventory() = 0;
  // Processes that hold memory on the device. Errors: ServiceUnavailable (device lost).
  virtual Result<std::vector<DriverProcess>> Processes(int index) = 0;
  // Processes with samples since the last call for this device; empty where the driver keeps none
  // (MIG). Errors: ServiceUnavailable (device lost).
  virtual Result<std::vector<DriverUtilization>> Utilization(int index) = 0;
  // True when the driver itself can cap a cgroup.
  virtual bool HasNativeCaps() const = 0;
  // Caps all memory of a cgroup ("/sys/fs/cgroup/...") on the device; bytes 0 takes the cap away.
  // Errors: MethodNotAllowed (no native caps), InternalError.
  virtual Result<void> SetNativeCap(int index, const std::string& cgroup, std::uint64_t bytes) = 0;
};

// Opens NVML at `path` ("libnvidia-ml.so.1", or the simulator's file). Every function is looked up
// by name and optional but the basic ones. Errors: ServiceUnavailable (no library, no driver).
Result<std::unique_ptr<GpuDriver>> OpenNvml(const std::string& path);

}  // namespace sublet::gpu
