// GpuDriver over libnvidia-ml.so.1.
#include <dlfcn.h>

#include <algorithm>
#include <cstdio>
#include <map>

#include "base/log.h"
#include "gpu/gpud/driver.h"
#include "gpu/hooks/nvml_abi.h"

namespace sublet::gpu {
namespace {

using namespace nvml;  // NOLINT: the library's names are the subject of this file

class NvmlDriver final : public GpuDriver {
 public:
  ~NvmlDriver() override {
    if (library_ != nullptr) {
      if (shutdown_ != nullptr) {
        shutdown_();
      }
      dlclose(library_);
    }
  }

  Result<void> Open(const std::string& path) {
    library_ = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library_ == nullptr) {
      return ServiceUnavailable("cannot open " + path + ": " + dlerror());
    }
    Load("nvmlInit_v2", &init_);
    Load("nvmlShutdown", &shutdown_);
    Load("nvmlSystemGetDriverVersion", &driver_version_);
    Load("nvmlSystemGetCudaDriverVersion_v2", &cuda_version_);
    Load("nvmlDeviceGetCount_v2", &count_);
    Load("nvmlDeviceGetHandleByIndex_v2", &handle_);
    Load("nvmlDeviceGetUUID", &uuid_);
    Load("nvmlDeviceGetName", &name_);
    Load("nvmlDeviceGetMinorNumber", &minor_);
    Load("nvmlDeviceGetMemoryInfo", &memory_);
    Load("nvmlDeviceGetMemoryInfo_v2", &memory_v2_);
    Load("nvmlDeviceGetCudaComputeCapability", &capability_);
    Load("nvmlDeviceGetComputeRunningProcesses_v3", &processes_);
    Load("nvmlDeviceGetProcessUtilization", &utilization_);
    Load("nvmlDeviceSetMemoryLimits_v1", &set_limits_);
    if (init_ == nullptr || count_ == nullptr || handle_ == nullptr || uuid_ == nullptr ||
        memory_ == nullptr) {
      return ServiceUnavailable(path + " lacks basic NVML functions");
    }
    if (const nvmlReturn_t result = init_(); result != kNvmlSuccess) {
      return ServiceUnavailable("NVML does not start: code " + std::to_string(result));
    }
    has_caps_ = ProbeCaps();
    return Ok();
  }

  Result<DriverInventory> Inventory() override {
    DriverInventory inventory;
    char text[96] = "";
    if (driver_version_ != nullptr && driver_version_(text, sizeof text) == kNvmlSuccess) {
      inventory.driver_version = text;
    }
    int cuda = 0;
    if (cuda_version_ != nullptr && cuda_version_(&cuda) == kNvmlSuccess) {
      inventory.cuda_version = std::to_string(cuda / 1000) + "." + std::to_string(cuda % 1000 / 10);
    }
    unsigned int count = 0;
    if (const nvmlReturn_t result = count_(&count); result != kNvmlSuccess) {
      return ServiceUnavailable("NVML counts no devices: code " + std::to_string(result));
    }
    for (unsigned int i = 0; i < count && i < 64; ++i) {
      inventory.devices.push_back(ReadDevice(i));
    }
    return inventory;
  }

  Result<std::vector<DriverProcess>> Processes(int index) override {
    std::vector<DriverProcess> list;
    nvmlDevice_t device = nullptr;
    if (processes_ == nullptr) {
      return list;
    }
    if (handle_(static_cast<unsigned int>(index), &device) != kNvmlSuccess) {
      return ServiceUnavailable("device " + std::to_string(index) + " is lost");
    }
    std::vector<nvmlProcessInfo_t> found(64);
    for (int attempt = 0; attempt < 4; ++attempt) {
      auto count = static_cast<unsigned int>(found.size());
      const nvmlReturn_t result = processes_(device, &count, found.data());
      if (result == kNvmlInsufficientSize) {
        found.resize(count + 64);
        continue;
      }
      if (result != kNvmlSuccess) {
        return ServiceUnavailable("NVML lists no processes: code " + std::to_string(result));
      }
      for (unsigned int i = 0; i < count; ++i) {
        // NVML says "not available" with all bits set.
        const std::uint64_t bytes = found[i].usedGpuMemory == ~0ULL ? 0 : found[i].usedGpuMemory;
        list.push_back({static_cast<int>(found[i].pid), bytes});
      }
      return list;
    }
    return ServiceUnavailable("NVML's process list keeps growing");
  }

  Result<std::vector<DriverUtilization>> Utilization(int index) override {
    std::vector<DriverUtilization> list;
    nvmlDevice_t device = nullptr;
    if (utilization_ == nullptr) {
      return list;
    }
    if (handle_(static_cast<unsigned int>(index), &device) != kNvmlSuccess) {
      return ServiceUnavailable("device " + std::to_string(index) + " is lost");
    }
    unsigned long long& since = last_sample_[index];
    std::vector<nvmlProcessUtilizationSample_t> samples(256);
    auto count = static_cast<unsigned int>(samples.size());
    nvmlReturn_t result = utilization_(device, samples.data(), &count, since);
    if (result == kNvmlInsufficientSize && count <= kSamplesMax) {
      samples.resize(count);
      result = utilization_(device, samples.data(), &count, since);
    }
    if (result != kNvmlSuccess) {
      return list;  // not supported, or nothing new
    }
    // Several samples of a process are one mean.
    std::map<int, std::pair<std::uint64_t, std::uint32_t>> sums;
    for (unsigned int i = 0; i < count && i < samples.size(); ++i) {
      auto& [sum, number] = sums[static_cast<int>(samples[i].pid)];
      sum += std::min(samples[i].smUtil, 100U);
      ++number;
      since = std::max(since, samples[i].timeStamp);
    }
    for (const auto& [pid, sum] : sums) {
      list.push_back({pid, static_cast<std::uint32_t>(sum.first / sum.second)});
    }
    return list;
  }

  bool HasNativeCaps() const override { return has_caps_; }

  Result<void> SetNativeCap(int index, const std::string& cgroup, std::uint64_t bytes) override {
    nvmlDevice_t device = nullptr;
    if (!has_caps_) {
      return Status(Reason::kMethodNotAllowed, "this driver has no memory limits");
    }
    if (handle_(static_cast<unsigned int>(index), &device) != kNvmlSuccess) {
      return ServiceUnavailable("device " + std::to_string(index) + " is lost");
    }
    const nvmlSetMemoryLimits_v1_t limits{cgroup.c_str(), 0, bytes == 0 ? kMemoryLimitMax : bytes};
    const nvmlReturn_t result = set_limits_(device, &limits);
    return result == kNvmlSuccess
               ? Ok()
               : InternalError("NVML refuses the limit: code " + std::to_string(result));
  }

 private:
  template <typename Function>
  void Load(const char* name, Function* function) {
    *function = reinterpret_cast<Function>(dlsym(library_, name));
  }

  // A driver that has the function may still not support it (older kernel module, MIG): ask with a
  // cgroup that does not exist and look whether the answer is "not supported".
  bool ProbeCaps() {
    nvmlDevice_t device = nullptr;
    if (set_limits_ == nullptr || handle_(0, &device) != kNvmlSuccess) {
      return false;
    }
    const nvmlSetMemoryLimits_v1_t clear{"/sys/fs/cgroup/sublet-probe", 0, kMemoryLimitMax};
    const nvmlReturn_t result = set_limits_(device, &clear);
    return result != kNvmlNotSupported && result != kNvmlFunctionNotFound &&
           result != kNvmlNoPermission;
  }

  DriverDevice ReadDevice(unsigned int index) {
    DriverDevice out;
    out.index = static_cast<std::int32_t>(index);
    out.minor = out.index;
    nvmlDevice_t device = nullptr;
    char text[96] = "";
    if (handle_(index, &device) != kNvmlSuccess ||
        uuid_(device, text, sizeof text) != kNvmlSuccess) {
      out.is_healthy = false;
      out.health_message = "NVML cannot open the device";
      return out;
    }
    out.uuid = text;
    if (name_ != nullptr && name_(device, text, sizeof text) == kNvmlSuccess) {
      out.model = text;
    }
    unsigned int minor = 0;
    if (minor_ != nullptr && minor_(device, &minor) == kNvmlSuccess) {
      out.minor = static_cast<std::int32_t>(minor);
    }
    if (capability_ != nullptr) {
      capability_(device, &out.compute_major, &out.compute_minor);
    }
    nvmlMemory_v2_t memory_v2{kMemoryInfoV2, 0, 0, 0, 0};
    nvmlMemory_t memory{};
    if (memory_v2_ != nullptr && memory_v2_(device, &memory_v2) == kNvmlSuccess) {
      out.total_bytes = memory_v2.total;
      out.reserved_bytes = memory_v2.reserved;
    } else if (const nvmlReturn_t result = memory_(device, &memory); result == kNvmlSuccess) {
      out.total_bytes = memory.total;
    } else {
      out.is_healthy = false;
      out.health_message =
          result == kNvmlGpuIsLost ? "the device is lost" : "NVML cannot read its memory";
    }
    return out;
  }

  static constexpr unsigned int kSamplesMax = 65536;

  void* library_ = nullptr;
  std::map<int, unsigned long long> last_sample_;  // by index, the driver's microseconds
  bool has_caps_ = false;
  nvmlReturn_t (*init_)() = nullptr;
  nvmlReturn_t (*shutdown_)() = nullptr;
  nvmlReturn_t (*driver_version_)(char*, unsigned int) = nullptr;
  nvmlReturn_t (*cuda_version_)(int*) = nullptr;
  nvmlReturn_t (*count_)(unsigned int*) = nullptr;
  nvmlReturn_t (*handle_)(unsigned int, nvmlDevice_t*) = nullptr;
  nvmlReturn_t (*uuid_)(nvmlDevice_t, char*, unsigned int) = nullptr;
  nvmlReturn_t (*name_)(nvmlDevice_t, char*, unsigned int) = nullptr;
  nvmlReturn_t (*minor_)(nvmlDevice_t, unsigned int*) = nullptr;
  nvmlReturn_t (*memory_)(nvmlDevice_t, nvmlMemory_t*) = nullptr;
  nvmlReturn_t (*memory_v2_)(nvmlDevice_t, nvmlMemory_v2_t*) = nullptr;
  nvmlReturn_t (*capability_)(nvmlDevice_t, int*, int*) = nullptr;
  nvmlReturn_t (*processes_)(nvmlDevice_t, unsigned int*, nvmlProcessInfo_t*) = nullptr;
  nvmlReturn_t (*utilization_)(nvmlDevice_t, nvmlProcessUtilizationSample_t*, unsigned int*,
                               unsigned long long) = nullptr;
  nvmlReturn_t (*set_limits_)(nvmlDevice_t, const nvmlSetMemoryLimits_v1_t*) = nullptr;
};

}  // namespace

Result<std::unique_ptr<GpuDriver>> OpenNvml(const std::string& path) {
  auto driver = std::make_unique<NvmlDriver>();
  SUBLET_RETURN_IF_ERROR(driver->Open(path));
  return std::unique_ptr<GpuDriver>(std::move(driver));
}

}  // namespace sublet::gpu
