// The simulated driver: every kind of device memory.
#include <sys/mman.h>

#include "gpu/simulator/driver.h"

namespace sublet::gpu::simulator {
namespace {

std::uint64_t RoundUp(std::uint64_t bytes, std::uint64_t to) { return (bytes + to - 1) / to * to; }

CUresult Allocate(std::uint64_t bytes, Kind kind, CUdeviceptr* out) {
  DriverCall call;
  if (!call.ok()) {
    return kNotInitialized;
  }
  if (CurrentContext() == nullptr) {
    return kInvalidContext;
  }
  if (bytes == 0 || out == nullptr) {
    return kInvalidValue;
  }
  const int device = CurrentContext()->device;
  if (!Machine::Get().Reserve(device, bytes)) {
    return kOutOfMemory;
  }
  const std::uint64_t address = D().next_address;
  D().next_address += RoundUp(bytes, kGranuleBytes);
  D().memory.Insert({.key = address, .bytes = bytes, .device = device, .kind = kind});
  *out = address;
  return kSuccess;
}

CUresult Drop(std::uint64_t key, bool array) {
  DriverCall call;
  if (!call.ok()) {
    return kNotInitialized;
  }
  const Entry* found = D().memory.Find(key);
  if (found == nullptr || (found->kind == Kind::kArray || found->kind == Kind::kMipmap) != array) {
    return kInvalidValue;
  }
  const Entry entry = *found;
  if (entry.kind == Kind::kAsync) {
    Pool* pool = reinterpret_cast<Pool*>(entry.other);
    pool->used -= RoundUp(entry.bytes, 512);
    // The pool keeps what it reserved up to its threshold; the rest goes back at once.
    const std::uint64_t keep =
        RoundUp(pool->used > pool->threshold ? pool->used : pool->threshold, kGranuleBytes * 16);
    if (pool->reserved > keep) {
      Machine::Get().Release(pool->device, pool->reserved - keep);
      pool->reserved = keep;
    }
  } else if (entry.kind != Kind::kImport) {
    Machine::Get().Release(entry.device, entry.bytes);
  }
  D().memory.Remove(key);
  return kSuccess;
}

CUresult PoolAllocate(CUdeviceptr* out, std::uint64_t bytes, Pool* pool, CUstream handle) {
  DriverCall call;
  Stream* stream = call.ok() ? StreamOf(handle) : nullptr;
  if (stream == nullptr) {
    return kInvalidContext;
  }
  if (bytes == 0) {
    return kInvalidValue;
  }
  if (pool == nullptr) {
    pool = D().current_pool[stream->context->device];
  }
  if (stream->capture != nullptr) {
    Graph& graph = *stream->capture;
    *out = D().next_address;
    D().next_address += RoundUp(bytes, kGranuleBytes);
    if (graph.count < 256) {
      graph.nodes[graph.count++] =
          GraphNode{.type = kNodeMemAlloc, .bytes = bytes, .pointer = *out};
    }
    return kSuccess;
  }
  const std::uint64_t used = pool->used + RoundUp(bytes, 512);
  const std::uint64_t reserved = RoundUp(used, kGranuleBytes * 16);
  if (pool->limit != 0 && used > pool->limit) {
    return kOutOfMemory;
  }
  if (reserved > pool->reserved) {
    if (!Machine::Get().Reserve(pool->device, reserved - pool->reserved)) {
      return kOutOfMemory;
    }
    pool->reserved = reserved;
    pool->reserved_high = pool->reserved_high > reserved ? pool->reserved_high : reserved;
  }
  pool->used = used;
  *out = D().next_address;
  D().next_address += RoundUp(bytes, kGranuleBytes);
  D().memory.Insert({.key = *out,
                     .bytes = bytes,
                     .other = reinterpret_cast<std::uint64_t>(pool),
                     .device = pool->device,
                     .kind = Kind::kAsync});
  return kSuccess;
}

}  // namespace

Entry* Table::Find(std::uint64_t key) {
  if (capacity_ == 0 || key == 0) {
    return nullptr;
  }
  for (std::size_t at = (key * 0x9e3779b97f4a7c15ULL) >> 20;; ++at) {
    Entry& entry = entries_[at & (capacity_ - 1)];
    if (entry.key == key) {
      return &entry;
    }
    if (entry.key == 0) {
      return nullptr;
    }
  }
}

Entry* Table::Insert(const Entry& entry) {
  if ((count_ + 1) * 2 > capacity_) {
    Entry* old = entries_;
    const std::size_t old_capacity = capacity_;
    Entry* grown = static_cast<Entry*>(
        std::calloc(old_capacity == 0 ? 1024 : old_capacity * 2, sizeof(Entry)));
    if (grown == nullptr) {
      return nullptr;
    }
    entries_ = grown;
    capacity_ = old_capacity == 0 ? 1024 : old_capacity * 2;
    count_ = 0;
    for (std::size_t i = 0; i < old_capacity; ++i) {
      if (old[i].key != 0) {
        Insert(old[i]);
      }
    }
    std::free(old);
  }
  for (std::size_t at = (entry.key * 0x9e3779b97f4a7c15ULL) >> 20;; ++at) {
    Entry& place = entries_[at & (capacity_ - 1)];
    if (place.key == 0) {
      place = entry;
      ++count_;
      return &place;
    }
  }
}

bool Table::Remove(std::uint64_t key) {
  Entry* found = Find(key);
  if (found == nullptr) {
    return false;
  }
  found->key = 0;
  --count_;
  // Whatever stands behind the hole in the same run is put in again.
  for (std::size_t at = static_cast<std::size_t>(found - entries_) + 1;; ++at) {
    Entry& entry = entries_[at & (capacity_ - 1)];
    if (entry.key == 0) {
      return true;
    }
    const Entry moved = entry;
    entry.key = 0;
    --count_;
    Insert(moved);
  }
}

SUBLET_EXPORT CUresult cuMemAlloc_v2(CUdeviceptr* out, std::size_t bytes) {
  return Allocate(bytes, Kind::kLinear, out);
}
namespace {
// The oldest ABI has 32-bit pointers: an allocation gets a small handle of its own.
CUresult AllocateLow(std::size_t bytes, CUdeviceptr_v1* out) {
  CUdeviceptr wide = 0;
  const CUresult result = Allocate(bytes, Kind::kLinear, &wide);
  if (result == kSuccess) {
    const Entry entry = *D().memory.Find(wide);
    D().memory.Remove(wide);
    Entry low = entry;
    low.key = (wide - 0x7f0000000000) / kGranuleBytes + 1;
    D().memory.Insert(low);
    *out = static_cast<CUdeviceptr_v1>(low.key);
  }
  return result;
}
}  // namespace
SUBLET_EXPORT CUresult cuMemAlloc(CUdeviceptr_v1* out, unsigned int bytes) {
  return AllocateLow(bytes, out);
}
SUBLET_EXPORT CUresult cuMemAllocPitch(CUdeviceptr_v1* out, unsigned int* pitch, unsigned int width,
                                       unsigned int height, unsigned int element) {
  (void)element;
  *pitch = static_cast<unsigned int>(RoundUp(width, 512));
  return AllocateLow(std::size_t{*pitch} * height, out);
}
SUBLET_EXPORT CUresult cuMemAllocPitch_v2(CUdeviceptr* out, std::size_t* pitch, std::size_t width,
                                          std::size_t height, unsigned element) {
  (void)element;
  *pitch = RoundUp(width, 512);
  return Allocate(*pitch * height, Kind::kLinear, out);
}
SUBLET_EXPORT CUresult cuMemAllocManaged(CUdeviceptr* out, std::size_t bytes, unsigned int flags) {
  (void)flags;
  return Allocate(bytes, Kind::kManaged, out);
}
SUBLET_EXPORT CUresult cuMemFree_v2(CUdeviceptr pointer) {
  return pointer == 0 ? kSuccess : Drop(pointer, false);
}
SUBLET_EXPORT CUresult cuMemFree(CUdeviceptr_v1 pointer) { return Drop(pointer, false); }
SUBLET_EXPORT CUresult cuMemGetInfo_v2(std::size_t* free_bytes, std::size_t* total_bytes) {
  DriverCall call;
  if (!call.ok() || CurrentContext() == nullptr) {
    return kInvalidContext;
  }
  const int device = CurrentContext()->device;
  *total_bytes = Machine::Get().state()->devices[device].total_bytes;
  *free_bytes = *total_bytes - Machine::Get().UsedBytes(device);
  return kSuccess;
}
SUBLET_EXPORT CUresult cuDeviceTotalMem_v2(std::size_t* bytes, CUdevice device) {
  if (!D().is_initialised || !IsDevice(device)) {
    return kInvalidDevice;
  }
  *bytes = Machine::Get().state()->devices[device].total_bytes;
  return kSuccess;
}
SUBLET_EXPORT CUresult cuMemGetAddressRange_v2(CUdeviceptr* base, std::size_t* bytes,
                                               CUdeviceptr pointer) {
  DriverCall call;
  const Entry* found = call.ok() ? D().memory.Find(pointer) : nullptr;
  if (found == nullptr) {
    return kNotFound;
  }
  if (base != nullptr) {
    *base = found->key;
  }
  if (bytes != nullptr) {
    *bytes = found->bytes;
  }
  return kSuccess;
}

SUBLET_EXPORT CUresult cuMemAllocHost_v2(void** out, std::size_t bytes) {
  *out = std::malloc(bytes);
  return *out != nullptr ? kSuccess : kOutOfMemory;
}
SUBLET_EXPORT CUresult cuMemHostAlloc(void** out, std::size_t bytes, unsigned int flags) {
  (void)flags;
  return cuMemAllocHost_v2(out, bytes);
}
SUBLET_EXPORT CUresult cuMemFreeHost(void* pointer) {
  std::free(pointer);
  return kSuccess;
}
SUBLET_EXPORT CUresult cuMemHostRegister_v2(void* pointer, std::size_t bytes, unsigned int flags) {
  (void)pointer, (void)bytes, (void)flags;
  return kSuccess;
}
SUBLET_EXPORT CUresult cuMemHostUnregister(void* pointer) {
  (void)pointer;
  return kSuccess;
}

SUBLET_EXPORT CUresult cuMemAllocAsync(CUdeviceptr* out, std::size_t bytes, CUstream stream) {
  return PoolAllocate(out, bytes, nullptr, stream);
}
SUBLET_ALIAS(cuMemAllocAsync_ptsz, cuMemAllocAsync)
SUBLET_EXPORT CUresult cuMemAllocFromPoolAsync(CUdeviceptr* out, std::size_t bytes,
                                               CUmemoryPool pool, CUstream stream) {
  return PoolAllocate(out, bytes, static_cast<Pool*>(pool), stream);
}
SUBLET_ALIAS(cuMemAllocFromPoolAsync_ptsz, cuMemAllocFromPoolAsync)
SUBLET_EXPORT CUresult cuMemFreeAsync(CUdeviceptr pointer, CUstream stream) {
  (void)stream;
  return Drop(pointer, false);
}
SUBLET_ALIAS(cuMemFreeAsync_ptsz, cuMemFreeAsync)
SUBLET_EXPORT CUresult cuMemPoolCreate(CUmemoryPool* out, const CUmemPoolProps* props) {
  Pool* pool = static_cast<Pool*>(std::calloc(1, sizeof(Pool)));
  pool->device = props->location.id;
  pool->limit = props->maxSize;
  *out = pool;
  return kSuccess;
}
SUBLET_EXPORT CUresult cuMemPoolDestroy(CUmemoryPool handle) {
  DriverCall call;
  Pool* pool = static_cast<Pool*>(handle);
  if (!call.ok() || pool->used != 0) {
    return kInvalidValue;
  }
  if (pool->reserved != 0) {
    Machine::Get().Release(pool->device, pool->reserved);
  }
  std::free(pool);
  return kSuccess;
}
SUBLET_EXPORT CUresult cuMemPoolTrimTo(CUmemoryPool handle, std::size_t keep) {
  DriverCall call;
  if (!call.ok()) {
    return kNotInitialized;
  }
  Pool* pool = static_cast<Pool*>(handle);
  const std::uint64_t floor = RoundUp(pool->used > keep ? pool->used : keep, kGranuleBytes * 16);
  if (pool->reserved > floor) {
    Machine::Get().Release(pool->device, pool->reserved - floor);
    pool->reserved = floor;
  }
  return kSuccess;
}
SUBLET_EXPORT CUresult cuMemPoolSetAttribute(CUmemoryPool handle, int attribute, void* value) {
  if (attribute == 4) {
    std::memcpy(&static_cast<Pool*>(handle)->threshold, value, 8);
  }
  return kSuccess;
}
SUBLET_EXPORT CUresult cuMemPoolGetAttribute(CUmemoryPool handle, int attribute, void* value) {
  const Pool* pool = static_cast<Pool*>(handle);
  const std::uint64_t answer = attribute == kAttributePoolReservedCurrent ? pool->reserved
                               : attribute == kAttributePoolReservedHigh  ? pool->reserved_high
                               : attribute == kAttributePoolUsedCurrent   ? pool->used
                                                                          : 0;
  std::memcpy(value, &answer, 8);
  return kSuccess;
}
SUBLET_EXPORT CUresult cuDeviceGetDefaultMemPool(CUmemoryPool* out, CUdevice device) {
  *out = &D().default_pool[device];
  return kSuccess;
}
SUBLET_EXPORT CUresult cuDeviceGetMemPool(CUmemoryPool* out, CUdevice device) {
  *out = D().current_pool[device];
  return kSuccess;
}
SUBLET_EXPORT CUresult cuDeviceSetMemPool(CUdevice device, CUmemoryPool pool) {
  D().current_pool[device] = static_cast<Pool*>(pool);
  return kSuccess;
}

SUBLET_EXPORT CUresult cuMemGetAllocationGranularity(std::size_t* bytes,
                                                     const CUmemAllocationProp* prop, int option) {
  (void)prop, (void)option;
  *bytes = kGranuleBytes;
  return kSuccess;
}
SUBLET_EXPORT CUresult cuMemCreate(CUmemHandle* out, std::size_t bytes,
                                   const CUmemAllocationProp* prop, unsigned long long flags) {
  (void)flags;
  DriverCall call;
  if (!call.ok()) {
    return kNotInitialized;
  }
  if (bytes == 0 || bytes % kGranuleBytes != 0 || prop == nullptr) {
    return kInvalidValue;
  }
  const bool on_device = prop->location.type == kLocationDevice;
  if (on_device &&
      (!IsDevice(prop->location.id) || !Machine::Get().Reserve(prop->location.id, bytes))) {
    return kOutOfMemory;
  }
  *out = D().next_handle++;
  D().memory.Insert({.key = *out,
                     .bytes = bytes,
                     .other = 1,
                     .device = on_device ? prop->location.id : -1,
                     .kind = Kind::kHandle});
  return kSuccess;
}
namespace {
// References of a handle: the handle's own and one per mapping; memory goes with the last.
CUresult DropReference(std::uint64_t handle) {
  Entry* found = D().memory.Find(handle);
  if (found == nullptr || found->kind != Kind::kHandle) {
    return kInvalidValue;
  }
  if (--found->other == 0) {
    if (found->device >= 0) {
      Machine::Get().Release(found->device, found->bytes);
    }
    D().memory.Remove(handle);
  }
  return kSuccess;
}
}  // namespace
SUBLET_EXPORT CUresult cuMemRelease(CUmemHandle handle) {
  DriverCall call;
  return call.ok() ? DropReference(handle) : kNotInitialized;
}
SUBLET_EXPORT CUresult cuMemRetainAllocationHandle(CUmemHandle* out, void* address) {
  DriverCall call;
  const Entry* mapping =
      call.ok() ? D().memory.Find(reinterpret_cast<std::uint64_t>(address)) : nullptr;
  if (mapping == nullptr || mapping->kind != Kind::kMapping) {
    return kInvalidValue;
  }
  *out = mapping->other;
  ++D().memory.Find(*out)->other;
  return kSuccess;
}
SUBLET_EXPORT CUresult cuMemAddressReserve(CUdeviceptr* out, std::size_t bytes,
                                           std::size_t alignment, CUdeviceptr hint,
                                           unsigned long long flags) {
  (void)alignment, (void)hint, (void)flags;
  DriverCall call;
  *out = D().next_address;
  D().next_address += RoundUp(bytes, kGranuleBytes);
  return kSuccess;
}
SUBLET_EXPORT CUresult cuMemAddressFree(CUdeviceptr pointer, std::size_t bytes) {
  (void)pointer, (void)bytes;
  return kSuccess;
}
SUBLET_EXPORT CUresult cuMemMap(CUdeviceptr pointer, std::size_t bytes, std::size_t offset,
                                CUmemHandle handle, unsigned long long flags) {
  (void)offset, (void)flags;
  DriverCall call;
  Entry* found = call.ok() ? D().memory.Find(handle) : nullptr;
  if (found == nullptr || found->kind != Kind::kHandle) {
    return kInvalidValue;
  }
  ++found->other;
  const int device = found->device;
  D().memory.Insert(
      {.key = pointer, .bytes = bytes, .other = handle, .device = device, .kind = Kind::kMapping});
  return kSuccess;
}
SUBLET_EXPORT CUresult cuMemUnmap(CUdeviceptr pointer, std::size_t bytes) {
  (void)bytes;
  DriverCall call;
  const Entry* found = call.ok() ? D().memory.Find(pointer) : nullptr;
  if (found == nullptr || found->kind != Kind::kMapping) {
    return kInvalidValue;
  }
  const std::uint64_t handle = found->other;
  D().memory.Remove(pointer);
  return DropReference(handle);
}
SUBLET_EXPORT CUresult cuMemSetAccess(CUdeviceptr pointer, std::size_t bytes, const void* access,
                                      std::size_t count) {
  (void)pointer, (void)bytes, (void)access, (void)count;
  return kSuccess;
}

namespace {
CUresult MakeArray(void** out, const CUDA_ARRAY3D_DESCRIPTOR& descriptor, std::uint64_t bytes,
                   Kind kind) {
  (void)descriptor;
  CUdeviceptr address = 0;
  const CUresult result = Allocate(bytes, kind, &address);
  *out = reinterpret_cast<void*>(address);
  return result;
}
}  // namespace
SUBLET_EXPORT CUresult cuArray3DCreate_v2(CUarray* out, const CUDA_ARRAY3D_DESCRIPTOR* d) {
  return MakeArray(out, *d, ArrayBytes(*d), Kind::kArray);
}
SUBLET_EXPORT CUresult cuArrayCreate_v2(CUarray* out, const CUDA_ARRAY_DESCRIPTOR* d) {
  const CUDA_ARRAY3D_DESCRIPTOR wide{d->Width, d->Height, 0, d->Format, d->NumChannels, 0};
  return cuArray3DCreate_v2(out, &wide);
}
SUBLET_EXPORT CUresult cuArray3DCreate(CUarray* out, const CUDA_ARRAY3D_DESCRIPTOR_v1* d) {
  const CUDA_ARRAY3D_DESCRIPTOR wide{d->Width,  d->Height,      d->Depth,
                                     d->Format, d->NumChannels, d->Flags};
  return cuArray3DCreate_v2(out, &wide);
}
SUBLET_EXPORT CUresult cuArrayCreate(CUarray* out, const CUDA_ARRAY_DESCRIPTOR_v1* d) {
  const CUDA_ARRAY3D_DESCRIPTOR wide{d->Width, d->Height, 0, d->Format, d->NumChannels, 0};
  return cuArray3DCreate_v2(out, &wide);
}
SUBLET_EXPORT CUresult cuArrayDestroy(CUarray array) {
  return Drop(reinterpret_cast<std::uint64_t>(array), true);
}
SUBLET_EXPORT CUresult cuMipmappedArrayCreate(CUmipmappedArray* out,
                                              const CUDA_ARRAY3D_DESCRIPTOR* d,
                                              unsigned int levels) {
  (void)levels;
  return MakeArray(out, *d, ArrayBytes(*d) * 4 / 3 + 65536, Kind::kMipmap);
}
SUBLET_EXPORT CUresult cuMipmappedArrayDestroy(CUmipmappedArray array) {
  return Drop(reinterpret_cast<std::uint64_t>(array), true);
}
SUBLET_EXPORT CUresult cuArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS* out,
                                                    CUarray array, CUdevice device) {
  (void)device;
  DriverCall call;
  const Entry* found =
      call.ok() ? D().memory.Find(reinterpret_cast<std::uint64_t>(array)) : nullptr;
  if (found == nullptr) {
    return kInvalidValue;
  }
  std::memset(out, 0, sizeof *out);
  out->size = found->bytes;
  out->alignment = 65536;
  return kSuccess;
}
SUBLET_ALIAS(cuMipmappedArrayGetMemoryRequirements, cuArrayGetMemoryRequirements)

// Another process's memory: the bytes stay with the one that allocated them.
SUBLET_EXPORT CUresult cuIpcGetMemHandle(void* handle, CUdeviceptr pointer) {
  std::memset(handle, 0, 64);
  std::memcpy(handle, &pointer, sizeof pointer);
  return kSuccess;
}
struct IpcHandle {
  char bytes[64];
};
SUBLET_EXPORT CUresult cuIpcOpenMemHandle_v2(CUdeviceptr* out, IpcHandle handle,
                                             unsigned int flags) {
  (void)flags, (void)handle;
  DriverCall call;
  *out = D().next_address;
  D().next_address += kGranuleBytes;
  D().memory.Insert({.key = *out, .bytes = 0, .kind = Kind::kImport});
  return kSuccess;
}
SUBLET_EXPORT CUresult cuIpcCloseMemHandle(CUdeviceptr pointer) { return Drop(pointer, false); }

}  // namespace sublet::gpu::simulator
