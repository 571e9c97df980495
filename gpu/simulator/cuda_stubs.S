// Names of the driver without a simulated implementation answer NOT_SUPPORTED, as a driver does on a
// device that lacks the feature. Weak: an implementation of the same name takes its place.
.text
.macro sublet_stub name, code
  .p2align 4
  .weak \name
  .type \name, @function
\name:
  movl $\code, %eax
  ret
  .size \name, .-\name
.endm
#if defined(SUBLET_NVML)
#define SUBLET_SYMBOL(name) sublet_stub name, 3
#include "gpu/hooks/nvml_symbols.inc"
#elif defined(SUBLET_NULL)
#define SUBLET_SYMBOL(name) sublet_stub name, 0
#include "gpu/hooks/cuda_symbols.inc"
#else
#define SUBLET_SYMBOL(name) sublet_stub name, 801
#include "gpu/hooks/cuda_symbols.inc"
#endif
.section .note.GNU-stack,"",@progbits
