// The slice protocol against an API server that keeps objects and nothing else: grants, denials,
// releases, orphans, restarts, races; and gpud's files for containers.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <barrier>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "base/check.h"
#include "client/testing/memory_server.h"
#include "gpu/api/codec.h"
#include "gpu/cli_view.h"
#include "gpu/gpud/admin_server.h"
#include "gpu/gpud/gpud.h"
#include "gpu/gpud/slice_controller.h"
#include "gpu/gpud/status.h"
#include "gpu/testing/bench.h"

namespace sublet::gpu::testing {
namespace {

using kube::FindString;
using kube::Json;

// A node with gpud's controller, worked by hand.
class Node {
 public:
  explicit Node(int devices = 1) : bench_({.devices = devices, .memory_bytes = 16384 * kMebibyte}) {
    server_ = std::make_shared<client::testing::MemoryServer>();
    client_ = std::make_unique<client::Client>(server_, "test");
    SUBLET_CHECK(client_->Create({{"", "v1", "nodes"}, "", "", ""},
                                 {{"apiVersion", "v1"}, {"kind", "Node"}, {"metadata", {{"name", "n1"}}}})
                     .ok());
    StartController("gpud-1");
  }
  ~Node() { StopController(); }

  void StartController(const std::string& identity) {
    auto driver = OpenNvml(SUBLET_SIMULATOR_NVML);
    SUBLET_CHECK(driver.ok());
    auto inventory = (*driver)->Inventory();
    SUBLET_CHECK(inventory.ok());
    auto files = InstallFiles(bench_.folder() + "/install");
    SUBLET_CHECK(files.ok());
    informers_ = std::make_unique<client::InformerFactory>(*client_);
    manager_ = std::make_unique<client::Manager>(*informers_, clock_, 1);
    SliceControllerOptions options{.node_name = "n1", .identity = identity};
    options.cdi.cdi_folder = bench_.folder() + "/cdi";
    options.cdi.is_simulated = true;
    options.cdi.simulator_state = bench_.folder() + "/simulator";
    controller_ = std::make_unique<SliceController>(options, *client_, *informers_, *manager_, bench_.engine(), *files,
                                                    *inventory, clock_);
    informers_->Start();
    SUBLET_CHECK(informers_->WaitSynced(After(std::chrono::seconds(10))));
    manager_->RunUntilIdle();
  }
  void StopController() {
    manager_->Stop();
    informers_->Stop();
    controller_.reset();
    manager_.reset();
    informers_.reset();
  }

  GpuSlice Ask(const std::string& name_space, const std::string& uid, std::int64_t mebibytes, std::int32_t share,
               int device = 0) {
    GpuSlice slice = MakeSlice(name_space, {.node = "n1",
                                            .pod = {"pod-" + uid, uid},
                                            .devices = {{bench_.uuid(device), mebibytes * kBytesPerMebibyte, share}},
                                            .tenant = "team"});
    SUBLET_CHECK(client_->Create({SliceResource(), name_space, "", ""}, SliceToJson(slice)).ok());
    return slice;
  }
  // The host pod as a syncer makes it: its name is a translation, its annotation names the slice.
  void MakePod(const std::string& name_space, const std::string& uid) {
    SUBLET_CHECK(client_->Create({{"", "v1", "pods"}, name_space, "", ""},
                                 {{"apiVersion", "v1"},
                                  {"kind", "Pod"},
                                  {"metadata",
                                   {{"name", "pod-" + uid + "-x-default-x-team"},
                                    {"namespace", name_space},
                                    {"annotations", {{kCdiAnnotation, CdiDeviceName(uid)}}}}},
                                  {"spec", {{"nodeName", "n1"}}}})
                     .ok());
  }
  void DeletePod(const std::string& name_space, const std::string& uid) {
    SUBLET_CHECK(client_->Delete({{"", "v1", "pods"}, name_space, "pod-" + uid + "-x-default-x-team", ""}).ok());
  }
  void Release(const std::string& name_space, const std::string& uid) {
    (void)client_->Delete({SliceResource(), name_space, uid, ""});
  }
  std::optional<GpuSlice> Read(const std::string& name_space, const std::string& uid) {
    auto object = client_->Get({SliceResource(), name_space, uid, ""});
    if (!object.ok()) {
      return std::nullopt;
    }
    return *SliceFromJson(*object);
  }
  GpuNode ReadNode() {
    auto object = client_->Get({NodeResource(), "", "n1", ""});
    SUBLET_CHECK(object.ok());
    return *NodeFromJson(*object);
  }
  // Works until `good`, at most ten seconds.
  bool Until(const std::function<bool()>& good) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (!good()) {
      if (std::chrono::steady_clock::now() > until) {
        return false;
      }
      // Delays inside the controller are a hundredth of what a test may wait.
      clock_.Advance(std::chrono::milliseconds(5));
      manager_->RunUntilIdle();
      usleep(200);
    }
    return true;
  }
  bool UntilPhase(const std::string& name_space, const std::string& uid, SlicePhase phase) {
    return Until([&] {
      const auto slice = Read(name_space, uid);
      return slice && slice->status.phase == phase;
    });
  }

  Bench& bench() { return bench_; }
  FakeClock& clock() { return clock_; }
  client::Client& client() { return *client_; }
  SliceController& controller() { return *controller_; }
  client::Manager& manager() { return *manager_; }

 private:
  Bench bench_;
  FakeClock clock_;
  std::shared_ptr<client::testing::MemoryServer> server_;
  std::unique_ptr<client::Client> client_;
  std::unique_ptr<client::InformerFactory> informers_;
  std::unique_ptr<client::Manager> manager_;
  std::unique_ptr<SliceController> controller_;
};

TEST(Slices, AreGrantedOnceAndTheNodeSaysSo) {
  Node node;
  node.Ask("a", "u1", 6000, 400);
  ASSERT_TRUE(node.UntilPhase("a", "u1", SlicePhase::kGranted));
  const GpuSlice granted = *node.Read("a", "u1");
  EXPECT_TRUE(granted.status.ready);
  EXPECT_EQ(granted.status.cdi_device, "sublet.dev/gpu=u1");
  EXPECT_EQ(granted.status.epoch, 1);
  ASSERT_EQ(granted.status.devices.size(), 1U);
  ASSERT_TRUE(node.Until([&] { return node.ReadNode().devices[0].free_share_milli == 600; }));
  const NodeDevice device = node.ReadNode().devices[0];
  EXPECT_EQ(device.memory_bytes, (16384 - 256) * static_cast<std::int64_t>(kMebibyte));
  EXPECT_EQ(device.free_memory_bytes, device.memory_bytes - 6000 * static_cast<std::int64_t>(kMebibyte));
  EXPECT_GE(device.ledger_generation, granted.status.devices[0].ledger_generation);

  node.Ask("b", "u2", 12000, 100);
  ASSERT_TRUE(node.UntilPhase("b", "u2", SlicePhase::kDenied));
  const GpuSlice denied = *node.Read("b", "u2");
  EXPECT_EQ(denied.status.reason, kDeniedInsufficientMemory);
  EXPECT_TRUE(denied.status.devices.empty());
  // A denied slice goes without further ado.
  node.Release("b", "u2");
  EXPECT_TRUE(node.Until([&] { return !node.Read("b", "u2"); }));
}

TEST(Slices, BadSpecsAreDeniedByName) {
  Node node;
  GpuSlice slice = MakeSlice("a", {.node = "n1", .pod = {"p", "u1"}, .devices = {{node.bench().uuid(0), -5, 2000}}});
  ASSERT_TRUE(node.client().Create({SliceResource(), "a", "", ""}, SliceToJson(slice)).ok());
  slice = MakeSlice("a", {.node = "n1", .pod = {"p", "u2"}, .devices = {{node.bench().uuid(0), 5, 5}}});
  slice.name = "stolen-name";
  ASSERT_TRUE(node.client().Create({SliceResource(), "a", "", ""}, SliceToJson(slice)).ok());
  ASSERT_TRUE(node.UntilPhase("a", "u1", SlicePhase::kDenied));
  ASSERT_TRUE(node.UntilPhase("a", "stolen-name", SlicePhase::kDenied));
  EXPECT_EQ(node.Read("a", "u1")->status.reason, kDeniedInvalidSpec);
  EXPECT_NE(node.Read("a", "u1")->status.message.find("spec.devices[0].memoryBytes"), std::string::npos);
}

// A tenant that learned another's pod UID asks for a slice of that name in its own namespace.
TEST(Slices, ANameHeldInAnotherNamespaceIsDeniedAndTheHolderUntouched) {
  Node node;
  node.Ask("a", "u1", 1000, 100);
  ASSERT_TRUE(node.UntilPhase("a", "u1", SlicePhase::kGranted));
  node.Ask("b", "u1", 2000, 100);
  ASSERT_TRUE(node.UntilPhase("b", "u1", SlicePhase::kDenied));
  EXPECT_EQ(node.Read("b", "u1")->status.reason, kDeniedInvalidSpec);
  node.Release("b", "u1");
  EXPECT_TRUE(node.Until([&] { return !node.Read("b", "u1"); }));
  EXPECT_TRUE(std::filesystem::exists(node.bench().folder() + "/cdi/sublet-u1.json"));
  ASSERT_EQ(node.bench().engine().ReadStatus().slices.size(), 1U);
  EXPECT_EQ(node.bench().engine().ReadStatus().slices[0].slice.name_space, "a");
}

TEST(Slices, ADeletedSliceIsFreedWhenItsLastProcessHasEnded) {
  Node node;
  node.Ask("a", "u1", 6000, 400);
  node.MakePod("a", "u1");
  ASSERT_TRUE(node.UntilPhase("a", "u1", SlicePhase::kGranted));
  Program holder = node.bench().Run("u1", {"hold", std::to_string(1000 * kMebibyte)});
  ASSERT_EQ(holder.ReadLine(), "ready");
  node.Release("a", "u1");
  ASSERT_TRUE(node.Until([&] { return node.Read("a", "u1")->is_deleting; }));
  for (int i = 0; i < 20; ++i) {
    node.clock().Advance(std::chrono::milliseconds(200));
    node.manager().RunUntilIdle();
  }
  EXPECT_TRUE(node.Read("a", "u1")) << "freed under a running process";
  holder.Kill(SIGKILL);
  EXPECT_TRUE(node.Until([&] { return !node.Read("a", "u1"); }));
  EXPECT_TRUE(node.Until([&] { return node.ReadNode().devices[0].free_share_milli == 1000; }));
  EXPECT_FALSE(std::filesystem::exists(node.bench().folder() + "/cdi/sublet-u1.json"));
}

TEST(Slices, WithoutAPodForAMinuteOrAfterItsPodASliceIsFreed) {
  Node node;
  node.Ask("a", "never", 100, 10);
  node.Ask("a", "gone", 100, 10);
  node.Ask("a", "stays", 100, 10);
  node.MakePod("a", "gone");
  node.MakePod("a", "stays");
  ASSERT_TRUE(node.UntilPhase("a", "never", SlicePhase::kGranted));
  ASSERT_TRUE(node.UntilPhase("a", "gone", SlicePhase::kGranted));
  ASSERT_TRUE(node.UntilPhase("a", "stays", SlicePhase::kGranted));
  node.clock().Advance(std::chrono::seconds(30));
  node.manager().RunUntilIdle();
  EXPECT_FALSE(node.Read("a", "never")->is_deleting);
  node.DeletePod("a", "gone");
  EXPECT_TRUE(node.Until([&] { return !node.Read("a", "gone"); }));
  node.clock().Advance(std::chrono::seconds(61));
  EXPECT_TRUE(node.Until([&] { return !node.Read("a", "never"); }));
  EXPECT_TRUE(node.Read("a", "stays"));
}

TEST(Slices, ARestartedGpudKeepsEveryGrantAndGrantsNothingTwice) {
  Node node;
  node.Ask("a", "u1", 10000, 600);
  node.MakePod("a", "u1");
  ASSERT_TRUE(node.UntilPhase("a", "u1", SlicePhase::kGranted));
  const std::int64_t generation = node.Read("a", "u1")->status.devices[0].ledger_generation;
  Program holder = node.bench().Run("u1", {"hold", std::to_string(1000 * kMebibyte)});
  ASSERT_EQ(holder.ReadLine(), "ready");
  node.StopController();
  node.bench().StopEngine();
  node.Ask("b", "u2", 10000, 600);  // arrives while no gpud is there
  node.bench().StartEngine();
  node.clock().Advance(std::chrono::seconds(20));  // the old lease runs out
  node.StartController("gpud-2");
  ASSERT_TRUE(node.UntilPhase("b", "u2", SlicePhase::kDenied));
  EXPECT_EQ(node.Read("a", "u1")->status.devices[0].ledger_generation, generation);
  EXPECT_TRUE(node.Until([&] { return node.ReadNode().epoch == 2; }));
  EXPECT_TRUE(node.bench().Eventually([](const EngineStatus& s) {
    return s.slices.size() == 1 && s.slices[0].processes == 1 && s.slices[0].devices[0].used_bytes == 1300 * kMebibyte;
  }));
  EXPECT_EQ(holder.Wait(), 0);
}

TEST(Slices, ASecondGpudOfTheNodeGrantsNothingWhileTheFirstRenews) {
  Node node;
  node.manager().RunUntilIdle();
  EXPECT_TRUE(node.controller().is_leader());
  node.StopController();
  node.StartController("gpud-imposter");  // the lease of gpud-1 is fresh
  EXPECT_FALSE(node.controller().is_leader());
  node.Ask("a", "u1", 100, 10);
  for (int i = 0; i < 20; ++i) {
    node.manager().RunUntilIdle();
    usleep(1000);
  }
  EXPECT_EQ(node.Read("a", "u1")->status.phase, SlicePhase::kPending);
  node.clock().Advance(std::chrono::seconds(20));
  EXPECT_TRUE(node.UntilPhase("a", "u1", SlicePhase::kGranted));
}

// Tenants ask, give up, die; gpud dies: nothing is ever lent twice, and nothing is left over.
TEST(Slices, NothingLeaksThroughRandomKills) {
  Node node(2);
  unsigned seed = 11;
  std::map<std::string, bool> alive;
  int restarts = 0;
  for (int round = 0; round < 150; ++round) {
    const std::string uid = "u" + std::to_string(rand_r(&seed) % 12);
    if (alive[uid]) {
      node.Release("t", uid);
      if (node.Until([&] { return !node.Read("t", uid); })) {
        alive[uid] = false;
      }
    } else if (!node.Read("t", uid)) {
      node.Ask("t", uid, 1000 + rand_r(&seed) % 6000, 50 + static_cast<int>(rand_r(&seed) % 400), static_cast<int>(rand_r(&seed) % 2));
      alive[uid] = true;
      if (rand_r(&seed) % 3 != 0) {
        node.manager().RunUntilIdle(static_cast<int>(rand_r(&seed) % 4));  // killed in the middle
      }
    }
    if (rand_r(&seed) % 25 == 0) {
      node.StopController();
      node.bench().StopEngine();
      node.bench().StartEngine();
      node.clock().Advance(std::chrono::seconds(16));
      node.StartController("gpud-" + std::to_string(++restarts));
    }
    std::map<std::string, std::int64_t> bytes;
    for (const auto& [name, is_alive] : alive) {
      if (const auto slice = node.Read("t", name)) {
        for (const GrantedDevice& device : slice->status.devices) {
          bytes[device.device.uuid] += device.device.memory_bytes;
        }
      }
    }
    for (const auto& [uuid, sum] : bytes) {
      ASSERT_LE(sum, (16384 - 256) * static_cast<std::int64_t>(kMebibyte));
    }
  }
  EXPECT_GT(restarts, 1);
  for (const auto& [name, is_alive] : alive) {
    node.Release("t", name);
  }
  EXPECT_TRUE(node.Until([&] {
    const GpuNode now = node.ReadNode();
    return std::all_of(now.devices.begin(), now.devices.end(), [](const NodeDevice& device) {
      return device.free_memory_bytes == device.memory_bytes && device.free_share_milli == 1000;
    });
  }));
  EXPECT_TRUE(node.bench().engine().ReadStatus().slices.empty());
}

// Two tenants ask for more than half of the device at the same moment: one has it, never both, and
// what is given back can be had again at once.
TEST(Slices, TwoTenantsRacingForTheLastSliceNeverBothHaveIt) {
  Node node;
  const int rounds = std::getenv("SUBLET_FULL") != nullptr ? 10'000 : 200;
  std::barrier start(3);
  std::atomic<int> round{0};
  std::vector<std::thread> tenants;
  for (const char* tenant : {"a", "b"}) {
    tenants.emplace_back([&, tenant] {
      for (;;) {
        start.arrive_and_wait();
        if (round.load() >= rounds) {
          return;
        }
        node.Ask(tenant, tenant + std::to_string(round.load()), 9000, 600);
        start.arrive_and_wait();
      }
    });
  }
  int wins_of_a = 0;
  std::int64_t generation = 0;
  for (; round < rounds; ++round) {
    start.arrive_and_wait();
    start.arrive_and_wait();
    const std::string uids[2] = {"a" + std::to_string(round.load()), "b" + std::to_string(round.load())};
    SlicePhase phases[2] = {};
    const bool answered = node.Until([&] {
      for (int i = 0; i < 2; ++i) {
        const auto slice = node.Read(i == 0 ? "a" : "b", uids[i]);
        phases[i] = slice ? slice->status.phase : SlicePhase::kPending;
      }
      return phases[0] != SlicePhase::kPending && phases[1] != SlicePhase::kPending;
    });
    EXPECT_TRUE(answered) << "round " << round;
    EXPECT_NE(phases[0], phases[1]) << "round " << round;
    const bool a_won = phases[0] == SlicePhase::kGranted;
    wins_of_a += a_won ? 1 : 0;
    const auto winner = node.Read(a_won ? "a" : "b", uids[a_won ? 0 : 1]);
    const bool is_newer = winner && !winner->status.devices.empty() && winner->status.devices[0].ledger_generation > generation;
    EXPECT_TRUE(is_newer) << "round " << round;
    if (!answered || phases[0] == phases[1] || !is_newer) {
      break;
    }
    generation = winner->status.devices[0].ledger_generation;
    node.Release("a", uids[0]);
    node.Release("b", uids[1]);
    EXPECT_TRUE(node.Until([&] { return !node.Read("a", uids[0]) && !node.Read("b", uids[1]); })) << "round " << round;
  }
  round = rounds;
  start.arrive_and_wait();
  for (std::thread& tenant : tenants) {
    tenant.join();
  }
  std::printf("%d rounds, %d won by a\n", rounds, wins_of_a);
  EXPECT_TRUE(node.bench().engine().ReadStatus().slices.empty());
}

// Syncers die between grant and pod, node agents leave processes behind, gpud is killed: nobody gives
// anything back by hand, and still nothing is lent twice and nothing is left over.
TEST(Slices, NothingLeaksWhenSyncerAgentAndGpudDieAtRandom) {
  Node node(2);
  unsigned seed = 23;
  struct Job {
    std::string uid;
    int device = 0;
    bool has_pod = false;
    bool syncer_died = false;
    Program process;
  };
  std::vector<Job> jobs;
  int made = 0, restarts = 0, orphans = 0, left_behind = 0;
  const auto gone = [&](const Job& job) { return !node.Read("t", job.uid); };
  for (int round = 0; round < (std::getenv("SUBLET_FULL") != nullptr ? 2000 : 200); ++round) {
    const unsigned dice = rand_r(&seed) % 10;
    if (dice < 4 && jobs.size() < 10) {
      jobs.push_back({.uid = "j" + std::to_string(made++), .device = static_cast<int>(rand_r(&seed) % 2)});
      node.Ask("t", jobs.back().uid, 1000 + rand_r(&seed) % 7000, 50 + static_cast<int>(rand_r(&seed) % 400), jobs.back().device);
    } else if (!jobs.empty()) {
      Job& job = jobs[rand_r(&seed) % jobs.size()];
      const auto slice = node.Read("t", job.uid);
      const bool granted = slice && slice->status.phase == SlicePhase::kGranted && !slice->is_deleting;
      if (granted && !job.has_pod && !job.syncer_died) {
        if (dice == 4) {
          job.syncer_died = true;
          ++orphans;
        } else {
          node.MakePod("t", job.uid);
          job.has_pod = true;
        }
      } else if (granted && job.has_pod && job.process.pid() < 0) {
        job.process = node.bench().Run(job.uid, {"hold", std::to_string(100 * kMebibyte)});
        EXPECT_EQ(job.process.ReadLine(), "ready");
      } else if (job.has_pod && dice > 5) {
        node.DeletePod("t", job.uid);
        job.has_pod = false;
        job.syncer_died = true;
        if (job.process.pid() > 0 && dice > 7) {
          ++left_behind;  // the agent was killed: the container runs on without its pod
        } else if (job.process.pid() > 0) {
          job.process.Kill(SIGKILL);
          job.process.Wait();
        }
      } else if (slice && slice->status.phase == SlicePhase::kDenied) {
        node.Release("t", job.uid);
      } else if (job.process.pid() > 0 && !job.has_pod) {
        job.process.Kill(SIGKILL);
        job.process.Wait();
      }
    }
    if (rand_r(&seed) % 3 != 0) {
      node.manager().RunUntilIdle(static_cast<int>(rand_r(&seed) % 5));
    }
    node.clock().Advance(std::chrono::seconds(rand_r(&seed) % 8));
    if (rand_r(&seed) % 30 == 0) {
      node.StopController();
      node.bench().StopEngine();
      node.bench().StartEngine();
      node.clock().Advance(std::chrono::seconds(16));
      node.StartController("gpud-" + std::to_string(++restarts));
    }
    std::map<std::string, std::int64_t> bytes;
    for (const Job& job : jobs) {
      if (const auto slice = node.Read("t", job.uid)) {
        for (const GrantedDevice& device : slice->status.devices) {
          bytes[device.device.uuid] += device.device.memory_bytes;
        }
      }
      // A running container's memory is never lent to another.
      ASSERT_TRUE(job.process.pid() < 0 || !gone(job)) << "round " << round << ", " << job.uid;
    }
    for (const auto& [uuid, sum] : bytes) {
      ASSERT_LE(sum, (16384 - 256) * static_cast<std::int64_t>(kMebibyte));
    }
    std::erase_if(jobs, [&](const Job& job) { return job.process.pid() < 0 && !job.has_pod && gone(job); });
  }
  EXPECT_GT(restarts, 1);
  EXPECT_GT(orphans, 0);
  EXPECT_GT(left_behind, 0);
  for (Job& job : jobs) {
    if (job.has_pod) {
      node.DeletePod("t", job.uid);
    }
    if (job.process.pid() > 0) {
      job.process.Kill(SIGKILL);
      job.process.Wait();
    }
  }
  // The scheduler gives a denied slice back, also one that is answered only now.
  const auto release_denied = [&] {
    for (const Job& job : jobs) {
      if (const auto slice = node.Read("t", job.uid);
          slice && slice->status.phase == SlicePhase::kDenied && !slice->is_deleting) {
        node.Release("t", job.uid);
      }
    }
  };
  node.manager().RunUntilIdle();
  node.clock().Advance(std::chrono::seconds(61));
  EXPECT_TRUE(node.Until([&] {
    release_denied();
    return std::all_of(jobs.begin(), jobs.end(), gone);
  })) << [&] {
    std::string left;
    for (const Job& job : jobs) {
      if (const auto slice = node.Read("t", job.uid)) {
        left += job.uid + " phase " + std::to_string(static_cast<int>(slice->status.phase)) +
                (slice->is_deleting ? " deleting" : "") + "; ";
      }
    }
    return left;
  }();
  EXPECT_TRUE(node.Until([&] {
    const GpuNode now = node.ReadNode();
    return std::all_of(now.devices.begin(), now.devices.end(), [](const NodeDevice& device) {
      return device.free_memory_bytes == device.memory_bytes && device.free_share_milli == 1000;
    });
  }));
  EXPECT_TRUE(node.bench().engine().ReadStatus().slices.empty());
  EXPECT_TRUE(std::filesystem::is_empty(node.bench().folder() + "/cdi"));
}

TEST(Node, CarriesCapacityAndFeatureLabels) {
  Node node(2);
  ASSERT_TRUE(node.Until([&] {
    auto object = node.client().Get({{"", "v1", "nodes"}, "", "n1", ""});
    return object.ok() && kube::FindString(*object, {"status", "allocatable", "nvidia.com/gpu"}) == "2";
  }));
  const auto object = node.client().Get({{"", "v1", "nodes"}, "", "n1", ""});
  EXPECT_EQ(kube::FindString(*object, {"status", "capacity", "nvidia.com/gpu"}), "2");
  EXPECT_EQ(kube::FindString(*object, {"metadata", "labels", "nvidia.com/gpu.product"}), "Simulated-GPU");
  EXPECT_EQ(kube::FindString(*object, {"metadata", "labels", "nvidia.com/gpu.count"}), "2");
  EXPECT_EQ(kube::FindString(*object, {"metadata", "labels", "nvidia.com/gpu.memory"}), "16384");
}

TEST(Node, ALostDeviceIsUnhealthyAndGetsNoSlices) {
  Node node(2);
  node.bench().state().devices[0].is_lost = 1;
  ASSERT_TRUE(node.bench().Eventually([](const EngineStatus& s) { return s.unhealthy.size() == 1; }));
  node.clock().Advance(std::chrono::seconds(11));
  ASSERT_TRUE(node.Until([&] { return !node.ReadNode().devices[0].is_healthy; }));
  EXPECT_TRUE(node.ReadNode().devices[1].is_healthy);
  node.Ask("a", "u1", 100, 10);
  ASSERT_TRUE(node.UntilPhase("a", "u1", SlicePhase::kDenied));
  EXPECT_EQ(node.Read("a", "u1")->status.reason, kDeniedUnhealthyDevice);
  node.bench().state().devices[0].is_lost = 0;
  ASSERT_TRUE(node.bench().Eventually([](const EngineStatus& s) { return s.unhealthy.empty(); }));
  node.clock().Advance(std::chrono::seconds(11));
  EXPECT_TRUE(node.Until([&] { return node.ReadNode().devices[0].is_healthy; }));
}

TEST(Cdi, TheSpecPutsTheInterceptorWhereTheDriverIsLookedFor) {
  Node node;
  node.Ask("a", "u1", 1000, 100);
  ASSERT_TRUE(node.UntilPhase("a", "u1", SlicePhase::kGranted));
  std::ifstream file(node.bench().folder() + "/cdi/sublet-u1.json");
  std::stringstream text;
  text << file.rdbuf();
  const auto spec = kube::ParseJson(text.str());
  ASSERT_TRUE(spec.ok());
  EXPECT_EQ(kube::FindString(*spec, {"kind"}), "sublet.dev/gpu");
  const Json& device = (*spec)["devices"][0];
  EXPECT_EQ(device["name"], "u1");
  std::map<std::string, std::string> mounts;
  for (const Json& mount : device["containerEdits"]["mounts"]) {
    const std::string from(FindString(mount, {"hostPath"}));
    const std::string to(FindString(mount, {"containerPath"}));
    mounts[to] = from;
    EXPECT_TRUE(std::filesystem::exists(from)) << from;
    EXPECT_EQ(mount["options"][0] == "rw", to == "/run/sublet/simulator/state");
  }
  EXPECT_TRUE(mounts["/usr/lib/x86_64-linux-gnu/libcuda.so.1"].ends_with("/libsublet-cuda.so"));
  EXPECT_TRUE(mounts["/run/sublet/real/libcuda.so.1"].ends_with("/libcuda-simulator.so"));
  EXPECT_EQ(mounts["/run/sublet/gpu"], node.bench().engine().FolderOf("u1"));
  EXPECT_TRUE(mounts.contains("/usr/bin/nvidia-smi"));
}

TEST(Cdi, ARealDeviceGetsItsNodesAndTheDriversLibraries) {
  const EngineSlice slice{.name = "s", .devices = {{{"GPU-x", 5, 5}, 1}}};
  DriverInventory inventory{.devices = {{.uuid = "GPU-y", .minor = 0}, {.uuid = "GPU-x", .minor = 3, .total_bytes = 20}}};
  const InstalledFiles files{.cuda = "/i/c.so", .nvml = "/i/n.so", .smi = "/i/smi"};
  const Json spec = MakeCdiSpec(slice, "/run/x/s", files, {.driver_folder = "/drv"}, inventory, {"libnvidia-ptxjitcompiler.so.580"});
  const std::string text = kube::Dump(spec);
  EXPECT_NE(text.find("/dev/nvidia3"), std::string::npos);
  EXPECT_EQ(text.find("/dev/nvidia0"), std::string::npos);
  EXPECT_NE(text.find("/dev/nvidia-uvm"), std::string::npos);
  EXPECT_NE(text.find("\"/drv/libcuda.so.1\""), std::string::npos);
  EXPECT_NE(text.find("NVIDIA_VISIBLE_DEVICES=void"), std::string::npos);
  EXPECT_NE(text.find("GPU_PORTION=0.25\""), std::string::npos) << text;
  EXPECT_NE(text.find("RUNAI_NUM_OF_GPUS=1\""), std::string::npos);
  EXPECT_NE(text.find("libnvidia-ptxjitcompiler.so.580"), std::string::npos);
}

TEST(Smi, ShowsTheSliceAndNothingElse) {
  Bench bench({.devices = 3});
  ASSERT_TRUE(bench.engine().AddSlice(bench.MakeSlice("a", 1000 * kMebibyte, 250, {2})).ok());
  Program holder = bench.Run("a", {"hold", std::to_string(100 * kMebibyte)});
  ASSERT_EQ(holder.ReadLine(), "ready");
  const auto smi = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), SUBLET_NVIDIA_SMI);
    Program program = bench.Spawn(arguments, {{"SUBLET_GPU_FOLDER", bench.engine().FolderOf("a")}});
    std::string output;
    EXPECT_EQ(program.Wait(&output), 0) << output;
    return output;
  };
  EXPECT_EQ(smi({"-L"}), "GPU 0: Simulated GPU (UUID: " + bench.uuid(2) + ")\n");
  EXPECT_EQ(smi({"--query-gpu=name,memory.total,memory.used", "--format=csv,noheader"}), "Simulated GPU, 1000 MiB, 400 MiB\n");
  const std::string table = smi({});
  EXPECT_NE(table.find("400MiB / 1000MiB"), std::string::npos) << table;
  EXPECT_EQ(holder.Wait(), 0);
}

TEST(Nvml, APodSeesItsCapAndItsOwnProcesses) {
  Bench bench({.devices = 2});
  ASSERT_TRUE(bench.engine().AddSlice(bench.MakeSlice("a", 1000 * kMebibyte, 250, {1})).ok());
  ASSERT_TRUE(bench.engine().AddSlice(bench.MakeSlice("b", 1000 * kMebibyte, 250, {1})).ok());
  Program mine = bench.Run("a", {"hold", std::to_string(100 * kMebibyte)});
  Program theirs = bench.Run("b", {"hold", std::to_string(200 * kMebibyte)});
  ASSERT_EQ(mine.ReadLine(), "ready");
  ASSERT_EQ(theirs.ReadLine(), "ready");
  Program probe = bench.Spawn({SUBLET_GPU_PROBE, "nvml"}, {{"LD_PRELOAD", SUBLET_NVML_HOOKS},
                                                          {"SUBLET_GPU_FOLDER", bench.engine().FolderOf("a")},
                                                          {"SUBLET_REAL_NVML", SUBLET_SIMULATOR_NVML}});
  std::string output;
  EXPECT_EQ(probe.Wait(&output), 0) << output;
  // devices, total, used, processes, first pid, answer to a setter
  EXPECT_EQ(output, "1 1048576000 419430400 1 " + std::to_string(mine.pid()) + " 4\n");
}

TEST(Status, MetricsAndTopShowWhatASliceHasAndGot) {
  Bench bench;
  ASSERT_TRUE(bench.engine().AddSlice(bench.MakeSlice("a", 1000 * kMebibyte, 250)).ok());
  Program holder = bench.Run("a", {"hold", std::to_string(100 * kMebibyte)});
  ASSERT_EQ(holder.ReadLine(), "ready");
  const EngineStatus status = bench.engine().ReadStatus();
  const auto inventory = bench.engine().Inventory();
  ASSERT_TRUE(inventory.ok());
  const std::string metrics = FormatMetrics(status, *inventory);
  EXPECT_NE(metrics.find("sublet_gpu_memory_used_bytes{slice=\"a\",namespace=\"tenant\",pod=\"pod-a\",tenant=\"team\",gpu=\"" +
                         bench.uuid(0) + "\"} 419430400\n"),
            std::string::npos)
      << metrics;
  const Json before = StatusToJson(status, *inventory, "n1", 1'000'000'000);
  Json after = StatusToJson(status, *inventory, "n1", 2'000'000'000);
  after["slices"][0]["devices"][0]["busyNs"] = 250'000'000;
  const std::string top = FormatGpuTop(after, &before);
  EXPECT_NE(top.find("team"), std::string::npos) << top;
  EXPECT_NE(top.find("1000Mi"), std::string::npos) << top;
  EXPECT_NE(top.find("400Mi of 15.8Gi used, 25% busy"), std::string::npos) << top;
  EXPECT_EQ(GpuTopToJson(after, &before)["gpus"][0]["slices"][0]["shareGotMilli"], 250);
  EXPECT_TRUE(GpuTopToJson(after, nullptr)["gpus"][0]["slices"][0]["shareGotMilli"].is_null());
  EXPECT_EQ(FormatGpuTop(Json::object(), nullptr), "No GPUs found\n");
  EXPECT_EQ(holder.Wait(), 0);
}

TEST(List, OneLinePerDevice) {
  GpuNode node{.name = "n1"};
  node.devices.push_back({.uuid = "GPU-1", .index = 0, .model = "H200", .memory_bytes = std::int64_t{140} << 30,
                          .free_memory_bytes = std::int64_t{70} << 30, .free_share_milli = 505});
  const std::string table = FormatGpuList({node}, {});
  EXPECT_EQ(table,
            "NODE   GPU   MODEL   MEMORY    FREE     FREE SHARE   SLICES   HEALTH\n"
            "n1     0     H200    140.0Gi   70.0Gi   50.5%        0        ok\n");
  EXPECT_EQ(FormatGpuList({}, {}), "No GPUs found\n");
  GpuSlice slice{.name = "u1", .name_space = "sublet-a"};
  slice.spec = {.node = "n1", .pod = {"train", "u1"}, .tenant = "a"};
  slice.status = {.phase = SlicePhase::kGranted, .devices = {{{"GPU-1", std::int64_t{70} << 30, 495}, 1}}};
  EXPECT_TRUE(FormatGpuList({node}, {slice}).ends_with("\n"
                                                       "TENANT   POD     NODE   GPU   MEMORY   SHARE   PHASE\n"
                                                       "a        train   n1     0     70.0Gi   49.5%   Granted\n"))
      << FormatGpuList({node}, {slice});
}

// The whole daemon, with simulated GPUs, over its own socket.
TEST(Gpud, StartsGrantsAnswersAndRefusesASecondOne) {
  char name[] = "/tmp/sublet-gpud-XXXXXX";
  ASSERT_NE(mkdtemp(name), nullptr);
  const std::string folder = name;
  auto server = std::make_shared<client::testing::MemoryServer>();
  GpudOptions options;
  options.node_name = "n1";
  options.client = std::make_shared<client::Client>(server, "gpud");
  options.run_folder = folder + "/run";
  options.install_folder = folder + "/install";
  options.cdi.cdi_folder = folder + "/cdi";
  options.simulated = {.count = 2, .model = "NVIDIA H200", .memory_bytes = 8192 * kMebibyte};
  options.check_cgroups = false;
  {
    Gpud gpud(options);
    const auto started = gpud.Start();
    ASSERT_TRUE(started.ok()) << started.error().message();
    Gpud second(options);
    const auto refused = second.Start();
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().reason(), Reason::kConflict);
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    auto published = options.client->Get({NodeResource(), "", "n1", ""});
    while ((!published.ok() || NodeFromJson(*published)->devices.size() != 2) && std::chrono::steady_clock::now() < until) {
      usleep(5000);
      published = options.client->Get({NodeResource(), "", "n1", ""});
    }
    ASSERT_TRUE(published.ok());
    EXPECT_EQ(NodeFromJson(*published)->devices[1].model, "NVIDIA H200");
    EXPECT_EQ(*AdminGet(gpud.AdminSocket(), "/healthz"), "ok\n");
    const auto metrics = AdminGet(gpud.AdminSocket(), "/metrics");
    ASSERT_TRUE(metrics.ok());
    EXPECT_NE(metrics->find("sublet_gpu_device_memory_bytes"), std::string::npos);
    EXPECT_FALSE(AdminGet(gpud.AdminSocket(), "/nothing").ok());
  }
  EXPECT_FALSE(AdminGet(folder + "/run/admin.sock", "/healthz").ok());
  // A restart with other amounts keeps the simulated machine: programs run on it.
  {
    options.simulated.memory_bytes = 4096 * kMebibyte;
    Gpud again(options);
    ASSERT_TRUE(again.Start().ok());
    const auto inventory = again.engine().Inventory();
    ASSERT_TRUE(inventory.ok());
    EXPECT_EQ(inventory->devices.at(0).total_bytes, 8192 * kMebibyte);
  }
  std::error_code ignored;
  std::filesystem::remove_all(folder, ignored);
}

}  // namespace
}  // namespace sublet::gpu::testing
