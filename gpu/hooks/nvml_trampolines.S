// trampolines.S for libnvidia-ml.so.1.
#define SUBLET_SYMBOLS "gpu/hooks/nvml_symbols.inc"
#include "gpu/hooks/trampolines.S"
