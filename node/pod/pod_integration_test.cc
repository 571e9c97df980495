// The pod runtime against a real engine: pods from JSON to containers and back to statuses. Started
// by e2e/host/private_engine.sh on Podman and on Docker, with the same assertions.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "node/testing/pod_bench.h"

namespace sublet::node {
namespace {

using kube::Find;
using kube::FindInt;
using kube::FindString;
using kube::Json;

class PodTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    ASSERT_NE(std::getenv("SUBLET_ENGINE_SOCKET"), nullptr)
        << "run through e2e/host/private_engine.sh";
    char folder[] = "/tmp/sublet-pods-XXXXXX";
    ASSERT_NE(::mkdtemp(folder), nullptr);
    ::chmod(folder, 0755);
    root_ = folder;
    bench_ = std::make_unique<PodBench>(root_);
  }
  static void TearDownTestSuite() {
    bench_.reset();
    EXPECT_TRUE(RemoveTree(root_).ok());
  }
  void TearDown() override {
    for (const std::string& uid : uids_) {
      bench_->Delete(uid, 0);
    }
    for (const std::string& uid : uids_) {
      EXPECT_TRUE(bench_->AwaitGone(uid));
    }
  }

  std::string Run(const std::string& yaml) {
    uids_.push_back(bench_->Run(yaml));
    return uids_.back();
  }
  // The status and Events, for failures.
  static std::string Describe(const std::string& uid) {
    std::string out = bench_->StatusOf(uid).dump() + "\n";
    for (const std::string& event : bench_->Events(uid)) {
      out += event + "\n";
    }
    return out;
  }
  static std::string Phase(const Json& status) {
    return std::string(FindString(status, {"phase"}));
  }
  static bool IsReady(const Json& status) {
    const Json* conditions = Find(status, {"conditions"});
    return conditions != nullptr &&
           std::any_of(conditions->begin(), conditions->end(), [](const Json& condition) {
             return FindString(condition, {"type"}) == "Ready" &&
                    FindString(condition, {"status"}) == "True";
           });
  }
  static Json Container(const Json& status, std::size_t index = 0) {
    const Json* list = Find(status, {"containerStatuses"});
    return list != nullptr && index < list->size() ? (*list)[index] : Json::object();
  }
  bool AwaitReady(const std::string& uid) { return bench_->Await(uid, IsReady); }
  bool AwaitPhase(const std::string& uid, const std::string& phase) {
    return bench_->Await(uid, [&](const Json& status) { return Phase(status) == phase; });
  }
  bool AwaitWaiting(const std::string& uid, const std::string& reason) {
    return bench_->Await(uid, [&](const Json& status) {
      return Container(status)["state"]["waiting"]["reason"] == reason;
    });
  }
  bool HasEvent(const std::string& uid, const std::string& part) {
    const auto events = bench_->Events(uid);
    return std::any_of(events.begin(), events.end(), [&](const std::string& event) {
      return event.find(part) != std::string::npos;
    });
  }

  static std::string root_;
  static std::unique_ptr<PodBench> bench_;
  std::vector<std::string> uids_;
};
std::string PodTest::root_;
std::unique_ptr<PodBench> PodTest::bench_;

TEST_F(PodTest, RunsToReadyWithKubeletsStatus) {
  const std::string uid = Run(R"(
metadata: {name: web, labels: {app: web}}
spec:
  containers:
  - name: c
    command: [sh, -c, "echo hello; exec sleep 1000"]
    resources: {requests: {cpu: 100m, memory: 32Mi}, limits: {memory: 64Mi}}
)");
  ASSERT_TRUE(AwaitReady(uid)) << Describe(uid);
  const Json status = bench_->StatusOf(uid);
  EXPECT_EQ(Phase(status), "Running");
  EXPECT_EQ(FindString(status, {"qosClass"}), "Burstable");
  EXPECT_EQ(FindString(status, {"hostIP"}), "192.0.2.1");
  EXPECT_EQ(FindString(status, {"podIP"}).substr(0, 9), "10.244.0.");
  Json container = Container(status);
  EXPECT_TRUE(container["ready"].get<bool>());
  EXPECT_TRUE(container["started"].get<bool>());
  EXPECT_EQ(container["restartCount"], 0);
  EXPECT_NE(Find(container, {"state", "running", "startedAt"}), nullptr);
  EXPECT_EQ(FindString(container, {"imageID"}).empty(), false);
  EXPECT_EQ(bench_->Exec(uid, "c", {"hostname"}), "web\n");
  EXPECT_EQ(bench_->Log(uid, "c"), "hello");
  EXPECT_TRUE(HasEvent(uid, "Pulled: Container image \"sublet.test/busybox:1\" already present"));
  EXPECT_TRUE(HasEvent(uid, "Started: Started container c"));
}

TEST_F(PodTest, FinishesWithCodesReasonsAndTerminationMessages) {
  const std::string good = Run(R"(
metadata: {name: good}
spec:
  restartPolicy: Never
  containers:
  - {name: c, command: [sh, -c, "echo -n done > /dev/termination-log"]}
)");
  const std::string bad = Run(R"(
metadata: {name: bad}
spec:
  restartPolicy: Never
  containers:
  - {name: c, command: [sh, -c, "echo last words; exit 3"], terminationMessagePolicy: FallbackToLogsOnError}
)");
  ASSERT_TRUE(AwaitPhase(good, "Succeeded")) << Describe(good);
  ASSERT_TRUE(AwaitPhase(bad, "Failed")) << Describe(bad);
  Json end = Container(bench_->StatusOf(good))["state"]["terminated"];
  EXPECT_EQ(end["reason"], "Completed");
  EXPECT_EQ(end["message"], "done");
  Json failed = Container(bench_->StatusOf(bad))["state"]["terminated"];
  EXPECT_EQ(failed["reason"], "Error");
  EXPECT_EQ(failed["exitCode"], 3);
  EXPECT_EQ(failed["message"], "last words");
  EXPECT_EQ(FindString(bench_->StatusOf(good)["conditions"][1], {"reason"}), "PodCompleted");
}

TEST_F(PodTest, RestartsWithBackOffAndKeepsTheLastState) {
  const std::string uid = Run(R"(
metadata: {name: crash}
spec: {containers: [{name: c, command: [sh, -c, "echo run; exit 1"]}]}
)");
  ASSERT_TRUE(AwaitWaiting(uid, "CrashLoopBackOff")) << Describe(uid);
  Json container = Container(bench_->StatusOf(uid));
  EXPECT_EQ(container["restartCount"], 1);
  EXPECT_EQ(container["lastState"]["terminated"]["exitCode"], 1);
  EXPECT_EQ(container["state"]["waiting"]["message"],
            "back-off 10s restarting failed container=c pod=crash_default(" + uid + ")");
  EXPECT_TRUE(
      HasEvent(uid, "BackOff: Back-off restarting failed container c in pod crash_default"));
  EXPECT_EQ(bench_->Log(uid, "c", true), "run");
  EXPECT_EQ(Phase(bench_->StatusOf(uid)), "Running");
}

TEST_F(PodTest, SaysOutOfMemory) {
  const std::string uid = Run(R"(
metadata: {name: oom}
spec:
  restartPolicy: Never
  containers:
  - name: c
    command: [sh, -c, "x=$(yes | head -c 200000000); echo $x"]
    resources: {limits: {memory: 16Mi}}
)");
  ASSERT_TRUE(AwaitPhase(uid, "Failed")) << Describe(uid);
  Json end = Container(bench_->StatusOf(uid))["state"]["terminated"];
  EXPECT_EQ(end["reason"], "OOMKilled") << end.dump();
  EXPECT_EQ(end["exitCode"], 137);
}

TEST_F(PodTest, InitContainersAndSidecarsInOrder) {
  const std::string uid = Run(R"(
metadata: {name: init}
spec:
  restartPolicy: Never
  volumes: [{name: v, emptyDir: {}}]
  initContainers:
  - {name: first, command: [sh, -c, "echo first >> /v/order"], volumeMounts: [{name: v, mountPath: /v}]}
  - {name: side, restartPolicy: Always, command: [sh, -c, "echo side >> /v/order; trap 'echo bye >> /v/order; exit 0' TERM; while true; do sleep 0.1; done"], volumeMounts: [{name: v, mountPath: /v}], startupProbe: {exec: {command: [grep, side, /v/order]}, periodSeconds: 1}}
  - {name: second, command: [sh, -c, "echo second >> /v/order"], volumeMounts: [{name: v, mountPath: /v}]}
  containers:
  - {name: main, command: [sh, -c, "cat /v/order"], volumeMounts: [{name: v, mountPath: /v}]}
)");
  ASSERT_TRUE(AwaitPhase(uid, "Succeeded")) << Describe(uid);
  EXPECT_EQ(bench_->Log(uid, "main"), "first\nside\nsecond");
  ASSERT_TRUE(bench_->Await(uid, [](const Json& status) {
    return Find(status["initContainerStatuses"][1], {"state", "terminated"}) != nullptr;
  })) << Describe(uid);
}

TEST_F(PodTest, FailedInitContainerEndsANeverPod) {
  const std::string uid = Run(R"(
metadata: {name: badinit}
spec:
  restartPolicy: Never
  initContainers: [{name: i, command: ["false"]}]
  containers: [{name: c, command: ["true"]}]
)");
  ASSERT_TRUE(AwaitPhase(uid, "Failed")) << Describe(uid);
  EXPECT_EQ(Container(bench_->StatusOf(uid))["state"]["waiting"]["reason"], "PodInitializing");
}

TEST_F(PodTest, ImageErrorsBecomeBackOff) {
  const std::string uid = Run(R"(
metadata: {name: noimage}
spec: {containers: [{name: c, image: "127.0.0.1:1/none:1"}]}
)");
  const std::string never = Run(R"(
metadata: {name: never}
spec: {containers: [{name: c, image: "sublet.test/absent:1", imagePullPolicy: Never}]}
)");
  ASSERT_TRUE(AwaitWaiting(uid, "ErrImagePull")) << Describe(uid);
  ASSERT_TRUE(AwaitWaiting(uid, "ImagePullBackOff")) << Describe(uid);
  ASSERT_TRUE(AwaitWaiting(never, "ErrImageNeverPull"));
  EXPECT_EQ(Phase(bench_->StatusOf(uid)), "Pending");
  EXPECT_TRUE(HasEvent(uid, "Pulling: Pulling image \"127.0.0.1:1/none:1\""));
  EXPECT_TRUE(HasEvent(uid, "BackOff: Back-off pulling image"));
}

TEST_F(PodTest, ConfigurationErrorsAreShownAndHeal) {
  const std::string uid = Run(R"(
metadata: {name: config}
spec:
  containers:
  - {name: c, command: [sh, -c, "echo $V; exec sleep 1000"], env: [{name: V, valueFrom: {configMapKeyRef: {name: late, key: k}}}]}
)");
  ASSERT_TRUE(AwaitWaiting(uid, "CreateContainerConfigError")) << Describe(uid);
  EXPECT_EQ(Container(bench_->StatusOf(uid))["state"]["waiting"]["message"],
            "configmap \"late\" not found");
  bench_->SetConfigMap("late", {{"k", "value"}});
  ASSERT_TRUE(AwaitReady(uid)) << Describe(uid);
  const std::string broken = Run(R"(
metadata: {name: broken}
spec: {restartPolicy: Never, containers: [{name: c, command: [/no/such]}]}
)");
  ASSERT_TRUE(AwaitPhase(broken, "Failed")) << Describe(broken);
  EXPECT_EQ(Container(bench_->StatusOf(broken))["state"]["terminated"]["reason"], "StartError");
}

TEST_F(PodTest, EnvironmentVolumesAndTheirLiveUpdate) {
  bench_->SetConfigMap("conf", {{"file", "one"}, {"KEY", "from-env"}});
  bench_->SetSecret("sec", {{"password", "czNjcmV0"}});
  const std::string uid = Run(R"y(
metadata: {name: vols, labels: {app: vols}}
spec:
  serviceAccountName: robot
  securityContext: {fsGroup: 4321}
  volumes:
  - {name: conf, configMap: {name: conf}}
  - {name: sec, secret: {secretName: sec, defaultMode: 0400}}
  - {name: mem, emptyDir: {medium: Memory, sizeLimit: 1Mi}}
  - {name: claim, persistentVolumeClaim: {claimName: data}}
  - name: all
    projected:
      sources:
      - serviceAccountToken: {path: token, expirationSeconds: 3607}
      - downwardAPI: {items: [{path: labels, fieldRef: {fieldPath: metadata.labels}}, {path: cpu, resourceFieldRef: {containerName: c, resource: limits.memory}}]}
      - configMap: {name: conf, items: [{key: file, path: deep/er/file}]}
  containers:
  - name: c
    command: [sleep, "1000"]
    resources: {limits: {memory: 64Mi}}
    envFrom: [{configMapRef: {name: conf}, prefix: P_}]
    env:
    - {name: NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
    - {name: IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}
    - {name: REF, value: "$(NAME)-$(KUBERNETES_SERVICE_HOST)-$$(X)-$(UNSET)"}
    - {name: PW, valueFrom: {secretKeyRef: {name: sec, key: password}}}
    volumeMounts:
    - {name: conf, mountPath: /conf}
    - {name: conf, mountPath: /single, subPath: file}
    - {name: sec, mountPath: /sec}
    - {name: mem, mountPath: /mem}
    - {name: claim, mountPath: /data, subPath: a/b}
    - {name: all, mountPath: /all}
)y");
  ASSERT_TRUE(AwaitReady(uid)) << Describe(uid);
  const std::string ip(FindString(bench_->StatusOf(uid), {"podIP"}));
  EXPECT_EQ(bench_->Exec(uid, "c", {"sh", "-c", "echo $P_KEY,$NAME,$IP,$REF,$PW,$FROM_IMAGE"}),
            "from-env,vols," + ip + ",vols-10.96.0.1-$(X)-$(UNSET),s3cret,yes\n");
  EXPECT_EQ(bench_->Exec(uid, "c",
                         {"cat", "/conf/file", "/single", "/sec/password", "/all/token",
                          "/all/deep/er/file", "/all/labels", "/all/cpu"}),
            "oneones3crettoken-of-robot-for-volsoneapp=\"vols\"67108864");
  EXPECT_EQ(bench_->Exec(uid, "c", {"sh", "-c", "df -k /mem | tail -n1 | grep -c 1024"}), "1\n");
  EXPECT_EQ(bench_->Exec(uid, "c", {"sh", "-c", "stat -c %g:%a -L /sec/password; id -G"}),
            "4321:440\n0 4321\n");
  EXPECT_EQ(bench_->Exec(uid, "c", {"sh", "-c", "echo kept > /data/f; touch /conf/x 2>&1"}),
            "touch: /conf/x: Read-only file system\n");
  bench_->SetConfigMap("conf", {{"file", "two"}, {"new", "n"}});
  for (int i = 0; i < 200 && bench_->Exec(uid, "c", {"cat", "/conf/file"}) != "two"; ++i) {
    ::usleep(50000);
  }
  EXPECT_EQ(bench_->Exec(uid, "c", {"cat", "/conf/file", "/conf/new", "/all/deep/er/file"}),
            "twontwo");
  EXPECT_EQ(bench_->Exec(uid, "c", {"sh", "-c", "cat /conf/KEY 2>&1; cat /single"}),
            "cat: can't open '/conf/KEY': No such file or directory\none");
  EXPECT_EQ(ReadFile(root_ + "/pv-data/a/b/f", 100), "kept\n");
}

TEST_F(PodTest, SubPathCannotLeaveItsVolume) {
  const std::string uid = Run(R"(
metadata: {name: escape}
spec:
  volumes: [{name: v, persistentVolumeClaim: {claimName: evil}}]
  initContainers:
  - {name: link, command: [sh, -c, "readlink /v/out || busybox ln -s /etc /v/out"], volumeMounts: [{name: v, mountPath: /v}]}
  containers:
  - {name: c, command: [sleep, "1000"], volumeMounts: [{name: v, mountPath: /x, subPath: out/passwd}]}
)");
  ASSERT_TRUE(AwaitWaiting(uid, "CreateContainerConfigError")) << Describe(uid);
}

TEST_F(PodTest, ProbesDecideReadinessAndRestarts) {
  const std::string uid = Run(R"(
metadata: {name: probes}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: web
    command: [sh, -c, "echo ok > /www/index.html; httpd -f -p 8080 -h /www"]
    ports: [{name: http, containerPort: 8080}]
    startupProbe: {tcpSocket: {port: 8080}, periodSeconds: 1}
    readinessProbe: {httpGet: {path: /index.html, port: http}, periodSeconds: 1, failureThreshold: 1}
    livenessProbe: {exec: {command: [cat, /www/index.html]}, periodSeconds: 1, failureThreshold: 3}
)");
  ASSERT_TRUE(AwaitReady(uid)) << Describe(uid);
  bench_->Exec(uid, "web", {"rm", "/www/index.html"});
  ASSERT_TRUE(bench_->Await(uid, [](const Json& status) { return !IsReady(status); }));
  ASSERT_TRUE(bench_->Await(uid, [](const Json& status) {
    return FindInt(Container(status), {"restartCount"}) == 1 && IsReady(status);
  })) << Describe(uid);
  EXPECT_TRUE(
      HasEvent(uid, "Unhealthy: Readiness probe failed: HTTP probe failed with statuscode: 404"));
  EXPECT_TRUE(HasEvent(uid, "Unhealthy: Liveness probe failed: cat: can't open"));
  EXPECT_TRUE(HasEvent(uid, "Killing: Container web failed liveness probe, will be restarted"));
}

TEST_F(PodTest, HooksAndGraceAtDeletion) {
  const std::string uid = Run(R"(
metadata: {name: hooks}
spec:
  volumes: [{name: v, hostPath: {path: )" +
                              root_ + R"(/hooks, type: DirectoryOrCreate}}]
  containers:
  - name: c
    command: [sh, -c, "trap 'echo term >> /v/log; exit 0' TERM; while true; do sleep 0.1; done"]
    volumeMounts: [{name: v, mountPath: /v}]
    lifecycle:
      postStart: {exec: {command: [sh, -c, "echo start >> /v/log"]}}
      preStop: {exec: {command: [sh, -c, "sleep 1; echo stop >> /v/log"]}}
)");
  ASSERT_TRUE(AwaitReady(uid)) << Describe(uid);
  bench_->Delete(uid, 20);
  ASSERT_TRUE(bench_->AwaitEvent(uid, "Killing"));
  bench_->Delete(uid, 20);  // an echo of the same must not cut the hook short
  EXPECT_TRUE(bench_->AwaitGone(uid));
  EXPECT_EQ(ReadFile(root_ + "/hooks/log", 100), "start\nstop\nterm\n");
  EXPECT_TRUE(HasEvent(uid, "Killing: Stopping container c"));
}

TEST_F(PodTest, AShorterGraceCutsARunningStopShort) {
  const std::string uid = Run(R"(
metadata: {name: stubborn}
spec: {containers: [{name: c, command: [sh, -c, "trap '' TERM; while true; do sleep 1; done"]}]}
)");
  ASSERT_TRUE(AwaitReady(uid)) << Describe(uid);
  bench_->Delete(uid, 3600);
  ASSERT_TRUE(bench_->AwaitEvent(uid, "Killing"));
  bench_->Delete(uid, 0);
  EXPECT_TRUE(bench_->AwaitGone(uid));
}

TEST_F(PodTest, DeadlineEndsThePod) {
  const std::string uid = Run(R"(
metadata: {name: deadline}
spec: {activeDeadlineSeconds: 1, terminationGracePeriodSeconds: 1, containers: [{name: c, command: [sleep, "1000"]}]}
)");
  ASSERT_TRUE(AwaitPhase(uid, "Failed")) << Describe(uid);
  EXPECT_EQ(FindString(bench_->StatusOf(uid), {"reason"}), "DeadlineExceeded");
}

TEST_F(PodTest, ContainersOfAPodShareNetworkAndIpc) {
  const std::string uid = Run(R"(
metadata: {name: shared}
spec:
  shareProcessNamespace: true
  containers:
  - {name: a, command: [sh, -c, "echo hi > /www/i; httpd -f -p 80 -h /www"]}
  - {name: b, command: [sleep, "1000"]}
)");
  const std::string other = Run(R"(
metadata: {name: other}
spec: {containers: [{name: c, command: [sleep, "1000"]}]}
)");
  ASSERT_TRUE(AwaitReady(uid) && AwaitReady(other)) << Describe(uid);
  EXPECT_EQ(bench_->Exec(uid, "b", {"sh", "-c", "timeout 5 wget -q -O - http://127.0.0.1/i"}),
            "hi\n");
  const std::string ip(FindString(bench_->StatusOf(uid), {"podIP"}));
  EXPECT_EQ(bench_->Exec(other, "c", {"sh", "-c", "timeout 5 wget -q -O - http://" + ip + "/i"}),
            "hi\n");
  EXPECT_NE(bench_->Exec(uid, "b", {"ps"}).find("httpd"), std::string::npos);
  EXPECT_NE(bench_->Exec(uid, "b", {"cat", "/etc/resolv.conf"})
                .find("search default.svc.cluster.local svc.cluster.local cluster.local\n"
                      "nameserver 10.96.0.10\noptions ndots:5"),
            std::string::npos);
  EXPECT_NE(bench_->Exec(uid, "b", {"cat", "/etc/hosts"}).find(ip + "\tshared"), std::string::npos);
}

TEST_F(PodTest, SecurityContextIsApplied) {
  const std::string uid = Run(R"(
metadata: {name: secure}
spec:
  securityContext: {runAsUser: 1000, runAsGroup: 3000, supplementalGroups: [5000], runAsNonRoot: true}
  containers:
  - name: c
    command: [sleep, "1000"]
    securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}, readOnlyRootFilesystem: true}
)");
  const std::string root = Run(R"(
metadata: {name: root}
spec: {containers: [{name: c, command: ["true"], securityContext: {runAsNonRoot: true}}]}
)");
  ASSERT_TRUE(AwaitReady(uid)) << Describe(uid);
  EXPECT_EQ(bench_->Exec(uid, "c",
                         {"sh", "-c",
                          "id -u; id -g; id -G; touch /x 2>&1; touch /tmp/x 2>&1; grep -E "
                          "'CapEff|NoNewPrivs' /proc/1/status"}),
            "1000\n3000\n3000 5000\ntouch: /x: Read-only file system\n"
            "touch: /tmp/x: Read-only file system\n"
            "CapEff:\t0000000000000000\nNoNewPrivs:\t1\n");
  ASSERT_TRUE(AwaitWaiting(root, "CreateContainerConfigError"));
  EXPECT_NE(bench_->StatusOf(root).dump().find("runAsNonRoot and image will run as root"),
            std::string::npos);
}

TEST_F(PodTest, UnknownRuntimeClassIsAnEvent) {
  const std::string uid = Run(R"(
metadata: {name: kata}
spec: {runtimeClassName: kata, containers: [{name: c, command: ["true"]}]}
)");
  EXPECT_TRUE(bench_->AwaitEvent(
      uid, "FailedCreatePodSandBox: Failed to create pod sandbox: no runtime for \"kata\""));
  EXPECT_EQ(Phase(bench_->StatusOf(uid)), "Pending");
}

TEST_F(PodTest, KilledSandboxIsMadeAgain) {
  const std::string uid = Run(R"(
metadata: {name: resurrect}
spec: {terminationGracePeriodSeconds: 1, containers: [{name: c, command: [sleep, "1000"]}]}
)");
  ASSERT_TRUE(AwaitReady(uid)) << Describe(uid);
  const auto before = bench_->Snapshot(uid);
  ASSERT_EQ(::kill(before->record.sandbox->pid, SIGKILL), 0);
  ASSERT_TRUE(bench_->Await(uid, [](const Json& status) {
    return IsReady(status) && FindInt(Container(status), {"restartCount"}) == 1;
  })) << Describe(uid);
  EXPECT_EQ(bench_->Snapshot(uid)->record.sandbox->ip, before->record.sandbox->ip);
  EXPECT_NE(bench_->Exec(uid, "c", {"ip", "addr"}).find(before->record.sandbox->ip),
            std::string::npos);
}

TEST_F(PodTest, AgentAndEngineRestartsLeavePodsAlone) {
  const std::string uid = Run(R"(
metadata: {name: steady}
spec:
  containers:
  - {name: c, command: [sh, -c, "touch /tmp/proof; exec sleep 1000"], readinessProbe: {exec: {command: [cat, /tmp/proof]}, periodSeconds: 1}}
)");
  const std::string ends = Run(R"(
metadata: {name: ends}
spec: {restartPolicy: Never, containers: [{name: c, command: [sh, -c, "sleep 1; exit 5"]}]}
)");
  ASSERT_TRUE(AwaitReady(uid)) << Describe(uid);
  ASSERT_TRUE(AwaitPhase(ends, "Running"));
  Json id = Container(bench_->StatusOf(uid))["containerID"];
  bench_->RestartAgent();
  ASSERT_EQ(std::system((std::string(std::getenv("SUBLET_ENGINE_RESTART")) + " 2").c_str()), 0);
  ASSERT_TRUE(AwaitPhase(ends, "Failed")) << Describe(ends);
  EXPECT_EQ(Container(bench_->StatusOf(ends))["state"]["terminated"]["exitCode"], 5);
  ASSERT_TRUE(AwaitReady(uid)) << Describe(uid);
  EXPECT_EQ(Container(bench_->StatusOf(uid))["containerID"], id);
  EXPECT_EQ(Container(bench_->StatusOf(uid))["restartCount"], 0);
  EXPECT_EQ(bench_->Exec(uid, "c", {"cat", "/tmp/proof"}), "");
}

TEST_F(PodTest, CdiDevicesReachTheContainerWithTheirHooks) {
  ASSERT_TRUE(MakeDirectories(root_ + "/cdi").ok());
  ASSERT_TRUE(WriteFile(root_ + "/data.txt", "from-cdi", 0644).ok());
  ASSERT_TRUE(WriteFile(root_ + "/cdi/v.json",
                        R"({"cdiVersion":"0.6.0","kind":"sublet.test/dev",
    "containerEdits":{"env":["ALL=1"]},
    "devices":[{"name":"one","containerEdits":{"env":["DEV=one"],
      "mounts":[{"hostPath":")" +
                            root_ + R"(/data.txt","containerPath":"/cdi/data","options":["ro"]}],
      "deviceNodes":[{"path":"/dev/mine","hostPath":"/dev/null"}],
      "hooks":[{"hookName":"createRuntime","path":"/bin/sh","args":["sh","-c","cat > )" +
                            root_ + R"(/hook.json"]}]}}]})",
                        0644)
                  .ok());
  const std::string uid =
      Run(R"(
metadata: {name: cdi, annotations: {cdi.k8s.io/test: sublet.test/dev=one}}
spec: {containers: [{name: c, command: [sh, -c, "test -s )" +
          root_ + R"(/x; echo $ALL $DEV; cat /cdi/data; ls /dev/mine; exec sleep 1000"]}]}
)");
  const std::string missing = Run(R"(
metadata: {name: nocdi, annotations: {cdi.k8s.io/test: sublet.test/dev=two}}
spec: {containers: [{name: c, command: ["true"]}]}
)");
  ASSERT_TRUE(AwaitReady(uid)) << Describe(uid);
  for (int i = 0; i < 100 && bench_->Log(uid, "c").find("mine") == std::string::npos; ++i) {
    ::usleep(50000);
  }
  EXPECT_EQ(bench_->Log(uid, "c"), "1 one\nfrom-cdi/dev/mine");
  const auto state = kube::ParseJson(ReadFile(root_ + "/hook.json", 65536));
  ASSERT_TRUE(state.ok());
  EXPECT_EQ(FindString(*state, {"status"}), "created");
  EXPECT_EQ(FindInt(*state, {"pid"}), bench_->Snapshot(uid)->record.Find("c")->current->pid);
  ASSERT_TRUE(AwaitWaiting(missing, "CreateContainerConfigError"));
  EXPECT_NE(bench_->StatusOf(missing).dump().find("unresolvable CDI devices"), std::string::npos);
}

TEST_F(PodTest, EphemeralContainersJoinAndResourcesChangeInPlace) {
  const std::string uid = Run(R"(
metadata: {name: debug}
spec:
  containers: [{name: c, command: [sleep, "1000"], resources: {limits: {memory: 64Mi}}}]
  ephemeralContainers: [{name: dbg, command: [sh, -c, "ps; exit 0"], targetContainerName: c}]
)");
  ASSERT_TRUE(bench_->Await(uid, [](const Json& status) {
    return status.contains("ephemeralContainerStatuses") &&
           Find(status["ephemeralContainerStatuses"][0], {"state", "terminated"}) != nullptr;
  })) << Describe(uid);
  EXPECT_NE(bench_->Log(uid, "dbg").find("sleep 1000"), std::string::npos);
  EXPECT_TRUE(IsReady(bench_->StatusOf(uid)));
}

}  // namespace
}  // namespace sublet::node
