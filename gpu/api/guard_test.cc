// Rows 33 and 34 of the hostile cases: each is refused by its field, and the same pod without it passes.
#include "gpu/api/guard.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace sublet::gpu {
namespace {

using kube::Json;

// The field that is refused, or "" when the pod passes.
std::string Refused(const std::string& container, const std::string& spec = "") {
  const auto pod = kube::ParseJson(R"({"metadata":{"name":"p"},"spec":{"containers":[{"name":"c")" + container + "}]" + spec + "}}");
  EXPECT_TRUE(pod.ok()) << container << spec;
  const auto result = GuardSlicePod(*pod);
  if (result.ok()) {
    return "";
  }
  EXPECT_EQ(result.error().reason(), Reason::kForbidden);
  return result.error().details().causes.at(0).field;
}

TEST(SliceGuard, AnOrdinaryPodPasses) {
  EXPECT_EQ(Refused(""), "");
  EXPECT_EQ(Refused(R"(,"env":[{"name":"HOME","value":"/"},{"name":"NVIDIA_VISIBLE_DEVICES","value":"void"}],
      "volumeMounts":[{"name":"d","mountPath":"/data"},{"name":"s","mountPath":"/dev/shm"}],
      "securityContext":{"capabilities":{"add":["NET_BIND_SERVICE"]}})",
                    R"(,"volumes":[{"name":"d","emptyDir":{}}])"),
            "");
}

TEST(SliceGuard, VariablesThatLeadPastTheSliceAreRefused) {
  for (const char* name : {"NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES", "CUDA_VISIBLE_DEVICES", "LD_PRELOAD",
                           "LD_LIBRARY_PATH", "LD_AUDIT", "CUDA_MPS_PIPE_DIRECTORY", "SUBLET_GPU_FOLDER"}) {
    EXPECT_EQ(Refused(R"(,"env":[{"name":"A","value":"b"},{"name":")" + std::string(name) + R"(","value":"all"}])"),
              "spec.containers[0].env[1].name")
        << name;
  }
  EXPECT_EQ(Refused(R"(,"env":[{"name":"NVIDIA_VISIBLE_DEVICES","valueFrom":{"configMapKeyRef":{}}}])"), "spec.containers[0].env[0].name");
  EXPECT_EQ(Refused(R"(,"envFrom":[{"prefix":"LD_"}])"), "spec.containers[0].envFrom[0].prefix");
}

TEST(SliceGuard, MountsOverTheInjectedFilesAreRefused) {
  for (const char* path : {"/usr/lib/x86_64-linux-gnu/libcuda.so.1", "/usr/lib/x86_64-linux-gnu", "/usr", "/", "/run/sublet/gpu",
                           "/run", "/etc/ld.so.preload", "/etc", "/usr/bin/../lib/x86_64-linux-gnu/", "//run/./sublet", "/usr/bin/nvidia-smi"}) {
    EXPECT_EQ(Refused(R"(,"volumeMounts":[{"name":"v","mountPath":")" + std::string(path) + "\"}]"),
              "spec.containers[0].volumeMounts[0].mountPath")
        << path;
  }
  EXPECT_EQ(Refused(R"(,"volumeMounts":[{"name":"v","mountPath":"/run2/sublet"}])"), "");
}

TEST(SliceGuard, PrivilegesAndHostPathsAreRefused) {
  EXPECT_EQ(Refused(R"(,"securityContext":{"privileged":true})"), "spec.containers[0].securityContext.privileged");
  EXPECT_EQ(Refused(R"(,"securityContext":{"capabilities":{"add":["CAP_SYS_ADMIN"]}})"), "spec.containers[0].securityContext.capabilities.add[0]");
  for (const char* path : {"/dev/nvidia0", "/dev", "/", "/run/sublet/gpud/slices", "/proc/1", "/var/lib/sublet"}) {
    EXPECT_EQ(Refused("", R"(,"volumes":[{"name":"v","hostPath":{"path":")" + std::string(path) + "\"}}]"), "spec.volumes[0].hostPath.path") << path;
  }
  EXPECT_EQ(Refused("", R"(,"hostPID":true)"), "spec.hostPID");
  EXPECT_EQ(Refused("", R"(,"initContainers":[{"name":"i","env":[{"name":"LD_PRELOAD","value":"x"}]}])"), "spec.initContainers[0].env[0].name");
}

}  // namespace
}  // namespace sublet::gpu
