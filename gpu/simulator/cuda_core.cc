// The simulated driver: start, devices, contexts, streams, events, launches, copies.
#include <cstdio>
#include <ctime>

#include "gpu/simulator/driver.h"

namespace sublet::gpu::simulator {
namespace {

// The bandwidth that copies take: 4 TB/s inside the device, 50 GB/s to the host.
constexpr std::uint64_t kDeviceBytesPerMicrosecond = 4'000'000;
constexpr std::uint64_t kHostBytesPerMicrosecond = 50'000;

thread_local Context* current_context = nullptr;
thread_local Context* context_stack[16];
thread_local int context_depth = 0;
thread_local int capture_mode = kCaptureModeGlobal;

void Nap(std::uint64_t ns) {
  struct timespec time = {static_cast<time_t>(ns / 1'000'000'000),
                          static_cast<long>(ns % 1'000'000'000)};
  nanosleep(&time, nullptr);
}

std::uint64_t KernelNanoseconds(void** parameters) {
  // By agreement with the programs written for the simulator: the first parameter is the duration.
  if (parameters == nullptr || parameters[0] == nullptr) {
    return 1000;
  }
  std::uint64_t ns = 0;
  std::memcpy(&ns, parameters[0], sizeof ns);
  return ns;
}

CUresult MakeContext(CUcontext* out, int device, bool is_primary) {
  if (!IsDevice(device)) {
    return kInvalidDevice;
  }
  if (!Machine::Get().AddContext(device)) {
    return kOutOfMemory;
  }
  Context* context =
      is_primary ? &D().primary[device] : static_cast<Context*>(std::calloc(1, sizeof(Context)));
  context->device = device;
  context->is_primary = is_primary;
  ++context->references;
  ++D().primary[device].references;
  if (is_primary) {
    --D().primary[device].references;
  }
  *out = context;
  return kSuccess;
}

void DropContext(int device) {
  if (D().primary[device].references <= 0) {
    D().primary[device].references = 0;
    Machine::Get().RemoveContext(device);
  }
}

}  // namespace

Driver& D() {
  static Driver driver;
  return driver;
}

Context*& CurrentContext() { return current_context; }

bool IsDevice(int device) {
  return device >= 0 && device < static_cast<int>(Machine::Get().state()->device_count);
}

Stream* StreamOf(CUstream handle) {
  const auto value = reinterpret_cast<std::uintptr_t>(handle);
  if (value > kStreamPerThread) {
    return static_cast<Stream*>(handle);
  }
  if (current_context == nullptr) {
    return nullptr;
  }
  Stream* stream = &D().default_stream[current_context->device];
  stream->context = current_context;
  return stream;
}

CUresult Submit(CUstream handle, std::uint64_t ns) {
  Stream* stream = StreamOf(handle);
  if (stream == nullptr) {
    return kInvalidContext;
  }
  if (stream->capture != nullptr) {
    Graph& graph = *stream->capture;
    if (graph.count < 256) {
      graph.nodes[graph.count++] = GraphNode{.type = kNodeKernel, .duration_ns = ns};
    }
    return kSuccess;
  }
  const int device = stream->context->device;
  Machine::Get().Advance(device);
  ProcessDevice& mine = Machine::Get().self().devices[device];
  mine.submitted_ns += ns;
  stream->last_value = mine.submitted_ns;
  return kSuccess;
}

bool IsDone(int device, std::uint64_t value) {
  Machine::Get().Advance(device);
  return Machine::Get().self().devices[device].done_ns >= value;
}

CUresult WaitFor(int device, std::uint64_t value) {
  for (;;) {
    std::uint64_t nap = 0;
    {
      DriverCall call;
      if (!call.ok()) {
        return kNotInitialized;
      }
      if (IsDone(device, value)) {
        return kSuccess;
      }
      nap = value - Machine::Get().self().devices[device].done_ns;
    }
    nap = nap > 500'000 ? 500'000 : nap;
    Nap(nap < 20'000 ? 20'000 : nap);
  }
}

SUBLET_EXPORT CUresult cuInit(unsigned int flags) {
  if (flags != 0) {
    return kInvalidValue;
  }
  if (Machine::Get().Init(true) != 0) {
    return kNoDevice;
  }
  if (!D().is_initialised) {
    for (int i = 0; i < kDevicesMax; ++i) {
      D().default_pool[i].device = i;
      D().current_pool[i] = &D().default_pool[i];
    }
    D().is_initialised = true;
  }
  return kSuccess;
}

SUBLET_EXPORT CUresult cuDriverGetVersion(int* version) {
  *version = 13000;
  return kSuccess;
}

SUBLET_EXPORT CUresult cuGetErrorString(CUresult error, const char** text) {
  *text = error == kSuccess ? "no error" : error == kOutOfMemory ? "out of memory" : "error";
  return kSuccess;
}
SUBLET_EXPORT CUresult cuGetErrorName(CUresult error, const char** text) {
  *text = error == kSuccess       ? "CUDA_SUCCESS"
          : error == kOutOfMemory ? "CUDA_ERROR_OUT_OF_MEMORY"
                                  : "CUDA_ERROR_UNKNOWN";
  return kSuccess;
}

SUBLET_EXPORT CUresult cuDeviceGetCount(int* count) {
  DriverCall call;
  if (!call.ok()) {
    return kNotInitialized;
  }
  *count = static_cast<int>(Machine::Get().state()->device_count);
  return kSuccess;
}
SUBLET_EXPORT CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  DriverCall call;
  if (!call.ok()) {
    return kNotInitialized;
  }
  if (!IsDevice(ordinal)) {
    return kInvalidDevice;
  }
  *device = ordinal;
  return kSuccess;
}
SUBLET_EXPORT CUresult cuDeviceGetName(char* name, int length, CUdevice device) {
  DriverCall call;
  if (!call.ok() || !IsDevice(device)) {
    return kInvalidDevice;
  }
  std::snprintf(name, static_cast<std::size_t>(length), "%s",
                Machine::Get().state()->devices[device].model);
  return kSuccess;
}
SUBLET_EXPORT CUresult cuDeviceGetUuid(CUuuid* uuid, CUdevice device) {
  DriverCall call;
  if (!call.ok() || !IsDevice(device)) {
    return kInvalidDevice;
  }
  std::memcpy(uuid->bytes, Machine::Get().state()->devices[device].uuid_bytes, 16);
  return kSuccess;
}
SUBLET_ALIAS(cuDeviceGetUuid_v2, cuDeviceGetUuid)
SUBLET_EXPORT CUresult cuDeviceGetAttribute(int* value, int attribute, CUdevice device) {
  DriverCall call;
  if (!call.ok() || !IsDevice(device)) {
    return kInvalidDevice;
  }
  *value = attribute == 16
               ? static_cast<int>(Machine::Get().state()->devices[device].multiprocessors)
           : attribute == 75 ? 9
           : attribute == 76 ? 0
                             : 1;
  return kSuccess;
}
SUBLET_EXPORT CUresult cuDeviceGetPCIBusId(char* text, int length, CUdevice device) {
  if (!D().is_initialised || !IsDevice(device)) {
    return kInvalidDevice;
  }
  std::snprintf(text, static_cast<std::size_t>(length), "0000:%02X:00.0", device + 1);
  return kSuccess;
}
SUBLET_EXPORT CUresult cuDeviceGetByPCIBusId(CUdevice* device, const char* text) {
  unsigned int domain = 0;
  unsigned int bus = 0;
  if (!D().is_initialised || std::sscanf(text, "%x:%x", &domain, &bus) != 2 ||
      !IsDevice(static_cast<int>(bus) - 1)) {
    return kInvalidDevice;
  }
  *device = static_cast<int>(bus) - 1;
  return kSuccess;
}

SUBLET_EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  DriverCall call;
  return call.ok() ? MakeContext(context, device, true) : kNotInitialized;
}
SUBLET_EXPORT CUresult cuDevicePrimaryCtxRelease(CUdevice device) {
  DriverCall call;
  if (!call.ok() || !IsDevice(device)) {
    return kInvalidDevice;
  }
  --D().primary[device].references;
  DropContext(device);
  return kSuccess;
}
SUBLET_ALIAS(cuDevicePrimaryCtxRelease_v2, cuDevicePrimaryCtxRelease)
SUBLET_EXPORT CUresult cuDevicePrimaryCtxReset(CUdevice device) {
  DriverCall call;
  if (!call.ok() || !IsDevice(device)) {
    return kInvalidDevice;
  }
  D().primary[device].references = 0;
  DropContext(device);
  return kSuccess;
}
SUBLET_ALIAS(cuDevicePrimaryCtxReset_v2, cuDevicePrimaryCtxReset)

SUBLET_EXPORT CUresult cuCtxCreate(CUcontext* out, unsigned int flags, CUdevice device) {
  (void)flags;
  DriverCall call;
  if (!call.ok()) {
    return kNotInitialized;
  }
  const CUresult result = MakeContext(out, device, false);
  if (result == kSuccess) {
    if (context_depth < 16) {
      context_stack[context_depth++] = current_context;
    }
    current_context = static_cast<Context*>(*out);
  }
  return result;
}
SUBLET_ALIAS(cuCtxCreate_v2, cuCtxCreate)
SUBLET_EXPORT CUresult cuCtxCreate_v3(CUcontext* out, void* parameters, int count,
                                      unsigned int flags, CUdevice device) {
  (void)parameters, (void)count;
  return cuCtxCreate(out, flags, device);
}
SUBLET_EXPORT CUresult cuCtxCreate_v4(CUcontext* out, void* parameters, unsigned int flags,
                                      CUdevice device) {
  (void)parameters;
  return cuCtxCreate(out, flags, device);
}
SUBLET_EXPORT CUresult cuCtxDestroy(CUcontext context) {
  DriverCall call;
  if (!call.ok()) {
    return kNotInitialized;
  }
  Context* gone = static_cast<Context*>(context);
  const int device = gone->device;
  --D().primary[device].references;
  DropContext(device);
  if (current_context == gone) {
    current_context = context_depth > 0 ? context_stack[--context_depth] : nullptr;
  }
  if (!gone->is_primary) {
    std::free(gone);
  }
  return kSuccess;
}
SUBLET_ALIAS(cuCtxDestroy_v2, cuCtxDestroy)
SUBLET_EXPORT CUresult cuCtxSetCurrent(CUcontext context) {
  current_context = static_cast<Context*>(context);
  return D().is_initialised ? kSuccess : kNotInitialized;
}
SUBLET_EXPORT CUresult cuCtxGetCurrent(CUcontext* context) {
  *context = current_context;
  return D().is_initialised ? kSuccess : kNotInitialized;
}
SUBLET_EXPORT CUresult cuCtxPushCurrent(CUcontext context) {
  if (context_depth < 16) {
    context_stack[context_depth++] = current_context;
  }
  current_context = static_cast<Context*>(context);
  return kSuccess;
}
SUBLET_ALIAS(cuCtxPushCurrent_v2, cuCtxPushCurrent)
SUBLET_EXPORT CUresult cuCtxPopCurrent(CUcontext* context) {
  if (context != nullptr) {
    *context = current_context;
  }
  current_context = context_depth > 0 ? context_stack[--context_depth] : nullptr;
  return kSuccess;
}
SUBLET_ALIAS(cuCtxPopCurrent_v2, cuCtxPopCurrent)
SUBLET_EXPORT CUresult cuCtxGetDevice(CUdevice* device) {
  if (current_context == nullptr) {
    return kInvalidContext;
  }
  *device = current_context->device;
  return kSuccess;
}
SUBLET_EXPORT CUresult cuCtxGetDevice_v2(CUdevice* device, CUcontext context) {
  *device = static_cast<Context*>(context)->device;
  return kSuccess;
}
SUBLET_EXPORT CUresult cuCtxSetLimit(int limit, std::size_t value) {
  (void)limit, (void)value;
  return current_context != nullptr ? kSuccess : kInvalidContext;
}
SUBLET_EXPORT CUresult cuCtxSynchronize() {
  if (current_context == nullptr) {
    return kInvalidContext;
  }
  std::uint64_t value = 0;
  {
    DriverCall call;
    if (!call.ok()) {
      return kNotInitialized;
    }
    value = Machine::Get().self().devices[current_context->device].submitted_ns;
  }
  return WaitFor(current_context->device, value);
}

SUBLET_EXPORT CUresult cuModuleLoadData(CUmodule* module, const void* image) {
  (void)image;
  *module = reinterpret_cast<CUmodule>(0x10);
  return current_context != nullptr ? kSuccess : kInvalidContext;
}
SUBLET_EXPORT CUresult cuModuleUnload(CUmodule module) {
  (void)module;
  return kSuccess;
}
SUBLET_EXPORT CUresult cuModuleGetFunction(CUfunction* function, CUmodule module,
                                           const char* name) {
  (void)module, (void)name;
  *function = reinterpret_cast<CUfunction>(0x20);
  return kSuccess;
}

SUBLET_EXPORT CUresult cuStreamCreate(CUstream* out, unsigned int flags) {
  (void)flags;
  if (current_context == nullptr) {
    return kInvalidContext;
  }
  Stream* stream = static_cast<Stream*>(std::calloc(1, sizeof(Stream)));
  stream->context = current_context;
  *out = stream;
  return kSuccess;
}
SUBLET_EXPORT CUresult cuStreamCreateWithPriority(CUstream* out, unsigned int flags, int priority) {
  (void)priority;
  return cuStreamCreate(out, flags);
}
SUBLET_EXPORT CUresult cuStreamDestroy(CUstream stream) {
  std::free(stream);
  return kSuccess;
}
SUBLET_ALIAS(cuStreamDestroy_v2, cuStreamDestroy)
SUBLET_EXPORT CUresult cuStreamSynchronize(CUstream handle) {
  int device = 0;
  std::uint64_t value = 0;
  {
    DriverCall call;
    Stream* stream = call.ok() ? StreamOf(handle) : nullptr;
    if (stream == nullptr) {
      return kInvalidContext;
    }
    if (stream->capture != nullptr) {
      return kStreamCaptureUnsupported;
    }
    device = stream->context->device;
    value = stream->last_value;
  }
  return WaitFor(device, value);
}
SUBLET_ALIAS(cuStreamSynchronize_ptsz, cuStreamSynchronize)
SUBLET_EXPORT CUresult cuStreamQuery(CUstream handle) {
  DriverCall call;
  Stream* stream = call.ok() ? StreamOf(handle) : nullptr;
  if (stream == nullptr) {
    return kInvalidContext;
  }
  return IsDone(stream->context->device, stream->last_value) ? kSuccess : kNotReady;
}
SUBLET_ALIAS(cuStreamQuery_ptsz, cuStreamQuery)
SUBLET_EXPORT CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned int flags) {
  // One queue per context: what was recorded before is done before.
  (void)stream, (void)event, (void)flags;
  return kSuccess;
}
SUBLET_ALIAS(cuStreamWaitEvent_ptsz, cuStreamWaitEvent)
SUBLET_EXPORT CUresult cuStreamIsCapturing(CUstream handle, int* status) {
  DriverCall call;
  Stream* stream = call.ok() ? StreamOf(handle) : nullptr;
  if (stream == nullptr) {
    return kInvalidContext;
  }
  *status = stream->capture != nullptr ? 1 : 0;
  return kSuccess;
}
SUBLET_ALIAS(cuStreamIsCapturing_ptsz, cuStreamIsCapturing)
SUBLET_EXPORT CUresult cuStreamBeginCapture_v2(CUstream handle, int mode) {
  (void)mode;
  DriverCall call;
  if (!call.ok() || reinterpret_cast<std::uintptr_t>(handle) <= kStreamPerThread) {
    return kStreamCaptureUnsupported;
  }
  static_cast<Stream*>(handle)->capture = static_cast<Graph*>(std::calloc(1, sizeof(Graph)));
  return kSuccess;
}
SUBLET_ALIAS(cuStreamBeginCapture_v2_ptsz, cuStreamBeginCapture_v2)
SUBLET_EXPORT CUresult cuStreamEndCapture(CUstream handle, CUgraph* graph) {
  DriverCall call;
  if (!call.ok() || reinterpret_cast<std::uintptr_t>(handle) <= kStreamPerThread) {
    return kInvalidValue;
  }
  Stream* stream = static_cast<Stream*>(handle);
  *graph = stream->capture;
  stream->capture = nullptr;
  return *graph != nullptr ? kSuccess : kInvalidValue;
}
SUBLET_ALIAS(cuStreamEndCapture_ptsz, cuStreamEndCapture)
SUBLET_EXPORT CUresult cuThreadExchangeStreamCaptureMode(int* mode) {
  const int old = capture_mode;
  capture_mode = *mode;
  *mode = old;
  return kSuccess;
}

SUBLET_EXPORT CUresult cuEventCreate(CUevent* out, unsigned int flags) {
  (void)flags;
  if (current_context == nullptr) {
    return kInvalidContext;
  }
  Event* event = static_cast<Event*>(std::calloc(1, sizeof(Event)));
  event->device = current_context->device;
  *out = event;
  return kSuccess;
}
SUBLET_EXPORT CUresult cuEventDestroy(CUevent event) {
  std::free(event);
  return kSuccess;
}
SUBLET_ALIAS(cuEventDestroy_v2, cuEventDestroy)
SUBLET_EXPORT CUresult cuEventRecord(CUevent handle, CUstream stream_handle) {
  DriverCall call;
  Stream* stream = call.ok() ? StreamOf(stream_handle) : nullptr;
  if (stream == nullptr || handle == nullptr) {
    return kInvalidHandle;
  }
  Event* event = static_cast<Event*>(handle);
  event->device = stream->context->device;
  event->value = stream->last_value;
  event->recorded_at_ns = Machine::Get().Now();
  return kSuccess;
}
SUBLET_ALIAS(cuEventRecord_ptsz, cuEventRecord)
SUBLET_EXPORT CUresult cuEventQuery(CUevent handle) {
  DriverCall call;
  if (!call.ok() || handle == nullptr) {
    return kInvalidHandle;
  }
  const Event* event = static_cast<Event*>(handle);
  return IsDone(event->device, event->value) ? kSuccess : kNotReady;
}
SUBLET_EXPORT CUresult cuEventSynchronize(CUevent handle) {
  const Event* event = static_cast<Event*>(handle);
  return WaitFor(event->device, event->value);
}
SUBLET_EXPORT CUresult cuEventElapsedTime(float* ms, CUevent start, CUevent end) {
  const Event* first = static_cast<Event*>(start);
  const Event* second = static_cast<Event*>(end);
  *ms = static_cast<float>(second->recorded_at_ns - first->recorded_at_ns) / 1e6F;
  return kSuccess;
}

SUBLET_EXPORT CUresult cuLaunchKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz,
                                      unsigned bx, unsigned by, unsigned bz, unsigned shared,
                                      CUstream stream, void** parameters, void** extra) {
  (void)f, (void)gx, (void)gy, (void)gz, (void)bx, (void)by, (void)bz, (void)shared, (void)extra;
  DriverCall call;
  return call.ok() ? Submit(stream, KernelNanoseconds(parameters)) : kNotInitialized;
}
SUBLET_ALIAS(cuLaunchKernel_ptsz, cuLaunchKernel)
SUBLET_EXPORT CUresult cuLaunchCooperativeKernel(CUfunction f, unsigned gx, unsigned gy,
                                                 unsigned gz, unsigned bx, unsigned by, unsigned bz,
                                                 unsigned shared, CUstream stream,
                                                 void** parameters) {
  return cuLaunchKernel(f, gx, gy, gz, bx, by, bz, shared, stream, parameters, nullptr);
}
SUBLET_ALIAS(cuLaunchCooperativeKernel_ptsz, cuLaunchCooperativeKernel)
SUBLET_EXPORT CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction f,
                                        void** parameters, void** extra) {
  return cuLaunchKernel(f, config->gridDimX, config->gridDimY, config->gridDimZ, config->blockDimX,
                        config->blockDimY, config->blockDimZ, config->sharedMemBytes,
                        config->hStream, parameters, extra);
}
SUBLET_ALIAS(cuLaunchKernelEx_ptsz, cuLaunchKernelEx)
SUBLET_EXPORT CUresult cuLaunchHostFunc(CUstream stream, void (*function)(void*), void* data) {
  (void)stream;
  function(data);
  return kSuccess;
}
SUBLET_ALIAS(cuLaunchHostFunc_ptsz, cuLaunchHostFunc)

namespace {
CUresult Copy(CUstream stream, std::size_t bytes, std::uint64_t rate, bool wait) {
  {
    DriverCall call;
    if (!call.ok()) {
      return kNotInitialized;
    }
    const CUresult result = Submit(stream, bytes * 1000 / rate + 500);
    if (result != kSuccess || !wait) {
      return result;
    }
  }
  return cuStreamSynchronize(stream);
}
}  // namespace

SUBLET_EXPORT CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void* from, std::size_t bytes) {
  (void)to, (void)from;
  return Copy(nullptr, bytes, kHostBytesPerMicrosecond, true);
}
SUBLET_ALIAS(cuMemcpyHtoD_v2_ptds, cuMemcpyHtoD_v2)
SUBLET_EXPORT CUresult cuMemcpyDtoH_v2(void* to, CUdeviceptr from, std::size_t bytes) {
  (void)from;
  std::memset(to, 0, bytes);
  return Copy(nullptr, bytes, kHostBytesPerMicrosecond, true);
}
SUBLET_ALIAS(cuMemcpyDtoH_v2_ptds, cuMemcpyDtoH_v2)
SUBLET_EXPORT CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, std::size_t bytes,
                                            CUstream stream) {
  (void)to, (void)from;
  return Copy(stream, bytes, kHostBytesPerMicrosecond, false);
}
SUBLET_ALIAS(cuMemcpyHtoDAsync_v2_ptsz, cuMemcpyHtoDAsync_v2)
SUBLET_EXPORT CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, std::size_t bytes,
                                            CUstream stream) {
  (void)to, (void)from;
  return Copy(stream, bytes, kDeviceBytesPerMicrosecond, false);
}
SUBLET_ALIAS(cuMemcpyDtoDAsync_v2_ptsz, cuMemcpyDtoDAsync_v2)
SUBLET_EXPORT CUresult cuMemsetD8_v2(CUdeviceptr to, unsigned char value, std::size_t bytes) {
  (void)to, (void)value;
  return Copy(nullptr, bytes, kDeviceBytesPerMicrosecond, true);
}
SUBLET_ALIAS(cuMemsetD8_v2_ptds, cuMemsetD8_v2)
SUBLET_EXPORT CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, std::size_t bytes,
                                       CUstream stream) {
  (void)to, (void)value;
  return Copy(stream, bytes, kDeviceBytesPerMicrosecond, false);
}
SUBLET_ALIAS(cuMemsetD8Async_ptsz, cuMemsetD8Async)

}  // namespace sublet::gpu::simulator
