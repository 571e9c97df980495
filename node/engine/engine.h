// ContainerEngine: what the node agent needs of Podman or Docker, and nothing else. The one
// implementation (docker_engine.cc) speaks the Docker-compatible socket API and keeps the
// differences of the two engines to itself; everything above works on these types.
// Threads: all calls may come from any thread and block for the engine's answer.
// Errors of every call: NotFound (no such container or image), AlreadyExists (name taken),
// ServiceUnavailable (engine not there), Timeout, InternalError (the engine's own message).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "node/engine/unix_http.h"

namespace sublet::node {

enum class EngineKind : std::uint8_t { kPodman, kDocker };

// What the engine writes to a container's log file.
enum class LogFormat : std::uint8_t { kCri, kDockerJson };

struct EngineInfo {
  EngineKind kind = EngineKind::kDocker;
  std::string version;       // "4.3.1"
  std::string architecture;  // Go's word: amd64, arm64
  LogFormat log_format = LogFormat::kDockerJson;
};

struct ImageInfo {
  std::string id;  // sha256:...
  std::vector<std::string> tags;
  std::vector<std::string> digests;  // name@sha256:...
  std::int64_t size_bytes = 0;
  std::vector<std::string> entrypoint;
  std::vector<std::string> command;
  std::vector<std::string> env;
  std::string user;
  std::string working_dir;
  std::string stop_signal;
};

struct EngineMount {
  std::string source;  // exists on the host
  std::string target;
  bool read_only = false;
  std::string propagation;  // "", "rslave", "rshared"
};

struct EngineDevice {
  std::string host_path;
  std::string container_path;
  std::string permissions = "rwm";
};

// A container to be created. Absent numbers are 0 and mean the engine's default.
struct ContainerSpec {
  std::string name;
  std::string image;  // id or fully qualified name, present on the machine
  std::map<std::string, std::string> labels;
  std::vector<std::string> argv;  // the whole command line; the image's is never mixed in
  std::vector<std::string> env;
  std::string working_dir;
  std::string user;  // "uid[:gid]" or a name of the image
  std::vector<std::string> groups;
  std::string hostname;
  bool tty = false;
  bool stdin_open = false;
  bool stdin_once = false;
  // "none", "host" or "container:ID"; ipc and pid may also be "" or "shareable".
  std::string network_mode = "none";
  std::string ipc_mode;
  std::string pid_mode;
  std::string uts_mode;
  std::string user_namespace_mode;
  std::string runtime;
  std::string cgroup_parent;  // absolute
  std::int64_t memory_bytes = 0;
  std::int64_t memory_reservation_bytes = 0;
  std::int64_t cpu_shares = 0;
  std::int64_t cpu_quota_us = 0;
  std::int64_t cpu_period_us = 0;
  std::int64_t pids_limit = 0;
  std::int64_t shm_size_bytes = 0;
  std::optional<int> oom_score_adj;
  bool privileged = false;
  bool read_only_root = false;
  bool no_new_privileges = false;
  std::vector<std::string> cap_add;
  std::vector<std::string> cap_drop;
  std::string seccomp;  // "", "unconfined" or the path of a profile
  std::map<std::string, std::string> sysctls;
  std::vector<EngineMount> mounts;
  std::map<std::string, std::string> tmpfs;  // target -> options
  std::vector<EngineDevice> devices;
  std::string log_path;  // where the engine can choose; see ContainerState::log_path
  std::string stop_signal;
};

struct ContainerState {
  enum class Phase : std::uint8_t { kCreated, kRunning, kExited };
  std::string id;
  std::string name;
  std::map<std::string, std::string> labels;
  std::string image_id;
  Phase phase = Phase::kCreated;
  int pid = 0;  // 0 unless running
  int exit_code = 0;
  bool oom_killed = false;
  std::string error;
  WallTime created_at{};
  WallTime started_at{};
  WallTime finished_at{};
  std::string log_path;
  std::string bundle;  // the OCI bundle's folder, "" when the engine does not say
  bool tty = false;

  // "" when it is not there.
  std::string Label(const std::string& label) const {
    const auto it = labels.find(label);
    return it == labels.end() ? "" : it->second;
  }
};

struct ContainerSummary {
  std::string id;
  std::map<std::string, std::string> labels;
  bool running = false;
};

struct ResourceUpdate {
  std::int64_t memory_bytes = 0;  // 0 = leave
  std::int64_t cpu_shares = 0;
  std::int64_t cpu_quota_us = 0;
  std::int64_t cpu_period_us = 0;
};

enum class StreamId : std::uint8_t { kStdin = 0, kStdout = 1, kStderr = 2 };

struct ExecSpec {
  std::vector<std::string> argv;
  bool tty = false;
  bool attach_stdin = false;
  bool attach_stdout = true;
  bool attach_stderr = true;
  Canceller* cancel = nullptr;  // ends the session's waits; outlives it
};

// The streams of an exec or attach. One reader and one writer thread at a time.
class StreamSession {
 public:
  virtual ~StreamSession() = default;
  struct Chunk {
    StreamId stream = StreamId::kStdout;
    std::string_view data;  // valid until the next Read
  };
  // nullopt at the end of the output. Errors: Timeout, ServiceUnavailable.
  virtual Result<std::optional<Chunk>> Read(Deadline deadline) = 0;
  virtual Result<void> WriteStdin(std::string_view data) = 0;
  virtual void CloseStdin() = 0;
  virtual Result<void> Resize(int columns, int rows) = 0;
  // Ends a waiting Read. The process inside lives on. Threads: any.
  virtual void Cancel() = 0;
  // The exit code of an exec whose output ended; 0 for attach.
  virtual Result<int> ExitCode() = 0;
};

struct AttachSpec {
  bool tty = false;
  // The container's stdin outlives this session: CloseStdin does nothing. (Docker would end the
  // output of the session with its input, Podman would close the container's stdin for good.)
  bool keep_stdin = false;
  bool attach_stdin = false;
  bool attach_stdout = true;
  bool attach_stderr = true;
};

struct RegistryAuth {
  std::string username;
  std::string password;
  std::string identity_token;
};

class ContainerEngine {
 public:
  virtual ~ContainerEngine() = default;

  // Which engine this is. Asked once at the first success and then answered from memory. Podman
  // needs 0.7 s for /version and /info, since it asks dpkg for the packages of its parts; /_ping
  // says enough.
  virtual Result<EngineInfo> Info() = 0;
  // The names of the OCI runtimes it can use (RuntimeClass handlers).
  virtual Result<std::vector<std::string>> ListRuntimes() = 0;
  virtual Result<void> Ping() = 0;

  virtual Result<ImageInfo> InspectImage(const std::string& reference) = 0;
  virtual Result<std::vector<ImageInfo>> ListImages() = 0;
  // Errors besides those of all calls: NotFound or Forbidden as the registry says, in words.
  virtual Result<void> PullImage(const std::string& reference, const RegistryAuth* auth,
                                 Canceller* cancel) = 0;
  // Loads a docker-archive tar (not compressed) from the file's offset to its end.
  virtual Result<void> LoadImage(int archive_fd) = 0;
  virtual Result<void> RemoveImage(const std::string& reference) = 0;

  // Returns the id.
  virtual Result<std::string> Create(const ContainerSpec& spec) = 0;
  virtual Result<void> Start(const std::string& id) = 0;
  virtual Result<ContainerState> Inspect(const std::string& id) = 0;
  // Containers, running or not, that carry label=value.
  virtual Result<std::vector<ContainerSummary>> List(const std::string& label,
                                                     const std::string& value) = 0;
  // Signals a running container; one that has ended is no error. `signal`: "SIGTERM" or a number.
  virtual Result<void> Signal(const std::string& id, const std::string& signal) = 0;
  // Kills what runs and removes the container with its anonymous volumes; absent is no error.
  virtual Result<void> Remove(const std::string& id) = 0;
  // The same for a sandbox. True when the containers that shared its namespaces went with it (Podman);
  // otherwise they have to be removed by themselves (Docker).
  virtual Result<bool> RemoveSandbox(const std::string& id) = 0;
  virtual Result<void> UpdateResources(const std::string& id, const ResourceUpdate& update) = 0;

  virtual Result<std::unique_ptr<StreamSession>> Exec(const std::string& id,
                                                      const ExecSpec& spec) = 0;
  virtual Result<std::unique_ptr<StreamSession>> Attach(const std::string& id,
                                                        const AttachSpec& spec) = 0;
};

// Opens the engine behind a Unix socket; the socket need not be there yet.
std::unique_ptr<ContainerEngine> OpenEngine(const std::string& socket_path);

// The first socket that exists of: `explicit_path`, $SUBLET_ENGINE_SOCKET, $DOCKER_HOST
// (unix://...), $CONTAINER_HOST, /run/podman/podman.sock, /var/run/docker.sock,
// $XDG_RUNTIME_DIR/podman/podman.sock. Errors: NotFound, with the package to install.
Result<std::string> FindEngineSocket(const std::string& explicit_path);

struct ExecOutput {
  int exit_code = 0;
  std::string output;  // stdout and stderr as they came, at most `output_bytes_max`
};
// Runs a command to its end. Errors: Timeout (or cancelled; the process lives on), as all calls.
Result<ExecOutput> RunExec(ContainerEngine& engine, const std::string& id,
                           const std::vector<std::string>& argv, Deadline deadline,
                           std::size_t output_bytes_max, Canceller* cancel = nullptr);

}  // namespace sublet::node
