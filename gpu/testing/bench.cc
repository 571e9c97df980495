#include "gpu/testing/bench.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <utility>

#include "base/check.h"

namespace sublet::gpu::testing {

Program::Program(Program&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      out_(std::exchange(other.out_, -1)),
      in_(std::exchange(other.in_, -1)),
      text_(std::move(other.text_)) {}

Program& Program::operator=(Program&& other) noexcept {
  std::swap(pid_, other.pid_);
  std::swap(out_, other.out_);
  std::swap(in_, other.in_);
  std::swap(text_, other.text_);
  return *this;
}

Program::~Program() {
  if (pid_ > 0) {
    Kill(SIGKILL);
    Wait();
  }
}

void Program::Kill(int signal) { kill(pid_, signal); }

std::string Program::ReadLine() {
  while (text_.find('\n') == std::string::npos) {
    char block[256];
    const ssize_t got = read(out_, block, sizeof block);
    if (got <= 0) {
      break;
    }
    text_.append(block, static_cast<std::size_t>(got));
  }
  const std::size_t end = text_.find('\n');
  std::string line = text_.substr(0, end);
  text_.erase(0, end == std::string::npos ? end : end + 1);
  return line;
}

int Program::Wait(std::string* output) {
  close(in_);
  char block[4096];
  for (ssize_t got = 0; (got = read(out_, block, sizeof block)) > 0;) {
    text_.append(block, static_cast<std::size_t>(got));
  }
  close(out_);
  int status = 0;
  waitpid(std::exchange(pid_, -1), &status, 0);
  if (output != nullptr) {
    *output = text_;
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

Bench::Bench(BenchOptions options) : options_(options) {
  char name[] = "/tmp/sublet-gpu-XXXXXX";
  SUBLET_CHECK(mkdtemp(name) != nullptr);
  folder_ = name;
  const std::string path = folder_ + "/simulator";
  simulator::CreateOptions create;
  create.path = path.c_str();
  create.device_count = options.devices;
  create.memory_bytes = options.memory_bytes;
  SUBLET_CHECK(simulator::CreateState(create) == 0);
  state_ = simulator::MapState(path.c_str(), &state_fd_);
  SUBLET_CHECK(state_ != nullptr);
  // The simulated NVML in this process finds its machine by the environment.
  setenv("SUBLET_SIMULATOR", path.c_str(), 1);
  StartEngine();
}

Bench::~Bench() {
  StopEngine();
  munmap(state_, sizeof *state_);
  close(state_fd_);
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

void Bench::StartEngine() {
  EngineOptions options;
  options.socket_root = folder_ + "/slices";
  options.state_file = options_.remembers ? folder_ + "/state.json" : "";
  options.check_cgroups = options_.check_cgroups;
  options.unmanaged = options_.unmanaged;
  options.unmanaged_grace = options_.unmanaged_grace;
  options.context_bytes = 300 * kMebibyte;
  options.poll = std::chrono::milliseconds(50);
  options.utilization_poll = std::chrono::milliseconds(100);
  options.share_grace = std::chrono::milliseconds(400);
  auto driver = OpenNvml(SUBLET_SIMULATOR_NVML);
  SUBLET_CHECK(driver.ok());
  engine_ = std::make_unique<Engine>(options, std::move(driver).value(),
                                     [this](const EngineEvent& event) {
                                       MutexLock lock(mutex_);
                                       events_.push_back(event);
                                     });
  SUBLET_CHECK(engine_->Start().ok());
}

void Bench::StopEngine() { engine_.reset(); }

EngineSlice Bench::MakeSlice(const std::string& name, std::uint64_t bytes, std::int32_t share,
                             std::vector<int> devices) const {
  EngineSlice slice{.name = name, .name_space = "tenant", .pod = "pod-" + name, .tenant = "team"};
  for (const int device : devices) {
    slice.devices.push_back({{uuid(device), static_cast<std::int64_t>(bytes), share}, 1});
  }
  return slice;
}

Program Bench::Spawn(std::vector<std::string> arguments,
                     std::map<std::string, std::string> environment) {
  int out[2];
  int in[2];
  SUBLET_CHECK(pipe2(out, O_CLOEXEC) == 0 && pipe2(in, O_CLOEXEC) == 0);
  std::vector<char*> argv;
  for (std::string& argument : arguments) {
    argv.push_back(argument.data());
  }
  argv.push_back(nullptr);
  environment["SUBLET_SIMULATOR"] = folder_ + "/simulator";
  std::vector<std::string> variables;
  for (const auto& [key, value] : environment) {
    variables.push_back(key + "=" + value);
  }
  std::vector<char*> envp;
  for (std::string& variable : variables) {
    envp.push_back(variable.data());
  }
  envp.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in[0], 0);
  posix_spawn_file_actions_adddup2(&actions, out[1], 1);
  Program program;
  SUBLET_CHECK(posix_spawn(&program.pid_, argv[0], &actions, nullptr, argv.data(), envp.data()) ==
               0);
  posix_spawn_file_actions_destroy(&actions);
  close(out[1]);
  close(in[0]);
  program.out_ = out[0];
  program.in_ = in[1];
  return program;
}

Program Bench::Run(const std::string& slice, std::vector<std::string> arguments, bool planted) {
  arguments.insert(arguments.begin(), SUBLET_GPU_PROBE);
  return Spawn(std::move(arguments),
               {{"LD_PRELOAD", planted ? SUBLET_CUDA_PLANTED : SUBLET_CUDA_HOOKS},
                {"SUBLET_GPU_FOLDER",
                 engine_ != nullptr ? engine_->FolderOf(slice) : folder_ + "/slices/" + slice},
                {"SUBLET_REAL_LIBCUDA", SUBLET_SIMULATOR_CUDA}});
}

Program Bench::RunBare(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), SUBLET_GPU_PROBE);
  return Spawn(std::move(arguments), {{"LD_PRELOAD", SUBLET_SIMULATOR_CUDA}});
}

bool Bench::Eventually(const std::function<bool(const EngineStatus&)>& good) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  do {
    if (good(engine_->ReadStatus())) {
      return true;
    }
    usleep(2000);
  } while (std::chrono::steady_clock::now() < until);
  return false;
}

SliceDeviceStatus Bench::DeviceOf(const std::string& slice, int device) {
  for (const SliceStatus& status : engine_->ReadStatus().slices) {
    if (status.slice.name == slice) {
      return status.devices.at(static_cast<std::size_t>(device));
    }
  }
  return {};
}

std::vector<EngineEvent> Bench::Events() {
  MutexLock lock(mutex_);
  return events_;
}

}  // namespace sublet::gpu::testing
