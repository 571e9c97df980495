#include "gpu/gpud/gpud.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/log.h"
#include "base/random.h"
#include "gpu/gpud/admin_server.h"
#include "gpu/gpud/slice_controller.h"
#include "gpu/gpud/status.h"

namespace sublet::gpu {

struct Gpud::Impl {
  GpudOptions options;
  int lock_fd = -1;
  DriverInventory inventory;
  std::unique_ptr<Engine> engine;
  std::unique_ptr<client::InformerFactory> informers;
  std::unique_ptr<client::Manager> manager;
  std::unique_ptr<SliceController> controller;
  std::unique_ptr<AdminServer> admin;

  Result<void> Lock();
  Result<InstalledFiles> Prepare();
  Result<void> StartEngine();
  AdminAnswer Answer(std::string_view path);
};

Gpud::Gpud(GpudOptions options) : impl_(std::make_unique<Impl>()) {
  impl_->options = std::move(options);
}

Gpud::~Gpud() { Stop(); }

Engine& Gpud::engine() { return *impl_->engine; }

std::string Gpud::AdminSocket() const { return impl_->options.run_folder + "/admin.sock"; }

Result<void> Gpud::Impl::Lock() {
  const std::string path = options.run_folder + "/lock";
  lock_fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (lock_fd < 0) {
    return InternalError("cannot open " + path + ": " + std::strerror(errno));
  }
  if (flock(lock_fd, LOCK_EX | LOCK_NB) != 0) {
    return Status(Reason::kConflict, "another gpud runs in " + options.run_folder);
  }
  return Ok();
}

bool HasSimulatedDevices(const std::string& path, int count) {
  int fd = -1;
  simulator::State* state = simulator::MapState(path.c_str(), &fd);
  const bool has = state != nullptr && state->device_count == static_cast<std::uint32_t>(count);
  if (state != nullptr) {
    munmap(state, sizeof *state);
    close(fd);
  }
  return has;
}

// Folders, the containers' files, and the simulated machine.
Result<InstalledFiles> Gpud::Impl::Prepare() {
  std::error_code error;
  std::filesystem::create_directories(options.run_folder, error);
  if (error) {
    return InternalError("cannot make " + options.run_folder + ": " + error.message());
  }
  SUBLET_RETURN_IF_ERROR(Lock());
  SUBLET_TRY(InstalledFiles files, InstallFiles(options.install_folder));
  if (options.simulated.count > 0) {
    const std::string path = options.run_folder + "/simulator";
    simulator::CreateOptions create;
    create.path = path.c_str();
    create.device_count = options.simulated.count;
    create.model = options.simulated.model.c_str();
    create.memory_bytes = options.simulated.memory_bytes;
    // The driver's own part and a context are a small piece of small simulated devices too.
    create.reserved_bytes = std::min(create.reserved_bytes, create.memory_bytes / 64);
    create.context_bytes = std::min(create.context_bytes, create.memory_bytes / 64);
    // A restarted gpud must not change the machine under running programs, whatever it is told now.
    if (HasSimulatedDevices(path, options.simulated.count)) {
      log::Info("simulated GPUs kept as they are", {{"path", path}});
    } else if (const int failed = simulator::CreateState(create); failed != 0) {
      return InternalError("cannot make the simulated GPUs: " + std::string(std::strerror(failed)));
    }
    setenv("SUBLET_SIMULATOR", path.c_str(), 1);
    options.nvml_path = files.simulator_nvml;
    options.cdi.is_simulated = true;
    options.cdi.simulator_state = path;
  }
  return files;
}

Result<void> Gpud::Impl::StartEngine() {
  SUBLET_TRY(std::unique_ptr<GpuDriver> driver, OpenNvml(options.nvml_path));
  SUBLET_TRY(inventory, driver->Inventory());
  EngineOptions engine_options;
  engine_options.socket_root = options.run_folder + "/slices";
  engine_options.state_file = options.run_folder + "/state.json";
  engine_options.check_cgroups = options.check_cgroups;
  engine_options.unmanaged = options.unmanaged;
  if (options.simulated.count > 0) {
    engine_options.context_bytes =
        std::min<std::uint64_t>(std::uint64_t{300} << 20, options.simulated.memory_bytes / 64);
  }
  engine =
      std::make_unique<Engine>(engine_options, std::move(driver), [this](const EngineEvent& event) {
        if (controller != nullptr) {
          controller->OnEngineEvent(event);
        }
      });
  return Ok();
}

AdminAnswer Gpud::Impl::Answer(std::string_view path) {
  if (path == "/metrics") {
    return {.type = "text/plain; version=0.0.4",
            .body = FormatMetrics(engine->ReadStatus(), inventory)};
  }
  if (path == "/status") {
    const Nanoseconds now = std::chrono::steady_clock::now().time_since_epoch().count();
    return {
        .type = "application/json",
        .body = kube::Dump(StatusToJson(engine->ReadStatus(), inventory, options.node_name, now))};
  }
  if (path == "/healthz") {
    return {.body = controller->is_leader() ? "ok\n" : "waiting for the node's lease\n"};
  }
  return {.code = 404, .body = "not found\n"};
}

Result<void> Gpud::Start() {
  Impl& impl = *impl_;
  if (impl.options.client == nullptr || impl.options.node_name.empty()) {
    return BadRequest("gpud needs a node name and an API server");
  }
  // Two descriptors for each process of each slice.
  struct rlimit files_limit {};
  if (getrlimit(RLIMIT_NOFILE, &files_limit) == 0) {
    files_limit.rlim_cur = files_limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files_limit);
  }
  SUBLET_TRY(const InstalledFiles files, impl.Prepare());
  SUBLET_RETURN_IF_ERROR(impl.StartEngine());
  impl.informers = std::make_unique<client::InformerFactory>(*impl.options.client);
  impl.manager = std::make_unique<client::Manager>(*impl.informers, SystemClock(), 1);
  impl.controller = std::make_unique<SliceController>(
      SliceControllerOptions{.node_name = impl.options.node_name,
                             .identity = impl.options.node_name + "_" + RandomUuid(),
                             .lease_namespace = impl.options.lease_namespace,
                             .cdi = impl.options.cdi,
                             .publishes_node = impl.options.publishes_node},
      *impl.options.client, *impl.informers, *impl.manager, *impl.engine, files, impl.inventory,
      SystemClock());
  SUBLET_RETURN_IF_ERROR(impl.engine->Start());
  impl.admin = std::make_unique<AdminServer>(
      AdminSocket(), [&impl](std::string_view path) { return impl.Answer(path); });
  SUBLET_RETURN_IF_ERROR(impl.admin->Start());
  impl.manager->Start();
  log::Info("gpud started", {{"node", impl.options.node_name},
                             {"gpus", impl.inventory.devices.size()},
                             {"driver", impl.inventory.driver_version}});
  return Ok();
}

void Gpud::Stop() {
  Impl& impl = *impl_;
  if (impl.admin != nullptr) {
    impl.admin->Stop();
  }
  if (impl.manager != nullptr) {
    impl.manager->Stop();
  }
  if (impl.engine != nullptr) {
    impl.engine->Stop();
  }
  impl.controller.reset();
  impl.manager.reset();
  impl.informers.reset();
  if (impl.lock_fd >= 0) {
    close(impl.lock_fd);
    impl.lock_fd = -1;
  }
}

int RunGpud(const GpudOptions& options) {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  Gpud gpud(options);
  if (const auto started = gpud.Start(); !started.ok()) {
    log::Error("gpud cannot start", {{"error", started.error()}});
    return 1;
  }
  int signal = 0;
  sigwait(&signals, &signal);
  log::Info("gpud stops", {{"signal", signal}});
  gpud.Stop();
  return 0;
}

}  // namespace sublet::gpu
