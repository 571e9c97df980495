// The bytes behind embedded.h; the paths come from the build (gpu/CMakeLists.txt).
.macro sublet_file name, path
  .section .rodata.sublet_\name, "a"
  .p2align 4
  .globl sublet_\name\()_begin
sublet_\name\()_begin:
  .incbin "\path"
  .globl sublet_\name\()_end
sublet_\name\()_end:
  .byte 0
.endm
sublet_file cuda, SUBLET_FILE_CUDA
sublet_file nvml, SUBLET_FILE_NVML
sublet_file smi, SUBLET_FILE_SMI
sublet_file simulator_cuda, SUBLET_FILE_SIMULATOR_CUDA
sublet_file simulator_nvml, SUBLET_FILE_SIMULATOR_NVML
sublet_file burner, SUBLET_FILE_BURNER
.section .note.GNU-stack,"",@progbits
