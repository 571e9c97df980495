// Rows 33, 34 and 36 of the hostile cases: each is refused by its field, and the same pod without
// it passes.
#include "gpu/api/guard.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace sublet::gpu {
namespace {

using kube::Json;

// The field that is refused, or "" when the pod passes.
std::string Refused(const std::string& container, const std::string& spec = "") {
  const auto pod = kube::ParseJson(R"({"metadata":{"name":"p"},"spec":{"containers":[{"name":"c")" +
                                   container + "}]" + spec + "}}");
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
  EXPECT_EQ(
      Refused(
          R"(,"env":[{"name":"HOME","value":"/"},{"name":"NVIDIA_VISIBLE_DEVICES","value":"void"}],
      "volumeMounts":[{"name":"d","mountPath":"/data"},{"name":"s","mountPath":"/dev/shm"}],
      "securityContext":{"capabilities":{"add":["NET_BIND_SERVICE"]}})",
          R"(,"volumes":[{"name":"d","emptyDir":{}}])"),
      "");
}

TEST(SliceGuard, VariablesThatLeadPastTheSliceAreRefused) {
  for (const char* name : {"NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES",
                           "CUDA_VISIBLE_DEVICES", "LD_PRELOAD", "LD_LIBRARY_PATH", "LD_AUDIT",
                           "CUDA_MPS_PIPE_DIRECTORY", "SUBLET_GPU_FOLDER"}) {
    EXPECT_EQ(Refused(R"(,"env":[{"name":"A","value":"b"},{"name":")" + std::string(name) +
                      R"(","value":"all"}])"),
              "spec.containers[0].env[1].name")
        << name;
  }
  EXPECT_EQ(
      Refused(R"(,"env":[{"name":"NVIDIA_VISIBLE_DEVICES","valueFrom":{"configMapKeyRef":{}}}])"),
      "spec.containers[0].env[0].name");
  EXPECT_EQ(Refused(R"(,"envFrom":[{"prefix":"LD_"}])"), "spec.containers[0].envFrom[0].prefix");
}

TEST(SliceGuard, MountsOverTheInjectedFilesAreRefused) {
  for (const char* path :
       {"/usr/lib/x86_64-linux-gnu/libcuda.so.1", "/usr/lib/x86_64-linux-gnu", "/usr", "/",
        "/run/sublet/gpu", "/run", "/etc/ld.so.preload", "/etc",
        "/usr/bin/../lib/x86_64-linux-gnu/", "//run/./sublet", "/usr/bin/nvidia-smi"}) {
    EXPECT_EQ(Refused(R"(,"volumeMounts":[{"name":"v","mountPath":")" + std::string(path) + "\"}]"),
              "spec.containers[0].volumeMounts[0].mountPath")
        << path;
  }
  EXPECT_EQ(Refused(R"(,"volumeMounts":[{"name":"v","mountPath":"/run2/sublet"}])"), "");
}

TEST(SliceGuard, PrivilegesAndHostPathsAreRefused) {
  EXPECT_EQ(Refused(R"(,"securityContext":{"privileged":true})"),
            "spec.containers[0].securityContext.privileged");
  EXPECT_EQ(Refused(R"(,"securityContext":{"capabilities":{"add":["CAP_SYS_ADMIN"]}})"),
            "spec.containers[0].securityContext.capabilities.add[0]");
  for (const char* path :
       {"/dev/nvidia0", "/dev", "/", "/run/sublet/gpud/slices", "/proc/1", "/var/lib/sublet"}) {
    EXPECT_EQ(Refused("", R"(,"volumes":[{"name":"v","hostPath":{"path":")" + std::string(path) +
                              "\"}}]"),
              "spec.volumes[0].hostPath.path")
        << path;
  }
  EXPECT_EQ(Refused("", R"(,"hostPID":true)"), "spec.hostPID");
  EXPECT_EQ(
      Refused("", R"(,"initContainers":[{"name":"i","env":[{"name":"LD_PRELOAD","value":"x"}]}])"),
      "spec.initContainers[0].env[0].name");
}

Json Pod(const std::string& annotations, const std::string& more = "",
         const std::string& container = "") {
  return *kube::ParseJson(R"({"metadata":{"name":"p","annotations":{)" + annotations + "}" + more +
                          R"(},"spec":{"containers":[{"name":"c")" + container + "}]}}");
}

TEST(SliceGuard, CdiDevicesOfItsOwnAreRefused) {
  const auto refused = GuardSlicePod(Pod(R"("cdi.k8s.io/mine":"nvidia.com/gpu=all")"));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().details().causes.at(0).field, "metadata.annotations[cdi.k8s.io/mine]");
  EXPECT_TRUE(refused.error().message().starts_with(
      "pods \"p\" is forbidden: may not share a GPU: metadata.annotations["))
      << refused.error().message();
  EXPECT_TRUE(GuardSlicePod(Pod(R"("mine":"nvidia.com/gpu=all")")).ok());
}

// What the pod asks for decides how strict the guard is; `enforce: off` refuses what KAI refuses.
TEST(SliceGuard, TheGuardFollowsTheRequest) {
  const std::string preload = R"(,"env":[{"name":"LD_PRELOAD","value":"/x.so"}])";
  const std::string visible = R"(,"env":[{"name":"NVIDIA_VISIBLE_DEVICES","value":"all"}])";
  const Json shared = Pod(R"("gpu-fraction":"0.5")", "", preload);
  EXPECT_EQ(UseOf(shared), GpuUse::kShared);
  EXPECT_FALSE(GuardPod(shared, Enforce::kOn).ok());
  EXPECT_TRUE(GuardPod(shared, Enforce::kOff).ok());
  const Json whole = Pod("", "", preload + R"(,"resources":{"limits":{"nvidia.com/gpu":1}})");
  EXPECT_EQ(UseOf(whole), GpuUse::kWhole);
  EXPECT_TRUE(GuardPod(whole, Enforce::kOn).ok());
  EXPECT_EQ(UseOf(Pod("", "", R"(,"resources":{"limits":{"nvidia.com/gpu":"0"}})")), GpuUse::kNone);
  for (const Enforce enforce : {Enforce::kOn, Enforce::kOff}) {
    EXPECT_FALSE(GuardPod(Pod(R"("gpu-memory":"100")", "", visible), enforce).ok());
    EXPECT_FALSE(GuardPod(Pod("", "", visible), enforce).ok()) << "a pod without a GPU";
    EXPECT_TRUE(GuardPod(Pod(""), enforce).ok());
  }
}

TEST(DeviceContainers, AreTheNamedOneTheFirstOrThoseWithGpus) {
  const auto pod = [](const std::string& annotations) {
    return *kube::ParseJson(
        R"({"metadata":{"name":"p","annotations":{)" + annotations +
        R"(}},"spec":{"containers":[{"name":"a"},{"name":"b","resources":{"limits":{"nvidia.com/gpu":"1"}}},{"name":"c"}]}})");
  };
  EXPECT_EQ(DeviceContainersOf(pod("")), "b");
  EXPECT_EQ(DeviceContainersOf(pod(R"("gpu-fraction":"0.5")")), "a");
  EXPECT_EQ(DeviceContainersOf(pod(R"("gpu-fraction":"0.5","gpu-fraction-container-name":"c")")),
            "c");
  EXPECT_TRUE(SeesDevices(pod(""), "b"));
  EXPECT_FALSE(SeesDevices(pod(""), "a"));
  // On the host pod of a tenant only the syncer's annotation says it.
  EXPECT_TRUE(SeesDevices(pod(R"("gpu.sublet.dev/containers":"a,c")"), "c"));
  EXPECT_FALSE(SeesDevices(pod(R"("gpu.sublet.dev/containers":"a,c")"), "b"));
  EXPECT_EQ(DeviceContainersOf(Pod("")), "");
  EXPECT_TRUE(SeesDevices(Pod(""), "c"));
}

TEST(GpuRequestCheck, NamesTheFieldOfABadRequest) {
  const auto field = [](const Json& pod) {
    const auto checked = CheckGpuRequest(pod, nullptr);
    if (checked.ok()) {
      return std::string();
    }
    EXPECT_EQ(checked.error().reason(), Reason::kInvalid);
    return checked.error().details().causes.at(0).field;
  };
  for (const char* bad :
       {"-0.5", "NaN", "1e308", "0.5 ", " 0.5", "1", "0", "0x1p-1", "inf", "", "0.1234567891",
        "5e-1", "+0.5", ".5", "0.", "0,5", "half", "1.0", "nan"}) {
    EXPECT_EQ(field(Pod(R"("gpu-fraction":")" + std::string(bad) + "\"")),
              "metadata.annotations[gpu-fraction]")
        << bad;
  }
  for (const char* bad : {"-1", "NaN", "1e3", "2000 ", "0", "1.5", "99999999999", "4Gi", " 100"}) {
    EXPECT_EQ(field(Pod(R"("gpu-memory":")" + std::string(bad) + "\"")),
              "metadata.annotations[gpu-memory]")
        << bad;
  }
  EXPECT_EQ(field(Pod(R"("gpu-fraction":"0.5")")), "");
  EXPECT_EQ(field(Pod(R"("gpu-memory":"2000")")), "");
  // More bytes than the fraction; a container that is not there; a part and whole ones; a device of
  // its own choosing.
  EXPECT_EQ(field(Pod(R"("gpu-fraction":"0.5","gpu-memory":"100000")")),
            "metadata.annotations[gpu-memory]");
  EXPECT_EQ(field(Pod(R"("gpu-fraction":"0.5","gpu-fraction-container-name":"d")")),
            "metadata.annotations[gpu-fraction-container-name]");
  EXPECT_EQ(field(Pod(R"("gpu-fraction":"0.5","gpu-fraction-container-name":"c")")), "");
  EXPECT_EQ(
      field(Pod(R"("gpu-fraction":"0.5")", "", R"(,"resources":{"limits":{"nvidia.com/gpu":1}})")),
      "spec.containers[0].resources.limits[nvidia.com/gpu]");
  EXPECT_EQ(field(Pod(R"("gpu-fraction":"0.5")", R"(,"labels":{"runai-gpu-group":"GPU-1"})")),
            "metadata.labels[runai-gpu-group]");
  EXPECT_EQ(field(Pod(R"("gpu-fraction-num-devices":"2")")),
            "metadata.annotations[gpu-fraction-num-devices]");
  EXPECT_EQ(field(Pod(R"("gpu-fraction":"0.5","gpu-fraction-num-devices":"17")")),
            "metadata.annotations[gpu-fraction-num-devices]");
  EXPECT_EQ(field(Pod(R"("gpu-fraction":"0.5","gpu.sublet.dev/compute-weight":"-1")")),
            "metadata.annotations[gpu.sublet.dev/compute-weight]");
}

// What the checks say of a pod with these annotations, whose container has these limits.
std::string Said(const Json& annotations, const Json& limits = Json::object(),
                 const Json* old = nullptr) {
  const Json pod = {
      {"metadata", {{"name", "p"}, {"annotations", annotations}}},
      {"spec",
       {{"containers", Json::array({{{"name", "main"}, {"resources", {{"limits", limits}}}}})}}}};
  const auto checked = CheckGpuRequest(pod, old);
  std::string said;
  for (const StatusCause& cause :
       checked.ok() ? std::vector<StatusCause>() : checked.error().details().causes) {
    said += cause.field + ": " + cause.message + "\n";
  }
  return said;
}

TEST(GpuRequestCheck, CombinationsThatMakeNoSenseAreToldInKaisWords) {
  const Json whole = {{"nvidia.com/gpu", "1"}};
  EXPECT_EQ(Said({{"mps", "true"}}),
            "metadata.annotations[mps]: Forbidden: MPS is only supported with a GPU fraction\n");
  EXPECT_EQ(Said({{"mps", "true"}, {"gpu-fraction", "0.5"}}), "");
  EXPECT_EQ(Said({{"mps", "false"}}), "");
  for (const Json& limits : {whole, Json{{"nvidia.com/mig-1g.5gb", 1}}, Json{{"amd.com/gpu", 1}}}) {
    EXPECT_NE(Said({{"gpu-fraction", "0.5"}}, limits).find("cannot have both a GPU fraction"),
              std::string::npos)
        << limits.dump();
  }
  EXPECT_EQ(Said({{"gpu-fraction", "0.5"}}, {{"amd.com/gpu", "0"}}), "");
  EXPECT_NE(Said({{"gpu-memory", "100"}}, whole).find("cannot request both GPU and GPU memory"),
            std::string::npos);
  EXPECT_EQ(
      Said({{"gpu-memory", "100"}, {"gpu-fraction", "0.5"}}),
      "metadata.annotations[gpu-memory]: Forbidden: cannot request both GPU and GPU memory\n");
  EXPECT_EQ(Said({{"gpu-fraction", "0.5"}, {"gpu-fraction-container-name", "other"}}),
            "metadata.annotations[gpu-fraction-container-name]: Not found: \"other\"\n");
  EXPECT_EQ(Said({{"gpu-fraction", "0.5"}, {"gpu-fraction-container-name", "main"}}), "");
  EXPECT_EQ(Said(Json::object(), whole), "");
}

TEST(GpuRequestCheck, ARequestOfAPlacedPodStays) {
  Json old = {{"metadata", {{"annotations", {{"gpu-fraction", "0.9"}}}}}, {"spec", Json::object()}};
  EXPECT_EQ(Said({{"gpu-fraction", "0.1"}}, Json::object(), &old), "");
  old["spec"]["nodeName"] = "n1";
  const std::string cannot =
      "metadata.annotations[gpu-fraction]: Forbidden: the GPU request of a pod that has a node "
      "cannot be changed\n";
  EXPECT_EQ(Said({{"gpu-fraction", "0.1"}}, Json::object(), &old), cannot);
  EXPECT_EQ(Said(Json::object(), Json::object(), &old), cannot);
  EXPECT_EQ(Said({{"gpu-fraction", "0.9"}, {"note", "x"}}, Json::object(), &old), "");
}

}  // namespace
}  // namespace sublet::gpu
