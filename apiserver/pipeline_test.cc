// The way of a request through the pipeline, over the loopback and as a transport would ask:
// limits, routes, refusals, what every answer gets.
#include "apiserver/pipeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>

#include "apiserver/health.h"
#include "apiserver/loopback_transport.h"
#include "base/metrics.h"

namespace sublet::apiserver {
namespace {

using ::testing::HasSubstr;

class NoRules final : public RbacSource {
 public:
  bool HasChanges() const override { return false; }
  void Drain(std::vector<RbacChange>&, bool*) override {}
};

class StaticTokens {
 public:
  static AuthenticatorOptions Options() {
    AuthenticatorOptions options;
    options.static_tokens["root"] = {"root", "", {"system:masters"}, {}};
    options.static_tokens["jane"] = {"jane", "", {}, {}};
    return options;
  }
};

// Keeps the responders so that requests stay in flight.
class HoldingHandler final : public Handler {
 public:
  void Handle(std::unique_ptr<Request> request, ResponderPtr responder) override {
    last = std::move(request);
    if (hold) {
      held.push_back(std::move(responder));
      return;
    }
    Response response;
    response.body = Body(last->info.verb + " by " + last->user.name);
    responder->Send(std::move(response));
  }
  bool hold = false;
  std::unique_ptr<Request> last;
  std::vector<ResponderPtr> held;
};

class FutureResponder final : public Responder {
 public:
  explicit FutureResponder(std::promise<Response> promise) : promise_(std::move(promise)) {}
  void Send(Response response) override { promise_.set_value(std::move(response)); }
  void SendStream(Response head, std::unique_ptr<ByteStream>) override { Send(std::move(head)); }
  void SendUpgrade(Response head, Upgrade) override { Send(std::move(head)); }
  void AnswerBy(Deadline) override {}

 private:
  std::promise<Response> promise_;
};

std::string HeaderOf(const Response& response, std::string_view name) {
  for (const auto& [key, value] : response.headers) {
    if (key == name) {
      return value;
    }
  }
  return "";
}

class PipelineTest : public ::testing::Test {
 protected:
  PipelineTest() : authenticator_(StaticTokens::Options(), nullptr), authorizer_(rules_) {
    router_.SetResources(handler_);
    router_.AddPath("/slow", handler_, true);
    router_.AddPrefix("/prefix/", handler_);
    ServerOptions options;
    options.inflight_max = 2;
    options.mutating_inflight_max = 1;
    options.request_threads = 1;
    options.request_queue_max = 1;
    options.flow_of = [](const User&) { return FlowNames{"schema-uid", "level-uid"}; };
    server_ = std::make_unique<Server>(options, authenticator_, authorizer_, router_, metrics_);
  }
  std::future<Response> Ask(const char* method, const char* path, const char* token,
                            std::vector<std::pair<std::string, std::string>> headers = {}) {
    auto request = std::make_unique<Request>();
    request->method = method;
    request->path = request->raw_path = path;
    if (const auto question = request->path.find('?'); question != std::string::npos) {
      request->query = ParseQuery(request->path.substr(question + 1));
      request->path.resize(question);
    }
    request->headers = std::move(headers);
    if (*token != '\0') {
      request->headers.emplace_back("authorization", std::string("Bearer ") + token);
    }
    std::promise<Response> promise;
    auto future = promise.get_future();
    server_->Handle(std::move(request), std::make_unique<FutureResponder>(std::move(promise)));
    return future;
  }

  NoRules rules_;
  Authenticator authenticator_;
  Authorizer authorizer_;
  HoldingHandler handler_;
  Router router_;
  Metrics metrics_;
  std::unique_ptr<Server> server_;
};

TEST_F(PipelineTest, EveryAnswerIsCompletedAndCounted) {
  const Response response = Ask("GET", "/api/v1/pods", "root").get();
  EXPECT_EQ(response.body.Flatten(), "list by root");
  EXPECT_EQ(HeaderOf(response, "Cache-Control"), "no-cache, private");
  EXPECT_EQ(HeaderOf(response, "X-Kubernetes-Pf-Flowschema-Uid"), "schema-uid");
  EXPECT_EQ(HeaderOf(response, "X-Kubernetes-Pf-Prioritylevel-Uid"), "level-uid");
  const std::string id = HeaderOf(response, "Audit-Id");
  EXPECT_EQ(id.size(), 36u);
  EXPECT_EQ(id[14], '4');
  EXPECT_NE(HeaderOf(Ask("GET", "/api/v1/pods", "root").get(), "Audit-Id"), id);
  EXPECT_EQ(HeaderOf(Ask("GET", "/api/v1/pods", "root", {{"audit-id", "mine"}}).get(), "Audit-Id"),
            "mine");
  EXPECT_THAT(metrics_.Text(),
              HasSubstr("apiserver_request_total{code=\"200\",component=\"apiserver\",dry_run=\"\","
                        "group=\"\",resource=\"pods\",scope=\"cluster\",subresource=\"\","
                        "verb=\"LIST\",version=\"v1\"} 3"));
  EXPECT_TRUE(handler_.last->Header("authorization").empty()) << "credentials end here";
}

TEST_F(PipelineTest, TooManyRequestsInFlightAreRefusedButNotToMasters) {
  // Nobody may do anything here but masters, so the others' refusals tell the two limits apart.
  handler_.hold = true;
  auto first = Ask("GET", "/api/v1/pods", "root");
  auto second = Ask("GET", "/api/v1/pods", "root");
  const Response refused = Ask("GET", "/api/v1/pods", "jane").get();
  EXPECT_EQ(refused.code, 429);
  EXPECT_EQ(HeaderOf(refused, "Retry-After"), "1");
  EXPECT_THAT(refused.body.Flatten(), HasSubstr("\"reason\":\"TooManyRequests\""));
  EXPECT_EQ(Ask("POST", "/api/v1/pods", "jane").get().code, 403) << "a limit of its own";
  EXPECT_EQ(Ask("GET", "/api/v1/pods?watch=1", "jane").get().code, 403) << "long running";
  auto third = Ask("GET", "/api/v1/pods", "root");
  EXPECT_EQ(third.wait_for(std::chrono::seconds(0)), std::future_status::timeout);
  for (auto& responder : handler_.held) {
    responder->Send({});
  }
  handler_.held.clear();
  EXPECT_EQ(Ask("GET", "/api/v1/pods", "jane").get().code, 403);
  EXPECT_THAT(metrics_.Text(),
              HasSubstr("apiserver_current_inflight_requests{request_kind=\"readOnly\"} 0"));
}

TEST_F(PipelineTest, AFullRequestPoolRefusesInsteadOfWaiting) {
  // The pool is not started: its queue holds one.
  auto queued = Ask("GET", "/slow", "root");
  EXPECT_EQ(Ask("GET", "/slow", "root").get().code, 429);
  server_->Start();
  EXPECT_EQ(queued.get().code, 200);
  server_->Stop();
  EXPECT_FALSE(server_->Offload([] {}));
}

TEST_F(PipelineTest, RoutesGoToTheMostSpecificHandler) {
  EXPECT_EQ(Ask("GET", "/prefix/x", "root").get().code, 200);
  const Response missing = Ask("GET", "/other", "root").get();
  EXPECT_EQ(missing.code, 404);
  EXPECT_EQ(missing.body.Flatten(), "404 page not found\n");
  HoldingHandler exec;
  Router router;
  router.SetResources(handler_);
  router.AddSubresource("", "pods", "exec", exec);
  router.AddPrefix("/", handler_);
  router.AddPrefix("/a/", exec);
  Request request;
  const auto find = [&](const char* path) {
    request.path = path;
    request.info = ParseRequestInfo("GET", path, {});
    return router.Find(request).handler;
  };
  EXPECT_EQ(find("/api/v1/namespaces/n/pods/p/exec"), &exec);
  EXPECT_EQ(find("/api/v1/namespaces/n/pods/p/log"), &handler_);
  EXPECT_EQ(find("/a/b"), &exec);
  EXPECT_EQ(find("/b"), &handler_);
}

TEST_F(PipelineTest, RequestInfoIsReadAsInKubernetes) {
  struct Case {
    const char* method;
    const char* path;
    const char* expected;  // verb group/version namespace resource/subresource name rest
  };
  for (const Case& one : std::initializer_list<Case>{
           {"GET", "/api/v1/namespaces", "list /v1  namespaces/  "},
           {"GET", "/api/v1/namespaces/a", "get /v1 a namespaces/ a "},
           {"PUT", "/api/v1/namespaces/a/finalize", "update /v1 a namespaces/finalize a "},
           {"GET", "/api/v1/namespaces/a/pods", "list /v1 a pods/  "},
           {"POST", "/api/v1/namespaces/a/pods/p/exec", "create /v1 a pods/exec p "},
           {"GET", "/apis/apps/v1/deployments/", "list apps/v1  deployments/  "},
           {"DELETE", "/apis/apps/v1/namespaces/a/deployments",
            "deletecollection apps/v1 a deployments/  "},
           {"PATCH", "/apis/apps/v1/namespaces/a/deployments/d/scale",
            "patch apps/v1 a deployments/scale d "},
           {"GET", "/api/v1/watch/namespaces/a/pods/p", "watch /v1 a pods/ p "},
           {"GET", "/api/v1/namespaces/a/services/s/proxy/x/y/",
            "get /v1 a services/proxy s /x/y/"},
           {"GET", "/api/v1", "get /   /  "},
           {"GET", "/apis/apps/v1", "get /   /  "},
           {"OPTIONS", "/api/v1/pods", " /v1  pods/  "},
       }) {
    const RequestInfo info = ParseRequestInfo(one.method, one.path, {});
    std::string text = info.verb + " " + info.group + "/" + info.version + " " +
                       info.namespace_name + " " + info.resource + "/" + info.subresource + " " +
                       info.name + " " + info.rest;
    if (!info.is_resource) {
      text = info.verb + " /   /  ";
    }
    EXPECT_EQ(text, one.expected) << one.path;
  }
  const Query query = ParseQuery("watch=true&fieldSelector=metadata.name%3Dx%2Ca=b&q=1+2%zz&q=3");
  EXPECT_EQ(query.Get("q"), "1 2%zz");
  EXPECT_EQ(query.All("q").size(), 2u);
  const RequestInfo info = ParseRequestInfo("GET", "/api/v1/pods", query);
  EXPECT_EQ(info.verb, "watch");
  EXPECT_EQ(info.selected_name, "x");
  EXPECT_EQ(info.name, "");
}

TEST_F(PipelineTest, ALoopbackCallTimesOutAndALateAnswerDoesNoHarm) {
  LoopbackTransport transport(*server_, {"root", "", {"system:masters"}, {}});
  handler_.hold = true;
  client::HttpRequest request;
  request.target = "/api/v1/pods?limit=1";
  request.deadline = After(std::chrono::milliseconds(1));
  EXPECT_EQ(transport.RoundTrip(request).error().reason(), Reason::kTimeout);
  handler_.held.front()->Send({});
  handler_.held.clear();
  handler_.hold = false;
  request.deadline = Deadline::max();
  const auto answer = transport.RoundTrip(request);
  ASSERT_TRUE(answer.ok());
  EXPECT_EQ(answer->body, "list by root");
  EXPECT_FALSE(transport.OpenStream(request).ok()) << "not a stream";
}

// Echoes over whatever carries it.
class EchoHandler final : public Handler {
 public:
  void Handle(std::unique_ptr<Request>, ResponderPtr responder) override {
    Response head;
    head.code = 101;
    responder->SendUpgrade(std::move(head), {[](RawConnection& connection) {
                             char data[16];
                             for (;;) {
                               const auto got = connection.Read(data, sizeof data);
                               if (!got.ok() || *got == 0 || !connection.Write({data, *got}).ok()) {
                                 return;
                               }
                             }
                           }});
  }
};

TEST_F(PipelineTest, ALoopbackTunnelCarriesBytesBothWays) {
  EchoHandler echo;
  router_.AddSubresource("", "pods", "exec", echo);
  LoopbackTransport transport(*server_, {"root", "", {"system:masters"}, {}});
  client::HttpRequest request;
  request.method = "POST";
  request.target = "/api/v1/namespaces/a/pods/p/exec";
  auto tunnel = transport.OpenTunnel(request);
  ASSERT_TRUE(tunnel.ok());
  ASSERT_TRUE((*tunnel)->Write("hello").ok());
  char data[16];
  EXPECT_EQ((*tunnel)->Read(data, sizeof data).value(), 5u);
  (*tunnel)->CloseWrite();
  EXPECT_EQ((*tunnel)->Read(data, sizeof data).value(), 0u);
}

TEST(Health, FailedChecksAreNamedWithoutTheirReason) {
  HealthHandler health;
  health.Add({"ping", [] { return Ok(); }, false});
  health.Add({"etcd", []() -> Result<void> { return InternalError("secret path"); }, false});
  const auto ask = [&](const char* path, const char* query) {
    auto request = std::make_unique<Request>();
    request->path = path;
    request->query = ParseQuery(query);
    std::promise<Response> promise;
    auto future = promise.get_future();
    health.Handle(std::move(request), std::make_unique<FutureResponder>(std::move(promise)));
    return future.get();
  };
  const Response failed = ask("/livez", "");
  EXPECT_EQ(failed.code, 500);
  EXPECT_EQ(failed.body.Flatten(),
            "[+]ping ok\n[-]etcd failed: reason withheld\nlivez check failed\n");
  EXPECT_EQ(ask("/livez", "exclude=etcd").body.Flatten(), "ok");
  EXPECT_EQ(ask("/readyz/etcd", "").code, 500);
  health.BeginShutdown();
  EXPECT_EQ(ask("/readyz", "exclude=etcd").code, 500);
  EXPECT_EQ(ask("/livez", "exclude=etcd").code, 200);
}

TEST(MetricsTest, AFamilyIsBoundedAndHistogramsAddUp) {
  Metrics metrics;
  auto& family = metrics.Counter("c", "help", {"name"});
  for (std::size_t i = 0; i < MetricFamily<MetricValue>::kMembersMax + 10; ++i) {
    family.With({std::to_string(i)}).Add();
  }
  EXPECT_EQ(family.With({"other"}).Get(), 10);
  metrics.Gauge("g", "help", {"q"}).With({"a\"b\\c\n"}).Set(5);
  auto& histogram = metrics.Histogram("h", "help", {}).With({});
  histogram.Observe(0.0004);
  histogram.Observe(100);
  const std::string text = metrics.Text();
  EXPECT_THAT(text, HasSubstr("g{q=\"a\\\"b\\\\c \"} 5\n"));
  EXPECT_THAT(text, HasSubstr("h_bucket{le=\"0.0005\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("h_bucket{le=\"60\"} 1\nh_bucket{le=\"+Inf\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("h_sum 100.0004\nh_count 2\n"));
}

}  // namespace
}  // namespace sublet::apiserver
