// The simulated driver: graphs with kernel and memory nodes.
#include "gpu/simulator/driver.h"

namespace sublet::gpu::simulator {
namespace {

CUresult AddNode(CUgraph graph, const GraphNode& node, CUgraphNode* out) {
  Graph* target = static_cast<Graph*>(graph);
  if (target == nullptr || target->count >= 256) {
    return kInvalidValue;
  }
  target->nodes[target->count] = node;
  *out = &target->nodes[target->count++];
  return kSuccess;
}

std::uint64_t AllocatedBytes(const Graph& graph) {
  std::uint64_t bytes = 0;
  for (int i = 0; i < graph.count; ++i) {
    if (graph.nodes[i].type == kNodeMemAlloc) {
      bytes += (graph.nodes[i].bytes + kGranuleBytes - 1) / kGranuleBytes * kGranuleBytes;
    }
  }
  return bytes;
}

}  // namespace

bool BackGraph(GraphExec& exec) {
  const std::uint64_t bytes = AllocatedBytes(exec.graph);
  if (exec.is_backed || bytes == 0) {
    return true;
  }
  if (!Machine::Get().Reserve(exec.device, bytes)) {
    return false;
  }
  exec.is_backed = true;
  D().graph_reserved[exec.device] += bytes;
  return true;
}

SUBLET_EXPORT CUresult cuGraphCreate(CUgraph* out, unsigned int flags) {
  (void)flags;
  *out = std::calloc(1, sizeof(Graph));
  return kSuccess;
}
SUBLET_EXPORT CUresult cuGraphDestroy(CUgraph graph) {
  std::free(graph);
  return kSuccess;
}
SUBLET_EXPORT CUresult cuGraphAddMemAllocNode(CUgraphNode* out, CUgraph graph,
                                              const CUgraphNode* after, std::size_t count,
                                              CUDA_MEM_ALLOC_NODE_PARAMS* params) {
  (void)after, (void)count;
  DriverCall call;
  params->dptr = D().next_address;
  D().next_address += (params->bytesize + kGranuleBytes - 1) / kGranuleBytes * kGranuleBytes;
  return AddNode(graph, {.type = kNodeMemAlloc, .bytes = params->bytesize, .pointer = params->dptr},
                 out);
}
SUBLET_EXPORT CUresult cuGraphAddMemFreeNode(CUgraphNode* out, CUgraph graph,
                                             const CUgraphNode* after, std::size_t count,
                                             CUdeviceptr pointer) {
  (void)after, (void)count;
  return AddNode(graph, {.type = kNodeMemFree, .pointer = pointer}, out);
}
SUBLET_EXPORT CUresult cuGraphAddNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* after,
                                      std::size_t count, CUgraphNodeParams* params) {
  if (params->type == kNodeMemAlloc) {
    return cuGraphAddMemAllocNode(out, graph, after, count, &params->alloc);
  }
  GraphNode node{.type = params->type};
  if (params->type == kNodeKernel && params->kernel.kernelParams != nullptr) {
    std::memcpy(&node.duration_ns, params->kernel.kernelParams[0], sizeof node.duration_ns);
  }
  return AddNode(graph, node, out);
}
SUBLET_EXPORT CUresult cuGraphAddNode_v2(CUgraphNode* out, CUgraph graph, const CUgraphNode* after,
                                         const void* edges, std::size_t count,
                                         CUgraphNodeParams* params) {
  (void)edges;
  return cuGraphAddNode(out, graph, after, count, params);
}
SUBLET_EXPORT CUresult cuGraphInstantiateWithFlags(CUgraphExec* out, CUgraph graph,
                                                   unsigned long long flags) {
  (void)flags;
  if (CurrentContext() == nullptr || graph == nullptr) {
    return kInvalidContext;
  }
  GraphExec* exec = static_cast<GraphExec*>(std::calloc(1, sizeof(GraphExec)));
  exec->graph = *static_cast<Graph*>(graph);
  exec->device = CurrentContext()->device;
  *out = exec;
  return kSuccess;
}
SUBLET_EXPORT CUresult cuGraphInstantiate_v2(CUgraphExec* out, CUgraph graph, CUgraphNode* error,
                                             char* log, std::size_t bytes) {
  (void)error, (void)log, (void)bytes;
  return cuGraphInstantiateWithFlags(out, graph, 0);
}
SUBLET_ALIAS(cuGraphInstantiate, cuGraphInstantiate_v2)
SUBLET_EXPORT CUresult cuGraphInstantiateWithParams(CUgraphExec* out, CUgraph graph,
                                                    CUDA_GRAPH_INSTANTIATE_PARAMS* params) {
  return cuGraphInstantiateWithFlags(out, graph, params->flags);
}
SUBLET_ALIAS(cuGraphInstantiateWithParams_ptsz, cuGraphInstantiateWithParams)
SUBLET_EXPORT CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode* nodes, std::size_t* count) {
  Graph* source = static_cast<Graph*>(graph);
  const std::size_t available = static_cast<std::size_t>(source->count);
  for (std::size_t i = 0; nodes != nullptr && i < *count && i < available; ++i) {
    nodes[i] = &source->nodes[i];
  }
  *count = available;
  return kSuccess;
}
SUBLET_EXPORT CUresult cuGraphNodeGetType(CUgraphNode node, int* type) {
  *type = static_cast<GraphNode*>(node)->type;
  return kSuccess;
}
SUBLET_EXPORT CUresult cuGraphMemAllocNodeGetParams(CUgraphNode node,
                                                    CUDA_MEM_ALLOC_NODE_PARAMS* params) {
  std::memset(params, 0, sizeof *params);
  params->bytesize = static_cast<GraphNode*>(node)->bytes;
  params->dptr = static_cast<GraphNode*>(node)->pointer;
  return kSuccess;
}
SUBLET_EXPORT CUresult cuGraphLaunch(CUgraphExec handle, CUstream stream) {
  DriverCall call;
  if (!call.ok()) {
    return kNotInitialized;
  }
  GraphExec* exec = static_cast<GraphExec*>(handle);
  if (!BackGraph(*exec)) {
    return kOutOfMemory;
  }
  std::uint64_t ns = 0;
  for (int i = 0; i < exec->graph.count; ++i) {
    ns += exec->graph.nodes[i].duration_ns;
  }
  return Submit(stream, ns);
}
SUBLET_ALIAS(cuGraphLaunch_ptsz, cuGraphLaunch)
SUBLET_EXPORT CUresult cuGraphUpload(CUgraphExec handle, CUstream stream) {
  (void)stream;
  DriverCall call;
  return call.ok() && BackGraph(*static_cast<GraphExec*>(handle)) ? kSuccess : kOutOfMemory;
}
SUBLET_ALIAS(cuGraphUpload_ptsz, cuGraphUpload)
SUBLET_EXPORT CUresult cuGraphExecDestroy(CUgraphExec handle) {
  DriverCall call;
  GraphExec* exec = static_cast<GraphExec*>(handle);
  if (exec->is_backed) {
    // What a graph held stays reserved for later graphs until it is trimmed.
    D().graph_used[exec->device] += AllocatedBytes(exec->graph);
  }
  std::free(exec);
  return kSuccess;
}
SUBLET_EXPORT CUresult cuDeviceGraphMemTrim(CUdevice device) {
  DriverCall call;
  if (!call.ok() || !IsDevice(device)) {
    return kInvalidDevice;
  }
  if (D().graph_used[device] != 0) {
    Machine::Get().Release(device, D().graph_used[device]);
    D().graph_reserved[device] -= D().graph_used[device];
    D().graph_used[device] = 0;
  }
  return kSuccess;
}
SUBLET_EXPORT CUresult cuDeviceGetGraphMemAttribute(CUdevice device, int attribute, void* value) {
  DriverCall call;
  if (!call.ok() || !IsDevice(device)) {
    return kInvalidDevice;
  }
  const std::uint64_t answer =
      attribute == kGraphMemReservedCurrent || attribute == kGraphMemReservedHigh
          ? D().graph_reserved[device]
          : D().graph_reserved[device] - D().graph_used[device];
  std::memcpy(value, &answer, 8);
  return kSuccess;
}

}  // namespace sublet::gpu::simulator
