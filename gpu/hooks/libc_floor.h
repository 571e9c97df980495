// Binds the few libc functions that newer glibc gave a new version to their oldest one, so that the
// libraries load on glibc 2.17 (they are linked to libdl.so.2 for the same reason).
#pragma once

asm(".symver dlopen, dlopen@GLIBC_2.2.5");
asm(".symver dlsym, dlsym@GLIBC_2.2.5");
