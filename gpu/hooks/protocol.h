// What a container's libraries and gpud share: two memory pages per slice and three small messages.
//
// control page  written by gpud only (sealed: a client maps it read-only). The caps, and one lease
//               word per device on which clients wait.
// usage page    written by the slice's processes: the total per device and a slot per process. A
//               tenant that scribbles on it lies about itself only: gpud takes max(page, NVML).
//
// Invariants of the usage page:
//  1. total(device) is raised by compare-and-swap before the driver is called and only when it
//     stays ≤ cap, so no race overshoots.
//  2. total ≥ sum of the slots' bytes at every moment: a reserve raises total first, a release
//     lowers it last. What a killed process leaves behind is a surplus of total, never a shortage.
//  3. Every change is between a slot's begun and ended; while no slot has begun != ended, the
//     surplus is exactly what dead processes left, and gpud takes it away.
//
// Both sides check magic and version. gpud serves kProtocolVersion and the one before; a client of
// a newer version refuses to start (fail closed). Depends on nothing but the compiler.
#pragma once

#include <atomic>
#include <cstdint>

namespace sublet::gpu {

inline constexpr std::uint32_t kPageMagic = 0x53424c54;  // "SBLT"
inline constexpr std::uint32_t kProtocolVersion = 1;
inline constexpr std::uint32_t kProtocolVersionOldest = 1;
inline constexpr int kPageDevicesMax = 16;
inline constexpr int kPageSlotsMax = 512;

// In a container. The folder holds the socket; being there at all means "this is a slice", and then
// nothing in the environment is believed.
inline constexpr char kContainerFolder[] = "/run/sublet/gpu";
inline constexpr char kSocketName[] = "gpud.sock";
inline constexpr char kRealFolder[] = "/run/sublet/real";

enum class Charge : int { kLinear, kPool, kVmm, kArray, kGraph, kContext, kModule, kHost };
inline constexpr int kChargesMax = 8;

// The lease word: odd = may launch. Bit 1 = contended: launches are counted and bounded. The rest
// counts changes, so that a waiter on the futex never misses one.
inline constexpr std::uint32_t kLeaseOpen = 1;
inline constexpr std::uint32_t kLeaseContended = 2;
inline constexpr std::uint32_t kLeaseStep = 4;

struct ControlDevice {
  char uuid[64];
  unsigned char uuid_bytes[16];
  char model[64];
  std::uint64_t cap_bytes;
  std::atomic<std::uint64_t>
      context_bytes;    // what a context takes, learned by gpud; charged beforehand
  std::uint32_t index;  // NVML's on the node
  std::uint32_t share_milli;
  std::atomic<std::uint32_t> lease;  // futex
  std::uint32_t padding;
  std::atomic<std::uint64_t> lease_end_ns;  // CLOCK_MONOTONIC; 0 = none
  std::atomic<std::uint64_t> busy_ns;       // granted time used by the slice so far
  std::uint64_t reserved[4];
};

struct ControlPage {
  std::uint32_t magic;
  std::uint32_t version;
  std::uint32_t device_count;
  std::uint32_t is_enforced;
  std::atomic<std::uint32_t> epoch;  // rises ten times a second while gpud lives
  std::uint32_t padding;
  char slice[128];
  ControlDevice devices[kPageDevicesMax];
};

struct SlotDevice {
  std::atomic<std::uint64_t> bytes[kChargesMax];
  std::atomic<std::uint64_t> launches;   // racy between threads of the process: an activity sign
  std::atomic<std::uint64_t> submitted;  // contended launches handed to the driver
  std::atomic<std::uint64_t> completed;  // of them, known to be done
  std::atomic<std::uint64_t> last_done_ns;
  std::atomic<std::uint64_t> wait_ns;
  std::atomic<std::uint64_t> ungated;  // launches let through because gpud was away
  std::atomic<std::uint32_t> waiting;  // threads at the gate
  std::atomic<std::uint32_t> padding;
  std::uint64_t reserved;
};

struct Slot {
  std::atomic<std::uint32_t> generation;  // 0 = free; set by gpud
  std::atomic<std::uint32_t> pid;         // in the container's own numbers
  std::atomic<std::uint64_t> begun;
  std::atomic<std::uint64_t> ended;
  std::atomic<std::uint64_t> refusals;
  std::atomic<std::uint64_t> passthrough;     // entry points handed out unwrapped
  std::atomic<std::uint64_t> private_tables;  // cuGetExportTable answers
  std::uint64_t reserved[2];
  SlotDevice devices[kPageDevicesMax];
};

struct UsageDevice {
  std::atomic<std::uint64_t> total;
  std::atomic<std::uint64_t> peak;
  std::atomic<std::uint64_t> refusals;
  std::uint64_t reserved[5];
};

struct UsagePage {
  std::uint32_t magic;
  std::uint32_t version;
  std::uint64_t padding[7];
  UsageDevice devices[kPageDevicesMax];
  Slot slots[kPageSlotsMax];
};

// Client → gpud on connect. SOCK_SEQPACKET: one message is one packet.
struct Hello {
  std::uint32_t magic;
  std::uint32_t version;
  std::uint32_t kind;  // HelloKind
  std::uint32_t container_pid;
  std::uint32_t slot;        // of an earlier connection, when kind is kResume
  std::uint32_t generation;  // of it
};
enum HelloKind : std::uint32_t { kHelloProcess = 1, kHelloObserver = 2, kHelloResume = 3 };

// gpud → client; with kWelcome come two descriptors: control page, usage page (an observer's is
// read-only).
struct Welcome {
  std::uint32_t magic;
  std::uint32_t version;
  std::uint32_t status;  // WelcomeStatus
  std::uint32_t slot;
  std::uint32_t generation;
  std::uint32_t usage_is_same;  // resume: keep the usage page you have
};
enum WelcomeStatus : std::uint32_t {
  kWelcome = 0,
  kWelcomeWrongVersion = 1,
  kWelcomeStranger = 2,  // the peer is not in the slice's cgroup
  kWelcomeFull = 3,
};

// Client → gpud at any time.
struct Notice {
  std::uint32_t magic;
  std::uint32_t kind;  // NoticeKind
  std::uint32_t device;
  std::uint32_t padding;
};
enum NoticeKind : std::uint32_t { kNoticeWant = 1, kNoticeIdle = 2 };

static_assert(std::atomic<std::uint64_t>::is_always_lock_free);
static_assert(sizeof(SlotDevice) == 128 && sizeof(Slot) == 64 + 16 * 128);

}  // namespace sublet::gpu
