// As cuda_stubs.S, for NVML.
#define SUBLET_NVML 1
#include "gpu/simulator/cuda_stubs.S"
