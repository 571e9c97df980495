// GpuSlice and GpuNode (gpu.sublet.dev/v1alpha1) as values: what the scheduler asks for, the syncer
// creates on the host, gpud grants and the node agent waits for. JSON is gpu/api/codec.h's.
//
// The life of a slice (DESIGN.md section 4): the asker creates a GpuSlice named by the pod's UID
// with an immutable spec and the finalizer kSliceFinalizer; gpud of spec.node answers with one
// status write (Granted with what was charged, or Denied with a reason); only then the pod is
// bound. Deleting the object asks for the release; gpud takes the finalizer away when no process of
// the pod is left.
//
// What counts is what gpud wrote: after the grant gpud reads status.devices, never spec, so editing
// a spec changes nothing.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sublet::gpu {

inline constexpr std::string_view kGroup = "gpu.sublet.dev";
inline constexpr std::string_view kVersion = "v1alpha1";
inline constexpr std::string_view kApiVersion = "gpu.sublet.dev/v1alpha1";
inline constexpr std::string_view kSliceKind = "GpuSlice";
inline constexpr std::string_view kSliceResource = "gpuslices";  // namespaced
inline constexpr std::string_view kNodeKind = "GpuNode";
inline constexpr std::string_view kNodeResource = "gpunodes";  // cluster scope
inline constexpr std::string_view kSliceFinalizer = "gpu.sublet.dev/slice";

// The annotation that names a slice's CDI device on the host pod, and the CDI kind of the device.
inline constexpr std::string_view kCdiAnnotation = "cdi.k8s.io/sublet";
// Beside it: the containers that get the device (gpu/api/guard.h, SeesDevices).
inline constexpr std::string_view kContainersAnnotation = "gpu.sublet.dev/containers";
inline constexpr std::string_view kCdiKind = "sublet.dev/gpu";

// A whole device's compute; shares are thousandths of a device's time.
inline constexpr std::int32_t kShareMilliWhole = 1000;
inline constexpr std::int64_t kBytesPerMebibyte = std::int64_t{1} << 20;
// The most devices one slice may name; the control page has as many places.
inline constexpr std::size_t kSliceDevicesMax = 16;

// fair: idle time is lent to who wants it; strict: the slice never gets more than its share.
enum class ComputeMode : std::uint8_t { kFair, kStrict };
// on: capped and leased; off: KAI's behaviour, the pod sees the whole device and nothing holds it.
enum class Enforce : std::uint8_t { kOn, kOff };

struct SliceDevice {
  std::string uuid;               // "GPU-8-4-4-4-12" or "MIG-..."
  std::int64_t memory_bytes = 0;  // > 0; exact, never rounded to a portion of the device
  std::int32_t share_milli = 0;   // 1..1000; guaranteed compute, what the ledger adds up
  bool operator==(const SliceDevice&) const = default;
};

// How compute is divided while several slices of a device are busy.
struct ComputePolicy {
  std::int32_t weight = 0;          // 1..1,000,000; 0 = the device's share_milli
  std::int32_t limit_milli = 1000;  // 1..1000; hard upper share
  ComputeMode mode = ComputeMode::kFair;
  bool operator==(const ComputePolicy&) const = default;
};

struct SlicePod {
  std::string name;  // as its asker calls it (a tenant's pod: the virtual name); for people only
  std::string uid;   // of the pod that asks (virtual for a tenant); the slice's own name
  bool operator==(const SlicePod&) const = default;
};

struct GpuSliceSpec {
  std::string node;
  SlicePod pod;
  std::string container;  // the only container that sees the devices; "" = the first
  std::vector<SliceDevice> devices;
  ComputePolicy compute;
  Enforce enforce = Enforce::kOn;
  // For the owner's eyes in `sublet gpu top`: the tenant's name, never interpreted.
  std::string tenant;
  bool operator==(const GpuSliceSpec&) const = default;
};

enum class SlicePhase : std::uint8_t { kPending, kGranted, kDenied };

struct GrantedDevice {
  SliceDevice device;
  // The device's ledger generation at this grant: a reader of GpuNode that sees a generation at or
  // above it knows that the node's free numbers already contain this slice.
  std::int64_t ledger_generation = 0;
  bool operator==(const GrantedDevice&) const = default;
};

struct GpuSliceStatus {
  SlicePhase phase = SlicePhase::kPending;
  std::string reason;                  // one of the kDenied... words below; "" when granted
  std::string message;                 // for people: the amounts
  std::vector<GrantedDevice> devices;  // what is charged; empty when denied
  std::string cdi_device;              // "sublet.dev/gpu=SLICE" once granted
  bool ready = false;                  // the CDI spec and the socket exist: a container may start
  std::int64_t epoch = 0;              // of the gpud that wrote it
  std::string granted_at;              // RFC 3339, UTC; "" until granted
  bool operator==(const GpuSliceStatus&) const = default;
};

// Reasons of a denial.
inline constexpr std::string_view kDeniedUnknownDevice = "UnknownDevice";
inline constexpr std::string_view kDeniedUnhealthyDevice = "UnhealthyDevice";
inline constexpr std::string_view kDeniedInsufficientMemory = "InsufficientMemory";
inline constexpr std::string_view kDeniedInsufficientShare = "InsufficientShare";
inline constexpr std::string_view kDeniedInvalidSpec = "InvalidSpec";

struct GpuSlice {
  std::string name;
  std::string name_space;
  std::string uid;
  std::string resource_version;
  bool is_deleting = false;  // metadata.deletionTimestamp is set
  bool has_finalizer = false;
  GpuSliceSpec spec;
  GpuSliceStatus status;
};

struct NodeDevice {
  std::string uuid;
  std::int32_t index = 0;              // NVML's, and the minor of /dev/nvidiaN on ordinary machines
  std::string model;                   // "NVIDIA H200"
  std::int64_t memory_bytes = 0;       // usable: the driver's total without what it keeps to itself
  std::int64_t free_memory_bytes = 0;  // not granted to any slice
  std::int32_t free_share_milli = 0;
  std::int64_t ledger_generation = 0;  // rises with every grant and release on this device
  bool is_healthy = true;
  std::string health_message;
  std::string mig_profile;      // "1g.18gb" for a MIG device, else ""
  std::int32_t numa_node = -1;  // -1: unknown
  bool operator==(const NodeDevice&) const = default;
};

struct GpuNode {
  std::string name;  // the Node's
  std::string resource_version;
  std::string driver_version;
  std::string cuda_version;  // "13.0"
  bool is_simulated = false;
  std::int64_t epoch = 0;  // of the gpud that publishes
  std::string
      heartbeat_at;  // RFC 3339; a reader that finds it older than a minute takes gpud for away
  std::vector<NodeDevice> devices;  // by index
};

std::string_view ComputeModeName(ComputeMode mode);  // "fair", "strict"
std::string_view EnforceName(Enforce enforce);       // "on", "off"
std::string_view SlicePhaseName(SlicePhase phase);   // "Pending", "Granted", "Denied"

}  // namespace sublet::gpu
