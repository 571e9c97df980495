// The launch gate. While a slice has its device to itself the gate is one load of the lease word.
// While others want the device it counts: launches wait for the slice's turn, and only so much work
// is handed to the driver as fits into what is left of the turn, so that a turn ends when gpud
// says.
//
// How unfinished work is known: after launches an event is recorded in each stream used since the
// last one (a "mark"); marks are asked in order, by the helper thread or by whoever waits at the
// gate. The mean duration of a launch follows from them, and from that how many may be under way
// and how often a mark is worth its cost. Streams being captured are never touched: their launches
// run later, through cuGraphLaunch, and are gated there.
//
// Never gated: captures, host functions, stream memory operations, frees, copies below 64 KiB.
#include "gpu/hooks/charge.h"
#include "gpu/hooks/real_driver.h"

namespace sublet::gpu {

using namespace cuda;  // NOLINT: the driver's names are the subject of this file

extern "C" {
CUresult cuStreamIsCapturing(CUstream stream, int* status);
CUresult cuEventCreate(CUevent* out, unsigned int flags);
CUresult cuEventRecord(CUevent event, CUstream stream);
CUresult cuEventQuery(CUevent event);
CUresult cuCtxGetCurrent(CUcontext* out);
CUresult cuCtxSetCurrent(CUcontext context);
CUresult cuThreadExchangeStreamCaptureMode(int* mode);
}

CUresult WithGraphMemory(CUgraphExec exec, CUresult (*call)(CUgraphExec, CUstream),
                         CUstream stream);  // pools.cc

namespace {

constexpr std::size_t kGatedCopyBytes = 65536;
constexpr std::uint64_t kGuessNs = 1'000'000;     // a launch of unknown length
constexpr std::uint64_t kMarkCostNs = 50'000;     // work per mark that makes its cost vanish
constexpr std::uint64_t kMarkAgeNs = 200'000;     // unmarked launches older than this get a mark
constexpr std::uint64_t kIdleNs = 300'000;        // quiet for so long: the turn is given back
constexpr std::uint64_t kAwayNs = 1'000'000'000;  // gpud's epoch stands still: launch ungated
constexpr std::uint64_t kWaitNs = 20'000'000;     // a waiter looks up at least this often
constexpr unsigned int kEventNoTiming = 2;

bool IsCapturing(ProcessState& state, CUstream stream) {
  if (state.captures.load(std::memory_order_relaxed) == 0) {
    return false;
  }
  int status = 0;
  return SUBLET_REAL(cuStreamIsCapturing)(stream, &status) == kSuccess && status != 0;
}

// Under the gate's lock. Takes finished marks off the list; learns the mean.
void PollMarks(GateDevice& gate, SlotDevice& slot) {
  while (gate.count > 0) {
    GateDevice::Mark& mark = gate.marks[gate.first];
    const CUresult result = SUBLET_REAL(cuEventQuery)(mark.event);
    if (result == kNotReady) {
      return;
    }
    const std::uint64_t now = NowNs();
    const std::uint64_t launches = mark.launches - slot.completed.load(std::memory_order_relaxed);
    if (result == kSuccess && launches > 0) {
      const std::uint64_t took =
          now > gate.busy_since_ns ? (now - gate.busy_since_ns) / launches : 1;
      gate.mean_ns = gate.mean_ns == 0 ? took : (gate.mean_ns * 3 + took) / 4;
    }
    // After an error of the context every event answers it: the work is over either way.
    slot.completed.store(mark.launches, std::memory_order_relaxed);
    slot.last_done_ns.store(now, std::memory_order_relaxed);
    gate.busy_since_ns = now;
    gate.free_events[gate.free_count++] = mark.event;
    gate.first = (gate.first + 1) % GateDevice::kMarks;
    --gate.count;
  }
}

// Under the gate's lock. Records an event in every stream with unmarked launches. Marks are asked
// in order, so the last one is done when all streams are.
void MarkStreams(GateDevice& gate, SlotDevice& slot) {
  for (int i = 0; i < gate.dirty_count; ++i) {
    if (gate.free_count == 0 || gate.count == GateDevice::kMarks) {
      return;  // 128 marks under way: later ones will cover these launches
    }
    void* event = gate.free_events[gate.free_count - 1];
    if (SUBLET_REAL(cuEventRecord)(event, gate.dirty[i]) != kSuccess) {
      continue;  // the stream began to capture or its context failed
    }
    --gate.free_count;
    const bool is_last = i + 1 == gate.dirty_count;
    gate.marks[(gate.first + gate.count) % GateDevice::kMarks] = {
        event,
        is_last ? slot.submitted.load(std::memory_order_relaxed)
                : slot.completed.load(std::memory_order_relaxed),
        NowNs()};
    ++gate.count;
  }
  gate.dirty_count = 0;
  gate.unmarked = 0;
  gate.last_mark_ns = NowNs();
}

void MakeEvents(GateDevice& gate) {
  if (gate.has_events != 0) {
    return;
  }
  gate.has_events = 1;
  gate.free_count = 0;
  SUBLET_REAL(cuCtxGetCurrent)(&gate.context);
  // Making events may be forbidden while some thread captures: this thread asks for the relaxed
  // mode.
  int mode = kCaptureModeRelaxed;
  SUBLET_REAL(cuThreadExchangeStreamCaptureMode)(&mode);
  for (int i = 0; i < GateDevice::kMarks; ++i) {
    CUevent event = nullptr;
    if (SUBLET_REAL(cuEventCreate)(&event, kEventNoTiming) != kSuccess) {
      break;
    }
    gate.free_events[gate.free_count++] = event;
  }
  SUBLET_REAL(cuThreadExchangeStreamCaptureMode)(&mode);
}

// How many launches may be unfinished with `left_ns` of the turn left.
std::uint64_t Allowed(const GateDevice& gate, std::uint64_t left_ns) {
  const std::uint64_t mean = gate.mean_ns == 0 ? kGuessNs : gate.mean_ns;
  const std::uint64_t fit = left_ns / mean;
  return fit < 1 ? 1 : fit > 4096 ? 4096 : fit;
}

// Waits for the slice's turn and for room in it. Returns true when the launch is to be counted.
bool WaitForTurn(ProcessState& state, int device, SlotDevice& slot) {
  GateDevice& gate = state.gates[device];
  const std::uint64_t start = NowNs();
  std::uint64_t asked_ns = 0;
  std::uint32_t epoch = state.control.load()->epoch.load();
  std::uint64_t epoch_ns = start;
  bool is_waiting = false;
  bool counted = false;
  for (;;) {
    const ControlPage& page = *state.control.load(std::memory_order_acquire);
    const std::uint32_t word = page.devices[device].lease.load(std::memory_order_acquire);
    const std::uint64_t now = NowNs();
    if ((word & kLeaseOpen) != 0) {
      if ((word & kLeaseContended) == 0) {
        break;
      }
      const std::uint64_t end = page.devices[device].lease_end_ns.load(std::memory_order_relaxed);
      LockHolder hold(gate.lock);
      PollMarks(gate, slot);
      const std::uint64_t unfinished = slot.submitted.load(std::memory_order_relaxed) -
                                       slot.completed.load(std::memory_order_relaxed);
      if (now < end && (unfinished == 0 || unfinished < Allowed(gate, end - now))) {
        counted = true;
        break;
      }
      if (gate.dirty_count > 0 && gate.count == 0) {
        MarkStreams(gate, slot);
      }
    }
    if (!is_waiting) {
      is_waiting = true;
      slot.waiting.fetch_add(1);
    }
    if (now - asked_ns > kWaitNs) {
      asked_ns = now;
      SendNotice(state, kNoticeWant, static_cast<std::uint32_t>(device));
    }
    const std::uint32_t epoch_now = page.epoch.load();
    if (epoch_now != epoch) {
      epoch = epoch_now;
      epoch_ns = now;
    } else if (now - epoch_ns > kAwayNs) {
      // gpud is gone: compute is not worth a standstill (memory stays capped).
      slot.ungated.fetch_add(1, std::memory_order_relaxed);
      break;
    }
    if ((word & kLeaseOpen) != 0) {
      NapNs(30'000);  // our turn, but enough is under way
    } else {
      FutexWait(&page.devices[device].lease, word, kWaitNs, true);
    }
  }
  if (is_waiting) {
    slot.waiting.fetch_sub(1);
    slot.wait_ns.fetch_add(NowNs() - start, std::memory_order_relaxed);
  }
  return counted;
}

// After a counted launch was handed to the driver.
void Count(ProcessState& state, int device, SlotDevice& slot, CUstream stream) {
  GateDevice& gate = state.gates[device];
  LockHolder hold(gate.lock);
  MakeEvents(gate);
  const std::uint64_t now = NowNs();
  if (slot.submitted.load(std::memory_order_relaxed) ==
      slot.completed.load(std::memory_order_relaxed)) {
    gate.busy_since_ns = now;
  }
  const std::uint64_t submitted = slot.submitted.load(std::memory_order_relaxed) + 1;
  slot.submitted.store(submitted, std::memory_order_relaxed);
  gate.last_launch_ns = now;
  gate.idle_said = 0;
  CUcontext context = nullptr;
  SUBLET_REAL(cuCtxGetCurrent)(&context);
  if (context != gate.context) {
    // Events of another context: this launch counts as done at once; the turn is charged by the
    // clock.
    if (gate.count == 0 && gate.dirty_count == 0) {
      slot.completed.store(submitted, std::memory_order_relaxed);
      slot.last_done_ns.store(now, std::memory_order_relaxed);
    }
    return;
  }
  bool known = false;
  for (int i = 0; i < gate.dirty_count; ++i) {
    known = known || gate.dirty[i] == stream;
  }
  if (!known) {
    if (gate.dirty_count == GateDevice::kDirtyMax) {
      MarkStreams(gate, slot);
    }
    if (gate.dirty_count < GateDevice::kDirtyMax) {
      gate.dirty[gate.dirty_count++] = stream;
    }
  }
  ++gate.unmarked;
  const std::uint64_t mean = gate.mean_ns == 0 ? kGuessNs : gate.mean_ns;
  if (gate.count == 0 || gate.unmarked * mean >= kMarkCostNs ||
      now - gate.last_mark_ns > kMarkAgeNs) {
    MarkStreams(gate, slot);
  }
  WakeHelper(state);
}

// The gate around one launch. `stream` matters for captures and marks only.
template <typename Call>
CUresult Gated(CUstream stream, Call call) {
  ProcessState* state = ConnectedState();
  if (state == nullptr) [[unlikely]] {
    bool refuse = false;
    state = Charged(&refuse);
    if (refuse) {
      return kSystemNotReady;
    }
    if (state == nullptr) {
      return call();
    }
  }
  const int device = state->single_device == 0 ? 0 : CurrentPlace(*state);
  if (device < 0) {
    return call();
  }
  SlotDevice& slot = state->slot.load(std::memory_order_relaxed)->devices[device];
  const std::uint32_t word = state->control.load(std::memory_order_relaxed)
                                 ->devices[device]
                                 .lease.load(std::memory_order_relaxed);
  if ((word & (kLeaseOpen | kLeaseContended)) == kLeaseOpen) [[likely]] {
    // One slot, many threads: a lost count is no harm.
    slot.launches.store(slot.launches.load(std::memory_order_relaxed) + 1,
                        std::memory_order_relaxed);
    return call();
  }
  if (!IsEnforced(*state) || IsCapturing(*state, stream)) {
    return call();
  }
  const bool counted = WaitForTurn(*state, device, slot);
  slot.launches.store(slot.launches.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  const CUresult result = call();
  if (counted && result == kSuccess) {
    Count(*state, device, slot, stream);
  }
  return result;
}

// A stream that goes away or begins to capture must not be marked any more.
void ForgetStream(CUstream stream) {
  ProcessState* state = ConnectedState();
  if (state == nullptr) {
    return;
  }
  for (GateDevice& gate : state->gates) {
    if (gate.has_events == 0) {
      continue;
    }
    LockHolder hold(gate.lock);
    for (int i = 0; i < gate.dirty_count; ++i) {
      if (gate.dirty[i] == stream) {
        gate.dirty[i] = gate.dirty[--gate.dirty_count];
        break;
      }
    }
  }
}

}  // namespace

void ForgetMarks(ProcessState& state, int device) {
  GateDevice& gate = state.gates[device];
  LockHolder hold(gate.lock);
  SlotDevice& slot = state.slot.load()->devices[device];
  // The events die with their context.
  gate.has_events = 0;
  gate.free_count = gate.count = gate.dirty_count = 0;
  gate.unmarked = 0;
  gate.context = nullptr;
  slot.completed.store(slot.submitted.load());
}

bool ServeContended(ProcessState& state) {
  if (state.slot.load() == nullptr || state.control.load() == nullptr || state.phase.load() != 1) {
    return false;
  }
  const ControlPage& page = *state.control.load();
  bool any = false;
  for (std::uint32_t device = 0; device < page.device_count && device < kPageDevicesMax; ++device) {
    GateDevice& gate = state.gates[device];
    SlotDevice& slot = state.slot.load()->devices[device];
    const std::uint32_t word = page.devices[device].lease.load();
    const bool contended = (word & (kLeaseOpen | kLeaseContended)) != kLeaseOpen;
    if (!contended && slot.submitted.load() == slot.completed.load()) {
      continue;
    }
    if (gate.has_events == 0) {
      continue;  // nothing was counted yet
    }
    LockHolder hold(gate.lock);
    SUBLET_REAL(cuCtxSetCurrent)(gate.context);
    int mode = kCaptureModeRelaxed;
    SUBLET_REAL(cuThreadExchangeStreamCaptureMode)(&mode);
    PollMarks(gate, slot);
    const std::uint64_t now = NowNs();
    if (gate.dirty_count > 0 && now - gate.last_launch_ns > kMarkAgeNs) {
      MarkStreams(gate, slot);
    }
    const bool unfinished = slot.submitted.load() != slot.completed.load();
    any = any || unfinished || (contended && gate.idle_said == 0);
    // Our turn is over and the work is done: the next one need not wait. Or: nothing for a while.
    const bool is_over = (word & kLeaseOpen) == 0;
    if (!unfinished && gate.idle_said == 0 &&
        (is_over || (now - gate.last_launch_ns > kIdleNs && slot.waiting.load() == 0))) {
      gate.idle_said = 1;
      SendNotice(state, kNoticeIdle, device);
    }
  }
  return any;
}

#define KERNEL_PARAMETERS                                                           \
  CUfunction f, unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx, \
      unsigned int by, unsigned int bz, unsigned int shared, CUstream stream, void **parameters
#define KERNEL_ARGUMENTS f, gx, gy, gz, bx, by, bz, shared, stream, parameters

SUBLET_HOOK CUresult cuLaunchKernel(KERNEL_PARAMETERS, void** extra) {
  return Gated(stream, [&] { return SUBLET_REAL(cuLaunchKernel)(KERNEL_ARGUMENTS, extra); });
}
SUBLET_HOOK CUresult cuLaunchKernel_ptsz(KERNEL_PARAMETERS, void** extra) {
  return Gated(stream, [&] { return SUBLET_REAL(cuLaunchKernel_ptsz)(KERNEL_ARGUMENTS, extra); });
}
SUBLET_HOOK CUresult cuLaunchCooperativeKernel(KERNEL_PARAMETERS) {
  return Gated(stream, [&] { return SUBLET_REAL(cuLaunchCooperativeKernel)(KERNEL_ARGUMENTS); });
}
SUBLET_HOOK CUresult cuLaunchCooperativeKernel_ptsz(KERNEL_PARAMETERS) {
  return Gated(stream,
               [&] { return SUBLET_REAL(cuLaunchCooperativeKernel_ptsz)(KERNEL_ARGUMENTS); });
}
SUBLET_HOOK CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction f, void** parameters,
                                      void** extra) {
  return Gated(config->hStream,
               [&] { return SUBLET_REAL(cuLaunchKernelEx)(config, f, parameters, extra); });
}
SUBLET_HOOK CUresult cuLaunchKernelEx_ptsz(const CUlaunchConfig* config, CUfunction f,
                                           void** parameters, void** extra) {
  return Gated(config->hStream,
               [&] { return SUBLET_REAL(cuLaunchKernelEx_ptsz)(config, f, parameters, extra); });
}
SUBLET_HOOK CUresult cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS* list,
                                                          unsigned int count, unsigned int flags) {
  return Gated(nullptr, [&] {
    return SUBLET_REAL(cuLaunchCooperativeKernelMultiDevice)(list, count, flags);
  });
}
SUBLET_HOOK CUresult cuLaunch(CUfunction f) {
  return Gated(nullptr, [&] { return SUBLET_REAL(cuLaunch)(f); });
}
SUBLET_HOOK CUresult cuLaunchGrid(CUfunction f, int width, int height) {
  return Gated(nullptr, [&] { return SUBLET_REAL(cuLaunchGrid)(f, width, height); });
}
SUBLET_HOOK CUresult cuLaunchGridAsync(CUfunction f, int width, int height, CUstream stream) {
  return Gated(stream, [&] { return SUBLET_REAL(cuLaunchGridAsync)(f, width, height, stream); });
}
SUBLET_HOOK CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream) {
  return Gated(stream, [&] { return WithGraphMemory(exec, SUBLET_REAL(cuGraphLaunch), stream); });
}
SUBLET_HOOK CUresult cuGraphLaunch_ptsz(CUgraphExec exec, CUstream stream) {
  return Gated(stream,
               [&] { return WithGraphMemory(exec, SUBLET_REAL(cuGraphLaunch_ptsz), stream); });
}

// Copies and fills: large ones take the device's time.
namespace {
template <typename Call>
CUresult GatedCopy(std::size_t bytes, CUstream stream, Call call) {
  return bytes < kGatedCopyBytes ? call() : Gated(stream, call);
}
}  // namespace

#define COPY(name, parameters, arguments, bytes, stream)                          \
  SUBLET_HOOK CUresult name parameters {                                          \
    return GatedCopy(bytes, stream, [&] { return SUBLET_REAL(name) arguments; }); \
  }
#define COPY_BOTH(name, suffix, parameters, arguments, bytes, stream) \
  COPY(name, parameters, arguments, bytes, stream)                    \
  COPY(name##suffix, parameters, arguments, bytes, stream)

COPY_BOTH(cuMemcpy, _ptds, (CUdeviceptr to, CUdeviceptr from, std::size_t n), (to, from, n), n,
          nullptr)
COPY_BOTH(cuMemcpyHtoD_v2, _ptds, (CUdeviceptr to, const void* from, std::size_t n), (to, from, n),
          n, nullptr)
COPY_BOTH(cuMemcpyDtoH_v2, _ptds, (void* to, CUdeviceptr from, std::size_t n), (to, from, n), n,
          nullptr)
COPY_BOTH(cuMemcpyDtoD_v2, _ptds, (CUdeviceptr to, CUdeviceptr from, std::size_t n), (to, from, n),
          n, nullptr)
COPY_BOTH(cuMemcpyAsync, _ptsz, (CUdeviceptr to, CUdeviceptr from, std::size_t n, CUstream s),
          (to, from, n, s), n, s)
COPY_BOTH(cuMemcpyHtoDAsync_v2, _ptsz,
          (CUdeviceptr to, const void* from, std::size_t n, CUstream s), (to, from, n, s), n, s)
COPY_BOTH(cuMemcpyDtoHAsync_v2, _ptsz, (void* to, CUdeviceptr from, std::size_t n, CUstream s),
          (to, from, n, s), n, s)
COPY_BOTH(cuMemcpyDtoDAsync_v2, _ptsz,
          (CUdeviceptr to, CUdeviceptr from, std::size_t n, CUstream s), (to, from, n, s), n, s)
COPY_BOTH(cuMemcpyPeer, _ptds,
          (CUdeviceptr to, CUcontext tc, CUdeviceptr from, CUcontext fc, std::size_t n),
          (to, tc, from, fc, n), n, nullptr)
COPY_BOTH(cuMemcpyPeerAsync, _ptsz,
          (CUdeviceptr to, CUcontext tc, CUdeviceptr from, CUcontext fc, std::size_t n, CUstream s),
          (to, tc, from, fc, n, s), n, s)
COPY_BOTH(cuMemcpy2D_v2, _ptds, (const CUDA_MEMCPY2D* c), (c), c->WidthInBytes * c->Height, nullptr)
COPY_BOTH(cuMemcpy2DAsync_v2, _ptsz, (const CUDA_MEMCPY2D* c, CUstream s), (c, s),
          c->WidthInBytes * c->Height, s)
COPY_BOTH(cuMemcpy3D_v2, _ptds, (const CUDA_MEMCPY3D* c), (c),
          c->WidthInBytes * c->Height * c->Depth, nullptr)
COPY_BOTH(cuMemcpy3DAsync_v2, _ptsz, (const CUDA_MEMCPY3D* c, CUstream s), (c, s),
          c->WidthInBytes * c->Height * c->Depth, s)
COPY_BOTH(cuMemsetD8_v2, _ptds, (CUdeviceptr to, unsigned char v, std::size_t n), (to, v, n), n,
          nullptr)
COPY_BOTH(cuMemsetD16_v2, _ptds, (CUdeviceptr to, unsigned short v, std::size_t n), (to, v, n),
          n * 2, nullptr)
COPY_BOTH(cuMemsetD32_v2, _ptds, (CUdeviceptr to, unsigned int v, std::size_t n), (to, v, n), n * 4,
          nullptr)
COPY_BOTH(cuMemsetD8Async, _ptsz, (CUdeviceptr to, unsigned char v, std::size_t n, CUstream s),
          (to, v, n, s), n, s)
COPY_BOTH(cuMemsetD16Async, _ptsz, (CUdeviceptr to, unsigned short v, std::size_t n, CUstream s),
          (to, v, n, s), n * 2, s)
COPY_BOTH(cuMemsetD32Async, _ptsz, (CUdeviceptr to, unsigned int v, std::size_t n, CUstream s),
          (to, v, n, s), n * 4, s)

// Captures: counted, so that the common case asks nothing.
namespace {
template <typename Call>
CUresult BeginCapture(CUstream stream, Call call) {
  ForgetStream(stream);
  ProcessState* state = ConnectedState();
  if (state != nullptr) {
    state->captures.fetch_add(1);
  }
  const CUresult result = call();
  if (state != nullptr && result != kSuccess) {
    state->captures.fetch_sub(1);
  }
  return result;
}
template <typename Call>
CUresult EndCapture(Call call) {
  const CUresult result = call();
  ProcessState* state = ConnectedState();
  if (state != nullptr && state->captures.load() > 0) {
    state->captures.fetch_sub(1);
  }
  return result;
}
}  // namespace

#define CAPTURE(name, parameters, arguments)                                  \
  SUBLET_HOOK CUresult name parameters {                                      \
    return BeginCapture(stream, [&] { return SUBLET_REAL(name) arguments; }); \
  }
CAPTURE(cuStreamBeginCapture, (CUstream stream), (stream))
CAPTURE(cuStreamBeginCapture_ptsz, (CUstream stream), (stream))
CAPTURE(cuStreamBeginCapture_v2, (CUstream stream, int mode), (stream, mode))
CAPTURE(cuStreamBeginCapture_v2_ptsz, (CUstream stream, int mode), (stream, mode))
CAPTURE(cuStreamBeginCaptureToGraph,
        (CUstream stream, CUgraph g, const CUgraphNode* d, const void* e, std::size_t n, int mode),
        (stream, g, d, e, n, mode))
CAPTURE(cuStreamBeginCaptureToGraph_ptsz,
        (CUstream stream, CUgraph g, const CUgraphNode* d, const void* e, std::size_t n, int mode),
        (stream, g, d, e, n, mode))
SUBLET_HOOK CUresult cuStreamEndCapture(CUstream stream, CUgraph* graph) {
  return EndCapture([&] { return SUBLET_REAL(cuStreamEndCapture)(stream, graph); });
}
SUBLET_HOOK CUresult cuStreamEndCapture_ptsz(CUstream stream, CUgraph* graph) {
  return EndCapture([&] { return SUBLET_REAL(cuStreamEndCapture_ptsz)(stream, graph); });
}
SUBLET_HOOK CUresult cuStreamDestroy(CUstream stream) {
  ForgetStream(stream);
  return SUBLET_REAL(cuStreamDestroy)(stream);
}
SUBLET_HOOK CUresult cuStreamDestroy_v2(CUstream stream) {
  ForgetStream(stream);
  return SUBLET_REAL(cuStreamDestroy_v2)(stream);
}

}  // namespace sublet::gpu
