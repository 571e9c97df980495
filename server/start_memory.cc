#include "server/start_memory.h"

#include <link.h>
#include <malloc.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>

namespace sublet::server {
namespace {

// Called for the executable first; the libraries behind it are shared with other processes.
int DropFilePages(dl_phdr_info* info, std::size_t, void*) {
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const auto& part = info->dlpi_phdr[i];
    // Never a part that was written to: dropping that would undo its relocations.
    if (part.p_type != PT_LOAD || (part.p_flags & PF_W) != 0) {
      continue;
    }
    const std::uintptr_t begin = info->dlpi_addr + part.p_vaddr;
    const std::uintptr_t first = (begin + page - 1) / page * page;
    const std::uintptr_t last = (begin + part.p_memsz) / page * page;
    if (first < last) {
      ::madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED);
    }
  }
  return 1;  // enough
}

}  // namespace

void GiveBackStartMemory() {
  ::malloc_trim(0);
  ::dl_iterate_phdr(DropFilePages, nullptr);
}

}  // namespace sublet::server
