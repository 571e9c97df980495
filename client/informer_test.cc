// Informers against the in-memory server: first state, live changes, own writes, lost streams.
#include "client/informer.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "client/json_scan.h"
#include "client/testing/memory_server.h"

namespace sublet::client {
namespace {

using kube::Json;
using testing::MemoryServer;

const Target kConfigMaps{{"", "v1", "configmaps"}, "a", "", ""};

Json ConfigMap(const std::string& name, const std::string& value = "1") {
  return {{"apiVersion", "v1"},
          {"kind", "ConfigMap"},
          {"metadata", {{"name", name}, {"labels", {{"app", "web"}}}}},
          {"data", {{"k", value}}}};
}

Target Named(const std::string& name) {
  Target target = kConfigMaps;
  target.name = name;
  return target;
}

// Counts changes and lets a test wait for a condition on the cache without a timed assertion.
class Watcher {
 public:
  explicit Watcher(Informer& informer) : informer_(informer) {
    informer.AddHandler([this](const ObjectPtr&, const ObjectPtr&) {
      MutexLock lock(mutex_);
      ++changes_;
      changed_.NotifyAll();
    });
  }
  bool Until(const std::function<bool()>& condition) {
    const Deadline deadline = After(std::chrono::seconds(20));
    MutexLock lock(mutex_);
    while (!condition()) {
      changed_.WaitUntil(mutex_, std::min(deadline, After(std::chrono::milliseconds(50))));
      if (std::chrono::steady_clock::now() >= deadline) {
        return false;
      }
    }
    return true;
  }
  int changes() {
    MutexLock lock(mutex_);
    return changes_;
  }
  std::string Value(const std::string& name) {
    const ObjectPtr object = informer_.Get({"a", name});
    return object ? std::string(kube::FindString(*object->Parse(), {"data", "k"})) : "";
  }

 private:
  Informer& informer_;
  Mutex mutex_;
  CondVar changed_;
  int changes_ = 0;
};

struct Fixture {
  explicit Fixture(MemoryServer::Options server_options = {})
      : server(std::make_shared<MemoryServer>(server_options)),
        client(server, "test/1"),
        factory(client),
        informer(factory.For({.resource = {"", "v1", "configmaps"}})),
        watcher(informer) {}
  ~Fixture() { factory.Stop(); }  // the watcher goes first, and handlers may still run
  void Start() {
    factory.Start();
    ASSERT_TRUE(factory.WaitSynced(After(std::chrono::seconds(20))));
  }
  std::shared_ptr<MemoryServer> server;
  Client client;
  InformerFactory factory;
  Informer& informer;
  Watcher watcher;
};

class InformerModes : public ::testing::TestWithParam<std::pair<bool, bool>> {};

TEST_P(InformerModes, ShowsTheFirstStateAndThenEveryChange) {
  Fixture f({.watch_list = GetParam().first, .notifies = GetParam().second});
  ASSERT_TRUE(f.client.Create(kConfigMaps, ConfigMap("one")).ok());
  f.Start();
  EXPECT_EQ(f.watcher.Value("one"), "1");
  ASSERT_TRUE(f.client.Create(kConfigMaps, ConfigMap("two")).ok());
  ASSERT_TRUE(f.client.Update(Named("one"), ConfigMap("one", "2")).ok());
  EXPECT_TRUE(f.watcher.Until([&] { return f.watcher.Value("one") == "2"; }));
  EXPECT_TRUE(f.watcher.Until([&] { return f.informer.size() == 2; }));
  ASSERT_TRUE(f.client.Delete(Named("one")).ok());
  EXPECT_TRUE(f.watcher.Until([&] { return f.informer.size() == 1; }));
  EXPECT_EQ(f.informer.List()[0]->Label("app"), "web");
}

TEST_P(InformerModes, ListsAnewAfterItsVersionExpiredAndReportsWhatWasMissed) {
  Fixture f({.watch_list = GetParam().first, .notifies = GetParam().second});
  ASSERT_TRUE(f.client.Create(kConfigMaps, ConfigMap("one")).ok());
  f.Start();
  f.server->HoldEvents();
  ASSERT_TRUE(f.client.Delete(Named("one")).ok());
  ASSERT_TRUE(f.client.Create(kConfigMaps, ConfigMap("two")).ok());
  f.server->CutWatches(true);
  f.server->ReleaseEvents();
  EXPECT_TRUE(f.watcher.Until([&] { return !f.informer.Get({"a", "one"}); }));
  EXPECT_TRUE(f.watcher.Until([&] { return f.informer.Get({"a", "two"}) != nullptr; }));
}

INSTANTIATE_TEST_SUITE_P(WatchListOrList, InformerModes,
                         ::testing::Values(std::pair(true, true), std::pair(false, true),
                                           std::pair(true, false), std::pair(false, false)));

TEST(Informer, ListsWhenTheServerTakesAWatchListAndThenRefusesIt) {
  Fixture f({.watch_list_ends = true});
  ASSERT_TRUE(f.client.Create(kConfigMaps, ConfigMap("one")).ok());
  f.Start();
  EXPECT_EQ(f.watcher.Value("one"), "1");
  ASSERT_TRUE(f.client.Create(kConfigMaps, ConfigMap("two")).ok());
  EXPECT_TRUE(f.watcher.Until([&] { return f.informer.size() == 2; }));
}

TEST(Informer, ForgetsWhatIsDeletedBeforeTheInitialEventsEnd) {
  Fixture f({.gone_at_once = true});
  ASSERT_TRUE(f.client.Create(kConfigMaps, ConfigMap("one")).ok());
  f.Start();
  EXPECT_EQ(f.informer.size(), 0u);
  ASSERT_TRUE(f.client.Create(kConfigMaps, ConfigMap("two")).ok());
  EXPECT_TRUE(f.watcher.Until([&] { return f.informer.size() == 1; }));
}

TEST(Informer, ResumesAStreamThatWasCutWithoutListing) {
  Fixture f;
  f.Start();
  ASSERT_TRUE(f.client.Create(kConfigMaps, ConfigMap("one")).ok());
  ASSERT_TRUE(f.watcher.Until([&] { return f.informer.size() == 1; }));
  f.server->CutWatches(false);
  ASSERT_TRUE(f.client.Create(kConfigMaps, ConfigMap("two")).ok());
  EXPECT_TRUE(f.watcher.Until([&] { return f.informer.size() == 2; }));
  f.factory.Stop();                   // what is in the cache is told a moment later
  EXPECT_EQ(f.watcher.changes(), 2);  // nothing was reported twice
}

TEST(Informer, ShowsOwnWritesAtOnceAndIgnoresTheOlderEvents) {
  Fixture f;
  f.Start();
  f.server->HoldEvents();
  const Json created = *f.client.Create(kConfigMaps, ConfigMap("one"));
  f.informer.NoteWritten(created);
  EXPECT_EQ(f.watcher.Value("one"), "1");
  const Json updated = *f.client.Update(Named("one"), ConfigMap("one", "2"));
  f.informer.NoteWritten(updated);
  EXPECT_EQ(f.watcher.Value("one"), "2");
  ASSERT_TRUE(f.client.Create(kConfigMaps, ConfigMap("end")).ok());
  f.server->ReleaseEvents();
  ASSERT_TRUE(f.watcher.Until([&] { return f.informer.size() == 2; }));
  EXPECT_EQ(f.watcher.Value("one"), "2");
  EXPECT_EQ(f.watcher.changes(), 3);  // added, updated, and the other one; no event came back
}

TEST(Informer, DoesNotBringBackWhatItsOwnWriterDeleted) {
  Fixture f;
  f.Start();
  f.server->HoldEvents();
  const Json created = *f.client.Create(kConfigMaps, ConfigMap("one"));
  f.informer.NoteWritten(created);
  ASSERT_TRUE(f.client.Delete(Named("one")).ok());
  f.informer.NoteDeleted({"a", "one"}, std::string(kube::FindString(created, {"metadata", "uid"})));
  EXPECT_EQ(f.informer.size(), 0U);
  ASSERT_TRUE(f.client.Create(kConfigMaps, ConfigMap("end")).ok());
  f.server->ReleaseEvents();
  ASSERT_TRUE(f.watcher.Until([&] { return f.informer.Get({"a", "end"}) != nullptr; }));
  EXPECT_EQ(f.informer.Get({"a", "one"}), nullptr);
  EXPECT_EQ(f.watcher.changes(), 3);
}

TEST(Informer, IgnoresAWriteItsStreamHasAlreadyPassed) {
  Fixture f;
  f.Start();
  const Json created = *f.client.Create(kConfigMaps, ConfigMap("one"));
  ASSERT_TRUE(f.watcher.Until([&] { return f.informer.size() == 1; }));
  ASSERT_TRUE(f.client.Delete(Named("one")).ok());
  ASSERT_TRUE(f.watcher.Until([&] { return f.informer.size() == 0; }));
  f.informer.NoteWritten(created);
  EXPECT_EQ(f.informer.size(), 0U);
}

TEST(Informer, IndexesByLabelAndController) {
  Fixture f;
  f.informer.AddIndex(kLabelIndex, IndexByLabel);
  f.informer.AddIndex(kControllerIndex, IndexByController);
  Json owned = ConfigMap("owned");
  owned["metadata"]["ownerReferences"] = Json::array(
      {{{"apiVersion", "v1"}, {"kind", "X"}, {"name", "x"}, {"uid", "u1"}, {"controller", true}}});
  ASSERT_TRUE(f.client.Create(kConfigMaps, owned).ok());
  ASSERT_TRUE(f.client.Create(kConfigMaps, ConfigMap("free")).ok());
  f.Start();
  EXPECT_EQ(f.informer.ByIndex(kLabelIndex, "app=web").size(), 2U);
  ASSERT_EQ(f.informer.ByIndex(kControllerIndex, "u1").size(), 1U);
  EXPECT_EQ(f.informer.ByIndex(kControllerIndex, "u1")[0]->key.name, "owned");
  owned["metadata"].erase("ownerReferences");
  ASSERT_TRUE(f.client.Update(Named("owned"), owned).ok());
  EXPECT_TRUE(f.watcher.Until([&] { return f.informer.ByIndex(kControllerIndex, "u1").empty(); }));
}

TEST(Informer, KeepsTrimmedBytesAndATypedRecordWhenAsked) {
  auto server = std::make_shared<MemoryServer>();
  const Client client(server, "test/1");
  ASSERT_TRUE(client.Create(kConfigMaps, ConfigMap("one", "7")).ok());
  InformerFactory factory(client);
  Informer& informer = factory.For(
      {.resource = {"", "v1", "configmaps"},
       .trim = [](Json& object) { object.erase("data"); },
       .make_record = [](const Json& object) -> std::shared_ptr<const void> {
         return std::make_shared<const std::string>(kube::FindString(object, {"data", "k"}));
       }});
  factory.Start();
  ASSERT_TRUE(factory.WaitSynced(After(std::chrono::seconds(20))));
  const ObjectPtr object = informer.Get({"a", "one"});
  EXPECT_EQ(object->As<std::string>(), "7");
  EXPECT_EQ(object->json.find("\"data\""), std::string_view::npos);
}

TEST(Informer, ShowsButDoesNotStoreWhatItIsToldNotToKeep) {
  auto server = std::make_shared<MemoryServer>();
  const Client client(server, "test/1");
  ASSERT_TRUE(client.Create(kConfigMaps, ConfigMap("one")).ok());
  InformerFactory factory(client);
  Informer& informer =
      factory.For({.resource = {"", "v1", "configmaps"},
                   .keep = [](const CachedObject& object) { return object.key.name != "one"; }});
  Watcher watcher(informer);
  factory.Start();
  ASSERT_TRUE(factory.WaitSynced(After(std::chrono::seconds(20))));
  EXPECT_EQ(informer.size(), 0U);
  EXPECT_EQ(watcher.changes(), 1);
  ASSERT_TRUE(client.Delete(Named("one")).ok());
  EXPECT_TRUE(watcher.Until([&] { return informer.size() == 0; }));
  ASSERT_TRUE(client.Create(kConfigMaps, ConfigMap("two")).ok());
  EXPECT_TRUE(watcher.Until([&] { return informer.size() == 1; }));
  factory.Stop();  // what is in the cache is told a moment later
  EXPECT_EQ(watcher.changes(), 3);
}

TEST(JsonScan, ReadsMetadataAsParsingDoes) {
  const Json object = *kube::ParseJson(R"({"a":[1,{"b":"}\""}],"metadata":{"name":"n\u0041",
    "namespace":"s","uid":"u","resourceVersion":"17","generation":3,"creationTimestamp":"t",
    "deletionTimestamp":"d","labels":{"b":"2","a":"1"},"finalizers":["f"],
    "managedFields":[{"x":{"y":"]"}}],"ownerReferences":[{"kind":"K","uid":"o","controller":true}]}})");
  const CachedObject parsed = *ReadMetadata(object);
  const CachedObject scanned = *ScanMetadata(kube::Dump(object));
  EXPECT_EQ(scanned.key, parsed.key);
  EXPECT_EQ(scanned.key.name, "nA");
  EXPECT_EQ(scanned.revision, 17);
  EXPECT_EQ(scanned.generation, 3);
  EXPECT_EQ(scanned.labels, parsed.labels);
  EXPECT_EQ(scanned.finalizers, parsed.finalizers);
  EXPECT_EQ(scanned.deletion_timestamp, "d");
  ASSERT_NE(scanned.controller(), nullptr);
  EXPECT_EQ(scanned.controller()->uid, "o");
}

TEST(JsonScan, RefusesWhatIsCutShort) {
  const std::string text = R"({"metadata":{"name":"n","labels":{"a":"b"}}})";
  for (std::size_t size = 0; size + 1 < text.size(); ++size) {
    EXPECT_FALSE(ScanMetadata(text.substr(0, size)).ok()) << size;
  }
  EXPECT_TRUE(ScanMetadata(text).ok());
}

}  // namespace
}  // namespace sublet::client
