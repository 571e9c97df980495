#include "kube/pod_security.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace sublet::kube {
namespace {

std::string Check(std::string_view level, std::string_view spec) {
  const auto parsed = ParseJson(spec);
  EXPECT_TRUE(parsed.ok());
  return DescribeViolations(CheckPodSecurity(level, *parsed, Json::object()));
}

TEST(PodSecurity, BaselineNamesContainerAndField) {
  EXPECT_EQ(
      Check("baseline", R"({"containers":[{"name":"c","securityContext":{"privileged":true}}]})"),
      "privileged (container \"c\" must not set securityContext.privileged=true)");
  EXPECT_EQ(Check("baseline", R"({"containers":[{"name":"a","securityContext":{"capabilities":
            {"add":["SYS_ADMIN","CHOWN"]}}},{"name":"b","securityContext":{"capabilities":
            {"add":["NET_RAW"]}}}]})"),
            "non-default capabilities (containers \"a\", \"b\" must not include \"NET_RAW\", "
            "\"SYS_ADMIN\" in securityContext.capabilities.add)");
  EXPECT_EQ(Check("baseline", R"({"hostNetwork":true,"hostPID":true,"containers":[{"name":"c",
            "ports":[{"containerPort":80,"hostPort":80}]}],
            "volumes":[{"name":"r","hostPath":{"path":"/"}}]})"),
            "host namespaces (hostNetwork=true, hostPID=true), hostPath volumes (volume \"r\"), "
            "hostPort (container \"c\" uses hostPort 80)");
}

TEST(PodSecurity, EphemeralContainersAreLookedAtToo) {
  EXPECT_NE(Check("baseline", R"({"containers":[{"name":"c"}],
            "ephemeralContainers":[{"name":"e","securityContext":{"privileged":true}}]})"),
            "");
}

TEST(PodSecurity, PlainPodsPassBaselineAndFailRestricted) {
  const std::string_view plain = R"({"containers":[{"name":"c"}]})";
  EXPECT_EQ(Check("baseline", plain), "");
  EXPECT_EQ(Check("privileged", R"({"hostPID":true})"), "");
  EXPECT_EQ(Check("restricted", plain),
            "allowPrivilegeEscalation != false (container \"c\" must set "
            "securityContext.allowPrivilegeEscalation=false), unrestricted capabilities "
            "(container \"c\" must set securityContext.capabilities.drop=[\"ALL\"]), "
            "runAsNonRoot != true (pod or container \"c\" must set "
            "securityContext.runAsNonRoot=true), seccompProfile (pod or container \"c\" must set "
            "securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\")");
}

TEST(PodSecurity, OddShapesAreNoCrash) {
  EXPECT_EQ(Check("restricted", R"({"containers":7,"volumes":[]})"), "");
  EXPECT_EQ(Check("baseline", R"({"containers":[3,"x"]})"), "");
}

}  // namespace
}  // namespace sublet::kube
