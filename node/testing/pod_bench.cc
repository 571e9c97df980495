#include "node/testing/pod_bench.h"

#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/random.h"
#include "kube/timestamp.h"
#include "node/pod/logs.h"
#include "node/pod/recover.h"

namespace sublet::node {

struct PodBench::State {
  mutable Mutex mutex;
  std::map<std::string, kube::Json> pods SUBLET_GUARDED_BY(mutex);
  std::map<std::string, std::vector<std::string>> events SUBLET_GUARDED_BY(mutex);
  std::map<std::string, bool> gone SUBLET_GUARDED_BY(mutex);
  std::map<std::string, kube::Json> config_maps SUBLET_GUARDED_BY(mutex);
  std::map<std::string, kube::Json> secrets SUBLET_GUARDED_BY(mutex);
};

ImageRecipe BusyboxRecipe() {
  ImageRecipe recipe;
  recipe.tags = {kTestImage};
  std::ifstream file("/bin/busybox", std::ios::binary);
  std::stringstream content;
  content << file.rdbuf();
  recipe.files.push_back({"bin/busybox", content.str(), 0755, ""});
  for (const char* name :
       {"sh",    "cat",   "echo",    "sleep", "true",     "hostname", "id",     "ls",
        "httpd", "nc",    "wget",    "env",   "ping",     "nslookup", "touch",  "kill",
        "ps",    "mount", "df",      "head",  "tail",     "dd",       "date",   "tar",
        "grep",  "ip",    "timeout", "test",  "readlink", "seq",      "yes",    "tee",
        "stat",  "mkdir", "printf",  "false", "rm",       "cp",       "mkfifo", "sync",
        "trap",  "wc",    "cut",     "sort",  "md5sum"}) {
    recipe.files.push_back({std::string("bin/") + name, "", 0777, "busybox"});
  }
  recipe.files.push_back(
      {"etc/passwd", "root:x:0:0:root:/:/bin/sh\nuser:x:1000:1000::/:/bin/sh\n", 0644, ""});
  recipe.files.push_back({"etc/group", "root:x:0:\nuser:x:1000:\n", 0644, ""});
  recipe.directories = {"tmp", "etc", "var/run", "www"};
  recipe.command = {"/bin/sh"};
  recipe.env = {"PATH=/bin", "FROM_IMAGE=yes"};
  return recipe;
}

PodBench::PodBench(const std::string& root) : root_(root), state_(std::make_unique<State>()) {
  engine_ = OpenEngine(std::getenv("SUBLET_ENGINE_SOCKET"));
  PodNetworkConfig network;
  network.pod_net = *ParseIpv4Net("10.244.0.0/24");
  network.service_net = *ParseIpv4Net("10.96.0.0/16");
  network_ = std::make_unique<PodNetwork>(network);
  SUBLET_CHECK(network_->Ensure().ok());
  SUBLET_CHECK(EnsurePauseImage(*engine_).ok());
  SUBLET_CHECK(LoadRecipe(*engine_, BusyboxRecipe()).ok());
  StartWorkers(false);
}

PodBench::~PodBench() {
  StopWorkers();
  volumes_->TearDownAll();
  static_cast<void>(network_->Remove().ok());
}

void PodBench::StartWorkers(bool recover) {
  volumes_ = std::make_unique<Volumes>(VolumesConfig{root_}, *this, SystemClock());
  SUBLET_CHECK(volumes_->Prepare().ok());
  images_ = std::make_unique<Images>(*engine_, *this, 2);
  prober_ = std::make_unique<Prober>(*engine_, 4);
  exits_ = std::make_unique<ExitWatcher>();
  exits_->Start();
  PodServicesConfig config;
  config.instance = "bench";
  config.root = root_;
  config.runtime_name = std::getenv("SUBLET_ENGINE_KIND");
  config.host_ips = {"192.0.2.1"};
  config.oom_score_floor = LowestOomScore();
  config.memory_bytes = 1ll << 34;
  config.allocatable =
      std::make_shared<const kube::Json>(kube::Json{{"cpu", "2"}, {"memory", "16Gi"}});
  config.dns.server = "10.96.0.10";
  config.dns.domain = "cluster.local";
  config.cdi_folders = {root_ + "/cdi"};
  services_.reset(new PodServices{config, *engine_, *network_, *volumes_, *images_, *prober_,
                                  *exits_, *this, SystemClock()});
  if (!recover) {
    return;
  }
  auto found = RecoverPods(*engine_, "bench");
  SUBLET_CHECK(found.ok());
  std::map<std::string, kube::Json> pods;
  {
    MutexLock lock(state_->mutex);
    pods = state_->pods;
  }
  for (auto& [uid, pod] : pods) {
    auto worker = std::make_unique<PodWorker>(
        *services_, ParsePod(std::make_shared<const kube::Json>(pod)), (*found)[uid].record);
    worker->Start();
    workers_[uid] = std::move(worker);
  }
}

void PodBench::StopWorkers() {
  for (auto& [uid, worker] : workers_) {
    worker->Stop();
  }
  workers_.clear();
  prober_->Stop();
  exits_->Stop();
}

void PodBench::RestartAgent() {
  StopWorkers();
  StartWorkers(true);
}

std::string PodBench::Run(const std::string& yaml) {
  auto pod = kube::ParseYaml(yaml);
  SUBLET_CHECK(pod.ok());
  const std::string uid = RandomUuid();
  (*pod)["metadata"]["uid"] = uid;
  if (!(*pod)["metadata"].contains("namespace")) {
    (*pod)["metadata"]["namespace"] = "default";
  }
  (*pod)["metadata"]["generation"] = 1;
  (*pod)["spec"]["nodeName"] = "bench-node";
  for (const char* list : {"containers", "initContainers", "ephemeralContainers"}) {
    for (std::size_t i = 0; (*pod)["spec"].contains(list) && i < (*pod)["spec"][list].size(); ++i) {
      kube::Json& container = (*pod)["spec"][list][i];
      if (!container.contains("image")) {
        container["image"] = kTestImage;
      }
    }
  }
  {
    MutexLock lock(state_->mutex);
    state_->pods[uid] = *pod;
  }
  auto worker = std::make_unique<PodWorker>(
      *services_, ParsePod(std::make_shared<const kube::Json>(*pod)), PodRecord{});
  worker->Start();
  workers_[uid] = std::move(worker);
  return uid;
}

void PodBench::Delete(const std::string& uid, int grace_seconds) {
  kube::Json pod;
  {
    MutexLock lock(state_->mutex);
    kube::Json& stored = state_->pods[uid];
    stored["metadata"]["deletionTimestamp"] = kube::FormatTime(SystemClock().Now());
    stored["metadata"]["deletionGracePeriodSeconds"] = grace_seconds;
    pod = stored;
  }
  workers_.at(uid)->Update(ParsePod(std::make_shared<const kube::Json>(std::move(pod))));
}

kube::Json PodBench::StatusOf(const std::string& uid) const {
  MutexLock lock(state_->mutex);
  const auto it = state_->pods.find(uid);
  return it == state_->pods.end() || !it->second.contains("status") ? kube::Json::object()
                                                                    : it->second["status"];
}

std::vector<std::string> PodBench::Events(const std::string& uid) const {
  MutexLock lock(state_->mutex);
  return state_->events[uid];
}

namespace {
bool Poll(const std::function<bool()>& check, std::chrono::seconds timeout) {
  const auto end = std::chrono::steady_clock::now() + timeout;
  while (!check()) {
    if (std::chrono::steady_clock::now() > end) {
      return false;
    }
    ::usleep(10000);
  }
  return true;
}
}  // namespace

bool PodBench::Await(const std::string& uid, const std::function<bool(const kube::Json&)>& check,
                     std::chrono::seconds timeout) const {
  return Poll([&] { return check(StatusOf(uid)); }, timeout);
}

bool PodBench::AwaitEvent(const std::string& uid, const std::string& part,
                          std::chrono::seconds timeout) const {
  return Poll(
      [&] {
        for (const std::string& event : Events(uid)) {
          if (event.find(part) != std::string::npos) {
            return true;
          }
        }
        return false;
      },
      timeout);
}

bool PodBench::AwaitGone(const std::string& uid) const {
  return Poll(
      [&] {
        MutexLock lock(state_->mutex);
        return state_->gone[uid];
      },
      std::chrono::seconds(60));
}

std::shared_ptr<const PodSnapshot> PodBench::Snapshot(const std::string& uid) const {
  return workers_.at(uid)->Snapshot();
}

std::string PodBench::Exec(const std::string& uid, const std::string& container,
                           const std::vector<std::string>& argv) {
  const auto snapshot = Snapshot(uid);
  const ContainerRecord* record = snapshot->record.Find(container);
  SUBLET_CHECK(record != nullptr && record->current);
  auto output =
      RunExec(*engine_, record->current->id, argv, After(std::chrono::seconds(20)), 65536);
  return output.ok() ? output->output : "exec failed: " + output.error().message();
}

std::string PodBench::Log(const std::string& uid, const std::string& container, bool previous) {
  const auto snapshot = Snapshot(uid);
  const ContainerRecord* record = snapshot->record.Find(container);
  const auto& run = previous ? record->previous : record->current;
  return run ? TailOfLog(run->log_path, 1000, 1 << 20) : "";
}

void PodBench::SetConfigMap(const std::string& name,
                            const std::map<std::string, std::string>& data) {
  {
    MutexLock lock(state_->mutex);
    state_->config_maps[name] = {{"data", data}};
  }
  for (auto& [uid, worker] : workers_) {
    worker->NoteObjectsChanged();
  }
}

void PodBench::SetSecret(const std::string& name, const std::map<std::string, std::string>& data) {
  MutexLock lock(state_->mutex);
  state_->secrets[name] = {{"data", data}};
}

void PodBench::Emit(const PodPlan& plan, const std::string&, bool, const std::string& reason,
                    const std::string& message) {
  MutexLock lock(state_->mutex);
  state_->events[plan.uid].push_back(reason + ": " + message);
}

void PodBench::PublishStatus(std::shared_ptr<const PodPlan> plan, kube::Json status) {
  MutexLock lock(state_->mutex);
  state_->pods[plan->uid]["status"] = std::move(status);
}

void PodBench::Finalize(std::shared_ptr<const PodPlan> plan) {
  MutexLock lock(state_->mutex);
  state_->gone[plan->uid] = true;
}

Environment PodBench::ServiceVariables(const std::string&, bool all) {
  Environment out = {{"KUBERNETES_SERVICE_HOST", "10.96.0.1"}};
  if (all) {
    out.emplace_back("WEB_SERVICE_HOST", "10.96.0.77");
  }
  return out;
}

Result<std::string> PodBench::FindRuntime(const std::string& runtime_class) {
  return Status(Reason::kNotFound, "no runtime for \"" + runtime_class + "\" is configured");
}

void PodBench::WorkerDone(const std::string&) {}

Result<std::shared_ptr<const kube::Json>> PodBench::GetConfigMap(const std::string&,
                                                                 const std::string& name) {
  MutexLock lock(state_->mutex);
  const auto it = state_->config_maps.find(name);
  if (it == state_->config_maps.end()) {
    return NotFound({"", "configmaps"}, name);
  }
  return std::make_shared<const kube::Json>(it->second);
}

Result<std::shared_ptr<const kube::Json>> PodBench::GetSecret(const std::string&,
                                                              const std::string& name) {
  MutexLock lock(state_->mutex);
  const auto it = state_->secrets.find(name);
  if (it == state_->secrets.end()) {
    return NotFound({"", "secrets"}, name);
  }
  return std::make_shared<const kube::Json>(it->second);
}

Result<Token> PodBench::RequestToken(const TokenRequest& request) {
  Token token;
  token.text = "token-of-" + request.service_account + "-for-" + request.pod_name;
  token.expires = SystemClock().Now() + std::chrono::seconds(request.expiration_seconds);
  return token;
}

Result<kube::Json> PodBench::GetClaim(const std::string&, const std::string& name) {
  return kube::Json{{"spec", {{"volumeName", "pv-" + name}}}, {"status", {{"phase", "Bound"}}}};
}

Result<kube::Json> PodBench::GetPersistentVolume(const std::string& name) {
  return kube::Json{{"spec", {{"hostPath", {{"path", root_ + "/" + name}}}}}};
}

Result<kube::Json> PodBench::GetClusterTrustBundle(const std::string& name) {
  return NotFound({"certificates.k8s.io", "clustertrustbundles"}, name);
}

}  // namespace sublet::node
