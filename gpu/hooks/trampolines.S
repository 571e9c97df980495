// Every export of libcuda.so.1 that has no hook: a jump through a slot. An empty slot goes to a stub
// that looks the real function up on the first call, so nothing runs when the library is loaded. The
// trampolines are weak: a hook of the same name, defined in another file, takes its place. The second,
// hidden name of each lets resolve.cc tell a trampoline from a hook.
#if !defined(__x86_64__)
#error "the trampolines are written for x86-64"
#endif

#if !defined(SUBLET_SYMBOLS)
#define SUBLET_SYMBOLS "gpu/hooks/cuda_symbols.inc"
#endif

.set sublet_counter, 0
#define SUBLET_SYMBOL(name) .set sublet_index_##name, sublet_counter; .set sublet_counter, sublet_counter+1
#include SUBLET_SYMBOLS
#undef SUBLET_SYMBOL

.text
.p2align 4
// Stack on entry: index, return address. Keeps every register that can carry an argument.
.type sublet_lookup, @function
sublet_lookup:
  pushq %rax
  pushq %rdi
  pushq %rsi
  pushq %rdx
  pushq %rcx
  pushq %r8
  pushq %r9
  pushq %r10
  subq $128, %rsp
  movups %xmm0, (%rsp)
  movups %xmm1, 16(%rsp)
  movups %xmm2, 32(%rsp)
  movups %xmm3, 48(%rsp)
  movups %xmm4, 64(%rsp)
  movups %xmm5, 80(%rsp)
  movups %xmm6, 96(%rsp)
  movups %xmm7, 112(%rsp)
  movq 192(%rsp), %rdi
  call sublet_resolve
  movq %rax, %r11
  movups (%rsp), %xmm0
  movups 16(%rsp), %xmm1
  movups 32(%rsp), %xmm2
  movups 48(%rsp), %xmm3
  movups 64(%rsp), %xmm4
  movups 80(%rsp), %xmm5
  movups 96(%rsp), %xmm6
  movups 112(%rsp), %xmm7
  addq $128, %rsp
  popq %r10
  popq %r9
  popq %r8
  popq %rcx
  popq %rdx
  popq %rsi
  popq %rdi
  popq %rax
  addq $8, %rsp
  jmp *%r11
.size sublet_lookup, .-sublet_lookup

.macro sublet_trampoline name, index
  .p2align 4
  .weak \name
  .type \name, @function
  .globl sublet_trampoline_\name
  .hidden sublet_trampoline_\name
\name:
sublet_trampoline_\name:
  movq sublet_slots+8*\index(%rip), %r11
  testq %r11, %r11
  jz 1f
  jmp *%r11
1:
  pushq $\index
  jmp sublet_lookup
  .size \name, .-\name
.endm

#define SUBLET_SYMBOL(name) sublet_trampoline name, sublet_index_##name
#include SUBLET_SYMBOLS
#undef SUBLET_SYMBOL

.section .note.GNU-stack,"",@progbits
