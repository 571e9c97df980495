// The firewall's rules and the pod network's arithmetic, without a kernel.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "node/net/pod_network.h"
#include "node/net/rules.h"

namespace sublet::node {
namespace {

using kube::Json;

template <typename View>
View From(View (*parse)(const Json&), const std::string& yaml) {
  auto json = kube::ParseYaml(yaml);
  EXPECT_TRUE(json.ok()) << json.error().message();
  return parse(*json);
}

TEST(Ipv4, ParsesAndPrints) {
  EXPECT_EQ(FormatIpv4(*ParseIpv4("10.244.0.7")), "10.244.0.7");
  EXPECT_FALSE(ParseIpv4("10.244.0").ok());
  EXPECT_FALSE(ParseIpv4("::1").ok());
  EXPECT_EQ(ParseIpv4Net("10.244.3.7/16")->Text(), "10.244.0.0/16");
  EXPECT_TRUE(ParseIpv4Net("0.0.0.0/0")->Contains(*ParseIpv4("1.2.3.4")));
  EXPECT_FALSE(ParseIpv4Net("10.0.0.0/33").ok());
  EXPECT_FALSE(ParseIpv4Net("10.0.0.0").ok());
}

TEST(PodNetwork, GivesAddressesAndRestsThem) {
  PodNetworkConfig config;
  config.pod_net = *ParseIpv4Net("10.244.0.0/29");  // .1 gateway, .2 to .6 for pods
  PodNetwork network(config);
  EXPECT_EQ(FormatIpv4(*network.Allocate("a")), "10.244.0.2");
  EXPECT_EQ(FormatIpv4(*network.Allocate("a")), "10.244.0.2");
  EXPECT_EQ(FormatIpv4(*network.Allocate("b")), "10.244.0.3");
  network.Release("a");
  EXPECT_EQ(FormatIpv4(*network.Allocate("c")), "10.244.0.4") << "an address rests after use";
  network.Reserve("d", *ParseIpv4("10.244.0.5"));
  EXPECT_EQ(FormatIpv4(*network.Allocate("e")), "10.244.0.6");
  EXPECT_EQ(FormatIpv4(*network.Allocate("f")), "10.244.0.2");
  EXPECT_FALSE(network.Allocate("g").ok());
  EXPECT_LE(network.VethName("a").size(), 15u);
  EXPECT_NE(network.VethName("a"), network.VethName("b"));
}

class RulesTest : public testing::Test {
 protected:
  RulesTest() {
    input_.node_name = "n1";
    input_.pod_net = *ParseIpv4Net("10.244.0.0/24");
    input_.service_net = *ParseIpv4Net("10.96.0.0/16");
    input_.gateway = *ParseIpv4("10.244.0.1");
    input_.namespaces = {{"a", {{"team", "a"}}},
                         {"b", {{"team", "b"}}},
                         {"kube-system", {{"kubernetes.io/metadata.name", "kube-system"}}}};
  }
  void Service(const std::string& yaml) { input_.services.push_back(From(ParseService, yaml)); }
  void Slice(const std::string& yaml) { input_.slices.push_back(From(ParseSlice, yaml)); }
  void Pod(const std::string& ns, const std::string& name, const std::string& ip,
           const std::string& app) {
    input_.pods.push_back(From(ParsePodView, "{metadata: {namespace: " + ns + ", name: " + name +
                                                 ", labels: {app: " + app +
                                                 "}}, spec: {nodeName: n1, containers: [{ports: "
                                                 "[{name: http, containerPort: 8080}]}]}, status: "
                                                 "{phase: Running, podIP: " +
                                                 ip + "}}"));
  }
  bool Has(const std::string& part) { return MakeRules(input_).find(part) != std::string::npos; }

  RulesInput input_;
};

constexpr const char* kService =
    R"({metadata: {namespace: a, name: web}, spec: {clusterIP: 10.96.0.10,
  ports: [{name: http, port: 80, protocol: TCP, nodePort: 30080}]}})";

TEST_F(RulesTest, ServicesBalanceOverReadyEndpoints) {
  Service(kService);
  Slice(R"({metadata: {namespace: a, labels: {kubernetes.io/service-name: web}}, addressType: IPv4,
    ports: [{name: http, port: 8080, protocol: TCP}],
    endpoints: [{addresses: [10.244.0.2], conditions: {ready: true}},
                {addresses: [10.244.0.3], conditions: {ready: true}},
                {addresses: [10.244.0.4], conditions: {ready: false, serving: true, terminating: true}}]})");
  EXPECT_TRUE(Has("10.96.0.10 . tcp . 80 : goto s"));
  EXPECT_TRUE(Has("numgen random mod 2 map { 0 : 10.244.0.2 . 8080, 1 : 10.244.0.3 . 8080 }"));
  EXPECT_TRUE(Has("tcp . 30080 : goto n"));
  EXPECT_EQ(MakeRules(input_), MakeRules(input_)) << "equal input, equal text";
}

TEST_F(RulesTest, WithoutReadyOnesEndingEndpointsServeAndNoneRefuses) {
  Service(kService);
  EXPECT_TRUE(
      Has("set refused { type ipv4_addr . inet_proto . inet_service; elements = { 10.96.0.10 . tcp "
          ". 80 }"));
  EXPECT_TRUE(Has("elements = { tcp . 30080 }"));
  Slice(R"({metadata: {namespace: a, labels: {kubernetes.io/service-name: web}}, addressType: IPv4,
    ports: [{name: http, port: 8080}],
    endpoints: [{addresses: [10.244.0.4], conditions: {ready: false, serving: true, terminating: true}}]})");
  EXPECT_TRUE(Has("dnat to 10.244.0.4:8080"));
}

TEST_F(RulesTest, LocalTrafficPolicyKeepsToThisNode) {
  Service(
      R"({metadata: {namespace: a, name: web}, spec: {clusterIP: 10.96.0.10, internalTrafficPolicy: Local,
    ports: [{port: 80}]}})");
  Slice(R"({metadata: {namespace: a, labels: {kubernetes.io/service-name: web}}, addressType: IPv4,
    ports: [{name: "", port: 80}], endpoints: [{addresses: [10.1.0.1], nodeName: other}, {addresses: [10.244.0.2], nodeName: n1}]})");
  EXPECT_TRUE(Has("dnat to 10.244.0.2:80"));
  EXPECT_FALSE(Has("10.1.0.1"));
}

TEST_F(RulesTest, AffinityMovesOnlyTheBucketsOfAnEndpointThatLeft) {
  Service(
      R"({metadata: {namespace: a, name: web}, spec: {clusterIP: 10.96.0.10, sessionAffinity: ClientIP,
    ports: [{port: 80}]}})");
  const auto buckets = [&](const std::string& endpoints) {
    input_.slices.clear();
    Slice(
        R"({metadata: {namespace: a, labels: {kubernetes.io/service-name: web}}, addressType: IPv4,
      ports: [{name: "", port: 80}], endpoints: [)" +
        endpoints + "]}");
    const std::string rules = MakeRules(input_);
    const auto begin = rules.find("map { 0 : ");
    std::vector<std::string> out;
    std::string rest = rules.substr(begin + 6, rules.find('}', begin) - begin - 6);
    for (auto comma = rest.find(','); comma != std::string::npos; comma = rest.find(',')) {
      out.push_back(rest.substr(0, comma));
      rest = rest.substr(comma + 1);
    }
    return out;
  };
  const auto three =
      buckets("{addresses: [10.244.0.2]}, {addresses: [10.244.0.3]}, {addresses: [10.244.0.4]}");
  const auto two = buckets("{addresses: [10.244.0.2]}, {addresses: [10.244.0.3]}");
  ASSERT_EQ(three.size(), two.size());
  int moved = 0;
  for (std::size_t i = 0; i < three.size(); ++i) {
    const bool was_gone = three[i].find("10.244.0.4") != std::string::npos;
    EXPECT_TRUE(was_gone || three[i] == two[i]) << three[i] << " became " << two[i];
    moved += was_gone ? 1 : 0;
  }
  EXPECT_GT(moved, 0);
}

TEST_F(RulesTest, HeadlessServicesHaveNoRulesAndHostPortsDo) {
  Service("{metadata: {namespace: a, name: h}, spec: {clusterIP: None, ports: [{port: 80}]}}");
  EXPECT_FALSE(Has("None"));
  input_.pods.push_back(
      From(ParsePodView, R"({metadata: {namespace: a, name: p}, spec: {nodeName: n1,
    containers: [{ports: [{containerPort: 80, hostPort: 8081}]}]}, status: {podIP: 10.244.0.9}})"));
  EXPECT_TRUE(Has("tcp dport 8081 dnat to 10.244.0.9:80"));
}

TEST_F(RulesTest, PoliciesIsolateWhatTheySelect) {
  Pod("a", "web", "10.244.0.2", "web");
  Pod("a", "client", "10.244.0.3", "client");
  Pod("b", "client", "10.244.0.4", "client");
  EXPECT_TRUE(Has("map isolated_to { type ipv4_addr : verdict; }"));
  input_.policies.push_back(
      From(ParsePolicy,
           R"({metadata: {namespace: a, name: p}, spec: {podSelector: {matchLabels: {app: web}},
    ingress: [{from: [{podSelector: {matchLabels: {app: client}}}], ports: [{port: http}]}]}})"));
  EXPECT_TRUE(Has("isolated_to { type ipv4_addr : verdict; elements = { 10.244.0.2 : goto i"));
  EXPECT_TRUE(Has("ip saddr { 10.244.0.3 } tcp dport 8080 accept;\n    drop;"))
      << MakeRules(input_);
  EXPECT_TRUE(Has("map isolated_from { type ipv4_addr : verdict; }")) << "egress stays open";
  input_.policies[0] =
      From(ParsePolicy, R"({metadata: {namespace: a, name: p}, spec: {podSelector: {},
    policyTypes: [Egress], egress: [
      {to: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: kube-system}}, podSelector: {matchLabels: {k8s-app: kube-dns}}}], ports: [{port: 53, protocol: UDP}]},
      {to: [{namespaceSelector: {matchLabels: {team: b}}}]},
      {to: [{ipBlock: {cidr: 10.0.0.0/8, except: [10.1.0.0/16]}}], ports: [{port: 8000, endPort: 8100}]}]}})");
  EXPECT_TRUE(Has("ip daddr { 10.244.0.1 } udp dport 53 accept")) << "DNS counts as kube-dns";
  EXPECT_TRUE(Has("ip daddr { 10.244.0.4 } accept"));
  EXPECT_TRUE(Has("ip daddr 10.0.0.0/8 ip daddr != 10.1.0.0/16 tcp dport 8000-8100 accept"));
}

}  // namespace
}  // namespace sublet::node
