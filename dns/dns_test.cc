#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "client/testing/memory_server.h"
#include "dns/message.h"
#include "dns/server.h"
#include "dns/zone.h"

namespace sublet::dns {
namespace {

using kube::Json;

std::string Query(const std::string& name, Type type, bool edns = false) {
  std::string out("\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00", 11);
  out += static_cast<char>(edns ? 1 : 0);
  std::string_view rest = name;
  while (!rest.empty()) {
    const auto dot = rest.find('.');
    const auto label = rest.substr(0, dot);
    out += static_cast<char>(label.size());
    out += label;
    rest = dot == std::string_view::npos ? std::string_view() : rest.substr(dot + 1);
  }
  out += std::string("\x00\x00", 2);
  out += static_cast<char>(type);
  out += std::string("\x00\x01", 2);
  if (edns) {
    out += std::string("\x00\x00\x29\x04\xd0\x00\x00\x00\x00\x00\x00", 11);
  }
  return out;
}

TEST(Message, ReadsAQuestionInAnyCase) {
  const auto question = ParseQuery(Query("Web.Default.SVC.cluster.local", Type::kA, true));
  ASSERT_TRUE(question.ok());
  EXPECT_EQ(question->name, "web.default.svc.cluster.local");
  EXPECT_EQ(question->id, 0x1234);
  EXPECT_TRUE(question->edns);
  EXPECT_EQ(question->udp_bytes_max, 1232);
}

TEST(Message, RefusesLoopsAnswersAndCutMessages) {
  std::string loop =
      Query("a", Type::kA).substr(0, 12) + std::string("\xc0\x0c\x00\x01\x00\x01", 6);
  EXPECT_FALSE(ParseQuery(loop).ok());
  std::string answer = Query("a", Type::kA);
  answer[2] = static_cast<char>(0x81);
  EXPECT_FALSE(ParseQuery(answer).ok());
  EXPECT_EQ(BuildError(answer, Code::kFormat), "");
  const std::string whole = Query("abc.def", Type::kA);
  for (std::size_t size = 0; size < whole.size(); ++size) {
    EXPECT_FALSE(ParseQuery(whole.substr(0, size)).ok()) << size;
  }
}

TEST(Message, LongAnswersAreCutAndSaySo) {
  const auto question = ParseQuery(Query("many", Type::kA));
  Answer answer;
  for (int i = 0; i < 200; ++i) {
    Record record;
    record.name = "many";
    record.address = "10.0.0." + std::to_string(i);
    answer.records.push_back(record);
  }
  const std::string small = BuildReply(*question, answer, 512);
  EXPECT_LE(small.size(), 512u);
  EXPECT_NE(static_cast<unsigned char>(small[2]) & 0x02, 0);
  const std::string large = BuildReply(*question, answer, 65535);
  EXPECT_EQ(static_cast<unsigned char>(large[2]) & 0x02, 0);
  EXPECT_EQ(static_cast<unsigned char>(large[7]), 200);
}

class ZoneTest : public ::testing::Test {
 protected:
  ZoneTest()
      : client_(std::make_shared<client::testing::MemoryServer>(), "dns-test"),
        informers_(client_),
        zone_(informers_, "cluster.local") {
    Put("services",
        R"({"apiVersion":"v1","kind":"Service","metadata":{"name":"web","namespace":"default"},
        "spec":{"clusterIP":"10.96.0.5","ports":[{"name":"http","port":80,"protocol":"TCP"}]}})");
    Put("services",
        R"({"apiVersion":"v1","kind":"Service","metadata":{"name":"db","namespace":"default"},
        "spec":{"clusterIP":"None","ports":[{"name":"sql","port":5432}]}})");
    Put("services",
        R"({"apiVersion":"v1","kind":"Service","metadata":{"name":"out","namespace":"default"},
        "spec":{"type":"ExternalName","externalName":"Example.com"}})");
    PutSlice(
        R"({"apiVersion":"discovery.k8s.io/v1","kind":"EndpointSlice","metadata":{"name":"db-1",
        "namespace":"default","labels":{"kubernetes.io/service-name":"db"}},"addressType":"IPv4",
        "ports":[{"name":"sql","port":5432,"protocol":"TCP"}],
        "endpoints":[{"addresses":["10.244.0.7"],"hostname":"db-0","conditions":{"ready":true}},
                     {"addresses":["10.244.0.8"],"hostname":"db-1","conditions":{"ready":false}}]})");
    informers_.Start();
    EXPECT_TRUE(informers_.WaitSynced(After(std::chrono::seconds(10))));
  }
  ~ZoneTest() override { informers_.Stop(); }

  void Put(const char* resource, const char* text) {
    ASSERT_TRUE(
        client_.Create({{"", "v1", resource}, "default", "", ""}, *kube::ParseJson(text)).ok());
  }
  void PutSlice(const char* text) {
    ASSERT_TRUE(client_
                    .Create({{"discovery.k8s.io", "v1", "endpointslices"}, "default", "", ""},
                            *kube::ParseJson(text))
                    .ok());
  }
  std::string Ask(const std::string& name, Type type = Type::kA) {
    const auto question = ParseQuery(Query(name, type));
    const auto answer = zone_.Ask(*question);
    if (!answer) {
      return "(forward)";
    }
    if (answer->code == Code::kNoName) {
      return "(no name)";
    }
    std::string text;
    for (const Record& record : answer->records) {
      text += (text.empty() ? "" : " ") +
              (record.address.empty() ? record.target : record.address) +
              (record.port != 0 ? ":" + std::to_string(record.port) : "");
    }
    return text;
  }

  client::Client client_;
  client::InformerFactory informers_;
  Zone zone_;
};

TEST_F(ZoneTest, AnswersServicesEndpointsAndPods) {
  EXPECT_EQ(Ask("web.default.svc.cluster.local"), "10.96.0.5");
  EXPECT_EQ(Ask("web.default.svc.cluster.local", Type::kAaaa), "");
  EXPECT_EQ(Ask("db.default.svc.cluster.local"), "10.244.0.7");
  EXPECT_EQ(Ask("db-0.db.default.svc.cluster.local"), "10.244.0.7");
  EXPECT_EQ(Ask("db-1.db.default.svc.cluster.local"), "(no name)");
  EXPECT_EQ(Ask("out.default.svc.cluster.local"), "example.com");
  EXPECT_EQ(Ask("10-244-0-9.default.pod.cluster.local"), "10.244.0.9");
  EXPECT_EQ(Ask("nothing.default.svc.cluster.local"), "(no name)");
  EXPECT_EQ(Ask("web.other.svc.cluster.local"), "(no name)");
  EXPECT_EQ(Ask("example.com"), "(forward)");
}

TEST_F(ZoneTest, AnswersPortsAndAddresses) {
  EXPECT_EQ(Ask("_http._tcp.web.default.svc.cluster.local", Type::kSrv),
            "web.default.svc.cluster.local:80");
  EXPECT_EQ(Ask("_sql._tcp.db.default.svc.cluster.local", Type::kSrv),
            "db-0.db.default.svc.cluster.local:5432");
  EXPECT_EQ(Ask("_no._tcp.web.default.svc.cluster.local", Type::kSrv), "(no name)");
  EXPECT_EQ(Ask("5.0.96.10.in-addr.arpa", Type::kPtr), "web.default.svc.cluster.local");
  EXPECT_EQ(Ask("7.0.244.10.in-addr.arpa", Type::kPtr), "db-0.db.default.svc.cluster.local");
  EXPECT_EQ(Ask("1.1.1.1.in-addr.arpa", Type::kPtr), "(forward)");
}

TEST_F(ZoneTest, ServesOverUdpAndTcp) {
  auto server = Server::Open({}, zone_);
  ASSERT_TRUE(server.ok()) << server.error().message();
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons((*server)->port());
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const std::string query = Query("web.default.svc.cluster.local", Type::kA);
  char buffer[600];

  const int udp = socket(AF_INET, SOCK_DGRAM, 0);
  ASSERT_GT(
      sendto(udp, query.data(), query.size(), 0, reinterpret_cast<sockaddr*>(&to), sizeof(to)), 0);
  ssize_t got = recv(udp, buffer, sizeof(buffer), 0);
  ASSERT_GT(got, 12);
  EXPECT_EQ(std::string(buffer + got - 4, 4), std::string("\x0a\x60\x00\x05", 4));
  // A name of another domain is refused when there is nobody to ask.
  const std::string foreign = Query("example.com", Type::kA);
  sendto(udp, foreign.data(), foreign.size(), 0, reinterpret_cast<sockaddr*>(&to), sizeof(to));
  got = recv(udp, buffer, sizeof(buffer), 0);
  ASSERT_EQ(got, 12);
  EXPECT_EQ(buffer[3] & 0x0f, static_cast<int>(Code::kRefused));
  close(udp);

  const int tcp = socket(AF_INET, SOCK_STREAM, 0);
  ASSERT_EQ(connect(tcp, reinterpret_cast<sockaddr*>(&to), sizeof(to)), 0);
  std::string framed;
  framed += static_cast<char>(0);
  framed += static_cast<char>(query.size());
  framed += query;
  ASSERT_EQ(send(tcp, framed.data(), framed.size(), 0), static_cast<ssize_t>(framed.size()));
  got = recv(tcp, buffer, sizeof(buffer), 0);
  ASSERT_GT(got, 14);
  EXPECT_EQ(static_cast<unsigned char>(buffer[1]), got - 2);
  close(tcp);
  (*server)->Stop();
}

TEST_F(ZoneTest, SaysWhichPortIsTaken) {
  auto first = Server::Open({}, zone_);
  ASSERT_TRUE(first.ok()) << first.error().message();
  ServerOptions same;
  same.port = (*first)->port();
  auto second = Server::Open(same, zone_);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().reason(), Reason::kConflict);
  EXPECT_NE(second.error().message().find(":" + std::to_string(same.port)), std::string::npos);
  (*first)->Stop();
}

}  // namespace
}  // namespace sublet::dns
