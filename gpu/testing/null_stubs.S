// As gpu/simulator/cuda_stubs.S, but every name answers success.
#define SUBLET_NULL 1
#include "gpu/simulator/cuda_stubs.S"
