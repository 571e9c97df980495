// Rows 33 to 38 of what a hostile tenant tries, as far as they end at the GPU layer.
#include <dlfcn.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "gpu/gpud/cdi.h"
#include "gpu/gpud/identity.h"
#include "gpu/hooks/nvml_abi.h"
#include "gpu/hooks/protocol.h"
#include "gpu/testing/bench.h"

namespace sublet::gpu::testing {
namespace {

// Row 33: the slice decides what is visible, whatever the environment says.
TEST(Hostile, TheEnvironmentShowsNoMoreDevices) {
  Bench bench({.devices = 3});
  ASSERT_TRUE(bench.engine().AddSlice(bench.MakeSlice("a", 1000 * kMebibyte, 250, {1})).ok());
  Program probe =
      bench.Spawn({SUBLET_GPU_PROBE, "info"}, {{"LD_PRELOAD", SUBLET_CUDA_HOOKS},
                                               {"SUBLET_GPU_FOLDER", bench.engine().FolderOf("a")},
                                               {"SUBLET_REAL_LIBCUDA", SUBLET_SIMULATOR_CUDA},
                                               {"NVIDIA_VISIBLE_DEVICES", "all"},
                                               {"CUDA_VISIBLE_DEVICES", "0,1,2"},
                                               {"CUDA_DEVICE_MEMORY_LIMIT", "100g"},
                                               {"CUDA_DISABLE_CONTROL", "true"}});
  std::string output;
  EXPECT_EQ(probe.Wait(&output), 0);
  EXPECT_TRUE(output.starts_with("1 1048576000 ")) << output;
}

// Row 37 of the hostile cases: what a container gets of the control page is for reading.
TEST(Hostile, TheControlPageCannotBeMappedWritable) {
  Bench bench;
  ASSERT_TRUE(bench.engine().AddSlice(bench.MakeSlice("a", 1000 * kMebibyte, 250)).ok());
  const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  struct sockaddr_un address {};
  address.sun_family = AF_UNIX;
  const std::string path = bench.engine().FolderOf("a") + "/" + kSocketName;
  std::memcpy(address.sun_path, path.c_str(), path.size());
  ASSERT_EQ(connect(fd, reinterpret_cast<struct sockaddr*>(&address), sizeof address), 0);
  const Hello hello{kPageMagic, kProtocolVersion, kHelloProcess, 1, 0, 0};
  ASSERT_EQ(send(fd, &hello, sizeof hello, 0), static_cast<ssize_t>(sizeof hello));
  Welcome welcome{};
  struct iovec part = {&welcome, sizeof welcome};
  alignas(struct cmsghdr) char space[CMSG_SPACE(2 * sizeof(int))];
  struct msghdr message {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = space;
  message.msg_controllen = sizeof space;
  ASSERT_EQ(recvmsg(fd, &message, 0), static_cast<ssize_t>(sizeof welcome));
  int fds[2];
  std::memcpy(fds, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fds);
  EXPECT_EQ(mmap(nullptr, sizeof(ControlPage), PROT_READ | PROT_WRITE, MAP_SHARED, fds[0], 0),
            MAP_FAILED);
  const int again = open(("/proc/self/fd/" + std::to_string(fds[0])).c_str(), O_RDWR);
  if (again >= 0) {
    EXPECT_EQ(mmap(nullptr, sizeof(ControlPage), PROT_READ | PROT_WRITE, MAP_SHARED, again, 0),
              MAP_FAILED);
    EXPECT_EQ(ftruncate(again, 0), -1);
    EXPECT_NE(write(again, "x", 1), 1);
    close(again);
  }
  EXPECT_EQ(ftruncate(fds[1], 0), -1) << "cutting the usage page off would kill gpud";
  const void* readable = mmap(nullptr, sizeof(ControlPage), PROT_READ, MAP_SHARED, fds[0], 0);
  ASSERT_NE(readable, MAP_FAILED);
  EXPECT_EQ(static_cast<const ControlPage*>(readable)->devices[0].cap_bytes, 1000 * kMebibyte);
  // Scribbling over the usage page hurts this slice only: gpud goes on, another slice is untouched.
  void* usage = mmap(nullptr, sizeof(UsagePage), PROT_READ | PROT_WRITE, MAP_SHARED, fds[1], 0);
  ASSERT_NE(usage, MAP_FAILED);
  std::memset(usage, 0xa5, sizeof(UsagePage));
  ASSERT_TRUE(bench.engine().AddSlice(bench.MakeSlice("b", 1000 * kMebibyte, 250)).ok());
  Program other = bench.Run("b", {"hold", std::to_string(100 * kMebibyte)});
  EXPECT_EQ(other.ReadLine(), "ready");
  EXPECT_EQ(bench.DeviceOf("b").used_bytes, 400 * kMebibyte);
  EXPECT_EQ(other.Wait(), 0);
  // Other messages than ours end the connection, not the daemon.
  EXPECT_EQ(send(fd, "garbage", 7, MSG_NOSIGNAL), 7);
  char byte;
  EXPECT_LE(recv(fd, &byte, 1, 0), 0);
  for (const int one : {fd, fds[0], fds[1]}) {
    close(one);
  }
  munmap(usage, sizeof(UsagePage));
}

// A container has its own pid numbers: gpud and the simulated NVML agree on the node's.
TEST(Hostile, InAPidNamespaceProcessesAreKnownByTheirNodePid) {
  if (geteuid() != 0) {
    return;  // namespaces need root here; the rest of the suite does not
  }
  Bench bench;
  ASSERT_TRUE(bench.engine().AddSlice(bench.MakeSlice("a", 4000 * kMebibyte, 250)).ok());
  Program shell = bench.Spawn({"/usr/bin/unshare", "--pid", "--fork", "--kill-child",
                               SUBLET_GPU_PROBE, "hold", std::to_string(1000 * kMebibyte)},
                              {{"LD_PRELOAD", SUBLET_CUDA_HOOKS},
                               {"SUBLET_GPU_FOLDER", bench.engine().FolderOf("a")},
                               {"SUBLET_REAL_LIBCUDA", SUBLET_SIMULATOR_CUDA}});
  ASSERT_EQ(shell.ReadLine(), "ready");
  // Managed: were the pids different numbers, gpud would take it for a stranger and end it.
  usleep(700'000);
  EXPECT_EQ(bench.engine().ReadStatus().unmanaged_total, 0U);
  EXPECT_EQ(bench.DeviceOf("a").used_bytes, 1300 * kMebibyte);
  shell.Kill(SIGKILL);
  EXPECT_TRUE(bench.Eventually(
      [](const EngineStatus& s) { return s.slices[0].devices[0].used_bytes == 0; }));
}

// Where the driver can cap a cgroup itself, gpud tells it to.
TEST(NativeCaps, AreSetOnTheCgroupOfASlicesFirstProcess) {
  Bench bench;
  bench.StopEngine();
  bench.state().has_memory_limits = 1;
  bench.StartEngine();
  ASSERT_TRUE(bench.engine().AddSlice(bench.MakeSlice("a", 1000 * kMebibyte, 250)).ok());
  Program holder = bench.Run("a", {"hold", std::to_string(100 * kMebibyte)});
  ASSERT_EQ(holder.ReadLine(), "ready");
  void* library = dlopen(SUBLET_SIMULATOR_NVML, RTLD_NOW | RTLD_NOLOAD);
  ASSERT_NE(library, nullptr);
  using Get = int (*)(void*, nvml::nvmlGetMemoryLimits_v1_t*);
  using Handle = int (*)(unsigned int, void**);
  void* device = nullptr;
  ASSERT_EQ(reinterpret_cast<Handle>(dlsym(library, "nvmlDeviceGetHandleByIndex_v2"))(0, &device),
            0);
  const std::string cgroup = "/sys/fs/cgroup" + ProcessCgroup(holder.pid());
  nvml::nvmlGetMemoryLimits_v1_t limits{cgroup.c_str(), 0, 0, 0};
  const auto read = reinterpret_cast<Get>(dlsym(library, "nvmlDeviceGetMemoryLimits_v1"));
  EXPECT_TRUE(bench.Eventually([&](const EngineStatus&) { return read(device, &limits) == 0; }));
  EXPECT_EQ(limits.hardLimit, 1000 * kMebibyte);
  dlclose(library);
  EXPECT_EQ(holder.Wait(), 0);
}

// A container as CDI makes it: the example image's root with the spec's mounts, no environment at
// all.
TEST(Image, TheExampleImageIsHeldToItsSliceByMountsAlone) {
  if (geteuid() != 0) {
    return;  // mounts need root; everything else of this file does not
  }
  Bench bench;
  const EngineSlice slice = bench.MakeSlice("a", 1000 * kMebibyte, 250);
  ASSERT_TRUE(bench.engine().AddSlice(slice).ok());
  auto files = InstallFiles(bench.folder() + "/install");
  ASSERT_TRUE(files.ok());
  CdiOptions options{.is_simulated = true, .simulator_state = bench.folder() + "/simulator"};
  const kube::Json spec = MakeCdiSpec(slice, bench.engine().FolderOf("a"), *files, options, {}, {});
  const std::string root = bench.folder() + "/image/root";
  std::string script = "set -e\nPATH=/usr/sbin:/usr/bin:/sbin:/bin\n";
  script += std::string(SUBLET_GPU_SOURCE) + "/testing/example_image.sh " + SUBLET_GPU_BUILD + " " +
            bench.folder() + "/image >/dev/null\n";
  for (const kube::Json& mount : spec["devices"][0]["containerEdits"]["mounts"]) {
    const std::string from(kube::FindString(mount, {"hostPath"}));
    const std::string to = root + std::string(kube::FindString(mount, {"containerPath"}));
    script += "mkdir -p $(dirname " + to + "); if [ -d " + from + " ]; then mkdir -p " + to +
              "; else touch " + to + "; fi\n";
    script += "mount --bind " + from + " " + to + "\n";
    if (mount["options"][0] == "ro") {
      script += "mount -o remount,bind,ro " + to + "\n";
    }
  }
  script += "env -i $(command -v chroot) " + root +
            " /bin/gpu-burner info\nenv -i $(command -v chroot) " + root +
            " /usr/bin/nvidia-smi -L\n";
  Program container = bench.Spawn({"/usr/bin/unshare", "--mount", "/bin/bash", "-c", script}, {});
  std::string output;
  EXPECT_EQ(container.Wait(&output), 0) << output;
  EXPECT_TRUE(output.starts_with("1 1048576000 ")) << output;
  EXPECT_NE(output.find("GPU 0: Simulated GPU"), std::string::npos) << output;
}

}  // namespace
}  // namespace sublet::gpu::testing
