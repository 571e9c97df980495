#include "base/allocator.h"

#ifdef SUBLET_JEMALLOC
#include <jemalloc/jemalloc.h>

#define SUBLET_TEXT(x) #x
#define SUBLET_TEXT_OF(x) SUBLET_TEXT(x)

// Read by jemalloc before main(); MALLOC_CONF in the environment goes above it. Two arenas, because a
// hundred control planes share a host and each arena keeps partly used pages for every size; free pages
// go back after a second, because those planes are idle most of the time.
const char* malloc_conf = "narenas:2,dirty_decay_ms:1000,muzzy_decay_ms:0";

void sublet::ReturnFreeMemory() {
  ::mallctl("thread.tcache.flush", nullptr, nullptr, nullptr, 0);
  ::mallctl("arena." SUBLET_TEXT_OF(MALLCTL_ARENAS_ALL) ".purge", nullptr, nullptr, nullptr, 0);
}
#else
#include <malloc.h>

void sublet::ReturnFreeMemory() { ::malloc_trim(0); }
#endif
