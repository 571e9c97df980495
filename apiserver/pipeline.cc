#include "apiserver/pipeline.h"

#include <pthread.h>

#include <array>

#include "apiserver/auth/impersonation.h"
#include "apiserver/status_response.h"
#include "base/log.h"
#include "base/random.h"
#include "kube/timestamp.h"

namespace sublet::apiserver {

struct Server::Counters {
  explicit Counters(Metrics& metrics)
      : id(NextId()),
        requests(metrics.Counter(
            "apiserver_request_total",
            "Counter of apiserver requests broken out for each verb, dry run value, group, "
            "version, resource, scope, component, and HTTP response code.",
            {"code", "component", "dry_run", "group", "resource", "scope", "subresource", "verb",
             "version"})),
        durations(metrics.Histogram(
            "apiserver_request_duration_seconds",
            "Response latency distribution in seconds for each verb, dry run value, group, "
            "version, resource, subresource, scope and component.",
            {"component", "dry_run", "group", "resource", "scope", "subresource", "verb",
             "version"})),
        long_running(metrics.Gauge(
            "apiserver_longrunning_requests",
            "Gauge of all active long-running apiserver requests broken out by verb, group, "
            "version, resource, scope and component. Not all requests are tracked this way.",
            {"component", "group", "resource", "scope", "subresource", "verb", "version"})),
        inflight_gauge(metrics.Gauge("apiserver_current_inflight_requests",
                                     "Maximal number of currently used inflight request limit of "
                                     "this apiserver per request kind in last second.",
                                     {"request_kind"})),
        reading(inflight_gauge.With({"readOnly"})),
        writing(inflight_gauge.With({"mutating"})) {}

  static std::uint64_t NextId() {
    static std::atomic<std::uint64_t> next{1};
    return next.fetch_add(1);
  }

  const std::uint64_t id;  // never used twice, unlike an address
  MetricFamily<MetricValue>& requests;
  MetricFamily<MetricHistogram>& durations;
  MetricFamily<MetricValue>& long_running;
  MetricFamily<MetricValue>& inflight_gauge;
  MetricValue& reading;
  MetricValue& writing;
};

namespace {

std::string_view MetricVerb(const Request& request) {
  const RequestInfo& info = request.info;
  if (info.subresource == "exec" || info.subresource == "attach" ||
      info.subresource == "portforward" || info.subresource == "proxy") {
    return "CONNECT";
  }
  static constexpr std::array<std::pair<std::string_view, std::string_view>, 8> kVerbs = {
      {{"get", "GET"},
       {"list", "LIST"},
       {"watch", "WATCH"},
       {"create", "POST"},
       {"update", "PUT"},
       {"patch", "PATCH"},
       {"delete", "DELETE"},
       {"deletecollection", "DELETECOLLECTION"}}};
  for (const auto& [verb, text] : kVerbs) {
    if (info.verb == verb) {
      return text;
    }
  }
  return "other";
}

std::string_view MetricScope(const RequestInfo& info) {
  if (!info.is_resource) {
    return "";
  }
  return !info.name.empty() || info.verb == "create" ? "resource"
         : !info.namespace_name.empty()              ? "namespace"
                                                     : "cluster";
}

// A version 4 UUID; unique, not secret: a generator per thread, seeded from the kernel.
std::string NewAuditId() {
  thread_local std::uint64_t state[2] = {RandomUint64() | 1, RandomUint64()};
  const auto next = [] {
    std::uint64_t x = state[0];
    const std::uint64_t y = state[1];
    state[0] = y;
    x ^= x << 23;
    state[1] = x ^ y ^ (x >> 17) ^ (y >> 26);
    return state[1] + y;
  };
  static constexpr char kHex[] = "0123456789abcdef";
  std::uint64_t bits = next();
  int left = 16;
  std::string id(36, '-');
  for (std::size_t i = 0; i < id.size(); ++i) {
    if (i == 8 || i == 13 || i == 18 || i == 23) {
      continue;
    }
    if (left == 0) {
      bits = next();
      left = 16;
    }
    unsigned nibble = bits & 0xf;
    bits >>= 4;
    --left;
    if (i == 14) {
      nibble = 4;
    } else if (i == 19) {
      nibble = 8 | (nibble & 3);
    }
    id[i] = kHex[nibble];
  }
  return id;
}

bool IsMutating(const RequestInfo& info) {
  return info.verb != "get" && info.verb != "list" && info.verb != "watch" && info.verb != "head";
}

Response TextResponse(int code, std::string text) {
  Response response;
  response.code = code;
  response.content_type = "text/plain; charset=utf-8";
  response.headers = {{"X-Content-Type-Options", "nosniff"}};
  response.body = Body(std::move(text));
  return response;
}

Attributes AttributesOf(const Request& request) {
  const RequestInfo& info = request.info;
  return {.user = &request.user,
          .verb = info.verb,
          .is_resource = info.is_resource,
          .group = info.group,
          .version = info.version,
          .resource = info.resource,
          .subresource = info.subresource,
          .namespace_name = info.namespace_name,
          .name = info.name.empty() ? std::string_view(info.selected_name) : info.name,
          .path = request.path};
}

// Keeps the gauge of long running requests right for as long as the stream lives.
class CountedStream final : public ByteStream {
 public:
  CountedStream(std::unique_ptr<ByteStream> stream, MetricValue& gauge)
      : stream_(std::move(stream)), gauge_(gauge) {
    gauge_.Add();
  }
  ~CountedStream() override { gauge_.Add(-1); }
  State Pull(std::vector<Body::Piece>& out, std::size_t bytes_max) override {
    return stream_->Pull(out, bytes_max);
  }
  void Start(std::function<void()> wake) override { stream_->Start(std::move(wake)); }

 private:
  std::unique_ptr<ByteStream> stream_;
  MetricValue& gauge_;
};

}  // namespace

bool IsLongRunning(const RequestInfo& info) {
  if (!info.is_resource) {
    return false;
  }
  if (info.verb == "watch") {
    return true;
  }
  return info.subresource == "attach" || info.subresource == "exec" ||
         info.subresource == "proxy" || info.subresource == "log" ||
         info.subresource == "portforward";
}

// Between handler and transport: completes each answer and counts it, exactly once.
class Server::PipelineResponder final : public Responder {
 public:
  PipelineResponder(std::shared_ptr<Counters> counters, ResponderPtr inner, const Request& request)
      : counters_(std::move(counters)),
        inner_(std::move(inner)),
        info_(request.info),
        verb_(MetricVerb(request)),
        is_dry_run_(request.query.Has("dryRun")),
        in_process_(request.loopback),
        audit_id_(request.audit_id),
        start_(std::chrono::steady_clock::now()) {}
  ~PipelineResponder() override { LeaveInflight(); }

  void Send(Response response) override {
    Finish(response);
    inner_->Send(std::move(response));
    LeaveInflight();
  }
  void SendStream(Response head, std::unique_ptr<ByteStream> stream) override {
    MetricValue& gauge =
        counters_->long_running.With({"apiserver", info_.group, info_.resource, MetricScope(info_),
                                      info_.subresource, verb_, info_.version});
    Finish(head);
    inner_->SendStream(std::move(head), std::make_unique<CountedStream>(std::move(stream), gauge));
    LeaveInflight();
  }
  void SendUpgrade(Response head, Upgrade upgrade) override {
    Finish(head);
    inner_->SendUpgrade(std::move(head), std::move(upgrade));
    LeaveInflight();
  }
  void AnswerBy(Deadline deadline) override { inner_->AnswerBy(deadline); }

  void set_flow(FlowNames flow) { flow_ = std::move(flow); }
  // Takes a place among the requests in flight; false when there is none.
  bool EnterInflight(bool is_mutating, int max, bool is_exempt) {
    MetricValue& gauge = is_mutating ? counters_->writing : counters_->reading;
    gauge.Add(1);
    inflight_ = &gauge;
    if (gauge.Get() > max && !is_exempt) {
      LeaveInflight();
      return false;
    }
    return true;
  }

 private:
  void LeaveInflight() {
    if (inflight_ != nullptr) {
      inflight_->Add(-1);
      inflight_ = nullptr;
    }
  }

  void Finish(Response& response) {
    if (!in_process_) {
      bool has_cache_control = false;
      for (const auto& header : response.headers) {
        has_cache_control = has_cache_control || header.first == "Cache-Control";
      }
      response.headers.emplace_back("Audit-Id", std::move(audit_id_));
      if (!has_cache_control) {
        response.headers.emplace_back("Cache-Control", "no-cache, private");
      }
      if (!flow_.flow_schema.empty()) {
        response.headers.emplace_back("X-Kubernetes-Pf-Flowschema-Uid",
                                      std::move(flow_.flow_schema));
        response.headers.emplace_back("X-Kubernetes-Pf-Prioritylevel-Uid",
                                      std::move(flow_.priority_level));
      }
    }
    const CountedAs counted = Find(response.code);
    counted.requests->Add();
    if (!IsLongRunning(info_)) {
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start_;
      counted.durations->Observe(took.count());
    }
  }

  struct CountedAs {
    MetricValue* requests = nullptr;
    MetricHistogram* durations = nullptr;
  };
  struct Remembered {
    std::uint64_t owner = 0;
    std::string key;
    CountedAs counted;
  };

  // The members this answer counts for. Building nine labels and looking them up costs more than
  // the rest of the pipeline, so each thread remembers the last few kinds of request.
  CountedAs Find(int code) const {
    thread_local std::array<Remembered, 32> remembered;
    thread_local std::string key;
    const std::string_view dry_run = is_dry_run_ ? "All" : "";
    const std::string_view scope = MetricScope(info_);
    key.assign(1, static_cast<char>(code & 0x7f)).push_back(static_cast<char>(code >> 7));
    for (const std::string_view part :
         {verb_, dry_run, scope, std::string_view(info_.group), std::string_view(info_.version),
          std::string_view(info_.resource), std::string_view(info_.subresource)}) {
      key.append(part).push_back('\0');
    }
    Remembered& slot = remembered[std::hash<std::string_view>()(key) % remembered.size()];
    if (slot.owner != counters_->id || slot.key != key) {
      slot.owner = counters_->id;
      slot.key = key;
      slot.counted = {&counters_->requests.With({std::to_string(code), "apiserver", dry_run,
                                                 info_.group, info_.resource, scope,
                                                 info_.subresource, verb_, info_.version}),
                      &counters_->durations.With({"apiserver", dry_run, info_.group, info_.resource,
                                                  scope, info_.subresource, verb_, info_.version})};
    }
    return slot.counted;
  }

  const std::shared_ptr<Counters> counters_;
  const ResponderPtr inner_;
  const RequestInfo info_;
  const std::string_view verb_;
  const bool is_dry_run_;
  const bool in_process_;
  std::string audit_id_;
  FlowNames flow_;
  const MonotonicTime start_;
  MetricValue* inflight_ = nullptr;
};

Server::Server(ServerOptions options, const Authenticator& authenticator,
               const Authorizer& authorizer, const Router& router, Metrics& metrics)
    : options_(std::move(options)),
      authenticator_(authenticator),
      authorizer_(authorizer),
      router_(router),
      counters_(std::make_shared<Counters>(metrics)),
      queue_(options_.request_queue_max) {}

Server::~Server() { Stop(); }

void Server::Start() {
  for (int i = 0; i < options_.request_threads; ++i) {
    threads_.emplace_back([this, i] {
      pthread_setname_np(pthread_self(), ("request-" + std::to_string(i)).c_str());
      while (auto work = queue_.Pop()) {
        (*work)();
      }
    });
  }
}

void Server::Stop() {
  queue_.Close();
  for (auto& thread : threads_) {
    thread.join();
  }
  threads_.clear();
}

bool Server::Offload(std::function<void()> work) { return queue_.Push(std::move(work)); }

Result<void> Server::SetDeadline(Request& request) const {
  if (IsLongRunning(request.info)) {
    return {};
  }
  std::chrono::nanoseconds timeout = options_.request_timeout;
  const auto asked = request.query.Get("timeout");
  if (!asked.empty()) {
    auto parsed = kube::ParseDuration(asked);
    if (!parsed.ok()) {
      return BadRequest("invalid timeout specified in the request URL - " +
                        parsed.error().message());
    }
    if (*parsed < std::chrono::nanoseconds(0)) {
      return BadRequest("invalid timeout specified in the request URL - timeout is negative");
    }
    if (*parsed > std::chrono::nanoseconds(0)) {
      timeout = std::min(timeout, *parsed);
    }
  }
  const Deadline deadline = std::chrono::steady_clock::now() +
                            std::chrono::duration_cast<MonotonicTime::duration>(timeout);
  request.deadline = std::min(request.deadline, deadline);
  return {};
}

Result<void> Server::CheckAuthorized(const Request& request) const {
  // As kube-apiserver's --authorization-always-allow-paths.
  if (!request.info.is_resource &&
      (request.path == "/healthz" || request.path == "/livez" || request.path == "/readyz")) {
    return {};
  }
  const Attributes attributes = AttributesOf(request);
  const Decision decision = authorizer_.Authorize(attributes);
  if (!decision.allowed) {
    return ForbiddenStatus(attributes, decision.reason);
  }
  return {};
}

Result<void> Server::Admit(Request& request, PipelineResponder& responder) {
  SUBLET_RETURN_IF_ERROR(authenticator_.Authenticate(request));
  SUBLET_RETURN_IF_ERROR(Impersonate(request, authorizer_));
  SUBLET_RETURN_IF_ERROR(SetDeadline(request));
  if (!request.loopback) {
    if (options_.flow_of) {
      responder.set_flow(options_.flow_of(request.user));
    }
    if (!IsLongRunning(request.info)) {
      const bool is_mutating = IsMutating(request.info);
      if (!responder.EnterInflight(
              is_mutating, is_mutating ? options_.mutating_inflight_max : options_.inflight_max,
              IsMaster(request.user))) {
        return TooManyRequests("Too many requests, please try again later.", 1);
      }
    }
  }
  return CheckAuthorized(request);
}

void Server::Handle(std::unique_ptr<Request> request, ResponderPtr inner) {
  const auto given = request->Header("audit-id");
  request->audit_id = given.empty() ? NewAuditId() : std::string(given.substr(0, 64));
  request->info = ParseRequestInfo(request->method, request->path, request->query);
  auto responder = std::make_unique<PipelineResponder>(counters_, std::move(inner), *request);
  const auto admitted = Admit(*request, *responder);
  if (!admitted.ok()) {
    Response refusal = StatusResponse(admitted.error());
    if (admitted.error().Is(Reason::kForbidden)) {
      refusal.headers.emplace_back("X-Content-Type-Options", "nosniff");
    }
    responder->Send(std::move(refusal));
    return;
  }
  if (request->deadline != Deadline::max()) {
    responder->AnswerBy(request->deadline);
  }
  const Router::Route route = router_.Find(*request);
  if (route.handler == nullptr) {
    responder->Send(TextResponse(404, "404 page not found\n"));
    return;
  }
  if (!route.is_slow) {
    route.handler->Handle(std::move(request), std::move(responder));
    return;
  }
  // std::function copies, so what it carries is shared; it runs once.
  struct Job {
    std::unique_ptr<Request> request;
    ResponderPtr responder;
  };
  auto job = std::make_shared<Job>(Job{std::move(request), std::move(responder)});
  if (!Offload([job, handler = route.handler] {
        handler->Handle(std::move(job->request), std::move(job->responder));
      })) {
    job->responder->Send(
        StatusResponse(TooManyRequests("Too many requests, please try again later.", 1)));
  }
}

}  // namespace sublet::apiserver
