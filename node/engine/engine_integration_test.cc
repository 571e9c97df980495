// The engine interface against a real engine. Started by e2e/host/private_engine.sh, which hands
// over the socket; the same assertions hold for Podman and Docker.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "node/engine/engine.h"
#include "node/engine/image_archive.h"

namespace sublet::node {
namespace {

using std::chrono::seconds;

constexpr const char* kImage = "sublet.test/busybox:1";

class EngineTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    const char* socket = std::getenv("SUBLET_ENGINE_SOCKET");
    ASSERT_NE(socket, nullptr) << "run through e2e/host/private_engine.sh";
    engine_ = OpenEngine(socket);
    ImageRecipe recipe;
    recipe.tags = {kImage};
    std::ifstream file("/bin/busybox", std::ios::binary);
    std::stringstream content;
    content << file.rdbuf();
    recipe.files.push_back({"bin/busybox", content.str(), 0755, ""});
    for (const char* name : {"sh", "cat", "echo", "sleep", "true", "hostname", "id"}) {
      recipe.files.push_back({std::string("bin/") + name, "", 0777, "busybox"});
    }
    recipe.directories = {"tmp", "etc"};
    recipe.command = {"/bin/sh"};
    recipe.env = {"PATH=/bin", "FROM_IMAGE=yes"};
    ASSERT_TRUE(LoadRecipe(*engine_, recipe).ok());
    auto pause = EnsurePauseImage(*engine_);
    ASSERT_TRUE(pause.ok()) << pause.error().message();
  }
  static void TearDownTestSuite() { engine_.reset(); }

  std::string Run(ContainerSpec spec) {
    spec.labels["sublet.test"] = "engine";
    if (spec.image.empty()) {
      spec.image = kImage;
    }
    auto id = engine_->Create(spec);
    EXPECT_TRUE(id.ok()) << id.error().message();
    if (!id.ok()) {
      return "";
    }
    created_.push_back(*id);
    auto started = engine_->Start(*id);
    EXPECT_TRUE(started.ok()) << started.error().message();
    return *id;
  }
  ContainerState WaitExited(const std::string& id) {
    const Deadline deadline = After(seconds(20));
    for (;;) {
      auto state = engine_->Inspect(id);
      EXPECT_TRUE(state.ok());
      if (!state.ok() || state->phase == ContainerState::Phase::kExited) {
        return state.ok() ? *state : ContainerState{};
      }
      if (std::chrono::steady_clock::now() > deadline) {
        ADD_FAILURE() << "container does not end";
        return *state;
      }
      ::usleep(20000);
    }
  }
  void TearDown() override {
    for (auto it = created_.rbegin(); it != created_.rend(); ++it) {
      EXPECT_TRUE(engine_->Remove(*it).ok());
    }
  }

  static std::unique_ptr<ContainerEngine> engine_;
  std::vector<std::string> created_;
};
std::unique_ptr<ContainerEngine> EngineTest::engine_;

TEST_F(EngineTest, SaysWhichEngineItIs) {
  auto info = engine_->Info();
  ASSERT_TRUE(info.ok());
  EXPECT_EQ(info->kind, std::string(std::getenv("SUBLET_ENGINE_KIND")) == "podman"
                            ? EngineKind::kPodman
                            : EngineKind::kDocker);
  EXPECT_FALSE(info->version.empty());
  EXPECT_FALSE(info->architecture.empty());
  auto runtimes = engine_->ListRuntimes();
  ASSERT_TRUE(runtimes.ok());
  EXPECT_NE(std::find(runtimes->begin(), runtimes->end(), "runc"), runtimes->end());
}

TEST_F(EngineTest, InspectsImagesByNameAndSaysNotFound) {
  auto image = engine_->InspectImage(kImage);
  ASSERT_TRUE(image.ok()) << image.error().message();
  EXPECT_EQ(image->command, std::vector<std::string>{"/bin/sh"});
  EXPECT_EQ(image->id.substr(0, 7), "sha256:");
  auto missing = engine_->InspectImage("sublet.test/missing:1");
  ASSERT_FALSE(missing.ok());
  EXPECT_TRUE(missing.error().Is(Reason::kNotFound));
}

TEST_F(EngineTest, ReportsExitCodesAndTimes) {
  ContainerSpec spec;
  spec.name = "sublet-it-exit";
  spec.argv = {"sh", "-c", "exit 42"};
  const auto state = WaitExited(Run(spec));
  EXPECT_EQ(state.exit_code, 42);
  EXPECT_GT(state.started_at, WallTime{});
  // Podman takes one time from its own clock and the other from a file's, some milliseconds apart.
  EXPECT_GE(state.finished_at + seconds(1), state.started_at);
  EXPECT_EQ(state.labels.at("sublet.test"), "engine");
}

TEST_F(EngineTest, TakenNamesAreAlreadyExistsAndMissingOnesNotFound) {
  ContainerSpec spec;
  spec.name = "sublet-it-name";
  spec.argv = {"true"};
  Run(spec);
  spec.image = kImage;
  auto again = engine_->Create(spec);
  ASSERT_FALSE(again.ok());
  EXPECT_TRUE(again.error().Is(Reason::kAlreadyExists)) << again.error().message();
  EXPECT_TRUE(engine_->Inspect("sublet-it-absent").error().Is(Reason::kNotFound));
  EXPECT_TRUE(engine_->Remove("sublet-it-absent").ok());
}

TEST_F(EngineTest, BadCommandFailsAtStart) {
  ContainerSpec spec;
  spec.name = "sublet-it-bad";
  spec.image = kImage;
  spec.argv = {"/no/such/program"};
  auto id = engine_->Create(spec);
  ASSERT_TRUE(id.ok());
  created_.push_back(*id);
  EXPECT_FALSE(engine_->Start(*id).ok());
}

TEST_F(EngineTest, MembersShareTheSandboxsNamespaces) {
  ContainerSpec pause;
  pause.name = "sublet-it-pause";
  pause.image = kPauseImage;
  pause.argv = {"/pause"};
  pause.hostname = "mypod";
  pause.ipc_mode = "shareable";
  const std::string sandbox = Run(pause);
  ContainerSpec member;
  member.name = "sublet-it-member";
  member.argv = {"sleep", "1000"};
  member.network_mode = "container:" + sandbox;
  member.ipc_mode = "container:" + sandbox;
  member.uts_mode = "container:" + sandbox;
  const std::string id = Run(member);
  auto output = RunExec(*engine_, id, {"hostname"}, After(seconds(20)), 4096);
  ASSERT_TRUE(output.ok()) << output.error().message();
  EXPECT_EQ(output->output, "mypod\n");
  EXPECT_EQ(output->exit_code, 0);
  // The sandbox ends at once on SIGTERM, with exit code 0.
  EXPECT_TRUE(engine_->Signal(sandbox, "SIGTERM").ok());
  EXPECT_EQ(WaitExited(sandbox).exit_code, 0);
  EXPECT_TRUE(engine_->Signal(sandbox, "SIGKILL").ok()) << "signalling the dead is no error";
}

TEST_F(EngineTest, ExecCarriesStreamsAndExitCodes) {
  ContainerSpec spec;
  spec.name = "sublet-it-exec";
  spec.argv = {"sleep", "1000"};
  const std::string id = Run(spec);
  ExecSpec exec;
  exec.argv = {"sh", "-c", "cat; echo err >&2; exit 7"};
  exec.attach_stdin = true;
  auto session = engine_->Exec(id, exec);
  ASSERT_TRUE(session.ok()) << session.error().message();
  ASSERT_TRUE((*session)->WriteStdin("ping").ok());
  (*session)->CloseStdin();
  std::string out;
  std::string err;
  for (;;) {
    auto chunk = (*session)->Read(After(seconds(20)));
    ASSERT_TRUE(chunk.ok()) << chunk.error().message();
    if (!*chunk) {
      break;
    }
    ((*chunk)->stream == StreamId::kStderr ? err : out) += (*chunk)->data;
  }
  EXPECT_EQ(out, "ping");
  EXPECT_EQ(err, "err\n");
  auto code = (*session)->ExitCode();
  ASSERT_TRUE(code.ok()) << code.error().message();
  EXPECT_EQ(*code, 7);
}

TEST_F(EngineTest, ExecTimesOut) {
  ContainerSpec spec;
  spec.name = "sublet-it-exec-timeout";
  spec.argv = {"sleep", "1000"};
  auto output =
      RunExec(*engine_, Run(spec), {"sleep", "30"}, After(std::chrono::milliseconds(300)), 4096);
  ASSERT_FALSE(output.ok());
  EXPECT_TRUE(output.error().Is(Reason::kTimeout));
}

TEST_F(EngineTest, MountsEnvironmentUserAndLogs) {
  char folder[] = "/tmp/sublet-it-XXXXXX";
  ASSERT_NE(::mkdtemp(folder), nullptr);
  std::ofstream(std::string(folder) + "/file") << "data\n";
  ContainerSpec spec;
  spec.name = "sublet-it-mount";
  spec.argv = {"sh", "-c", "cat /m/file; echo $FROM_IMAGE $X; id -u; id -g"};
  spec.env = {"X=1"};
  spec.user = "1000:2000";
  spec.mounts = {{folder, "/m", true, ""}};
  spec.log_path = std::string(folder) + "/0.log";
  ::chmod(folder, 0755);
  const auto state = WaitExited(Run(spec));
  EXPECT_EQ(state.exit_code, 0);
  std::ifstream log(state.log_path);
  std::stringstream text;
  text << log.rdbuf();
  EXPECT_NE(text.str().find("yes 1"), std::string::npos) << state.log_path << text.str();
  EXPECT_NE(text.str().find("1000"), std::string::npos);
  ::unlink(spec.log_path.c_str());
  ::unlink((std::string(folder) + "/file").c_str());
  ::rmdir(folder);
}

TEST_F(EngineTest, ListsByLabelAndUpdatesResources) {
  ContainerSpec spec;
  spec.name = "sublet-it-list";
  spec.argv = {"sleep", "1000"};
  spec.memory_bytes = 64 << 20;
  spec.labels["sublet.test/key"] = "a=b";
  const std::string id = Run(spec);
  auto list = engine_->List("sublet.test/key", "a=b");
  ASSERT_TRUE(list.ok()) << list.error().message();
  ASSERT_EQ(list->size(), 1u);
  EXPECT_EQ((*list)[0].id, id);
  EXPECT_TRUE((*list)[0].running);
  ResourceUpdate update;
  update.memory_bytes = 96 << 20;
  update.cpu_quota_us = 50000;
  update.cpu_period_us = 100000;
  auto updated = engine_->UpdateResources(id, update);
  EXPECT_TRUE(updated.ok()) << updated.error().message();
  auto none = engine_->List("sublet.test/key", "other");
  ASSERT_TRUE(none.ok());
  EXPECT_TRUE(none->empty());
}

TEST_F(EngineTest, PullOfAnUnreachableImageIsAnErrorWithText) {
  // Nothing answers in this network namespace, so the registry cannot be reached.
  auto pulled = engine_->PullImage("127.0.0.1:1/none:1", nullptr, nullptr);
  ASSERT_FALSE(pulled.ok());
  EXPECT_FALSE(pulled.error().message().empty());
}

}  // namespace
}  // namespace sublet::node
