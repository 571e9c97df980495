// Bench: a folder with a simulated machine, an Engine over it, and containers' programs as real
// processes with the interceptor preloaded. Test code. Threads: one.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "gpu/gpud/engine.h"
#include "gpu/simulator/state.h"

namespace sublet::gpu::testing {

inline constexpr std::uint64_t kMebibyte = std::uint64_t{1} << 20;

// A started program; its standard output is collected when it is waited for.
class Program {
 public:
  Program() = default;
  Program(Program&& other) noexcept;
  Program& operator=(Program&& other) noexcept;
  ~Program();  // kills and waits
  int pid() const { return pid_; }
  // Blocks until its first line.
  std::string ReadLine();
  // Ends its input, waits, returns the exit code (128 + signal when killed) and what it printed.
  int Wait(std::string* output = nullptr);
  void Kill(int signal);

 private:
  friend class Bench;
  int pid_ = -1;
  int out_ = -1;
  int in_ = -1;
  std::string text_;
};

struct BenchOptions {
  int devices = 1;
  std::uint64_t memory_bytes = 16384 * kMebibyte;
  bool remembers = true;
  UnmanagedPolicy unmanaged = UnmanagedPolicy::kKill;
  std::chrono::milliseconds unmanaged_grace{300};
  bool check_cgroups = false;  // every program of a test is in one cgroup
};

class Bench {
 public:
  explicit Bench(BenchOptions options = {});
  ~Bench();

  Engine& engine() { return *engine_; }
  simulator::State& state() { return *state_; }
  std::string uuid(int device) const { return state_->devices[device].uuid; }
  // A slice on device 0 (or several, the same amounts on each).
  EngineSlice MakeSlice(const std::string& name, std::uint64_t bytes, std::int32_t share,
                        std::vector<int> devices = {0}) const;
  Program Run(const std::string& slice, std::vector<std::string> arguments, bool planted = false);
  // The same without the interceptor: straight to the driver.
  Program RunBare(std::vector<std::string> arguments);
  Program Spawn(std::vector<std::string> arguments, std::map<std::string, std::string> environment);

  void StartEngine();
  // As SIGKILL would leave it: sockets closed, nothing else; the state file as of the last beat.
  void StopEngine();
  // Reads the status until `good`, at most ten seconds. False: it never was.
  bool Eventually(const std::function<bool(const EngineStatus&)>& good);
  SliceDeviceStatus DeviceOf(const std::string& slice, int device = 0);
  std::vector<EngineEvent> Events();
  const std::string& folder() const { return folder_; }

 private:
  BenchOptions options_;
  std::string folder_;
  simulator::State* state_ = nullptr;
  int state_fd_ = -1;
  std::unique_ptr<Engine> engine_;
  Mutex mutex_;
  std::vector<EngineEvent> events_ SUBLET_GUARDED_BY(mutex_);
};

}  // namespace sublet::gpu::testing
