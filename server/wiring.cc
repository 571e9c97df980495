// The order in which a control plane is put together. Members are declared in that order, so that
// what uses something is always gone before it.
#include <sys/stat.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "apiserver/admission/registry.h"
#include "apiserver/auth/impersonation.h"
#include "apiserver/auth/pki.h"
#include "apiserver/auth/rbac_admission.h"
#include "apiserver/auth/store_views.h"
#include "apiserver/crd/definition_controller.h"
#include "apiserver/handlers/api_handler.h"
#include "apiserver/handlers/fresh_trees.h"
#include "apiserver/handlers/subresources.h"
#include "apiserver/handlers/timer_queue.h"
#include "apiserver/health.h"
#include "apiserver/http/listener.h"
#include "apiserver/loopback_transport.h"
#include "apiserver/metrics_handler.h"
#include "apiserver/pipeline.h"
#include "apiserver/registry/builtin.h"
#include "apiserver/registry/object_codec.h"
#include "apiserver/tunnel/kubelet_dialer.h"
#include "apiserver/tunnel/tunnel_service.h"
#include "base/log.h"
#include "server/bootstrap.h"
#include "server/control_plane.h"
#include "server/flow_table.h"
#include "server/gpu_admission.h"
#include "server/host_services.h"
#include "server/identity_endpoints.h"
#include "server/kai_admission.h"
#include "server/node_kubeconfig.h"
#include "server/own_endpoints.h"
#include "server/parts.h"
#include "server/scheduler_part.h"

namespace sublet::server {
namespace {

using namespace apiserver;  // NOLINT(google-build-using-namespace): wiring names little else

constexpr std::chrono::seconds kDrain(5);
constexpr std::chrono::hours kRenewEvery(1);

bool IsAnyAddress(const std::string& address) { return address == "0.0.0.0" || address == "::"; }

std::string UrlOf(const std::string& address, std::uint16_t port) {
  const std::string host = address == "0.0.0.0" ? "127.0.0.1" : address == "::" ? "::1" : address;
  const bool is_v6 = host.find(':') != std::string::npos;
  return "https://" + (is_v6 ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

// Where the certificate authority lives, and every name and address under which this server is
// reached: its certificate carries them all.
PkiOptions ServingNames(const ControlPlaneOptions& options, const std::string& host_address) {
  PkiOptions pki;
  pki.directory = options.data_directory + "/pki";
  pki.cluster_domain = options.config.cluster_domain;
  pki.server_ip_addresses = {"10.96.0.1"};
  if (!options.pod_listen_address.empty()) {
    pki.server_ip_addresses.push_back(options.pod_listen_address);
  }
  if (!IsAnyAddress(options.listen_address) && options.listen_address != "127.0.0.1") {
    pki.server_ip_addresses.push_back(options.listen_address);
  }
  if (!options.tenant.empty()) {
    // Under these names the tenant is reached on its host, by its own pods at the Service's
    // address.
    const std::string qualified = options.tenant + "." + options.host_namespace;
    for (const std::string& name : {options.tenant, qualified, qualified + ".svc"}) {
      pki.server_dns_names.push_back(name);
    }
    const char* pod_ip = std::getenv("POD_IP");
    for (const std::string& address :
         {host_address, std::string(pod_ip == nullptr ? "" : pod_ip)}) {
      if (!address.empty()) {
        pki.server_ip_addresses.push_back(address);
      }
    }
  }
  for (const auto& name : options.config.control_plane.extra_sans) {
    const bool is_address = name.find_first_not_of("0123456789.") == std::string::npos ||
                            name.find(':') != std::string::npos;
    (is_address ? pki.server_ip_addresses : pki.server_dns_names).push_back(name);
  }
  return pki;
}

void AppendStorageMetrics(const storage::Store& store, const Catalog& catalog, std::string& out) {
  const auto stats = store.Stats();
  Metrics::AppendSample(out, "apiserver_storage_size_bytes",
                        "Size of the storage database file physically allocated in bytes.", "gauge",
                        static_cast<double>(stats.file_bytes), "storage_cluster_id=\"sqlite\"");
  Metrics::AppendSample(
      out, "sublet_storage_syncs_total",
      "Calls of fdatasync since the start; writes that commit together share one.", "counter",
      static_cast<double>(stats.syncs));
  Metrics::AppendSample(out, "sublet_storage_transactions_total",
                        "Committed transactions since the start.", "counter",
                        static_cast<double>(stats.transactions));
  out +=
      "# HELP apiserver_resource_objects Number of stored objects at the time of last check split "
      "by kind.\n# TYPE apiserver_resource_objects gauge\n";
  for (const auto& resource : catalog.StoredResources()) {
    out += "apiserver_resource_objects{group=\"" + resource->group() + "\",resource=\"" +
           resource->plural() + "\"} " + std::to_string(store.Count(resource->type->prefix)) + "\n";
  }
}

class Wiring final : public ControlPlane {
 public:
  explicit Wiring(const ControlPlaneOptions& options) : options_(options) {}
  ~Wiring() override { Stop(); }

  Result<void> Open();
  Result<void> Check() {
    SUBLET_RETURN_IF_ERROR(OpenStorage());
    return OpenIdentity();
  }
  std::uint16_t port() const override { return listener_->port(); }
  std::string url() const override { return UrlOf(options_.listen_address, port()); }
  std::shared_ptr<client::Transport> Loopback(const std::string& user) override {
    return MakeLoopback(*server_, user);
  }
  void Stop() override;

 private:
  Result<void> OpenStorage();
  Result<void> OpenIdentity();
  Result<void> OpenApi();
  Result<void> OpenParts();
  void AddRoutes();
  Result<void> OpenListenerAndServe();
  Result<void> WriteKubeconfig() const;
  void PublishEndpoints(const BootstrapFacts& facts);
  void ArmRenewal();
  void RenewCertificates();
  TlsMaterial Tls() const;

  const ControlPlaneOptions options_;
  std::string host_address_;  // of the tenant's Service on its host; "" = no host, or not known
  bool stopped_ = false;
  Metrics metrics_;
  std::vector<ResourcePtr> builtin_;
  std::unique_ptr<storage::Store> store_;
  std::unique_ptr<CatalogHolder> catalog_;
  std::unique_ptr<Pki> pki_;
  // Identity.
  std::unique_ptr<StoreTokenObjects> token_objects_;
  std::unique_ptr<ServiceAccountTokens> tokens_;
  std::unique_ptr<Authenticator> authenticator_;
  std::unique_ptr<StoreRbacSource> rbac_;
  std::unique_ptr<StoreNodeGraph> node_graph_;
  std::unique_ptr<Authorizer> authorizer_;
  std::unique_ptr<AccessReviews> reviews_;
  std::unique_ptr<FlowTable> flows_;
  // API.
  std::shared_ptr<HostServices> host_services_;
  AdmissionChain admission_;
  std::unique_ptr<TimerQueue> timers_;
  std::unique_ptr<FreshTrees> fresh_trees_;
  std::unique_ptr<DefinitionController> definitions_;
  ApiContext context_;
  std::unique_ptr<KubeletDialer> kubelet_dialer_;
  std::unique_ptr<TunnelService> tunnels_;
  std::unique_ptr<ApiHandler> api_;
  std::unique_ptr<OpenIdHandler> open_id_;
  HealthHandler health_;
  std::unique_ptr<MetricsHandler> metrics_handler_;
  Router router_;
  std::unique_ptr<Server> server_;
  std::unique_ptr<Parts> parts_;
  std::unique_ptr<Listener> listener_;
  std::unique_ptr<Listener> pod_listener_;
};

Result<void> Wiring::OpenStorage() {
  if (::mkdir(options_.data_directory.c_str(), 0700) != 0 && errno != EEXIST) {
    return Status(
        errno == EACCES || errno == EPERM ? Reason::kForbidden : Reason::kBadRequest,
        "cannot make the data directory " + options_.data_directory + ": " + std::strerror(errno));
  }
  builtin_ = BuiltinResources();
  catalog_ = std::make_unique<CatalogHolder>(builtin_);
  storage::StoreOptions options;
  options.directory = options_.data_directory;
  options.make_attachment = MakeAttachmentFactory(builtin_);
  SUBLET_TRY(store_, storage::OpenSqliteStore(std::move(options)));
  return {};
}

Result<void> Wiring::OpenIdentity() {
  host_address_ = options_.tenant.empty() ? "" : HostServiceAddress(options_);
  SUBLET_TRY(pki_, Pki::Open(ServingNames(options_, host_address_), SystemClock()));
  SUBLET_TRY(auto key, JwtKey::FromPem(pki_->service_account_key()));
  token_objects_ = std::make_unique<StoreTokenObjects>(*store_);
  TokenServiceOptions tokens;
  tokens.issuer = "https://kubernetes.default.svc." + options_.config.cluster_domain;
  tokens_ = std::make_unique<ServiceAccountTokens>(
      std::move(tokens), std::vector<std::shared_ptr<const JwtKey>>{std::move(key)},
      *token_objects_, SystemClock());
  authenticator_ = std::make_unique<Authenticator>(AuthenticatorOptions{}, tokens_.get());
  rbac_ = std::make_unique<StoreRbacSource>(*store_);
  node_graph_ = std::make_unique<StoreNodeGraph>(*store_);
  authorizer_ = std::make_unique<Authorizer>(*rbac_, node_graph_.get());
  reviews_ = std::make_unique<AccessReviews>(*authorizer_, *authenticator_);
  return {};
}

Result<void> Wiring::OpenApi() {
  timers_ = std::make_unique<TimerQueue>();
  fresh_trees_ = std::make_unique<FreshTrees>(*timers_);
  AdmissionEnvironment environment{
      .store = store_.get(), .catalog = catalog_.get(), .clock = &SystemClock()};
  if (!options_.tenant.empty() && !options_.config.pod_security.empty()) {
    // Differs: a namespace that says nothing is privileged in Kubernetes. Here the host refuses
    // what is above the tenant's standard anyway (syncer/kinds/pod_syncer.h), so it is said at
    // once.
    environment.pod_security_default = options_.config.pod_security;
  }
  if (!options_.tenant.empty() && options_.config.services) {
    host_services_ = std::make_shared<HostServices>();
    environment.addresses = host_services_;
  }
  environment.guard_ingress_hosts = options_.role == Role::kHost;
  environment.allows = [this](const User& user, const AccessQuestion& asked) {
    return context_.authorize(user, asked).ok();
  };
  admission_ = MakeAdmissionChain(environment);
  admission_.Add(RbacEscalation(*authorizer_));
  if (options_.config.control_plane.kai_crds) {
    std::vector<scheduler::Profile> profiles;
    if (options_.config.control_plane.scheduler_enabled) {
      SUBLET_TRY(profiles, ProfilesOf(options_.config));
    }
    admission_.Add(KaiAdmission(environment, std::move(profiles)));
  }
  admission_.Add(GpuAdmission(
      {options_.config.control_plane.gpu_enforce == "on" ? gpu::Enforce::kOn : gpu::Enforce::kOff,
       options_.role == Role::kTenant}));
  flows_ = std::make_unique<FlowTable>(*store_, *catalog_->Get());
  context_.store = store_.get();
  context_.clock = &SystemClock();
  context_.catalog = catalog_.get();
  context_.admission = &admission_;
  context_.timers = timers_.get();
  context_.fresh_trees = fresh_trees_.get();
  context_.offload = [this](std::function<void()> work) {
    return server_->Offload(std::move(work));
  };
  context_.authorize = [this](const User& user, const AccessQuestion& asked) -> Result<void> {
    const Attributes attributes{.user = &user,
                                .verb = asked.verb,
                                .group = asked.group,
                                .version = asked.version,
                                .resource = asked.resource,
                                .subresource = asked.subresource,
                                .namespace_name = asked.namespace_name,
                                .name = asked.name};
    const Decision decision = authorizer_->Authorize(attributes);
    return decision.allowed ? Ok() : ForbiddenStatus(attributes, decision.reason);
  };
  AddIdentityExtensions(context_, *reviews_, *tokens_);
  AddPodSubresources(context_);
  ServerOptions options;
  options.flow_of = [this](const User& user) { return flows_->Of(user); };
  server_ = std::make_unique<Server>(std::move(options), *authenticator_, *authorizer_, router_,
                                     metrics_);
  return Ok();
}

Result<void> Wiring::OpenParts() {
  SUBLET_TRY(parts_, Parts::Make({options_, *store_, SystemClock(), pki_->authority_certificate(),
                                  pki_->admin(),
                                  [this](const std::string& user) { return Loopback(user); }}));
  kubelet_dialer_ = std::make_unique<KubeletDialer>(
      *store_, KubeletDialerOptions{[this] { return pki_->kubelet_client(); }, ""});
  if (host_services_) {
    host_services_->UseSyncer(parts_->syncer());
  }
  NodeDialer* host = parts_->dialer();
  tunnels_ = std::make_unique<TunnelService>(context_, host != nullptr ? *host : *kubelet_dialer_);
  tunnels_->AddTo(context_);
  return {};
}

void Wiring::AddRoutes() {
  api_ = std::make_unique<ApiHandler>(&context_, url().substr(std::strlen("https://")));
  open_id_ = std::make_unique<OpenIdHandler>(*tokens_, url());
  metrics_handler_ = std::make_unique<MetricsHandler>(metrics_);
  health_.Add({"ping", [] { return Ok(); }, false});
  health_.Add({"log", [] { return Ok(); }, false});
  health_.Add({"etcd",
               [this]() -> Result<void> {
                 return store_->CurrentRevision() > 0
                            ? Ok()
                            : Result<void>(InternalError("the store holds no revision"));
               },
               false});
  for (const char* path : {"/healthz", "/livez", "/readyz"}) {
    router_.AddPath(path, health_);
    router_.AddPrefix(std::string(path) + "/", health_);
  }
  router_.AddPath("/metrics", *metrics_handler_, true);
  router_.AddPath("/.well-known/openid-configuration", *open_id_);
  router_.AddPath("/openid/v1/jwks", *open_id_);
  router_.AddPrefix("/sublet/scheduler/", parts_->scheduler(), true);
  router_.AddPrefix("/", *api_);
  router_.SetResources(*api_);
  metrics_.OnScrape([this](std::string& out) { parts_->scheduler().AppendMetrics(out); });
  metrics_.OnScrape(
      [this](std::string& out) { AppendStorageMetrics(*store_, *catalog_->Get(), out); });
}

TlsMaterial Wiring::Tls() const {
  const KeyPair serving = pki_->serving();
  return {serving.certificate, serving.key, pki_->authority_certificate()};
}

Result<void> Wiring::OpenListenerAndServe() {
  ListenerOptions options;
  options.address = options_.listen_address;
  options.port = options_.listen_port;
  options.tls = Tls();
  const auto files = RaiseFileLimit();
  if (files > 512) {
    options.connections_max = std::min<std::size_t>(options.connections_max, files - 256);
  }
  SUBLET_TRY(listener_, OpenListener(options, *server_));
  if (!options_.pod_listen_address.empty()) {
    options.address = options_.pod_listen_address;
    options.port = options_.pod_listen_port;
    options.free_bind = true;
    options.io_threads = 1;
    SUBLET_TRY(pod_listener_, OpenListener(options, *server_));
  }
  return {};
}

Result<void> Wiring::WriteKubeconfig() const {
  if (!options_.node_kubeconfig_path.empty()) {
    SUBLET_TRY(const std::string text, MakeNodeKubeconfig(pki_->authority(), url(),
                                                          options_.node_name, SystemClock().Now()));
    SUBLET_RETURN_IF_ERROR(WriteFileAtomically(options_.node_kubeconfig_path, text, 0600));
  }
  if (options_.kubeconfig_path.empty()) {
    return {};
  }
  return WriteFileAtomically(
      options_.kubeconfig_path,
      MakeKubeconfig("sublet", url(), pki_->authority_certificate(), pki_->admin()), 0600);
}

Result<void> Wiring::Open() {
  SUBLET_RETURN_IF_ERROR(OpenStorage());
  SUBLET_RETURN_IF_ERROR(OpenIdentity());
  BootstrapFacts facts;
  facts.authority_certificate = pki_->authority_certificate();
  facts.local_volumes = options_.role == Role::kHost;
  if (!host_address_.empty()) {
    facts.service_ip = host_address_;  // Service kubernetes stands for the tenant's own on the host
  }
  const bool for_pods = !options_.pod_listen_address.empty();
  facts.endpoint_ip = for_pods ? options_.pod_listen_address : options_.listen_address;
  facts.endpoint_port = for_pods                    ? options_.pod_listen_port
                        : options_.listen_port == 0 ? 6443
                                                    : options_.listen_port;
  SUBLET_RETURN_IF_ERROR(
      Bootstrap(*store_, *catalog_->Get(), SystemClock().Now(), BootstrapObjects(facts)));
  SUBLET_RETURN_IF_ERROR(OpenApi());
  SUBLET_RETURN_IF_ERROR(OpenParts());
  SUBLET_RETURN_IF_ERROR(OpenListenerAndServe());
  AddRoutes();
  server_->Start();
  definitions_ = std::make_unique<DefinitionController>(&context_);
  SUBLET_RETURN_IF_ERROR(definitions_->Start());
  tunnels_->Start();
  listener_->Start();
  if (pod_listener_) {
    pod_listener_->Start();
  }
  PublishEndpoints(facts);
  SUBLET_RETURN_IF_ERROR(WriteKubeconfig());
  if (!options_.api_only) {
    parts_->Start();
  }
  ArmRenewal();
  return {};
}

void Wiring::PublishEndpoints(const BootstrapFacts& facts) {
  // In a pod the API is reached at the pod's address; on every address, at this machine's loopback.
  const char* pod_ip = std::getenv("POD_IP");
  std::string ip = facts.endpoint_ip;
  if (IsAnyAddress(ip)) {
    ip = pod_ip != nullptr && *pod_ip != '\0' ? pod_ip : "127.0.0.1";
  }
  // The API refuses loopback addresses in endpoints: a server that only this machine reaches has
  // none.
  if (ip.starts_with("127.") || ip == "::1") {
    return;
  }
  const client::Client client(Loopback("system:apiserver"), "kube-apiserver/sublet");
  if (const auto published = PublishOwnEndpoints(client, ip, facts.endpoint_port);
      !published.ok()) {
    log::Warn("cannot publish the endpoints of Service kubernetes", {{"error", published.error()}});
  }
}

void Wiring::ArmRenewal() {
  timers_->Add(std::chrono::steady_clock::now() + kRenewEvery, [this] {
    server_->Offload([this] { RenewCertificates(); });
    ArmRenewal();
  });
}

void Wiring::RenewCertificates() {
  const auto changed = pki_->Renew();
  if (!changed.ok()) {
    log::Error("cannot renew certificates", {{"error", changed.error()}});
    return;
  }
  if (!*changed) {
    return;
  }
  log::Info("certificates renewed");
  const auto pods = pod_listener_ ? pod_listener_->SetTls(Tls()) : Ok();
  for (const auto& result : {listener_->SetTls(Tls()), pods, WriteKubeconfig()}) {
    if (!result.ok()) {
      log::Error("cannot use the renewed certificates", {{"error", result.error()}});
    }
  }
}

void Wiring::Stop() {
  if (stopped_) {
    return;
  }
  stopped_ = true;
  health_.BeginShutdown();
  if (parts_) {
    parts_->Stop();
  }
  for (const auto& listener : {listener_.get(), pod_listener_.get()}) {
    if (listener != nullptr) {
      listener->Stop(kDrain);
    }
  }
  if (tunnels_) {
    tunnels_->Stop();
  }
  if (definitions_) {
    definitions_->Stop();
  }
  if (timers_) {
    timers_->Stop();
  }
  if (server_) {
    server_->Stop();
  }
  if (store_) {
    store_->Stop();
  }
}

}  // namespace

Result<void> ControlPlane::Check(const ControlPlaneOptions& options) {
  Wiring wiring(options);
  return wiring.Check();
}

Result<std::unique_ptr<ControlPlane>> ControlPlane::Open(const ControlPlaneOptions& options) {
  auto wiring = std::make_unique<Wiring>(options);
  SUBLET_RETURN_IF_ERROR(wiring->Open());
  return std::unique_ptr<ControlPlane>(std::move(wiring));
}

}  // namespace sublet::server
