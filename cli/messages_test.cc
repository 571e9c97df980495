// What a person reads when something is wrong: every error says the next command.
#include <gtest/gtest.h>
#include <stdlib.h>

#include "base/status.h"
#include "cli/host/engine.h"
#include "cli/output.h"

namespace sublet::cli {
namespace {

TEST(NextStep, IsWhatTheCommandKnowsUnlessSomethingElseIsWrong) {
  const Status missing(Reason::kNotFound, "there is no tenant \"x\"");
  EXPECT_EQ(NextStep(missing, "sublet list"), "sublet list");
  const Status context(Reason::kNotFound, std::string(kNoContext));
  EXPECT_TRUE(NextStep(context, "kubectl get pods").starts_with("sublet host up"));
  const Status rights(Reason::kForbidden, "pods is forbidden: User \"eve\" cannot list");
  EXPECT_TRUE(NextStep(rights, "sublet list").starts_with("sublet doctor"));
}

TEST(NextStep, IsNeverMissing) {
  SetRunningCommand("sublet create");
  EXPECT_EQ(NextStep(BadRequest("cannot read values file /nope"), ""), "sublet create --help");
  EXPECT_EQ(NextStep(ServiceUnavailable("connection refused"), ""), "sublet doctor");
  // The message says it already.
  EXPECT_EQ(NextStep(Status(Reason::kConflict, "it is Paused; run: sublet resume a"), ""), "");
}

// A machine without any container engine: PATH leads nowhere, no socket is there. Where one of the
// two fixed sockets exists, the engine behind it is what is found.
TEST(Engine, WithoutOneTheErrorNamesThePackageToInstall) {
  const std::string path = getenv("PATH") == nullptr ? "" : getenv("PATH");
  setenv("PATH", "/nonexistent", 1);
  const auto podman = ChooseEngine("podman", "/nonexistent");
  const auto docker = ChooseEngine("docker", "/nonexistent");
  setenv("PATH", path.c_str(), 1);
  if (!podman.ok()) {
    EXPECT_TRUE(podman.error().Is(Reason::kNotFound));
    EXPECT_NE(podman.error().message().find("apt-get install podman runc"), std::string::npos);
    EXPECT_EQ(NextStep(podman.error(), ""), "");
  } else {
    EXPECT_EQ(podman->socket, "/run/podman/podman.sock");
  }
  if (!docker.ok()) {
    EXPECT_NE(docker.error().message().find("apt-get install docker.io"), std::string::npos);
  } else {
    EXPECT_EQ(docker->socket, "/var/run/docker.sock");
  }
}

TEST(Engine, ASocketThatNobodyAnswersIsNamed) {
  const auto engine = ChooseEngine("/nonexistent/engine.sock", "/nonexistent");
  ASSERT_FALSE(engine.ok());
  EXPECT_NE(engine.error().message().find("/nonexistent/engine.sock"), std::string::npos);
}

}  // namespace
}  // namespace sublet::cli
