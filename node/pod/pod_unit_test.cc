// Pure parts of the pod runtime: status, environment, configuration, files, logs, CDI, gRPC.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <future>
#include <nlohmann/json.hpp>
#include <thread>

#include "node/pod/actions.h"
#include "node/pod/cdi.h"
#include "node/pod/container_config.h"
#include "node/pod/env.h"
#include "node/pod/grpc_health.h"
#include "node/pod/images.h"
#include "node/pod/logs.h"
#include "node/pod/payload_volume.h"
#include "node/pod/prober.h"
#include "node/pod/status.h"

namespace sublet::node {
namespace {

using kube::Json;

std::shared_ptr<const PodPlan> Plan(const std::string& yaml) {
  auto pod = kube::ParseYaml(yaml);
  EXPECT_TRUE(pod.ok()) << pod.error().message();
  return ParsePod(std::make_shared<const Json>(std::move(pod).value()));
}

class TemporaryFolder {
 public:
  TemporaryFolder() { EXPECT_NE(::mkdtemp(path_), nullptr); }
  ~TemporaryFolder() { EXPECT_TRUE(RemoveTree(path_).ok()); }
  std::string path() const { return path_; }

 private:
  char path_[32] = "/tmp/sublet-unit-XXXXXX";
};

const char* kPod = R"(
metadata: {name: p, namespace: ns, uid: u, generation: 3, labels: {b: "2", a: "1"}}
spec:
  readinessGates: [{conditionType: example.com/gate}]
  initContainers: [{name: i, image: i}]
  containers: [{name: c, image: img}, {name: d, image: img}]
)";

TEST(PodStatus, StartsPendingWithReasons) {
  const auto plan = Plan(kPod);
  StatusContext context;
  context.host_ips = {"192.0.2.1"};
  context.now = WallTime(std::chrono::seconds(1767225600));
  PodRecord record;
  record.start_time = context.now;
  Json status = MakePodStatus(*plan, record, Json::object(), context);
  EXPECT_EQ(status["phase"], "Pending");
  EXPECT_EQ(status["observedGeneration"], 3);
  EXPECT_EQ(status["containerStatuses"][0]["state"]["waiting"]["reason"], "PodInitializing");
  EXPECT_EQ(status["conditions"][1]["message"], "containers with incomplete status: [i]");
  EXPECT_EQ(status["conditions"][2]["message"], "containers with unready status: [c d]");
}

TEST(PodStatus, KeepsTransitionTimesAndAsksReadinessGates) {
  const auto plan = Plan(kPod);
  StatusContext context;
  context.now = WallTime(std::chrono::seconds(1767225600));
  PodRecord record;
  record.sandbox = SandboxRecord{"s", ContainerPhase::kRunning, 1, "10.0.0.2", 0};
  for (const char* name : {"c", "d"}) {
    ContainerRecord& state = record.containers[name];
    state.current = Incarnation{};
    state.current->id = name;
    state.current->sandbox_id = "s";
    state.current->phase = ContainerPhase::kRunning;
    state.startup_passed = state.ready = true;
  }
  record.containers["i"].current = Incarnation{};
  record.containers["i"].current->sandbox_id = "s";
  record.containers["i"].current->phase = ContainerPhase::kExited;
  Json status = MakePodStatus(*plan, record, Json::object(), context);
  EXPECT_EQ(status["phase"], "Running");
  EXPECT_EQ(status["podIP"], "10.0.0.2");
  EXPECT_EQ(status["conditions"][2]["status"], "False") << "the gate's condition does not exist";
  EXPECT_EQ(status["conditions"][2]["reason"], "ReadinessGatesNotReady");
  EXPECT_EQ(status["conditions"][3]["status"], "True");
  const Json before = status;
  context.now += std::chrono::seconds(100);
  EXPECT_EQ(MakePodStatus(*plan, record, before, context), before);
  record.containers["d"].ready = false;
  status = MakePodStatus(*plan, record, before, context);
  EXPECT_EQ(status["conditions"][3]["lastTransitionTime"], "2026-01-01T00:01:40Z");
  EXPECT_EQ(status["conditions"][0]["lastTransitionTime"], "2026-01-01T00:00:00Z");
}

TEST(PodStatus, VerdictsAndForgottenContainers) {
  const auto plan = Plan(kPod);
  StatusContext context;
  PodRecord record;
  record.verdict = Failure{"Evicted", "The node was low on resource: memory."};
  Json status = MakePodStatus(*plan, record, Json::object(), context);
  EXPECT_EQ(status["phase"], "Failed");
  EXPECT_EQ(status["reason"], "Evicted");
  EXPECT_TRUE(status.contains("containerStatuses"));
  record.is_rejected = true;  // at the door: nothing of it ever was
  EXPECT_FALSE(MakePodStatus(*plan, record, Json::object(), context).contains("containerStatuses"));
  // After the engine forgot the containers of a finished pod, their last word stands.
  PodRecord forgotten;
  forgotten.finished_before = true;
  Json old = {{"phase", "Succeeded"},
              {"containerStatuses",
               {{{"name", "c"},
                 {"ready", false},
                 {"started", false},
                 {"restartCount", 2},
                 {"state", {{"terminated", {{"exitCode", 0}}}}}}}}};
  status = MakePodStatus(*plan, forgotten, old, context);
  EXPECT_EQ(status["phase"], "Succeeded");
  EXPECT_EQ(status["containerStatuses"][0], old["containerStatuses"][0]);
}

TEST(PodStatus, CrashLoopTextsAreGos) {
  const auto plan = Plan(kPod);
  EXPECT_EQ(CrashLoopMessage(*plan, plan->containers[0], seconds(80)),
            "back-off 1m20s restarting failed container=c pod=p_ns(u)");
  EXPECT_EQ(CrashLoopMessage(*plan, plan->containers[0], seconds(300)),
            "back-off 5m0s restarting failed container=c pod=p_ns(u)");
}

TEST(QosClass, FollowsRequestsAndLimits) {
  const auto qos = [](const char* resources) {
    return QosClassOf(
        *Plan(std::string("spec: {containers: [{name: c, resources: ") + resources + "}]}")
             ->object);
  };
  EXPECT_EQ(qos("{}"), "BestEffort");
  EXPECT_EQ(qos("{requests: {cpu: 1m}}"), "Burstable");
  EXPECT_EQ(qos("{limits: {cpu: '1', memory: 1Gi}}"), "Guaranteed");
  EXPECT_EQ(qos("{limits: {cpu: '1', memory: 1Gi}, requests: {cpu: 500m}}"), "Burstable");
}

TEST(Environment, ExpandsAsKubernetesDoes) {
  const std::map<std::string, std::string> values = {{"A", "a"}, {"B", "$(A)"}};
  EXPECT_EQ(ExpandVariables("$(A)-$(B)-$(C)-$$(A)-$-$(A", values), "a-$(A)-$(C)-$(A)-$-$(A");
}

TEST(Environment, FieldAndResourceReferences) {
  const auto plan = Plan(R"(
metadata: {name: p, namespace: ns, uid: u, labels: {b: "2", a: "1"}, annotations: {k: 'x "y"'}}
spec: {nodeName: node, containers: [{name: c, resources: {limits: {cpu: 1500m, memory: 1Gi}}}]}
)");
  PodFacts facts;
  facts.pod_ip = "10.0.0.2";
  facts.allocatable = std::make_shared<const Json>(Json{{"ephemeral-storage", "10Gi"}});
  EXPECT_EQ(*FieldValue(*plan, facts, "metadata.labels"), "a=\"1\"\nb=\"2\"");
  EXPECT_EQ(*FieldValue(*plan, facts, "metadata.annotations['k']"), "x \"y\"");
  EXPECT_EQ(*FieldValue(*plan, facts, "metadata.labels['none']"), "");
  EXPECT_EQ(*FieldValue(*plan, facts, "spec.nodeName"), "node");
  EXPECT_FALSE(FieldValue(*plan, facts, "spec.containers").ok());
  const auto resource = [&](const char* yaml) {
    return ResourceValue(*plan, facts, "c", *kube::ParseYaml(yaml));
  };
  EXPECT_EQ(*resource("{resource: limits.cpu}"), "2") << "rounded up";
  EXPECT_EQ(*resource("{resource: limits.cpu, divisor: 1m}"), "1500");
  EXPECT_EQ(*resource("{resource: limits.memory, divisor: 1Mi}"), "1024");
  EXPECT_EQ(*resource("{resource: limits.ephemeral-storage, divisor: 1Gi}"), "10");
  EXPECT_FALSE(resource("{resource: cpu}").ok());
}

TEST(Base64, DecodesAndStopsAtForeignBytes) {
  EXPECT_EQ(DecodeBase64("aGVsbG8="), "hello");
  EXPECT_EQ(DecodeBase64("aGVs\nbG8"), "hello");
  EXPECT_EQ(DecodeBase64("aGVs*bG8="), "hel");
}

TEST(ContainerSpec, CommandLinesAndCgroupNumbers) {
  const auto plan = Plan(R"y(
metadata: {name: p, namespace: ns, uid: u}
spec: {containers: [{name: c, args: ["$(X)"], resources: {requests: {cpu: 250m}, limits: {cpu: 500m, memory: 64Mi}}}]}
)y");
  ;
  ContainerFacts facts;
  facts.sandbox_id = "s";
  facts.image.entrypoint = {"/entry"};
  facts.image.command = {"image-args"};
  facts.environment = {{"X", "1"}};
  facts.node_memory_bytes = 1ll << 30;
  auto spec = MakeContainerSpec(*plan, plan->containers[0], facts);
  ASSERT_TRUE(spec.ok());
  EXPECT_EQ(spec->argv, (std::vector<std::string>{"/entry", "1"}));
  EXPECT_EQ(spec->cpu_shares, 256);
  EXPECT_EQ(spec->cpu_quota_us, 50000);
  EXPECT_EQ(spec->memory_bytes, 64 << 20);
  EXPECT_EQ(spec->network_mode, "container:s");
  EXPECT_EQ(spec->labels.at(kLabelContainer), "c");
  facts.image.entrypoint.clear();
  facts.image.command.clear();
  const auto plain = Plan("spec: {containers: [{name: c}]}");
  EXPECT_FALSE(MakeContainerSpec(*plain, plain->containers[0], facts).ok()) << "no command at all";
}

TEST(ResolvConf, PoliciesAndOptions) {
  DnsConfig dns{"10.96.0.10", "cluster.local", "nameserver 192.0.2.53\n"};
  EXPECT_EQ(MakeResolvConf(*Plan("{metadata: {namespace: ns}, spec: {dnsConfig: {searches: [x.y], "
                                 "options: [{name: ndots, value: '2'}, {name: edns0}]}}}"),
                           dns),
            "search ns.svc.cluster.local svc.cluster.local cluster.local x.y\n"
            "nameserver 10.96.0.10\noptions ndots:2 edns0\n");
  EXPECT_EQ(MakeResolvConf(*Plan("spec: {dnsPolicy: Default}"), dns), "nameserver 192.0.2.53\n");
  EXPECT_EQ(MakeResolvConf(*Plan("spec: {hostNetwork: true}"), dns), "nameserver 192.0.2.53\n");
  EXPECT_EQ(
      MakeResolvConf(*Plan("spec: {dnsPolicy: None, dnsConfig: {nameservers: [1.2.3.4]}}"), dns),
      "nameserver 1.2.3.4\n");
}

TEST(PayloadVolume, SwapsAtOnceAndRemovesWhatIsGone) {
  TemporaryFolder folder;
  const std::string path = folder.path() + "/v";
  Payload first;
  first["a"].content = "1";
  first["deep/b"].content = "2";
  EXPECT_TRUE(*WritePayload(path, first, {}));
  EXPECT_FALSE(*WritePayload(path, first, {})) << "nothing changed";
  EXPECT_EQ(ReadFile(path + "/deep/b", 10), "2");
  Payload second;
  second["a"].content = "3";
  EXPECT_TRUE(*WritePayload(path, second, {}));
  EXPECT_EQ(ReadFile(path + "/a", 10), "3");
  struct stat info {};
  EXPECT_NE(::lstat((path + "/deep").c_str(), &info), 0);
  EXPECT_EQ(::lstat((path + "/a").c_str(), &info), 0);
  EXPECT_TRUE(S_ISLNK(info.st_mode));
  Payload evil;
  evil["../x"].content = "";
  EXPECT_FALSE(WritePayload(path, evil, {}).ok());
  evil.clear();
  evil["..data"].content = "";
  EXPECT_FALSE(WritePayload(path, evil, {}).ok());
}

TEST(PayloadVolume, KnowsSafePaths) {
  for (const char* good : {"a", "a/b", "a.b/..c"}) {
    EXPECT_TRUE(IsSafeRelativePath(good)) << good;
  }
  for (const char* bad : {"", "/a", "a/", "a//b", "..", "a/../b", "."}) {
    EXPECT_FALSE(IsSafeRelativePath(bad)) << bad;
  }
}

TEST(RemoveTree, DoesNotFollowLinks) {
  TemporaryFolder folder;
  ASSERT_TRUE(MakeDirectories(folder.path() + "/keep").ok());
  ASSERT_TRUE(WriteFile(folder.path() + "/keep/f", "x", 0644).ok());
  ASSERT_TRUE(MakeDirectories(folder.path() + "/tree/sub").ok());
  ASSERT_EQ(::symlink((folder.path() + "/keep").c_str(), (folder.path() + "/tree/link").c_str()),
            0);
  EXPECT_TRUE(RemoveTree(folder.path() + "/tree").ok());
  EXPECT_EQ(ReadFile(folder.path() + "/keep/f", 10), "x");
}

class LogTest : public testing::Test {
 protected:
  std::string Read(LogOptions options) {
    std::string out;
    EXPECT_TRUE(ReadLog(
                    folder_.path() + "/log", options,
                    [&](std::string_view text) {
                      out += text;
                      return true;
                    },
                    [] { return true; }, nullptr)
                    .ok());
    return out;
  }
  void Write(const std::string& text) {
    ASSERT_TRUE(WriteFile(folder_.path() + "/log", text, 0644).ok());
  }
  TemporaryFolder folder_;
};

TEST_F(LogTest, ReadsCriLinesWithPartialOnes) {
  Write(
      "2026-01-01T00:00:01.000000001Z stdout F one\n"
      "2026-01-01T00:00:02.000000002Z stderr P tw\n"
      "2026-01-01T00:00:02.000000003Z stderr F o\n"
      "garbage\n"
      "2026-01-01T00:00:03.000000004Z stdout F \n");
  EXPECT_EQ(Read({}), "one\ntwo\n\n");
  LogOptions options;
  options.timestamps = true;
  EXPECT_EQ(Read(options),
            "2026-01-01T00:00:01.000000001Z one\n2026-01-01T00:00:02.000000002Z two\n"
            "2026-01-01T00:00:03.000000004Z \n");
  options = {};
  options.tail_lines = 2;
  EXPECT_EQ(Read(options), "two\n\n");
  options.tail_lines = 0;
  EXPECT_EQ(Read(options), "");
  options.tail_lines = 100;
  EXPECT_EQ(Read(options), "one\ntwo\n\n");
  options = {};
  options.since = WallTime(std::chrono::seconds(1767225602));
  EXPECT_EQ(Read(options), "two\n\n");
  options = {};
  options.limit_bytes = 5;
  EXPECT_EQ(Read(options), "one\nt");
  options = {};
  options.stream = StreamId::kStderr;
  EXPECT_EQ(Read(options), "two\n");
}

TEST_F(LogTest, ReadsDockersJson) {
  Write(R"({"log":"a \"q\"\n","stream":"stdout","time":"2026-01-01T00:00:01.5Z"})"
        "\n"
        R"({"log":"b","stream":"stderr","time":"2026-01-01T00:00:02.5Z"})"
        "\n");
  EXPECT_EQ(Read({}), "a \"q\"\nb");
  LogOptions options;
  options.timestamps = true;
  options.tail_lines = 1;
  EXPECT_EQ(Read(options), "2026-01-01T00:00:02.5Z b");
}

TEST_F(LogTest, TailsAcrossBlocks) {
  std::string text;
  for (int i = 0; i < 20000; ++i) {
    text += "2026-01-01T00:00:01.000000001Z stdout F line " + std::to_string(i) + "\n";
  }
  Write(text);
  LogOptions options;
  options.tail_lines = 15000;
  const std::string out = Read(options);
  EXPECT_EQ(out.substr(0, 10), "line 5000\n");
  EXPECT_EQ(TailOfLog(folder_.path() + "/log", 2, 100), "line 19998\nline 19999");
}

// Answers one connection after the other with the given codes, then ends.
class HttpAnswers {
 public:
  explicit HttpAnswers(std::vector<int> codes)
      : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    EXPECT_EQ(::bind(fd_, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(::listen(fd_, 8), 0);
    EXPECT_EQ(::getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &size), 0);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this, codes = std::move(codes)] {
      for (const int code : codes) {
        const int client = ::accept(fd_, nullptr, nullptr);
        char request[4096];
        (void)!::read(client, request, sizeof(request));
        const std::string answer = "HTTP/1.1 " + std::to_string(code) +
                                   " x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
        (void)!::write(client, answer.data(), answer.size());
        ::close(client);
      }
    });
  }
  ~HttpAnswers() {
    ::shutdown(fd_, SHUT_RDWR);
    thread_.join();
    ::close(fd_);
  }
  int port() const { return port_; }

 private:
  const int fd_;
  int port_ = 0;
  std::thread thread_;
};

TEST(Prober, HalfAPeriodOfOneSecondIsNotNothing) {
  using std::chrono::milliseconds;
  using std::chrono::seconds;
  EXPECT_TRUE(IsQuick(milliseconds(0), seconds(1)));
  EXPECT_TRUE(IsQuick(milliseconds(499), seconds(1)));
  EXPECT_FALSE(IsQuick(milliseconds(500), seconds(1)));
  EXPECT_FALSE(IsQuick(milliseconds(1000), seconds(1)));
}

// Differs from a kubelet, which would ask the second time after the period of an hour.
TEST(Prober, AsksSoonAgainWhatHasOnlyJustBeenStarted) {
  const HttpAnswers server({503, 503, 200});
  ProbePlan probe;
  probe.handler.kind = HandlerPlan::Kind::kHttp;
  probe.handler.port = std::to_string(server.port());
  probe.handler.path = "/";
  probe.period = std::chrono::seconds(3600);
  probe.failure_threshold = 1;
  probe.timeout = std::chrono::seconds(20);
  const auto plan = std::make_shared<PodPlan>();
  plan->containers.emplace_back();
  plan->containers.back().name = "c";
  plan->containers.back().readiness = probe;
  const auto engine = OpenEngine("/nonexistent/engine.sock");
  std::promise<ProbeReport> first;
  std::atomic<int> reports{0};
  Prober prober(*engine, 1);
  Prober::Target target;
  target.plan = plan;
  target.container = "c";
  target.container_id = "id";
  target.pod_ip = "127.0.0.1";
  target.started = std::chrono::steady_clock::now();
  prober.Add(target, [&](const ProbeReport& report) {
    if (reports++ == 0) {
      first.set_value(report);
    }
  });
  auto report = first.get_future();
  ASSERT_EQ(report.wait_for(std::chrono::seconds(60)), std::future_status::ready);
  const ProbeReport got = report.get();
  EXPECT_TRUE(got.success && got.crossed) << got.output;
  prober.Stop();
  EXPECT_EQ(reports.load(), 1);
}

TEST(Status, AContainerTheEngineForgotIsShownAsEndedAndItsCountGoesOn) {
  const auto plan = Plan(kPod);
  const std::string name = plan->containers[0].name;
  const Json before = {{"phase", "Running"},
                       {"containerStatuses",
                        {{{"name", name},
                          {"restartCount", 2},
                          {"containerID", "podman://gone"},
                          {"state", {{"running", Json::object()}}}}}}};
  const Json status = MakePodStatus(*plan, PodRecord(), before, StatusContext());
  const Json& shown = status["containerStatuses"][0];
  EXPECT_EQ(shown["lastState"]["terminated"]["reason"], "ContainerStatusUnknown") << shown.dump();
  EXPECT_EQ(shown["restartCount"], 2);
  EXPECT_EQ(MakePodStatus(*plan, PodRecord(), status,
                          StatusContext())["containerStatuses"][0]["lastState"],
            shown["lastState"]);
}

TEST(StopControl, WakesForAShorterGraceNotForTheSameAgain) {
  const MonotonicTime began = std::chrono::steady_clock::now();
  StopControl control(began + std::chrono::milliseconds(10020));
  control.Shorten(began + std::chrono::seconds(10));
  EXPECT_FALSE(control.wake().cancelled());
  control.Shorten(began + std::chrono::seconds(5));
  EXPECT_TRUE(control.wake().cancelled());
  EXPECT_EQ(control.deadline(), began + std::chrono::seconds(5));
}

TEST(Cdi, ReadsAnnotationsAndAppliesEdits) {
  const Json annotations = {{"cdi.k8s.io/a", "v.com/gpu=0,v.com/gpu=1"}, {"other", "x"}};
  auto devices = CdiDevicesOf(&annotations);
  ASSERT_TRUE(devices.ok());
  EXPECT_EQ(*devices, (std::vector<std::string>{"v.com/gpu=0", "v.com/gpu=1"}));
  const Json bad = {{"cdi.k8s.io/a", "gpu0"}};
  EXPECT_FALSE(CdiDevicesOf(&bad).ok());
  CdiEdits edits;
  edits.env = {"PATH=/new"};
  edits.mounts = {{"/src", "/dst", true, ""}};
  ContainerSpec spec;
  spec.env = {"PATH=/old", "X=1"};
  spec.mounts = {{"/other", "/dst", false, ""}};
  ApplyCdi(edits, &spec);
  EXPECT_EQ(spec.env, (std::vector<std::string>{"X=1", "PATH=/new"}));
  ASSERT_EQ(spec.mounts.size(), 1u);
  EXPECT_EQ(spec.mounts[0].source, "/src");
}

TEST(Cdi, LaterFoldersWinAndBrokenFilesAreLeftOut) {
  TemporaryFolder folder;
  for (const char* name : {"/a", "/b"}) {
    ASSERT_TRUE(MakeDirectories(folder.path() + name).ok());
  }
  const auto spec = [](const char* value) {
    return std::string(
               "cdiVersion: 0.6.0\nkind: v.com/gpu\ndevices: [{name: '0', containerEdits: "
               "{env: [V=") +
           value + "]}}]\n";
  };
  ASSERT_TRUE(WriteFile(folder.path() + "/a/x.yaml", spec("1"), 0644).ok());
  ASSERT_TRUE(WriteFile(folder.path() + "/b/x.yaml", spec("2"), 0644).ok());
  ASSERT_TRUE(WriteFile(folder.path() + "/b/y.json", "{", 0644).ok());
  auto edits =
      ResolveCdi({folder.path() + "/a", folder.path() + "/b", "/no/such"}, {"v.com/gpu=0"});
  ASSERT_TRUE(edits.ok());
  EXPECT_EQ(edits->env, (std::vector<std::string>{"V=2"}));
  EXPECT_FALSE(ResolveCdi({folder.path() + "/a"}, {"v.com/gpu=9"}).ok());
}

TEST(Images, QualifiesNamesAndFindsLogins) {
  EXPECT_EQ(QualifyImage("nginx"), "docker.io/library/nginx:latest");
  EXPECT_EQ(QualifyImage("a/b:1"), "docker.io/a/b:1");
  EXPECT_EQ(QualifyImage("localhost/x"), "localhost/x:latest");
  EXPECT_EQ(QualifyImage("reg:5000/x@sha256:abc"), "reg:5000/x@sha256:abc");
  // {"auths":{"https://reg:5000/v1/":{"auth":"dTpw"}}}
  const Json secret = {
      {"data",
       {{".dockerconfigjson",
         "eyJhdXRocyI6eyJodHRwczovL3JlZzo1MDAwL3YxLyI6eyJhdXRoIjoiZFRwdyJ9fX0="}}}};
  const auto login = FindRegistryAuth(secret, "reg:5000");
  ASSERT_TRUE(login.has_value());
  EXPECT_EQ(login->username, "u");
  EXPECT_EQ(login->password, "p");
  EXPECT_FALSE(FindRegistryAuth(secret, "other").has_value());
}

TEST(GrpcHealth, ReadsAnswersInPieces) {
  const std::string settings("\0\0\0\4\0\0\0\0\0", 9);
  const std::string serving("\0\0\7\0\0\0\0\0\1\0\0\0\0\2\x08\1", 16);
  GrpcHealthReader reader;
  std::string reply;
  std::optional<bool> answer;
  for (const char c : settings + serving) {
    auto fed = reader.Feed(std::string_view(&c, 1), &reply);
    ASSERT_TRUE(fed.ok());
    answer = *fed;
  }
  EXPECT_EQ(answer, true);
  EXPECT_EQ(reply, std::string("\0\0\0\4\1\0\0\0\0", 9)) << "the settings are acknowledged";
  GrpcHealthReader reset;
  EXPECT_FALSE(reset.Feed(std::string("\0\0\4\3\0\0\0\0\1\0\0\0\7", 13), &reply).ok());
}

}  // namespace
}  // namespace sublet::node
