// Hooks for stream-ordered allocation, memory pools and graph memory. A pool is charged by what it
// reserved from the device, which the driver tells; before a call that may make it grow, the growth
// is reserved. All of it under pools_lock, because the driver's counters are per pool, not per
// call.
#include <string.h>

#include "gpu/hooks/charge.h"
#include "gpu/hooks/real_driver.h"

namespace sublet::gpu {

using namespace cuda;  // NOLINT: the driver's names are the subject of this file

extern "C" {
CUresult cuDeviceGetDefaultMemPool(CUmemoryPool* out, CUdevice device);
CUresult cuDeviceGetMemPool(CUmemoryPool* out, CUdevice device);
CUresult cuMemPoolGetAttribute(CUmemoryPool pool, int attribute, void* value);
CUresult cuDeviceGetGraphMemAttribute(CUdevice device, int attribute, void* value);
CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode* nodes, std::size_t* count);
CUresult cuGraphNodeGetType(CUgraphNode node, int* type);
CUresult cuGraphMemAllocNodeGetParams(CUgraphNode node, CUDA_MEM_ALLOC_NODE_PARAMS* params);
CUresult cuGraphChildGraphNodeGetGraph(CUgraphNode node, CUgraph* graph);
CUresult cuStreamIsCapturing(CUstream stream, int* status);
CUresult cuCtxGetDevice(CUdevice* device);
}

namespace {

// What the driver makes a pool grow by.
constexpr std::uint64_t kPoolStepBytes = std::uint64_t{32} << 20;
constexpr int kNodeChildGraph = 4;

std::uint64_t PoolAttribute(CUmemoryPool pool, int attribute) {
  std::uint64_t value = 0;
  return SUBLET_REAL(cuMemPoolGetAttribute)(pool, attribute, &value) == kSuccess ? value : 0;
}

std::uint64_t GraphReserved(CUdevice device) {
  std::uint64_t value = 0;
  if (FindRealFunction(kSym_cuDeviceGetGraphMemAttribute) == nullptr ||
      SUBLET_REAL(cuDeviceGetGraphMemAttribute)(device, kGraphMemReservedCurrent, &value) !=
          kSuccess) {
    return 0;
  }
  return value;
}

// Under pools_lock. Remembers a pool, so that its memory is seen; false when the table is full.
bool KnowPool(ProcessState& state, CUmemoryPool pool, int device) {
  for (int i = 0; i < state.pool_count; ++i) {
    if (state.pools[i].handle == pool) {
      return true;
    }
  }
  if (state.pool_count == static_cast<int>(sizeof state.pools / sizeof state.pools[0])) {
    return false;
  }
  state.pools[state.pool_count++] = {pool, static_cast<std::uint32_t>(device)};
  return true;
}

std::uint64_t PoolsReserved(ProcessState& state, int device) {
  std::uint64_t reserved = 0;
  for (int i = 0; i < state.pool_count; ++i) {
    if (state.pools[i].device == static_cast<std::uint32_t>(device)) {
      reserved += PoolAttribute(state.pools[i].handle, kAttributePoolReservedCurrent);
    }
  }
  return reserved;
}

// Under pools_lock: makes *charged what the driver holds, beside `spare` bytes reserved for a call.
void Settle(ProcessState& state, int device, Charge charge, std::uint64_t* charged,
            std::uint64_t real) {
  if (real > *charged) {
    ForceReserve(state, device, real - *charged, charge);
  } else if (real < *charged) {
    Release(state, device, *charged - real, charge);
  }
  *charged = real;
}

void SettlePools(ProcessState& state, int device) {
  Settle(state, device, Charge::kPool, &state.pool_charged[device], PoolsReserved(state, device));
}

bool IsCapturing(ProcessState& state, CUstream stream) {
  if (state.captures.load(std::memory_order_relaxed) == 0) {
    return false;
  }
  int status = 0;
  return SUBLET_REAL(cuStreamIsCapturing)(stream, &status) == kSuccess && status != 0;
}

}  // namespace

SUBLET_HOOK CUresult cuMemPoolTrimTo(CUmemoryPool pool, std::size_t keep) {
  const CUresult result = SUBLET_REAL(cuMemPoolTrimTo)(pool, keep);
  ProcessState* state = ConnectedState();
  if (state != nullptr && IsEnforced(*state)) {
    LockHolder hold(state->pools_lock);
    for (int device = 0; device < kPageDevicesMax; ++device) {
      if (state->pool_charged[device] != 0) {
        SettlePools(*state, device);
      }
    }
  }
  return result;
}
SUBLET_HOOK CUresult cuDeviceGraphMemTrim(CUdevice device) {
  const CUresult result = SUBLET_REAL(cuDeviceGraphMemTrim)(device);
  ProcessState* state = ConnectedState();
  const int place = state != nullptr && IsEnforced(*state) ? PlaceOfDevice(*state, device) : -1;
  if (place >= 0) {
    LockHolder hold(state->pools_lock);
    Settle(*state, place, Charge::kGraph, &state->graph_charged[place], GraphReserved(device));
  }
  return result;
}

void TrimPools(ProcessState& state, int device) {
  LockHolder hold(state.pools_lock);
  for (int i = 0; i < state.pool_count; ++i) {
    if (state.pools[i].device == static_cast<std::uint32_t>(device)) {
      SUBLET_REAL(cuMemPoolTrimTo)(state.pools[i].handle, 0);
    }
  }
  if (state.pool_charged[device] != 0) {
    SettlePools(state, device);
  }
  CUdevice ordinal = 0;
  if (state.graph_charged[device] != 0 && SUBLET_REAL(cuCtxGetDevice)(&ordinal) == kSuccess &&
      PlaceOfDevice(state, ordinal) == device) {
    SUBLET_REAL(cuDeviceGraphMemTrim)(ordinal);
    Settle(state, device, Charge::kGraph, &state.graph_charged[device], GraphReserved(ordinal));
  }
}

namespace {

// One call that allocates `bytes` from `pool` (null: the device's current one).
template <typename Call>
CUresult AllocateFromPool(CUmemoryPool pool, std::size_t bytes, CUstream stream, Call call) {
  bool refuse = false;
  ProcessState* state = Charged(&refuse);
  if (refuse) {
    return kSystemNotReady;
  }
  // While the stream captures, the call becomes a node: charged when the graph runs.
  const int device =
      state != nullptr && bytes > 0 && !IsCapturing(*state, stream) ? CurrentPlace(*state) : -1;
  CUdevice ordinal = 0;
  if (device < 0 || SUBLET_REAL(cuCtxGetDevice)(&ordinal) != kSuccess ||
      (pool == nullptr && SUBLET_REAL(cuDeviceGetMemPool)(&pool, ordinal) != kSuccess)) {
    return call();
  }
  for (int pass = 0;; ++pass) {
    {
      LockHolder hold(state->pools_lock);
      KnowPool(*state, pool, device);
      SettlePools(*state, device);
      const std::uint64_t reserved = PoolAttribute(pool, kAttributePoolReservedCurrent);
      const std::uint64_t used = PoolAttribute(pool, kAttributePoolUsedCurrent);
      const std::uint64_t spare = reserved > used ? reserved - used : 0;
      const std::uint64_t grow = bytes > spare ? RoundUp(bytes - spare, kPoolStepBytes) : 0;
      if (grow == 0 || Reserve(*state, device, grow, Charge::kPool, pass > 0)) {
        const CUresult result = call();
        // What was reserved for the growth becomes part of the charge, then the truth replaces it.
        state->pool_charged[device] += grow;
        SettlePools(*state, device);
        return result;
      }
    }
    if (pass > 0) {
      return kOutOfMemory;
    }
    TrimPools(*state, device);
  }
}

}  // namespace

SUBLET_HOOK CUresult cuMemAllocAsync(CUdeviceptr* out, std::size_t bytes, CUstream stream) {
  return AllocateFromPool(nullptr, bytes, stream,
                          [&] { return SUBLET_REAL(cuMemAllocAsync)(out, bytes, stream); });
}
SUBLET_HOOK CUresult cuMemAllocAsync_ptsz(CUdeviceptr* out, std::size_t bytes, CUstream stream) {
  return AllocateFromPool(nullptr, bytes, stream,
                          [&] { return SUBLET_REAL(cuMemAllocAsync_ptsz)(out, bytes, stream); });
}
SUBLET_HOOK CUresult cuMemAllocFromPoolAsync(CUdeviceptr* out, std::size_t bytes, CUmemoryPool pool,
                                             CUstream stream) {
  return AllocateFromPool(pool, bytes, stream, [&] {
    return SUBLET_REAL(cuMemAllocFromPoolAsync)(out, bytes, pool, stream);
  });
}
SUBLET_HOOK CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr* out, std::size_t bytes,
                                                  CUmemoryPool pool, CUstream stream) {
  return AllocateFromPool(pool, bytes, stream, [&] {
    return SUBLET_REAL(cuMemAllocFromPoolAsync_ptsz)(out, bytes, pool, stream);
  });
}

namespace {
// A free may make a pool shrink, now or at the next synchronisation: look when it is cheap.
void AfterFree() {
  ProcessState* state = ConnectedState();
  if (state == nullptr || !IsEnforced(*state)) {
    return;
  }
  LockHolder hold(state->pools_lock);
  for (int device = 0; device < kPageDevicesMax; ++device) {
    if (state->pool_charged[device] != 0) {
      SettlePools(*state, device);
    }
  }
}
}  // namespace

SUBLET_HOOK CUresult cuMemFreeAsync(CUdeviceptr address, CUstream stream) {
  const CUresult result = SUBLET_REAL(cuMemFreeAsync)(address, stream);
  AfterFree();
  return result;
}
SUBLET_HOOK CUresult cuMemFreeAsync_ptsz(CUdeviceptr address, CUstream stream) {
  const CUresult result = SUBLET_REAL(cuMemFreeAsync_ptsz)(address, stream);
  AfterFree();
  return result;
}
SUBLET_HOOK CUresult cuMemPoolCreate(CUmemoryPool* out, const CUmemPoolProps* props) {
  bool refuse = false;
  ProcessState* state = Charged(&refuse);
  if (refuse) {
    return kSystemNotReady;
  }
  if (state == nullptr || props == nullptr || props->location.type != kLocationDevice) {
    return SUBLET_REAL(cuMemPoolCreate)(out, props);
  }
  const int device = PlaceOfDevice(*state, props->location.id);
  if (device < 0) {
    return kInvalidDevice;
  }
  CUmemPoolProps capped = *props;
  const std::uint64_t cap = state->control.load()->devices[device].cap_bytes;
  if (capped.maxSize == 0 || capped.maxSize > cap) {
    capped.maxSize = cap;
  }
  LockHolder hold(state->pools_lock);
  const CUresult result = SUBLET_REAL(cuMemPoolCreate)(out, &capped);
  if (result == kSuccess && !KnowPool(*state, *out, device)) {
    return kOutOfMemory;  // 1,024 pools; the handle leaks rather than being used unseen
  }
  return result;
}
SUBLET_HOOK CUresult cuMemPoolDestroy(CUmemoryPool pool) {
  ProcessState* state = ConnectedState();
  if (state == nullptr || !IsEnforced(*state)) {
    return SUBLET_REAL(cuMemPoolDestroy)(pool);
  }
  LockHolder hold(state->pools_lock);
  const CUresult result = SUBLET_REAL(cuMemPoolDestroy)(pool);
  if (result == kSuccess) {
    for (int i = 0; i < state->pool_count; ++i) {
      if (state->pools[i].handle == pool) {
        const int device = static_cast<int>(state->pools[i].device);
        state->pools[i] = state->pools[--state->pool_count];
        SettlePools(*state, device);
        break;
      }
    }
  }
  return result;
}

namespace {

// The bytes of a graph's allocation nodes, child graphs included.
std::uint64_t GraphBytes(CUgraph graph, int depth) {
  std::size_t count = 0;
  if (depth > 8 || graph == nullptr ||
      SUBLET_REAL(cuGraphGetNodes)(graph, nullptr, &count) != kSuccess) {
    return 0;
  }
  std::uint64_t bytes = 0;
  CUgraphNode few[256];
  // Graphs with more nodes are left to what the driver reports after the launch.
  if (count > 256 || SUBLET_REAL(cuGraphGetNodes)(graph, few, &count) != kSuccess) {
    return 0;
  }
  for (std::size_t i = 0; i < count; ++i) {
    int type = -1;
    CUDA_MEM_ALLOC_NODE_PARAMS params;
    memset(&params, 0, sizeof params);
    CUgraph child = nullptr;
    SUBLET_REAL(cuGraphNodeGetType)(few[i], &type);
    if (type == kNodeMemAlloc &&
        SUBLET_REAL(cuGraphMemAllocNodeGetParams)(few[i], &params) == kSuccess) {
      bytes += RoundUp(params.bytesize, kGranuleBytes);
    } else if (type == kNodeChildGraph &&
               SUBLET_REAL(cuGraphChildGraphNodeGetGraph)(few[i], &child) == kSuccess) {
      bytes += GraphBytes(child, depth + 1);
    }
  }
  return bytes;
}

// Refuses a graph that can never fit, then remembers what its first launch will take.
template <typename Call>
CUresult Instantiate(CUgraphExec* out, CUgraph graph, Call call) {
  bool refuse = false;
  ProcessState* state = Charged(&refuse);
  if (refuse) {
    return kSystemNotReady;
  }
  const int device = state != nullptr ? CurrentPlace(*state) : -1;
  const std::uint64_t bytes = device >= 0 ? GraphBytes(graph, 0) : 0;
  if (bytes > 0 && bytes > state->control.load()->devices[device].cap_bytes) {
    state->usage.load()->devices[device].refusals.fetch_add(1, std::memory_order_relaxed);
    return kOutOfMemory;
  }
  const CUresult result = call();
  if (result == kSuccess && bytes > 0) {
    state->handles.Insert({reinterpret_cast<std::uint64_t>(*out), bytes, 0, 1,
                           static_cast<std::uint16_t>(device),
                           static_cast<std::uint16_t>(Charge::kGraph)});
  }
  return result;
}

}  // namespace

// Runs a graph launch or upload with its memory reserved; used by launch.cc.
CUresult WithGraphMemory(CUgraphExec exec, CUresult (*call)(CUgraphExec, CUstream),
                         CUstream stream) {
  ProcessState* state = ConnectedState();
  Allocation graph;
  if (state == nullptr || !state->handles.Find(reinterpret_cast<std::uint64_t>(exec), &graph) ||
      graph.other != 0) {
    return call(exec, stream);
  }
  const int device = graph.device;
  CUdevice ordinal = 0;
  SUBLET_REAL(cuCtxGetDevice)(&ordinal);
  for (int pass = 0;; ++pass) {
    {
      LockHolder hold(state->pools_lock);
      if (Reserve(*state, device, graph.bytes, Charge::kGraph, pass > 0)) {
        const CUresult result = call(exec, stream);
        state->graph_charged[device] += graph.bytes;
        Settle(*state, device, Charge::kGraph, &state->graph_charged[device],
               GraphReserved(ordinal));
        if (result == kSuccess) {
          state->handles.SetOther(graph.key, 1);
        }
        return result;
      }
    }
    if (pass > 0) {
      return kOutOfMemory;
    }
    TrimPools(*state, device);
  }
}

SUBLET_HOOK CUresult cuGraphInstantiate(CUgraphExec* out, CUgraph graph, CUgraphNode* error,
                                        char* log, std::size_t bytes) {
  return Instantiate(
      out, graph, [&] { return SUBLET_REAL(cuGraphInstantiate)(out, graph, error, log, bytes); });
}
SUBLET_HOOK CUresult cuGraphInstantiate_v2(CUgraphExec* out, CUgraph graph, CUgraphNode* error,
                                           char* log, std::size_t bytes) {
  return Instantiate(out, graph, [&] {
    return SUBLET_REAL(cuGraphInstantiate_v2)(out, graph, error, log, bytes);
  });
}
SUBLET_HOOK CUresult cuGraphInstantiateWithFlags(CUgraphExec* out, CUgraph graph,
                                                 unsigned long long flags) {
  return Instantiate(out, graph,
                     [&] { return SUBLET_REAL(cuGraphInstantiateWithFlags)(out, graph, flags); });
}
SUBLET_HOOK CUresult cuGraphInstantiateWithParams(CUgraphExec* out, CUgraph graph,
                                                  CUDA_GRAPH_INSTANTIATE_PARAMS* params) {
  return Instantiate(out, graph,
                     [&] { return SUBLET_REAL(cuGraphInstantiateWithParams)(out, graph, params); });
}
SUBLET_HOOK CUresult cuGraphInstantiateWithParams_ptsz(CUgraphExec* out, CUgraph graph,
                                                       CUDA_GRAPH_INSTANTIATE_PARAMS* params) {
  return Instantiate(out, graph, [&] {
    return SUBLET_REAL(cuGraphInstantiateWithParams_ptsz)(out, graph, params);
  });
}
SUBLET_HOOK CUresult cuGraphExecDestroy(CUgraphExec exec) {
  ProcessState* state = ConnectedState();
  Allocation gone;
  if (state != nullptr) {
    state->handles.Take(reinterpret_cast<std::uint64_t>(exec), &gone);
  }
  return SUBLET_REAL(cuGraphExecDestroy)(exec);
}
SUBLET_HOOK CUresult cuGraphUpload(CUgraphExec exec, CUstream stream) {
  return WithGraphMemory(exec, SUBLET_REAL(cuGraphUpload), stream);
}
SUBLET_HOOK CUresult cuGraphUpload_ptsz(CUgraphExec exec, CUstream stream) {
  return WithGraphMemory(exec, SUBLET_REAL(cuGraphUpload_ptsz), stream);
}

}  // namespace sublet::gpu
