// The files a slice needs in its container, as one CDI spec per slice (CNCF Container Device
// Interface 0.6): the interceptor over libcuda.so.1, the NVML stand-in, the real libraries beside
// them, device nodes, the socket folder. And where those files come from: gpud carries them in
// itself and installs them under the hash of their contents, so that containers of an older gpud
// keep theirs. Threads: any.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/result.h"
#include "gpu/gpud/driver.h"
#include "gpu/gpud/engine.h"
#include "kube/json.h"

namespace sublet::gpu {

struct InstalledFiles {
  std::string folder;  // INSTALL_ROOT/HASH
  std::string cuda;    // libsublet-cuda.so
  std::string nvml;    // libsublet-nvml.so
  std::string smi;     // nvidia-smi, static
  std::string simulator_cuda;
  std::string simulator_nvml;
  std::string probe;  // the burner of the example image
};

// Writes the files gpud carries to INSTALL_ROOT/HASH (readable by all, never changed in place) and
// returns where they are. Idempotent. Errors: InternalError (cannot write).
Result<InstalledFiles> InstallFiles(const std::string& install_root);

struct CdiOptions {
  std::string cdi_folder = "/var/run/cdi";
  std::string driver_folder = "/usr/lib/x86_64-linux-gnu";  // where the node's libcuda.so.1 is
  bool is_simulated = false;
  std::string simulator_state;  // the machine's file, when simulated
};

// The spec: {cdiVersion, kind: "sublet.dev/gpu", devices: [{name: SLICE, containerEdits}]}.
// `driver_libraries` are file names in driver_folder to mount as they are.
kube::Json MakeCdiSpec(const EngineSlice& slice, const std::string& socket_folder,
                       const InstalledFiles& files, const CdiOptions& options,
                       const DriverInventory& inventory,
                       const std::vector<std::string>& driver_libraries);

// The user-mode driver's libraries in `folder` that a compute container needs beside libcuda.so.1
// (libnvidia-ptxjitcompiler and the like), sorted.
std::vector<std::string> FindDriverLibraries(const std::string& folder);

// CDI_FOLDER/sublet-SLICE.json, by rename. Errors: InternalError.
Result<void> WriteCdiSpec(const CdiOptions& options, const std::string& slice,
                          const kube::Json& spec);
void RemoveCdiSpec(const CdiOptions& options, const std::string& slice);

}  // namespace sublet::gpu
