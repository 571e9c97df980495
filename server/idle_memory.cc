#include "server/idle_memory.h"

#include <link.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdint>

#include "base/allocator.h"

namespace sublet::server {
namespace {

// Less than this between two calls is idle: informers and leases of a quiet cluster cost less.
constexpr double kIdleSeconds = 0.1;
// Less than this since memory was given back has not touched much.
constexpr double kWorthSeconds = 0.05;

double ProcessorSeconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
         static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

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

bool IdleMemory::Check() {
  const double used = ProcessorSeconds();
  const bool idle = used - used_before_ < kIdleSeconds;
  used_before_ = used;
  if (given_ && (!idle || used - used_given_ < kWorthSeconds)) {
    return false;
  }
  ReturnFreeMemory();
  ::dl_iterate_phdr(DropFilePages, nullptr);
  given_ = true;
  used_given_ = used_before_ = ProcessorSeconds();
  return true;
}

}  // namespace sublet::server
