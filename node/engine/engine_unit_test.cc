// The engine layer without an engine: HTTP parsing, stream frames, the API's JSON, image archives.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "kube/json.h"
#include "node/engine/docker_json.h"
#include "node/engine/image_archive.h"
#include "node/engine/stream_frames.h"
#include "node/engine/unix_http.h"

namespace sublet::node {
namespace {

TEST(ResponseHead, ReadsCodeAndLowerCasesNames) {
  auto head = ParseResponseHead("HTTP/1.1 404 Not Found\r\nContent-Type: a/b\r\nX-Y:  z");
  ASSERT_TRUE(head.ok());
  EXPECT_EQ(head->code, 404);
  EXPECT_EQ(head->Header("content-type"), "a/b");
  EXPECT_EQ(head->Header("x-y"), "z");
  EXPECT_FALSE(ParseResponseHead("SSH-2.0").ok());
  EXPECT_FALSE(ParseResponseHead("HTTP/1.1 2x0 OK").ok());
}

TEST(ChunkDecoder, DecodesByteByByteAndIgnoresTrailers) {
  const std::string wire = "4;ext=1\r\nWiki\r\nA\r\n0123456789\r\n0\r\nTrailer: x\r\n\r\nrest";
  ChunkDecoder decoder;
  std::string out;
  for (const char c : wire) {
    ASSERT_TRUE(decoder.Feed(std::string_view(&c, 1), &out).ok());
  }
  EXPECT_TRUE(decoder.done());
  EXPECT_EQ(out, "Wiki0123456789");
}

TEST(ChunkDecoder, RefusesBadSizes) {
  std::string out;
  ChunkDecoder bad;
  EXPECT_FALSE(bad.Feed("zz\r\n", &out).ok());
  ChunkDecoder huge;
  EXPECT_FALSE(huge.Feed("fffffffffffffffff\r\n", &out).ok());
  ChunkDecoder longer;
  EXPECT_FALSE(longer.Feed("1\r\nab\r\n", &out).ok());
}

TEST(StreamFrames, SplitsInterleavedStreamsAcrossReads) {
  std::string wire;
  const auto frame = [&](char stream, const std::string& text) {
    wire += stream;
    wire += std::string(3, '\0');
    wire += std::string(3, '\0');
    wire += static_cast<char>(text.size());
    wire += text;
  };
  frame(1, "hello");
  frame(2, "oops");
  frame(1, "");
  frame(1, "bye");
  std::string out;
  std::string err;
  StreamFrames frames;
  for (const char c : wire) {
    frames.Feed(std::string_view(&c, 1));
    for (;;) {
      auto chunk = frames.Next();
      ASSERT_TRUE(chunk.ok());
      if (!*chunk) {
        break;
      }
      ((*chunk)->stream == StreamId::kStderr ? err : out) += (*chunk)->data;
    }
  }
  EXPECT_EQ(out, "hellobye");
  EXPECT_EQ(err, "oops");
  frames.Feed(std::string("\x07\0\0\0\0\0\0\1x", 9));
  EXPECT_FALSE(frames.Next().ok());
}

TEST(EngineTime, ReadsNanosecondsAndOffsets) {
  const auto base = std::chrono::system_clock::from_time_t(1767225600);
  EXPECT_EQ(ParseEngineTime("2026-01-01T00:00:00Z"), base);
  EXPECT_EQ(ParseEngineTime("2026-01-01T01:30:00.5+01:30"), base + std::chrono::milliseconds(500));
  EXPECT_EQ(ParseEngineTime("0001-01-01T00:00:00Z"), WallTime{});
  EXPECT_EQ(ParseEngineTime("soon"), WallTime{});
}

TEST(CreateBody, KeepsUtsModeFromDockerAndPinsSwap) {
  ContainerSpec spec;
  spec.name = "c";
  spec.image = "i";
  spec.argv = {"sh", "-c", "true"};
  spec.uts_mode = "container:p";
  spec.memory_bytes = 1 << 20;
  const kube::Json docker = CreateBody(spec, EngineKind::kDocker);
  const kube::Json podman = CreateBody(spec, EngineKind::kPodman);
  EXPECT_FALSE(docker["HostConfig"].contains("UTSMode"));
  EXPECT_EQ(podman["HostConfig"]["UTSMode"], "container:p");
  EXPECT_EQ(docker["HostConfig"]["MemorySwap"], 1 << 20);
  EXPECT_EQ(docker["Entrypoint"], kube::Json({"sh"}));
  EXPECT_EQ(docker["Cmd"], kube::Json({"-c", "true"}));
  EXPECT_EQ(podman["HostConfig"]["LogConfig"]["Type"], "k8s-file");
  EXPECT_EQ(docker["HostConfig"]["LogConfig"]["Type"], "json-file");
}

TEST(ParseContainer, MapsPodmansOwnStatesAndDropsThePidOfTheDead) {
  kube::Json inspect = {
      {"Id", "x"}, {"Name", "/n"}, {"State", {{"Status", "stopping"}, {"Pid", 7}}}};
  EXPECT_EQ(ParseContainer(inspect).phase, ContainerState::Phase::kRunning);
  EXPECT_EQ(ParseContainer(inspect).pid, 7);
  inspect["State"] = {{"Status", "stopped"}, {"Pid", 7}, {"ExitCode", 3}};
  EXPECT_EQ(ParseContainer(inspect).phase, ContainerState::Phase::kExited);
  EXPECT_EQ(ParseContainer(inspect).pid, 0);
  EXPECT_EQ(ParseContainer(inspect).exit_code, 3);
  EXPECT_EQ(ParseContainer(inspect).name, "n");
}

TEST(RegistryAuth, IsUrlSafeBase64) {
  RegistryAuth auth;
  auth.username = "u";
  auth.password = "p";
  EXPECT_EQ(EncodeRegistryAuth(auth), "eyJwYXNzd29yZCI6InAiLCJ1c2VybmFtZSI6InUifQ==");
}

TEST(ImageArchive, IsDeterministicAndBlockAligned) {
  ImageRecipe recipe;
  recipe.tags = {"example.test/a:1"};
  recipe.files = {{"bin/x", "content", 0755, ""}, {"bin/y", "", 0777, "x"}};
  recipe.directories = {"tmp"};
  const std::string archive = BuildImageArchive(recipe);
  EXPECT_EQ(archive, BuildImageArchive(recipe));
  EXPECT_EQ(archive.size() % 512, 0u);
  EXPECT_NE(archive.find("manifest.json"), std::string::npos);
}

}  // namespace
}  // namespace sublet::node
