#include "gpu/gpud/embedded.h"

// embedded.S.in's labels: begin and end of each file.
#define SUBLET_EMBEDDED(symbol) \
  extern "C" const char sublet_##symbol##_begin[], sublet_##symbol##_end[];
SUBLET_EMBEDDED(cuda)
SUBLET_EMBEDDED(nvml)
SUBLET_EMBEDDED(smi)
SUBLET_EMBEDDED(simulator_cuda)
SUBLET_EMBEDDED(simulator_nvml)
SUBLET_EMBEDDED(burner)
#undef SUBLET_EMBEDDED

namespace sublet::gpu {

const std::vector<EmbeddedFile>& EmbeddedFiles() {
  static const std::vector<EmbeddedFile> files = {
      {"libsublet-cuda.so",
       {sublet_cuda_begin, static_cast<std::size_t>(sublet_cuda_end - sublet_cuda_begin)}},
      {"libsublet-nvml.so",
       {sublet_nvml_begin, static_cast<std::size_t>(sublet_nvml_end - sublet_nvml_begin)}},
      {"nvidia-smi",
       {sublet_smi_begin, static_cast<std::size_t>(sublet_smi_end - sublet_smi_begin)}},
      {"libcuda-simulator.so",
       {sublet_simulator_cuda_begin,
        static_cast<std::size_t>(sublet_simulator_cuda_end - sublet_simulator_cuda_begin)}},
      {"libnvidia-ml-simulator.so",
       {sublet_simulator_nvml_begin,
        static_cast<std::size_t>(sublet_simulator_nvml_end - sublet_simulator_nvml_begin)}},
      {"gpu-burner",
       {sublet_burner_begin, static_cast<std::size_t>(sublet_burner_end - sublet_burner_begin)}},
  };
  return files;
}

}  // namespace sublet::gpu
