// A read-only look at the slice from inside its container: connects to gpud as an observer and maps
// both pages. Used by the NVML stand-in and by nvidia-smi. Depends on nothing but libc.
// Threads: any; the pages stay mapped for the life of the process.
#pragma once

#include "gpu/hooks/protocol.h"

namespace sublet::gpu {

struct SliceView {
  const ControlPage* control = nullptr;
  const UsagePage* usage = nullptr;
};

// False: no gpud, or it refused. Blocks up to two seconds.
bool OpenSliceView(SliceView* view);

// The bytes a process of the slice has charged on a device, host memory excluded.
std::uint64_t SlotBytes(const Slot& slot, int device);

}  // namespace sublet::gpu
