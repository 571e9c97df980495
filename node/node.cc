// Wiring of the node agent: everything is made here, in order, and ended in reverse.
#include "node/node.h"

#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/log.h"
#include "client/events.h"
#include "client/informer.h"
#include "client/kubeconfig.h"
#include "dns/server.h"
#include "node/agent/node_registration.h"
#include "node/agent/object_source.h"
#include "node/agent/pod_manager.h"
#include "node/agent/status_manager.h"
#include "node/engine/image_archive.h"
#include "node/kubelet_api/server.h"
#include "node/net/firewall.h"
#include "node/net/network_state.h"
#include "node/pod/recover.h"

namespace sublet::node {
namespace {

constexpr std::chrono::milliseconds kRetry{1000};

std::string DefaultNodeName() {
  char name[256] = {};
  ::gethostname(name, sizeof(name) - 1);
  std::string out;
  for (const char* c = name; *c != '\0'; ++c) {
    out += *c >= 'A' && *c <= 'Z' ? static_cast<char>(*c - 'A' + 'a') : *c;
  }
  return out.empty() ? "node" : out;
}

std::uint64_t Fnv(std::string_view text) {
  std::uint64_t hash = 1469598103934665603ull;
  for (const char c : text) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ull;
  }
  return hash;
}

// One engine may serve several agents (tests): each knows its own containers by this.
std::string InstanceOf(const NodeOptions& options) {
  char id[32];
  std::snprintf(id, sizeof(id), "-%08llx",
                static_cast<unsigned long long>(Fnv(options.root_directory) & 0xffffffff));
  return (options.node_name.empty() ? DefaultNodeName() : options.node_name) + id;
}

// Sends SIGKILL to a container's process without the engine: its own way takes 0.2 s of waiting.
void KillNow(ContainerEngine& engine, const std::string& id) {
  const auto state = engine.Inspect(id);
  if (!state.ok() || state->pid <= 0) {
    return;
  }
  const int pidfd = static_cast<int>(::syscall(SYS_pidfd_open, state->pid, 0));
  if (pidfd < 0) {
    return;
  }
  // The descriptor holds the process; the cgroup's name says that the number was not given away
  // before.
  if (ReadFile("/proc/" + std::to_string(state->pid) + "/cgroup", 16384).find(id) !=
      std::string::npos) {
    ::syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, nullptr, 0);
  }
  ::close(pidfd);
}

// Removes all containers of the agent, several at once.
Result<void> RemoveContainers(ContainerEngine& engine, const std::string& instance) {
  SUBLET_TRY(const auto list, engine.List(kLabelNode, instance));
  // Members first: a sandbox cannot go before them on every engine.
  std::vector<std::string> ids;
  for (const bool sandboxes : {false, true}) {
    for (const ContainerSummary& summary : list) {
      const auto kind = summary.labels.find(kLabelKind);
      if ((kind != summary.labels.end() && kind->second == "sandbox") == sandboxes) {
        ids.push_back(summary.id);
      }
    }
  }
  for (const std::string& id : ids) {
    KillNow(engine, id);
  }
  std::atomic<std::size_t> next{0};
  Mutex mutex;
  Result<void> result;
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      ::pthread_setname_np(::pthread_self(), "cleanup");
      for (std::size_t at = next.fetch_add(1); at < ids.size(); at = next.fetch_add(1)) {
        if (auto removed = engine.Remove(ids[at]); !removed.ok()) {
          MutexLock lock(mutex);
          result = std::move(removed);
        }
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  return result;
}

// The parts, in the order in which they are made; the last ones end first.
class Agent {
 public:
  Agent(NodeOptions options, const Canceller& stop) : options_(std::move(options)), stop_(stop) {}

  Result<void> Start() {
    SUBLET_RETURN_IF_ERROR(OpenEngineAndNetwork());
    SUBLET_RETURN_IF_ERROR(Connect());
    SUBLET_RETURN_IF_ERROR(MakeRuntime());
    SUBLET_RETURN_IF_ERROR(StartApi());
    return StartPods();
  }

  // Pods and rules stay as they are.
  void Stop() {
    if (dns_ != nullptr) {
      dns_->Stop();
    }
    if (api_ != nullptr) {
      api_->Stop();
    }
    if (registration_ != nullptr) {
      registration_->Stop();
    }
    if (manager_ != nullptr) {
      manager_->Stop();
    }
    if (network_state_ != nullptr) {
      network_state_->Stop();
    }
    if (prober_ != nullptr) {
      prober_->Stop();
      exits_->Stop();
    }
    if (statuses_ != nullptr) {
      statuses_->Stop();
    }
    if (events_ != nullptr) {
      events_->Stop();
    }
    if (informers_ != nullptr) {
      informers_->Stop();
      network_informers_->Stop();
      dns_informers_->Stop();
    }
  }

 private:
  Result<void> OpenEngineAndNetwork() {
    SUBLET_TRY(const std::string socket, FindEngineSocket(options_.engine_socket));
    engine_ = OpenEngine(socket);
    SUBLET_TRY(info_, engine_->Info());
    SUBLET_RETURN_IF_ERROR(EnsurePauseImage(*engine_));
    SUBLET_RETURN_IF_ERROR(MakeDirectories(options_.root_directory, 0755));
    PodNetworkConfig network;
    network.bridge = options_.bridge;
    network.veth_prefix = options_.veth_prefix;
    SUBLET_TRY(network.pod_net, ParseIpv4Net(options_.pod_cidr));
    SUBLET_TRY(network.service_net, ParseIpv4Net(options_.service_cidr));
    network_ = std::make_unique<PodNetwork>(network);
    SUBLET_RETURN_IF_ERROR(network_->Ensure());
    gateway_ = FormatIpv4(network_->gateway());
    if (options_.node_ip.empty()) {
      options_.node_ip = gateway_;
    }
    if (options_.node_name.empty()) {
      options_.node_name = DefaultNodeName();
    }
    return {};
  }

  Result<void> Connect() {
    SUBLET_TRY(const client::Connection connection,
               client::FindConnection(options_.kubeconfig, options_.context));
    authority_pem_ = connection.transport.ca_pem;
    SUBLET_TRY(auto transport, client::MakeHttpTransport(connection.transport));
    client_ = std::make_unique<client::Client>(transport, "sublet-node/v0.1");
    client::Client network = *client_;
    if (!options_.network_context.empty()) {
      SUBLET_TRY(const client::Connection other,
                 client::FindConnection(options_.kubeconfig, options_.network_context));
      SUBLET_TRY(network, client::Connect(other, "sublet-node-network/v0.1"));
    }
    informers_ = std::make_unique<client::InformerFactory>(*client_);
    network_informers_ = std::make_unique<client::InformerFactory>(network);
    dns_informers_ = std::make_unique<client::InformerFactory>(network);
    events_ = std::make_unique<client::EventRecorder>(*client_, "kubelet", options_.node_name,
                                                      SystemClock());
    statuses_ = std::make_unique<StatusManager>(*client_, 3);
    if (options_.serve_services) {
      RulesInput rules;
      rules.table = options_.firewall_table;
      rules.veth_prefix = options_.veth_prefix;
      rules.node_name = options_.node_name;
      rules.pod_net = network_->config().pod_net;
      rules.service_net = network_->config().service_net;
      rules.gateway = network_->gateway();
      network_state_ = std::make_unique<NetworkState>(*network_informers_, std::move(rules));
    }
    if (options_.serve_dns) {
      zone_ = std::make_unique<dns::Zone>(*dns_informers_, options_.cluster_domain);
    }
    return {};
  }

  Result<void> MakeRuntime() {
    PodManager::Options options;
    options.node_name = options_.node_name;
    manager_ = std::make_unique<PodManager>(
        std::move(options), *client_, *informers_, *events_, *statuses_,
        [this](const std::string& namespace_name, bool all) {
          return network_state_ != nullptr ? network_state_->VariablesOf(namespace_name, all)
                                           : Environment{};
        });
    objects_ = std::make_unique<ApiObjects>(
        *client_, *informers_,
        [this](const std::string& pod_uid) { manager_->NoteObjectsChanged(pod_uid); });
    volumes_ =
        std::make_unique<Volumes>(VolumesConfig{options_.root_directory}, *objects_, SystemClock());
    SUBLET_RETURN_IF_ERROR(volumes_->Prepare());
    images_ = std::make_unique<Images>(*engine_, *objects_, options_.parallel_pulls);
    prober_ = std::make_unique<Prober>(*engine_, 16);
    exits_ = std::make_unique<ExitWatcher>();
    const MachineFacts machine = ReadMachineFacts(options_.root_directory);
    PodServicesConfig config;
    config.instance = InstanceOf(options_);
    config.root = options_.root_directory;
    config.runtime_name = info_.kind == EngineKind::kPodman ? "podman" : "docker";
    config.host_ips = {options_.node_ip};
    config.memory_bytes = machine.memory_bytes;
    config.oom_score_floor = LowestOomScore();
    config.allocatable = std::make_shared<const kube::Json>(
        kube::Json{{"cpu", std::to_string(machine.cpus)},
                   {"memory", std::to_string(machine.memory_bytes)},
                   {"ephemeral-storage", std::to_string(machine.disk_bytes)}});
    config.dns.server = !options_.cluster_dns.empty() ? options_.cluster_dns
                        : options_.serve_dns          ? gateway_
                                                      : "";
    config.dns.domain = options_.cluster_domain;
    config.dns.host_resolv = ReadFile("/etc/resolv.conf", 1 << 16);
    config.cdi_folders = options_.cdi_folders;
    services_.reset(new PodServices{std::move(config), *engine_, *network_, *volumes_, *images_,
                                    *prober_, *exits_, *manager_, SystemClock()});
    manager_->Connect(*services_, *objects_);
    return {};
  }

  // The node's serving certificate, kept for the next start.
  Result<SelfSigned> ServingCertificate() {
    const std::string folder = options_.root_directory + "/pki";
    const std::string names = options_.node_name + "," + options_.node_ip;
    SelfSigned pair{ReadFile(folder + "/kubelet.crt", 1 << 16),
                    ReadFile(folder + "/kubelet.key", 1 << 16)};
    if (!pair.certificate_pem.empty() && !pair.key_pem.empty() &&
        ReadFile(folder + "/kubelet.names", 4096) == names) {
      return pair;
    }
    SUBLET_TRY(pair, MakeSelfSigned(options_.node_name,
                                    {options_.node_name, options_.node_ip, "127.0.0.1"}));
    SUBLET_RETURN_IF_ERROR(MakeDirectories(folder, 0700));
    SUBLET_RETURN_IF_ERROR(WriteFile(folder + "/kubelet.key", pair.key_pem, 0600));
    SUBLET_RETURN_IF_ERROR(WriteFile(folder + "/kubelet.crt", pair.certificate_pem, 0644));
    SUBLET_RETURN_IF_ERROR(WriteFile(folder + "/kubelet.names", names, 0644));
    return pair;
  }

  Result<void> StartApi() {
    access_ = std::make_unique<Access>(*client_, options_.node_name, SystemClock());
    SUBLET_TRY(const SelfSigned pair, ServingCertificate());
    KubeletServerOptions options;
    options.address = options_.node_ip;
    options.port = options_.kubelet_port;
    options.certificate_pem = pair.certificate_pem;
    options.key_pem = pair.key_pem;
    options.client_ca_pem = authority_pem_;
    if (!options_.client_ca_file.empty()) {
      options.client_ca_pem = ReadFile(options_.client_ca_file, 1 << 20);
      if (options.client_ca_pem.empty()) {
        return BadRequest("cannot read the client authority " + options_.client_ca_file);
      }
    }
    options.node_name = options_.node_name;
    options.root = options_.root_directory;
    api_ = std::make_unique<KubeletServer>(std::move(options), *manager_, *engine_, *network_,
                                           *access_, SystemClock());
    SUBLET_RETURN_IF_ERROR(api_->Start());
    if (options_.serve_dns) {
      dns::ServerOptions dns;
      dns.address = gateway_;
      dns.port = 53;
      dns.upstreams = dns::SystemResolvers(gateway_);
      SUBLET_TRY(dns_, dns::Server::Open(dns, *zone_));
    }
    return {};
  }

  bool Stopping() const { return stop_.cancelled(); }

  // Waits for the API server as long as it takes: pods that run go on meanwhile.
  Result<void> StartPods() {
    exits_->Start();
    statuses_->Start();
    informers_->Start();
    network_informers_->Start();
    dns_informers_->Start();
    NodeFacts facts;
    facts.name = options_.node_name;
    facts.addresses = {options_.node_ip};
    facts.kubelet_port = api_->port();
    facts.pods_max = options_.pods_max;
    facts.labels = options_.labels;
    facts.extra_resources = options_.extra_resources;
    facts.pod_net = network_->config().pod_net.Text();
    registration_ = std::make_unique<NodeRegistration>(*client_, *engine_, std::move(facts),
                                                       options_.root_directory, SystemClock());
    for (bool said = false; !Stopping();) {
      auto registered = registration_->Register();
      if (registered.ok()) {
        break;
      }
      if (!said) {
        log::Warn("cannot register the node yet", {{"error", registered.error()}});
        said = true;
      }
      std::this_thread::sleep_for(kRetry);
    }
    while (!Stopping() && !manager_->WaitSynced(After(kRetry))) {
    }
    if (Stopping()) {
      return {};
    }
    SUBLET_TRY(auto recovered, RecoverPods(*engine_, services_->config.instance));
    registration_->Start();
    if (network_state_ != nullptr) {
      network_state_->Start();
    }
    log::Info("node agent runs", {{"node", options_.node_name},
                                  {"engine", services_->config.runtime_name},
                                  {"version", info_.version},
                                  {"address", options_.node_ip},
                                  {"port", api_->port()},
                                  {"recovered", recovered.size()}});
    manager_->Start(std::move(recovered));
    return {};
  }

  NodeOptions options_;
  const Canceller& stop_;
  EngineInfo info_;
  std::string gateway_;
  std::string authority_pem_;
  std::unique_ptr<ContainerEngine> engine_;
  std::unique_ptr<PodNetwork> network_;
  std::unique_ptr<client::Client> client_;
  std::unique_ptr<client::InformerFactory> informers_;
  std::unique_ptr<client::InformerFactory> network_informers_;
  std::unique_ptr<client::InformerFactory> dns_informers_;
  std::unique_ptr<client::EventRecorder> events_;
  std::unique_ptr<StatusManager> statuses_;
  std::unique_ptr<NetworkState> network_state_;
  std::unique_ptr<dns::Zone> zone_;
  std::unique_ptr<PodManager> manager_;
  std::unique_ptr<ApiObjects> objects_;
  std::unique_ptr<Volumes> volumes_;
  std::unique_ptr<Images> images_;
  std::unique_ptr<Prober> prober_;
  std::unique_ptr<ExitWatcher> exits_;
  std::unique_ptr<PodServices> services_;
  std::unique_ptr<NodeRegistration> registration_;
  std::unique_ptr<Access> access_;
  std::unique_ptr<KubeletServer> api_;
  std::unique_ptr<dns::Server> dns_;
};

}  // namespace

int RunNode(const NodeOptions& options) {
  // Before any thread starts, so that all of them leave these signals to the waiter below.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
  ::umask(022);

  Canceller stop;
  Agent agent(options, stop);
  int code = 0;
  std::thread starter([&] {
    ::pthread_setname_np(::pthread_self(), "start");
    if (auto started = agent.Start(); !started.ok()) {
      std::fprintf(stderr, "sublet node: %s\n", started.error().message().c_str());
      code = 1;
      ::kill(::getpid(), SIGTERM);
    }
  });
  int number = 0;
  ::sigwait(&signals, &number);
  stop.Cancel();
  starter.join();
  agent.Stop();
  return code;
}

int CleanUpNode(const NodeOptions& options) {
  int code = 0;
  const auto note = [&code](const char* what, const Result<void>& result) {
    if (!result.ok()) {
      std::fprintf(stderr, "sublet node --cleanup: %s: %s\n", what,
                   result.error().message().c_str());
      code = 1;
    }
  };
  auto socket = FindEngineSocket(options.engine_socket);
  if (socket.ok()) {
    const auto engine = OpenEngine(*socket);
    auto removed = RemoveContainers(*engine, InstanceOf(options));
    if (!removed.ok()) {
      removed = RemoveContainers(*engine, InstanceOf(options));  // what waited for others
    }
    note("containers", removed);
  } else {
    note("containers", Result<void>(socket.error()));
  }
  auto rules = RemoveRules(options.firewall_table);
  if (rules.ok()) {
    rules = PassForwardPolicy(options.veth_prefix, false);
  }
  note("firewall rules", rules);
  PodNetworkConfig network;
  network.bridge = options.bridge;
  network.veth_prefix = options.veth_prefix;
  note("network links", PodNetwork(network).Remove());
  UnmountBelow(options.root_directory);
  note("files", RemoveTree(options.root_directory));
  return code;
}

}  // namespace sublet::node
