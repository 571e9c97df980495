#include "gpu/gpud/cdi.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "gpu/gpud/embedded.h"
#include "gpu/hooks/protocol.h"

namespace sublet::gpu {
namespace {

using kube::Json;

constexpr char kLibraryFolder[] = "/usr/lib/x86_64-linux-gnu";

std::uint64_t Fnv(std::string_view bytes, std::uint64_t hash) {
  for (const char c : bytes) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  }
  return hash;
}

Result<void> WriteFile(const std::string& path, std::string_view bytes, int mode) {
  const std::string temporary = path + "." + std::to_string(getpid()) + ".new";
  {
    std::ofstream file(temporary, std::ios::binary | std::ios::trunc);
    file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    if (!file.flush()) {
      return InternalError("cannot write " + temporary);
    }
  }
  if (chmod(temporary.c_str(), static_cast<mode_t>(mode)) != 0 ||
      rename(temporary.c_str(), path.c_str()) != 0) {
    return InternalError("cannot put " + path + " in place: " + std::strerror(errno));
  }
  return Ok();
}

Json Mount(const std::string& from, const std::string& to, bool writable = false) {
  return {{"hostPath", from},
          {"containerPath", to},
          {"options", {writable ? "rw" : "ro", "nosuid", "nodev", "bind"}}};
}

// What KAI's binder puts into a sharing pod's ConfigMap: programs written for it read these.
void AddKaiVariables(const EngineSlice& slice, const DriverInventory& inventory, Json& env) {
  for (const DriverDevice& device : inventory.devices) {
    if (slice.devices.empty() || device.uuid != slice.devices.front().device.uuid ||
        device.total_bytes <= device.reserved_bytes) {
      continue;
    }
    char portion[32];
    std::snprintf(portion, sizeof portion, "%.4g",
                  static_cast<double>(slice.devices.front().device.memory_bytes) /
                      static_cast<double>(device.total_bytes - device.reserved_bytes));
    env.push_back("GPU_PORTION=" + std::string(portion));
    env.push_back("RUNAI_NUM_OF_GPUS=" + std::to_string(slice.devices.size()));
    return;
  }
}

std::string SpecPath(const CdiOptions& options, const std::string& slice) {
  return options.cdi_folder + "/sublet-" + slice + ".json";
}

}  // namespace

Result<InstalledFiles> InstallFiles(const std::string& install_root) {
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  for (const EmbeddedFile& file : EmbeddedFiles()) {
    hash = Fnv(file.bytes, Fnv(file.name, hash));
  }
  char name[17];
  std::snprintf(name, sizeof name, "%016llx", static_cast<unsigned long long>(hash));
  InstalledFiles files;
  files.folder = install_root + "/" + name;
  std::error_code error;
  std::filesystem::create_directories(files.folder, error);
  if (error) {
    return InternalError("cannot make " + files.folder + ": " + error.message());
  }
  for (const EmbeddedFile& file : EmbeddedFiles()) {
    const std::string path = files.folder + "/" + std::string(file.name);
    if (std::filesystem::file_size(path, error) != file.bytes.size() || error) {
      SUBLET_RETURN_IF_ERROR(WriteFile(path, file.bytes, 0755));
    }
  }
  files.cuda = files.folder + "/libsublet-cuda.so";
  files.nvml = files.folder + "/libsublet-nvml.so";
  files.smi = files.folder + "/nvidia-smi";
  files.simulator_cuda = files.folder + "/libcuda-simulator.so";
  files.simulator_nvml = files.folder + "/libnvidia-ml-simulator.so";
  files.probe = files.folder + "/gpu-burner";
  return files;
}

std::vector<std::string> FindDriverLibraries(const std::string& folder) {
  std::vector<std::string> found;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    for (const char* prefix :
         {"libnvidia-ptxjitcompiler.so.", "libnvidia-nvvm", "libnvidia-gpucomp.so.",
          "libcudadebugger.so.", "libnvidia-sandboxutils.so.", "libnvidia-opencl.so."}) {
      if (name.starts_with(prefix)) {
        found.push_back(name);
      }
    }
  }
  std::sort(found.begin(), found.end());
  return found;
}

Json MakeCdiSpec(const EngineSlice& slice, const std::string& socket_folder,
                 const InstalledFiles& files, const CdiOptions& options,
                 const DriverInventory& inventory,
                 const std::vector<std::string>& driver_libraries) {
  const bool is_enforced = slice.enforce == Enforce::kOn;
  const std::string folder = kLibraryFolder;
  const std::string real_cuda =
      options.is_simulated ? files.simulator_cuda : options.driver_folder + "/libcuda.so.1";
  const std::string real_nvml =
      options.is_simulated ? files.simulator_nvml : options.driver_folder + "/libnvidia-ml.so.1";
  Json mounts = Json::array();
  mounts.push_back(Mount(socket_folder, kContainerFolder));
  // The interceptor stands where programs look for the driver; the driver stands beside, for it
  // alone.
  for (const char* name : {"/libcuda.so.1", "/libcuda.so"}) {
    mounts.push_back(Mount(files.cuda, folder + name));
  }
  mounts.push_back(Mount(real_cuda, std::string(kRealFolder) + "/libcuda.so.1"));
  mounts.push_back(Mount(is_enforced ? files.nvml : real_nvml, folder + "/libnvidia-ml.so.1"));
  mounts.push_back(Mount(real_nvml, std::string(kRealFolder) + "/libnvidia-ml.so.1"));
  mounts.push_back(Mount(files.smi, "/usr/bin/nvidia-smi"));
  Json nodes = Json::array();
  if (options.is_simulated) {
    // The simulated machine is one file that its driver in every process writes.
    mounts.push_back(Mount(options.simulator_state, "/run/sublet/simulator/state", true));
    // No framework starts on the simulator: any image with a C library can try its slice with this.
    mounts.push_back(Mount(files.probe, "/usr/bin/gpu-burner"));
  } else {
    for (const std::string& name : driver_libraries) {
      mounts.push_back(Mount(options.driver_folder + "/" + name, folder + "/" + name));
    }
    for (const char* path : {"/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools"}) {
      nodes.push_back({{"path", path}});
    }
    for (const GrantedDevice& granted : slice.devices) {
      for (const DriverDevice& device : inventory.devices) {
        if (device.uuid == granted.device.uuid) {
          nodes.push_back({{"path", "/dev/nvidia" + std::to_string(device.minor)}});
        }
      }
    }
  }
  // "void" keeps NVIDIA's own runtime, where it is installed, from adding devices by environment.
  Json edits = {{"env", {"NVIDIA_VISIBLE_DEVICES=void", "SUBLET_GPU_SLICE=" + slice.name}},
                {"mounts", std::move(mounts)}};
  AddKaiVariables(slice, inventory, edits["env"]);
  if (!nodes.empty()) {
    edits["deviceNodes"] = std::move(nodes);
  }
  return {{"cdiVersion", "0.6.0"},
          {"kind", kCdiKind},
          {"devices", Json::array({{{"name", slice.name}, {"containerEdits", std::move(edits)}}})}};
}

Result<void> WriteCdiSpec(const CdiOptions& options, const std::string& slice, const Json& spec) {
  std::error_code error;
  std::filesystem::create_directories(options.cdi_folder, error);
  return WriteFile(SpecPath(options, slice), kube::DumpPretty(spec), 0644);
}

void RemoveCdiSpec(const CdiOptions& options, const std::string& slice) {
  unlink(SpecPath(options, slice).c_str());
}

}  // namespace sublet::gpu
