// A Service whose address differs from its twin's is made anew; a kill between the two steps of that
// must not lose what the tenant was told is stored.
#include "syncer/kinds/service_syncer.h"

#include <gtest/gtest.h>

#include <map>

#include "client/events.h"
#include "client/testing/memory_server.h"
#include "kube/object.h"

namespace sublet::syncer {
namespace {

using kube::Json;

class MapFacts final : public LocalFacts {
 public:
  Result<void> Put(
      const std::vector<std::pair<std::string, std::optional<std::string>>>& entries) override {
    for (const auto& [key, value] : entries) {
      if (value) {
        facts_[key] = *value;
      } else {
        facts_.erase(key);
      }
    }
    return Ok();
  }
  Result<std::vector<std::pair<std::string, std::string>>> List(std::string_view prefix) override {
    std::vector<std::pair<std::string, std::string>> found;
    for (const auto& [key, value] : facts_) {
      if (key.starts_with(prefix)) {
        found.emplace_back(key, value);
      }
    }
    return found;
  }

 private:
  std::map<std::string, std::string> facts_;
};

// The tenant's API as a syncer sees it that is killed right after its next delete was answered.
class KilledAfterDelete final : public client::Transport {
 public:
  explicit KilledAfterDelete(std::shared_ptr<client::Transport> inner) : inner_(std::move(inner)) {}
  Result<client::HttpResponse> RoundTrip(const client::HttpRequest& request) override {
    if (killed) {
      return ServiceUnavailable("killed");
    }
    killed = request.method == "DELETE";
    return inner_->RoundTrip(request);
  }
  Result<std::unique_ptr<client::Stream>> OpenStream(const client::HttpRequest& request) override {
    return inner_->OpenStream(request);
  }
  Result<std::unique_ptr<client::Tunnel>> OpenTunnel(const client::HttpRequest& request) override {
    return inner_->OpenTunnel(request);
  }
  bool killed = false;

 private:
  std::shared_ptr<client::Transport> inner_;
};

// A host on which somebody else is faster: the first POST finds its own name and address taken, and the
// address is refused first, as upstream does.
class TakenMeanwhile final : public client::Transport {
 public:
  explicit TakenMeanwhile(std::shared_ptr<client::Transport> inner) : inner_(std::move(inner)) {}
  Result<client::HttpResponse> RoundTrip(const client::HttpRequest& request) override {
    if (taken || request.method != "POST") {
      return inner_->RoundTrip(request);
    }
    taken = true;
    SUBLET_RETURN_IF_ERROR(inner_->RoundTrip(request));
    return Status(Reason::kInvalid, "failed to allocate IP: provided IP is already allocated");
  }
  Result<std::unique_ptr<client::Stream>> OpenStream(const client::HttpRequest& request) override {
    return inner_->OpenStream(request);
  }
  Result<std::unique_ptr<client::Tunnel>> OpenTunnel(const client::HttpRequest& request) override {
    return inner_->OpenTunnel(request);
  }
  bool taken = false;

 private:
  std::shared_ptr<client::Transport> inner_;
};

const client::Target kVirtual{{"", "v1", "services"}, "default", "web", ""};
const kube::ObjectKey kKey{"default", "web"};

// One life of the syncer's process; facts and servers outlive it.
struct Life {
  Life(LocalFacts& facts, std::shared_ptr<client::Transport> tenant_api,
       std::shared_ptr<client::Transport> host_api)
      : tenant_client(std::move(tenant_api), "test"),
        host_client(std::move(host_api), "test"),
        mapping(facts),
        reporter(recorder, mapping, tenant),
        context{tenant,  config,   tenant_client, host_client, tenant_informers, host_informers,
                mapping, reporter, SystemClock(), Json(),      "10.96.0.9",      "10.96.0.9"},
        services(context) {
    EXPECT_TRUE(mapping.Load().ok());
    services.Watch([](const kube::ObjectKey&) {});
  }
  const Tenant tenant{"t", "sublet-t"};
  const SyncConfig config;
  client::Client tenant_client;
  client::Client host_client;
  client::InformerFactory tenant_informers{tenant_client};
  client::InformerFactory host_informers{host_client};
  client::EventRecorder recorder{tenant_client, "test", "", SystemClock()};
  NameMapping mapping;
  Reporter reporter;
  SyncContext context;
  ServiceSyncer services;
};

Json Service(const char* ip) {
  return {{"apiVersion", "v1"},
          {"kind", "Service"},
          {"metadata", {{"name", "web"}, {"namespace", "default"}, {"labels", {{"app", "web"}}}}},
          {"spec",
           {{"type", "ClusterIP"},
            {"clusterIP", ip},
            {"ports", Json::array({{{"port", 80}, {"protocol", "TCP"}}})}}}};
}

class ServiceSync : public ::testing::Test {
 protected:
  // The tenant's Service, as stored.
  Json Create() {
    return *user_.Create({{"", "v1", "services"}, "default", "", ""}, Service("10.96.1.1"));
  }
  Json HostTwin(const Life& life) {
    const client::Target target{{"", "v1", "services"}, "sublet-t", "web-x-default-x-t", ""};
    auto found = life.host_client.Get(target);
    return found.ok() ? *found : Json();
  }
  MapFacts facts_;
  std::shared_ptr<client::testing::MemoryServer> tenant_ =
      std::make_shared<client::testing::MemoryServer>();
  std::shared_ptr<client::testing::MemoryServer> host_ =
      std::make_shared<client::testing::MemoryServer>();
  const client::Client user_{tenant_, "user"};
};

TEST_F(ServiceSync, AKillBetweenTheTwoStepsOfARebuildLosesNothing) {
  const Json stored = Create();
  {
    auto dying = std::make_shared<KilledAfterDelete>(tenant_);
    Life life(facts_, dying, host_);
    ASSERT_TRUE(life.services.SyncToHost(stored).ok());
    // The host gave the twin another address meanwhile.
    const client::Target twin{{"", "v1", "services"}, "sublet-t", "web-x-default-x-t", ""};
    ASSERT_TRUE(
        life.host_client
            .Patch(twin, client::PatchType::kMerge, {{"spec", {{"clusterIP", "10.96.2.2"}}}})
            .ok());
    EXPECT_FALSE(life.services.Sync(stored, HostTwin(life)).ok());
    EXPECT_TRUE(dying->killed);
    EXPECT_FALSE(user_.Get(kVirtual).ok());
  }
  Life life(facts_, tenant_, host_);
  ASSERT_TRUE(life.services.SyncToVirtual(kKey, HostTwin(life)).ok());
  const auto again = user_.Get(kVirtual);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ((*again)["metadata"]["labels"]["app"], "web");
  EXPECT_EQ((*again)["spec"]["ports"][0]["port"], 80);
  EXPECT_FALSE((*again)["spec"].contains("clusterIP"));  // given by the twin, as the API answers
  EXPECT_FALSE(HostTwin(life).is_null());
  // From here on it is a Service as any other: deleted by its tenant, its twin goes.
  ASSERT_TRUE(user_.Delete(kVirtual).ok());
  ASSERT_TRUE(life.services.SyncToVirtual(kKey, HostTwin(life)).ok());
  EXPECT_TRUE(HostTwin(life).is_null());
  EXPECT_FALSE(user_.Get(kVirtual).ok());
}

TEST_F(ServiceSync, ARebuildThatLostItsTwinTooIsFinished) {
  const Json stored = Create();
  {
    auto dying = std::make_shared<KilledAfterDelete>(tenant_);
    Life life(facts_, dying, host_);
    ASSERT_TRUE(life.services.SyncToHost(stored).ok());
    Json moved = HostTwin(life);
    moved["spec"]["clusterIP"] = "10.96.2.2";
    EXPECT_FALSE(life.services.Sync(stored, moved).ok());
  }
  Life life(facts_, tenant_, host_);
  ASSERT_TRUE(life.services.Gone(kKey).ok());
  EXPECT_TRUE(user_.Get(kVirtual).ok());
}

TEST_F(ServiceSync, APostOfATakenNameTouchesNoTwinAndDelaysNoDeletion) {
  const Json stored = Create();
  Life life(facts_, tenant_, host_);
  life.tenant_informers.Start();
  ASSERT_TRUE(life.tenant_informers.WaitSynced(After(std::chrono::seconds(20))));
  ASSERT_TRUE(life.services.SyncToHost(stored).ok());
  Json second = Service("10.96.1.1");
  second["spec"]["ports"][0]["port"] = 81;
  const auto refused = life.services.Allocate(second, After(std::chrono::seconds(20)));
  ASSERT_FALSE(refused.ok());
  EXPECT_TRUE(refused.error().Is(Reason::kAlreadyExists)) << refused.error().message();
  EXPECT_EQ(HostTwin(life)["spec"]["ports"][0]["port"], 80);
  ASSERT_TRUE(user_.Delete(kVirtual).ok());
  ASSERT_TRUE(life.services.SyncToVirtual(kKey, HostTwin(life)).ok());
  EXPECT_TRUE(HostTwin(life).is_null());
  life.tenant_informers.Stop();
}

TEST_F(ServiceSync, AnAddressThatItsOwnTwinGotMeanwhileIsNotRefused) {
  const Json stored = Create();
  auto host = std::make_shared<TakenMeanwhile>(host_);
  Life life(facts_, tenant_, host);
  const auto given = life.services.Allocate(stored, After(std::chrono::seconds(20)));
  ASSERT_TRUE(given.ok()) << given.error().message();
  EXPECT_TRUE(host->taken);
  EXPECT_EQ((*given)["clusterIP"], HostTwin(life)["spec"]["clusterIP"]);
}

}  // namespace
}  // namespace sublet::syncer
