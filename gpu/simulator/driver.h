// What the files of the simulated libcuda.so.1 share: its objects, its tables and the way in.
// Every entry point is a DriverCall: it checks that cuInit was called in this process and takes the
// machine's lock, under which all objects of the process are read and written.
#pragma once

#include <cstdlib>
#include <cstring>

#include "gpu/hooks/cuda_abi.h"
#include "gpu/simulator/state.h"

#define SUBLET_EXPORT extern "C" __attribute__((visibility("default")))
// A second name for the same entry point: per-thread-stream and versioned forms.
#define SUBLET_ALIAS(alias_name, target) \
  extern "C" __attribute__((visibility("default"), alias(#target))) decltype(target) alias_name;

namespace sublet::gpu::simulator {

using namespace cuda;  // NOLINT: the driver's names are the subject of these files

enum class Kind : std::uint8_t {
  kNone,
  kLinear,
  kManaged,
  kAsync,
  kArray,
  kMipmap,
  kHandle,
  kMapping,
  kHost,
  kImport
};

struct Entry {
  std::uint64_t key = 0;
  std::uint64_t bytes = 0;
  std::uint64_t other = 0;  // pool, mapped handle, references
  int device = 0;
  Kind kind = Kind::kNone;
};

// Open addressing, grown by doubling; entries of removed keys are re-inserted (no tombstones).
class Table {
 public:
  Entry* Find(std::uint64_t key);
  Entry* Insert(const Entry& entry);  // nullptr: out of host memory
  bool Remove(std::uint64_t key);

 private:
  Entry* entries_ = nullptr;
  std::size_t capacity_ = 0;
  std::size_t count_ = 0;
};

struct Context {
  int device = 0;
  bool is_primary = false;
  int references = 0;
};

struct Pool {
  int device = 0;
  std::uint64_t used = 0;
  std::uint64_t reserved = 0;
  std::uint64_t reserved_high = 0;
  std::uint64_t threshold = 0;
  std::uint64_t limit = 0;
};

struct GraphNode {
  int type = kNodeKernel;
  std::uint64_t duration_ns = 0;
  std::uint64_t bytes = 0;
  CUdeviceptr pointer = 0;
};

struct Graph {
  GraphNode nodes[256];
  int count = 0;
};

struct GraphExec {
  Graph graph;
  int device = 0;
  bool is_backed = false;  // its allocation nodes have memory
};

struct Stream {
  Context* context = nullptr;
  std::uint64_t last_value = 0;
  Graph* capture = nullptr;        // recording when set
  bool is_shared_capture = false;  // the graph belongs to the caller
};

struct Event {
  int device = 0;
  std::uint64_t value = 0;
  std::uint64_t recorded_at_ns = 0;
};

struct Driver {
  bool is_initialised = false;
  Table memory;
  Context primary[kDevicesMax];
  Pool default_pool[kDevicesMax];
  Pool* current_pool[kDevicesMax];
  std::uint64_t graph_used[kDevicesMax];
  std::uint64_t graph_reserved[kDevicesMax];
  std::uint64_t next_address = 0x7f0000000000;
  std::uint64_t next_handle = 0x1000;
  Stream default_stream[kDevicesMax];
};

Driver& D();
Context*& CurrentContext();

// Holds the machine's lock for the body of an entry point. ok() is false before cuInit.
class DriverCall {
 public:
  DriverCall() {
    if (!D().is_initialised || !Machine::Get().is_ready()) {
      return;
    }
    Machine::Get().Lock();
    ok_ = true;
  }
  ~DriverCall() {
    if (ok_) {
      Machine::Get().Unlock();
    }
  }
  DriverCall(const DriverCall&) = delete;
  DriverCall& operator=(const DriverCall&) = delete;
  bool ok() const { return ok_; }

 private:
  bool ok_ = false;
};

bool IsDevice(int device);
// The stream behind a handle (null, legacy and per-thread mean the context's default stream).
Stream* StreamOf(CUstream handle);
// Books `ns` of work on the stream, or records it while the stream captures.
CUresult Submit(CUstream handle, std::uint64_t ns);
// Blocks, without the lock, until the device has executed this process's work up to `value`.
CUresult WaitFor(int device, std::uint64_t value);
bool IsDone(int device, std::uint64_t value);
// Gives the allocation nodes of a graph their memory; false: no room.
bool BackGraph(GraphExec& exec);

}  // namespace sublet::gpu::simulator
