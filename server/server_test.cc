// A whole control plane in this process, asked over TLS and over the loopback: identity, rights,
// limits, tunnels to a kubelet, restart.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ctime>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "apiserver/auth/certificates.h"
#include "apiserver/auth/pki.h"
#include "apiserver/http/listener.h"
#include "apiserver/loopback_transport.h"
#include "apiserver/testing/tls_client.h"
#include "client/client.h"
#include "client/kubeconfig.h"
#include "client/websocket.h"
#include "server/control_plane.h"
#include "server/idle_memory.h"

namespace sublet::server {
namespace {

using apiserver::testing::ClientResponse;
using apiserver::testing::TlsClient;
using kube::Json;
using ::testing::HasSubstr;

class ServerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char pattern[] = "/tmp/sublet_server_XXXXXX";
    directory_ = mkdtemp(pattern);
    Open();
  }
  void TearDown() override {
    plane_.reset();
    std::filesystem::remove_all(directory_);
  }
  void Open(Role role = Role::kTenant) {
    ControlPlaneOptions options;
    options.role = role;
    if (role == Role::kHost) {
      options.node_name = "one";
      options.node_kubeconfig_path = directory_ + "/node.kubeconfig";
    }
    options.data_directory = directory_ + "/data";
    options.kubeconfig_path = directory_ + "/kubeconfig";
    auto opened = ControlPlane::Open(options);
    ASSERT_TRUE(opened.ok()) << opened.error().message();
    plane_ = std::move(*opened);
  }
  std::string Pki(const char* file) const {
    return apiserver::ReadWholeFile(directory_ + "/data/pki/" + file).value();
  }
  std::unique_ptr<TlsClient> Connect(bool as_admin) const {
    apiserver::testing::TlsClientOptions options;
    options.port = plane_->port();
    options.authority = Pki("ca.crt");
    if (as_admin) {
      options.client_certificate = Pki("admin.crt");
      options.client_key = Pki("admin.key");
    }
    return TlsClient::Connect(options);
  }
  ClientResponse Admin(std::string_view method, std::string_view path, const Json& body = nullptr,
                       std::string_view headers = "") const {
    return Connect(true)->Call(method, path, headers, body.is_null() ? "" : body.dump());
  }
  ClientResponse As(const std::string& user, std::string_view method, std::string_view path,
                    const Json& body = nullptr) const {
    return Admin(method, path, body, "Impersonate-User: " + user + "\r\n");
  }
  client::Client Loopback() const {
    return client::Client(plane_->Loopback("system:test"), "test");
  }
  // The account "default" may also come from its controller.
  void MakeAccount(const char* name) const {
    const int code = Admin("POST", "/api/v1/namespaces/default/serviceaccounts",
                           {{"metadata", {{"name", name}}}})
                         .code;
    ASSERT_TRUE(code == 201 || code == 409) << code;
  }
  std::string Token(const std::string& account, Json spec = Json::object()) const {
    const auto answer =
        Admin("POST", "/api/v1/namespaces/default/serviceaccounts/" + account + "/token",
              {{"spec", std::move(spec)}});
    EXPECT_EQ(answer.code, 201) << answer.body;
    return Json::parse(answer.body)["status"]["token"].get<std::string>();
  }

  std::string directory_;
  std::unique_ptr<ControlPlane> plane_;
};

// The next message of a WebSocket; a close when the connection ended without one.
client::WebSocketFrames::Message NextMessage(TlsClient& client, client::WebSocketFrames& frames) {
  using Kind = client::WebSocketFrames::Message::Kind;
  for (;;) {
    auto next = frames.Next();
    if (!next.ok()) {
      ADD_FAILURE() << next.error().message();
      return {Kind::kClose, "broken"};
    }
    if (*next) {
      return std::move(**next);
    }
    const std::string bytes = client.Receive();
    if (bytes.empty()) {
      return {Kind::kClose, "ended"};
    }
    frames.Append(bytes);
  }
}

TEST_F(ServerTest, AWatchTravelsOverAWebSocketToo) {
  using Kind = client::WebSocketFrames::Message::Kind;
  const std::string maps = "/api/v1/namespaces/default/configmaps";
  const std::string watch = "GET " + maps +
                            "?watch=true&fieldSelector=metadata.name%3Dw HTTP/1.1\r\nHost: a\r\n"
                            "Connection: Upgrade\r\nUpgrade: WebSocket\r\n";
  auto refused = Connect(true);
  ASSERT_TRUE(refused->Send(watch + "\r\n"));
  EXPECT_EQ(refused->ReadResponse().code, 400);

  auto client = Connect(true);
  ASSERT_TRUE(client->Send(watch + "Sec-WebSocket-Version: 13\r\n"
                                   "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
                                   "Sec-WebSocket-Protocol: one\r\n\r\n"));
  const auto head = client->ReadHead();
  ASSERT_EQ(head.code, 101);
  EXPECT_EQ(head.headers.at("sec-websocket-accept"), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
  EXPECT_EQ(head.headers.at("sec-websocket-protocol"), "one");
  client::WebSocketFrames frames;
  ASSERT_EQ(Admin("POST", maps, {{"metadata", {{"name", "w"}}}}).code, 201);
  const auto added = NextMessage(*client, frames);
  ASSERT_EQ(added.kind, Kind::kBinary);
  const Json event = Json::parse(added.data);
  EXPECT_EQ(event["type"], "ADDED");
  EXPECT_EQ(event["object"]["metadata"]["name"], "w");
  ASSERT_TRUE(client->Send(client::EncodeClientFrame(9, "are you there", 7)));
  const auto pong = NextMessage(*client, frames);
  EXPECT_EQ(pong.kind, Kind::kPong);
  EXPECT_EQ(pong.data, "are you there");
  ASSERT_EQ(Admin("DELETE", maps + "/w").code, 200);
  EXPECT_EQ(Json::parse(NextMessage(*client, frames).data)["type"], "DELETED");
  ASSERT_TRUE(client->Send(client::EncodeClientFrame(8, "\x03\xe8", 7)));
  EXPECT_EQ(client->Receive(), "") << "the client's close ends it";
}

Json MakeNode(const char* name, int port) {
  return {{"metadata", {{"name", name}}},
          {"status",
           {{"addresses", {{{"type", "InternalIP"}, {"address", "127.0.0.1"}}}},
            {"daemonEndpoints", {{"kubeletEndpoint", {{"Port", port}}}}}}}};
}

Json MakePod(const char* name, const char* node) {
  Json pod = {{"metadata", {{"name", name}}},
              {"spec", {{"containers", {{{"name", "c"}, {"image", "i"}}}}}}};
  if (*node != '\0') {
    pod["spec"]["nodeName"] = node;
  }
  return pod;
}

TEST_F(ServerTest, EverybodyGetsTheirOwnRights) {
  const auto anonymous = Connect(false);
  EXPECT_EQ(anonymous->Call("GET", "/version").code, 200);
  const auto refused = anonymous->Call("GET", "/api/v1/namespaces/default/pods");
  EXPECT_EQ(refused.code, 403);
  EXPECT_EQ(Json::parse(refused.body)["message"],
            "pods is forbidden: User \"system:anonymous\" cannot list resource \"pods\" in API "
            "group \"\" in the namespace \"default\"");
  EXPECT_EQ(refused.headers.at("x-content-type-options"), "nosniff");
  EXPECT_EQ(Json::parse(anonymous->Call("GET", "/api").body)["message"],
            "forbidden: User \"system:anonymous\" cannot get path \"/api\"");
  const auto who = Admin("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews",
                         {{"kind", "SelfSubjectReview"}});
  const Json extra = Json::parse(who.body)["status"]["userInfo"]["extra"];
  EXPECT_EQ(extra["authentication.kubernetes.io/credential-id"][0].get<std::string>().size(),
            std::string_view("X509SHA256=").size() + 64);
  const auto bad_token = anonymous->Call("GET", "/version", "Authorization: Bearer wrong\r\n");
  EXPECT_EQ(bad_token.code, 401);
  EXPECT_EQ(bad_token.body,
            "{\"kind\":\"Status\",\"apiVersion\":\"v1\",\"metadata\":{},\"status\":"
            "\"Failure\",\"message\":\"Unauthorized\",\"reason\":\"Unauthorized\","
            "\"code\":401}\n");
  const auto listed = Admin("GET", "/api/v1/namespaces");
  EXPECT_EQ(listed.code, 200);
  EXPECT_EQ(listed.headers.at("cache-control"), "no-cache, private");
  EXPECT_EQ(listed.headers.at("audit-id").size(), 36u);
  EXPECT_EQ(listed.headers.at("x-kubernetes-pf-flowschema-uid").size(), 36u);
  EXPECT_EQ(Json::parse(listed.body)["items"].size(), 4u);
  EXPECT_EQ(Admin("GET", "/nowhere").body, "404 page not found\n");
}

TEST_F(ServerTest, ABindingCountsForTheNextRequest) {
  EXPECT_EQ(As("jane", "GET", "/api/v1/namespaces/default/pods").code, 403);
  const auto bound = Admin(
      "POST", "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings",
      {{"metadata", {{"name", "jane"}}},
       {"roleRef",
        {{"apiGroup", "rbac.authorization.k8s.io"}, {"kind", "ClusterRole"}, {"name", "admin"}}},
       {"subjects",
        {{{"apiGroup", "rbac.authorization.k8s.io"}, {"kind", "User"}, {"name", "jane"}}}}});
  ASSERT_EQ(bound.code, 201) << bound.body;
  EXPECT_EQ(As("jane", "GET", "/api/v1/namespaces/default/pods").code, 200);
  EXPECT_EQ(As("jane", "GET", "/api/v1/namespaces/kube-system/pods").code, 403);
  const auto escalation =
      As("jane", "POST", "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles",
         {{"metadata", {{"name", "big"}}},
          {"rules", {{{"verbs", {"*"}}, {"apiGroups", {"*"}}, {"resources", {"*"}}}}}});
  EXPECT_EQ(escalation.code, 403);
  EXPECT_THAT(escalation.body,
              HasSubstr("attempting to grant RBAC permissions not currently held"));
  ASSERT_EQ(
      Admin("DELETE", "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings/jane")
          .code,
      200);
  EXPECT_EQ(As("jane", "GET", "/api/v1/namespaces/default/pods").code, 403);
}

TEST_F(ServerTest, AServiceAccountTokenLivesAsLongAsItsAccount) {
  MakeAccount("app");
  const std::string token = Token("app");
  const std::string header = "Authorization: Bearer " + token + "\r\n";
  const auto who = Connect(false)->Call("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews",
                                        header, R"({"kind":"SelfSubjectReview"})");
  EXPECT_EQ(who.code, 201) << who.body;
  EXPECT_EQ(Json::parse(who.body)["status"]["userInfo"]["username"],
            "system:serviceaccount:default:app");
  const auto review =
      Admin("POST", "/apis/authentication.k8s.io/v1/tokenreviews", {{"spec", {{"token", token}}}});
  EXPECT_EQ(Json::parse(review.body)["status"]["authenticated"], true) << review.body;
  EXPECT_EQ(Connect(false)->Call("GET", "/openid/v1/jwks", header).code, 200);
  ASSERT_EQ(Admin("DELETE", "/api/v1/namespaces/default/serviceaccounts/app").code, 200);
  EXPECT_EQ(Connect(false)->Call("GET", "/api", header).code, 401);
}

TEST_F(ServerTest, HealthAndMetricsAreServed) {
  EXPECT_EQ(Connect(false)->Call("GET", "/readyz").body, "ok");
  EXPECT_THAT(Admin("GET", "/livez?verbose").body, HasSubstr("[+]ping ok\n"));
  EXPECT_THAT(Admin("GET", "/readyz?verbose&exclude=etcd&exclude=x").body,
              HasSubstr("[+]etcd excluded: ok\n[+]shutdown ok\nwarn: some health checks cannot be "
                        "excluded: no matches for \"x\"\nreadyz check passed\n"));
  EXPECT_EQ(Admin("GET", "/readyz/ping").body, "ok");
  EXPECT_EQ(Admin("GET", "/readyz/none").code, 404);
  EXPECT_EQ(Connect(false)->Call("GET", "/metrics").code, 403);
  const auto metrics = Admin("GET", "/metrics").body;
  for (const char* name :
       {"apiserver_request_total{code=\"403\",component=\"apiserver\"",
        "apiserver_request_duration_seconds_bucket{", "process_resident_memory_bytes ",
        "apiserver_current_inflight_requests{request_kind=\"readOnly\"} 1",
        "apiserver_resource_objects{group=\"\",resource=\"namespaces\"} 4"}) {
    EXPECT_THAT(metrics, HasSubstr(name));
  }
}

TEST_F(ServerTest, TimeoutsAreReadFromTheQuery) {
  EXPECT_EQ(Admin("GET", "/api/v1/namespaces?timeout=5s").code, 200);
  const auto bad = Admin("GET", "/api/v1/namespaces?timeout=x");
  EXPECT_EQ(bad.code, 400);
  EXPECT_THAT(bad.body, HasSubstr("invalid timeout specified in the request URL"));
}

TEST_F(ServerTest, TheLoopbackTakesTheSameWay) {
  const client::Client admin = Loopback();
  const client::Target maps{{"", "v1", "configmaps"}, "default", "", ""};
  client::WatchOptions only;
  only.field_selector = "metadata.name=a";
  auto watch = admin.OpenWatch(maps, only);
  ASSERT_TRUE(watch.ok()) << watch.error().message();
  ASSERT_TRUE(admin
                  .Create(maps, {{"apiVersion", "v1"},
                                 {"kind", "ConfigMap"},
                                 {"metadata", {{"name", "a"}}},
                                 {"data", {{"k", "v"}}}})
                  .ok());
  const auto event = (*watch)->Next(After(std::chrono::seconds(10)));
  ASSERT_TRUE(event.ok() && event->has_value());
  EXPECT_EQ(kube::FindString(*(*event)->object, {"metadata", "name"}), "a");
  EXPECT_EQ((*watch)->Next(After(std::chrono::milliseconds(1))).error().reason(), Reason::kTimeout);
  (*watch)->Close();
  EXPECT_FALSE((*watch)->Next(After(std::chrono::seconds(1)))->has_value());
  const auto refused = admin.As("nobody", {}).List(maps);
  EXPECT_EQ(refused.error().reason(), Reason::kForbidden);
  EXPECT_EQ(admin.Get({{"", "v1", "configmaps"}, "default", "none", ""}).error().reason(),
            Reason::kNotFound);
}

// Stands for a node's kubelet: echoes upgraded connections, streams logs, says who asked.
class FakeKubelet final : public apiserver::Handler {
 public:
  explicit FakeKubelet(const std::string& client_authority) {
    const auto now = std::chrono::system_clock::now();
    apiserver::LeafOptions leaf;
    leaf.common_name = "node";
    leaf.is_server = true;
    const auto pair =
        apiserver::CertificateAuthority::Make("kubelet", now).value()->Issue(leaf, now).value();
    apiserver::ListenerOptions options;
    options.tls = {pair.certificate, pair.key, client_authority};
    listener_ = apiserver::OpenListener(options, *this).value();
    listener_->Start();
  }
  int port() const { return listener_->port(); }
  void Handle(std::unique_ptr<apiserver::Request> request,
              apiserver::ResponderPtr responder) override {
    apiserver::Response response;
    response.content_type = "text/plain";
    const std::string seen =
        request->path + "?" + request->raw_query + " by " + request->tls_common_name;
    if (!request->Header("upgrade").empty()) {
      response.code = 101;
      response.headers = {
          {"Connection", "Upgrade"},
          {"Upgrade", std::string(request->Header("upgrade"))},
          {"X-Stream-Protocol-Version", std::string(request->Header("x-stream-protocol-version"))}};
      responder->SendUpgrade(std::move(response), {[seen](apiserver::RawConnection& connection) {
                               static_cast<void>(connection.Write(seen + "\n"));
                               char data[256];
                               for (;;) {
                                 const auto got = connection.Read(data, sizeof data);
                                 if (!got.ok() || *got == 0 || data[0] == 'q') {
                                   return;
                                 }
                                 static_cast<void>(connection.Write({data, *got}));
                               }
                             }});
      return;
    }
    if (request->path.ends_with("/waiting")) {
      response.code = 400;
      response.body = apiserver::Body("container \"waiting\" in pod \"p\" is waiting to start: x");
    } else {
      response.body = apiserver::Body(seen);
    }
    responder->Send(std::move(response));
  }

 private:
  std::unique_ptr<apiserver::Listener> listener_;
};

class TunnelTest : public ServerTest {
 protected:
  void SetUp() override {
    ServerTest::SetUp();
    kubelet_ = std::make_unique<FakeKubelet>(Pki("ca.crt"));
    MakeAccount("default");
    Json node = MakeNode("n", kubelet_->port());
    ASSERT_EQ(Admin("POST", "/api/v1/nodes", node).code, 201);
    ASSERT_EQ(Admin("PUT", "/api/v1/nodes/n/status", node).code, 200);
    for (const auto& [name, host] : {std::pair{"p", "n"}, {"lost", ""}}) {
      const auto made = Admin("POST", "/api/v1/namespaces/default/pods", MakePod(name, host));
      ASSERT_EQ(made.code, 201) << made.body;
    }
  }
  std::unique_ptr<FakeKubelet> kubelet_;
};

constexpr char kUpgrade[] =
    "Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: v4.channel.k8s.io\r\n";

TEST_F(TunnelTest, ExecIsLedToTheKubeletAndBytesPassUnread) {
  auto client = Connect(true);
  ASSERT_TRUE(
      client->Send("POST /api/v1/namespaces/default/pods/p/exec?command=sh&command=-c%20x"
                   "&stdin=true&stdout=true&tty=true HTTP/1.1\r\nHost: a\r\n" +
                   std::string(kUpgrade) + "\r\n"));
  const auto head = client->ReadHead();
  EXPECT_EQ(head.code, 101);
  EXPECT_EQ(head.headers.at("upgrade"), "SPDY/3.1");
  EXPECT_EQ(head.headers.at("x-stream-protocol-version"), "v4.channel.k8s.io");
  EXPECT_EQ(client->Receive(),
            "/exec/default/p/c?input=1&output=1&error=1&tty=1&command=sh&command=-c%20x by "
            "kube-apiserver-kubelet-client\n");
  ASSERT_TRUE(client->Send("hello"));
  EXPECT_EQ(client->Receive(), "hello");
  ASSERT_TRUE(client->Send("q"));
  EXPECT_EQ(client->Receive(), "") << "the kubelet's end is the client's end";
}

TEST_F(TunnelTest, WhoMayOnlyGetMayNotExecOverWebSocket) {
  ASSERT_EQ(
      Admin("POST", "/apis/rbac.authorization.k8s.io/v1/clusterroles",
            {{"metadata", {{"name", "r"}}},
             {"rules", {{{"verbs", {"get"}}, {"apiGroups", {""}}, {"resources", {"pods/exec"}}}}}})
          .code,
      201);
  ASSERT_EQ(
      Admin("POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
            {{"metadata", {{"name", "r"}}},
             {"roleRef",
              {{"apiGroup", "rbac.authorization.k8s.io"}, {"kind", "ClusterRole"}, {"name", "r"}}},
             {"subjects",
              {{{"apiGroup", "rbac.authorization.k8s.io"}, {"kind", "User"}, {"name", "jane"}}}}})
          .code,
      201);
  const auto refused = Admin("GET", "/api/v1/namespaces/default/pods/p/exec?command=x", nullptr,
                             std::string("Impersonate-User: jane\r\n") + kUpgrade);
  EXPECT_EQ(refused.code, 403);
  EXPECT_THAT(refused.body, HasSubstr("cannot create resource \\\"pods/exec\\\""));
}

TEST_F(TunnelTest, LogsStreamAndRefusalsKeepTheirTexts) {
  const std::string pods = "/api/v1/namespaces/default/pods/";
  EXPECT_EQ(Admin("GET", pods + "p/log?follow=true&tailLines=5&pretty=1").body,
            "/containerLogs/default/p/c?follow=true&tailLines=5 by kube-apiserver-kubelet-client");
  EXPECT_EQ(Admin("GET", pods + "lost/log").body, "");
  const auto message = [&](const std::string& path) {
    return Json::parse(Admin("GET", pods + path).body)["message"].get<std::string>();
  };
  EXPECT_EQ(message("p/log?container=x"), "container x is not valid for pod p");
  EXPECT_EQ(message("p/log?tailLines=-1"),
            "PodLogOptions \"p\" is invalid: tailLines: Invalid value: -1: must be greater than or "
            "equal to 0");
  EXPECT_EQ(message("none/log"), "pods \"none\" not found");
  EXPECT_EQ(message("lost/exec?command=x"), "pod lost does not have a host assigned");
  EXPECT_EQ(message("p/attach"), "Upgrade request required");
}

TEST_F(TunnelTest, NodesAreProxiedAndTheApiServerIsNotReachedThroughAPod) {
  EXPECT_EQ(Admin("GET", "/api/v1/nodes/n/proxy/stats/summary?x=1").body,
            "/stats/summary?x=1 by kube-apiserver-kubelet-client");
  const auto redirected = Admin("GET", "/api/v1/nodes/n/proxy?x=1");
  EXPECT_EQ(redirected.code, 301);
  EXPECT_EQ(redirected.headers.at("location"), "/api/v1/nodes/n/proxy/?x=1");
  Json pod = MakePod("p", "n");
  pod["status"] = {{"podIP", "127.0.0.1"}};
  ASSERT_EQ(Admin("PUT", "/api/v1/namespaces/default/pods/p/status", pod).code, 200);
  EXPECT_THAT(Admin("GET", "/api/v1/namespaces/default/pods/p/proxy/").body,
              HasSubstr("address not allowed"));
  EXPECT_THAT(Admin("GET", "/api/v1/namespaces/default/services/kubernetes:https/proxy/").body,
              HasSubstr("no endpoints available for service \\\"kubernetes:https\\\""));
}

// Rows 33, 34 and 36 of the hostile cases: the answer names the field, and without it the pod is
// made.
TEST_F(ServerTest, GpuRequestsAndWhatLeadsPastASliceAreRefusedByTheirField) {
  MakeAccount("default");
  const auto make = [&](const Json& annotations, const Json& env) {
    Json pod = MakePod("g", "");
    pod["metadata"]["annotations"] = annotations;
    pod["spec"]["containers"][0]["env"] = env;
    const auto answer = Admin("POST", "/api/v1/namespaces/default/pods?dryRun=All", pod);
    const Json body = Json::parse(answer.body);
    return std::to_string(answer.code) + " " +
           (answer.code == 201 ? "" : body["details"]["causes"][0]["field"].get<std::string>());
  };
  const Json half = {{"gpu-fraction", "0.5"}};
  const Json preload = {{{"name", "LD_PRELOAD"}, {"value", "/x.so"}}};
  const Json all = {{{"name", "NVIDIA_VISIBLE_DEVICES"}, {"value", "all"}}};
  EXPECT_EQ(make(half, Json::array()), "201 ");
  EXPECT_EQ(make({{"gpu-fraction", "NaN"}}, Json::array()),
            "422 metadata.annotations[gpu-fraction]");
  EXPECT_EQ(make({{"gpu-memory", "-1"}}, Json::array()), "422 metadata.annotations[gpu-memory]");
  EXPECT_EQ(make(half, preload), "403 spec.containers[0].env[0].name");
  EXPECT_EQ(make(Json::object(), preload), "201 ");
  EXPECT_EQ(make(Json::object(), all), "403 spec.containers[0].env[0].name");
  EXPECT_EQ(make({{"gpu-fraction", "0.5"}, {"cdi.k8s.io/x", "a.b/c=d"}}, Json::array()),
            "403 metadata.annotations[cdi.k8s.io/x]");
  // An ordinary pod that turns into a sharing one later is judged then.
  Json pod = MakePod("later", "");
  pod["spec"]["containers"][0]["env"] = preload;
  ASSERT_EQ(Admin("POST", "/api/v1/namespaces/default/pods", pod).code, 201);
  EXPECT_EQ(Admin("PATCH", "/api/v1/namespaces/default/pods/later",
                  {{"metadata", {{"annotations", half}}}},
                  "Content-Type: application/merge-patch+json\r\n")
                .code,
            403);
}

TEST_F(ServerTest, AHostGivesItsNodeANodesRightsAndStartsAgain) {
  plane_.reset();
  std::filesystem::remove_all(directory_ + "/data");
  for (int start = 0; start < 2; ++start) {
    Open(Role::kHost);
    auto connection = client::FindConnection(directory_ + "/node.kubeconfig", "node");
    ASSERT_TRUE(connection.ok()) << connection.error().message();
    const auto node = client::Connect(*connection, "test");
    ASSERT_TRUE(node.ok());
    EXPECT_TRUE(node->List({{"", "v1", "services"}, "", "", ""}, {}).ok());
    EXPECT_TRUE(node->List({{"discovery.k8s.io", "v1", "endpointslices"}, "", "", ""}, {})
                    .error()
                    .Is(Reason::kForbidden));
    connection = client::FindConnection(directory_ + "/node.kubeconfig", "network");
    ASSERT_TRUE(connection.ok()) << connection.error().message();
    const auto network = client::Connect(*connection, "test");
    ASSERT_TRUE(network.ok());
    EXPECT_TRUE(network->List({{"discovery.k8s.io", "v1", "endpointslices"}, "", "", ""}, {}).ok());
    EXPECT_TRUE(
        network->List({{"", "v1", "secrets"}, "", "", ""}, {}).error().Is(Reason::kForbidden));
    plane_.reset();
  }
}

TEST_F(ServerTest, ARestartKeepsEverythingAndASecondProcessIsRefused) {
  const std::string authority = Pki("ca.crt");
  const std::string uid =
      Json::parse(Admin("GET", "/api/v1/namespaces/default").body)["metadata"]["uid"]
          .get<std::string>();
  ControlPlaneOptions options;
  options.data_directory = directory_ + "/data";
  const auto second = ControlPlane::Open(options);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().reason(), Reason::kConflict);
  plane_->Stop();
  plane_.reset();
  Open();
  EXPECT_EQ(Pki("ca.crt"), authority);
  EXPECT_EQ(Json::parse(Admin("GET", "/api/v1/namespaces/default").body)["metadata"]["uid"], uid);
}

TEST(IdleMemory, ComesBackOnceAfterTheStartAndOnceAfterEachBusyTime) {
  IdleMemory idle;
  EXPECT_TRUE(idle.Check()) << "after the start";
  EXPECT_FALSE(idle.Check()) << "nothing happened since";
  for (const std::clock_t begin = std::clock(); std::clock() - begin < CLOCKS_PER_SEC / 4;) {
  }
  EXPECT_FALSE(idle.Check()) << "busy until now";
  EXPECT_TRUE(idle.Check()) << "idle again";
  EXPECT_FALSE(idle.Check());
}

}  // namespace
}  // namespace sublet::server
