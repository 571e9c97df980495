// Kubeconfig files: merged reading, credentials, contexts written and removed.
#include "client/kubeconfig.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/base64.h"
#include "client/exec_credential.h"

namespace sublet::client {
namespace {

class KubeconfigTest : public ::testing::Test {
 protected:
  KubeconfigTest() {
    char pattern[] = "/tmp/sublet-kubeconfig-XXXXXX";
    folder_ = mkdtemp(pattern);
  }
  ~KubeconfigTest() override { std::filesystem::remove_all(folder_); }
  std::string Write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ + "/" + name) << text;
    return folder_ + "/" + name;
  }
  std::string Read(const std::string& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  std::string folder_;
};

constexpr char kOne[] = R"(
apiVersion: v1
kind: Config
current-context: one
clusters:
- name: c
  cluster: {server: "https://one:6443", certificate-authority: ca.crt, tls-server-name: kube}
users:
- name: u
  user: {token: secret}
contexts:
- name: one
  context: {cluster: c, user: u, namespace: web}
)";

TEST_F(KubeconfigTest, ResolvesACurrentContextWithFilesBesideIt) {
  Write("ca.crt", "PEM");
  const auto config = Kubeconfig::Load(Write("config", kOne));
  ASSERT_TRUE(config.ok());
  const auto connection = config->Resolve();
  ASSERT_TRUE(connection.ok()) << connection.error().message();
  EXPECT_EQ(connection->transport.server, "https://one:6443");
  EXPECT_EQ(connection->transport.ca_pem, "PEM");
  EXPECT_EQ(connection->transport.tls_server_name, "kube");
  EXPECT_EQ(connection->transport.credential.bearer_token, "secret");
  EXPECT_EQ(connection->namespace_name, "web");
}

TEST_F(KubeconfigTest, MergesAListOfFilesWhereTheFirstWins) {
  const std::string first = Write("first", "users: [{name: u, user: {token: mine}}]\n");
  const std::string second = Write("second", kOne);
  setenv("KUBECONFIG", (first + ":" + folder_ + "/absent:" + second).c_str(), 1);
  const auto config = Kubeconfig::Load();
  unsetenv("KUBECONFIG");
  ASSERT_TRUE(config.ok());
  EXPECT_EQ(config->current_context(), "one");
  EXPECT_EQ(kube::FindString(*config->FindUser("u"), {"token"}), "mine");
}

TEST_F(KubeconfigTest, NamesWhatIsMissingOrUnreadable) {
  EXPECT_TRUE(Kubeconfig::Load(folder_ + "/absent").error().Is(Reason::kNotFound));
  EXPECT_TRUE(Kubeconfig::Load(Write("list", "- a\n")).error().Is(Reason::kBadRequest));
  const auto config = Kubeconfig::Load(Write("config", kOne));
  EXPECT_TRUE(config->Resolve("two").error().Is(Reason::kNotFound));
  EXPECT_NE(config->Resolve().error().message().find("ca.crt"), std::string::npos);
  const auto bad = Kubeconfig::Parse(
      "clusters: [{name: c, cluster: {server: 's', certificate-authority-data: '%%'}}]\n"
      "contexts: [{name: x, context: {cluster: c}}]\n",
      "/");
  EXPECT_TRUE(bad->Resolve("x").error().Is(Reason::kBadRequest));
}

TEST_F(KubeconfigTest, WritesAContextBesideWhatIsThereAndTakesItOutAgain) {
  const std::string path = Write("config", std::string(kOne) + "preferences: {colors: true}\n");
  ContextEntry entry{.name = "sublet_a",
                     .cluster = {{"server", "https://127.0.0.1:1"}},
                     .user = {{"client-key-data", EncodeBase64("key")}},
                     .namespace_name = "",
                     .make_current = true};
  ASSERT_TRUE(WriteContext(path, entry).ok());
  ASSERT_TRUE(WriteContext(path, entry).ok());  // twice is once
  auto config = Kubeconfig::Load(path);
  EXPECT_EQ(config->current_context(), "sublet_a");
  EXPECT_EQ(config->contexts(), (std::vector<std::string>{"one", "sublet_a"}));
  EXPECT_EQ(config->Resolve()->transport.credential.key_pem, "key");
  EXPECT_TRUE(kube::FindBool(config->root(), {"preferences", "colors"}));
  // Relative paths stay relative in the file.
  EXPECT_NE(Read(path).find("certificate-authority: ca.crt"), std::string::npos);
  EXPECT_TRUE(*RemoveContext(path, "sublet_a", "one"));
  EXPECT_FALSE(*RemoveContext(path, "sublet_a", "one"));
  config = Kubeconfig::Load(path);
  EXPECT_EQ(config->current_context(), "one");
  EXPECT_EQ(config->FindCluster("sublet_a"), nullptr);
  EXPECT_EQ(config->FindUser("sublet_a"), nullptr);
}

TEST_F(KubeconfigTest, MakesAPrivateFileAndFolderWhereNoneIs) {
  const std::string path = folder_ + "/new/config";
  ASSERT_TRUE(WriteContext(path, {.name = "a",
                                  .cluster = {{"server", "https://x"}},
                                  .user = kube::Json::object(),
                                  .namespace_name = "n"})
                  .ok());
  struct stat info {};
  ASSERT_EQ(stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600U);
  EXPECT_FALSE(std::filesystem::exists(path + ".lock"));
  EXPECT_EQ(Kubeconfig::Load(path)->Resolve()->namespace_name, "n");
}

TEST_F(KubeconfigTest, RefusesToRewriteWhatIsNoKubeconfig) {
  const std::string path = Write("config", "just text\n");
  EXPECT_FALSE(WriteContext(path, {.name = "a", .cluster = {}, .user = {}}).ok());
  EXPECT_EQ(Read(path), "just text\n");
}

TEST_F(KubeconfigTest, RunsAnExecPluginWithItsEnvironment) {
  const std::string plugin = Write("plugin", R"(#!/bin/sh
case "$KUBERNETES_EXEC_INFO" in *client.authentication.k8s.io/v1*) ;; *) exit 3;; esac
echo "{\"kind\":\"ExecCredential\",\"status\":{\"token\":\"$1-$EXTRA\",\"expirationTimestamp\":\"2031-01-01T00:00:00Z\"}}"
)");
  chmod(plugin.c_str(), 0700);
  const std::string path = Write("config", R"(
current-context: x
clusters: [{name: c, cluster: {server: "https://h"}}]
users: [{name: u, user: {exec: {apiVersion: client.authentication.k8s.io/v1, command: ./plugin,
  args: [tok], env: [{name: EXTRA, value: en}], interactiveMode: Never}}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
)");
  const auto connection = Kubeconfig::Load(path)->Resolve();
  ASSERT_TRUE(connection.ok()) << connection.error().message();
  const auto credential = connection->transport.get_credential();
  ASSERT_TRUE(credential.ok()) << credential.error().message();
  EXPECT_EQ(credential->bearer_token, "tok-en");
  EXPECT_LT(credential->expires, WallTime::max());
}

TEST_F(KubeconfigTest, ReportsAPluginThatFailsWithItsHint) {
  const auto make = [](const kube::Json& exec) { return *MakeExecCredential(exec, {}); };
  const kube::Json exec = {{"apiVersion", "client.authentication.k8s.io/v1"},
                           {"command", "/bin/false"},
                           {"installHint", "install it"},
                           {"interactiveMode", "Never"}};
  EXPECT_NE(make(exec)().error().message().find("install it"), std::string::npos);
  kube::Json absent = exec;
  absent["command"] = "sublet-no-such-plugin";
  EXPECT_FALSE(make(absent)().ok());
  kube::Json old = exec;
  old["apiVersion"] = "client.authentication.k8s.io/v1alpha1";
  EXPECT_FALSE(MakeExecCredential(old, {}).ok());
  EXPECT_FALSE(ParseExecCredential(R"({"kind":"ExecCredential","status":{}})").ok());
}

}  // namespace
}  // namespace sublet::client
