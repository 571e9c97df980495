#include "apiserver/handlers/testing/api_fixture.h"

namespace sublet::apiserver {
namespace {

using kube::Json;
using testing::ApiFixture;

constexpr const char* kMaps = "/api/v1/namespaces/ns/configmaps";

class Crud : public ApiFixture {
 protected:
  Crud() { MakeNamespace("ns"); }
  static Json Map(const std::string& name, const std::string& value) {
    return {{"apiVersion", "v1"},
            {"kind", "ConfigMap"},
            {"metadata", {{"name", name}, {"labels", {{"v", value}}}}},
            {"data", {{"k", value}}}};
  }
};

TEST_F(Crud, ATerminatingNamespaceOutlivesWritesOfItsStatus) {
  MakeNamespace("ending");
  Json body = Do("DELETE", "/api/v1/namespaces/ending").Tree();
  ASSERT_EQ(body["status"]["phase"], "Terminating");
  body["status"]["conditions"] = Json::array({{{"type", "NamespaceContentRemaining"},
                                               {"status", "True"},
                                               {"reason", "SomeResourcesRemain"},
                                               {"message", "m"},
                                               {"lastTransitionTime", "2026-01-01T00:00:00Z"}}});
  EXPECT_EQ(Put("/api/v1/namespaces/ending/status", body).code, 200);
  const auto held = Get("/api/v1/namespaces/ending");
  ASSERT_EQ(held.code, 200);
  body = held.Tree();
  body["spec"]["finalizers"] = Json::array();
  EXPECT_EQ(Put("/api/v1/namespaces/ending/finalize", body).code, 200);
  EXPECT_EQ(Get("/api/v1/namespaces/ending").code, 404);
}

TEST_F(Crud, ABodyMayNameItsNamespaceHoweverLong) {
  const std::string name = "a-namespace-beyond-sixteen-characters";
  MakeNamespace(name);
  Json map = Map("a", "1");
  map["metadata"]["namespace"] = name;
  EXPECT_EQ(Post("/api/v1/namespaces/" + name + "/configmaps", map).code, 201);
  EXPECT_EQ(Post(kMaps, map).code, 400);
}

TEST_F(Crud, CreateAnswersTheStoredObjectWithSystemFields) {
  const auto answer = Post(kMaps, Map("a", "1"));
  ASSERT_EQ(answer.code, 201) << answer.body;
  const Json tree = answer.Tree();
  EXPECT_EQ(tree["kind"], "ConfigMap");
  EXPECT_EQ(tree["apiVersion"], "v1");
  EXPECT_EQ(tree["metadata"]["namespace"], "ns");
  EXPECT_EQ(tree["metadata"]["uid"].get<std::string>().size(), 36u);
  EXPECT_FALSE(tree["metadata"]["resourceVersion"].get<std::string>().empty());
  EXPECT_EQ(Get(std::string(kMaps) + "/a").body, answer.body);
}

TEST_F(Crud, FailuresCarryKubernetesTexts) {
  ASSERT_EQ(Post(kMaps, Map("a", "1")).code, 201);
  auto answer = Post(kMaps, Map("a", "1"));
  EXPECT_EQ(answer.code, 409);
  EXPECT_EQ(answer.reason(), "AlreadyExists");
  EXPECT_EQ(answer.message(), "configmaps \"a\" already exists");
  answer = Get(std::string(kMaps) + "/nope");
  EXPECT_EQ(answer.code, 404);
  EXPECT_EQ(answer.message(), "configmaps \"nope\" not found");
  EXPECT_EQ(answer.Tree()["details"], Json({{"name", "nope"}, {"kind", "configmaps"}}));
  answer = Post("/api/v1/namespaces/absent/configmaps", Map("a", "1"));
  EXPECT_EQ(answer.code, 404);
  EXPECT_EQ(answer.message(), "namespaces \"absent\" not found");
  answer = Do("POST", kMaps, "{\"kind\":");
  EXPECT_EQ(answer.code, 400);
  answer = Get("/api/v1/unknowns");
  EXPECT_EQ(answer.code, 404);
  EXPECT_EQ(answer.message(), "the server could not find the requested resource");
  answer = Get("/apis/no.such.group/v1/things");
  EXPECT_EQ(answer.code, 404);
  EXPECT_EQ(answer.body, "404 page not found\n");
  answer = Do("PUT", kMaps, "{}");
  EXPECT_EQ(answer.code, 405);
}

TEST_F(Crud, UpdateChecksTheResourceVersion) {
  const Json first = Post(kMaps, Map("a", "1")).Tree();
  Json changed = first;
  changed["data"]["k"] = "2";
  const auto second = Put(std::string(kMaps) + "/a", changed);
  ASSERT_EQ(second.code, 200) << second.body;
  EXPECT_NE(second.Tree()["metadata"]["resourceVersion"], first["metadata"]["resourceVersion"]);
  const auto stale = Put(std::string(kMaps) + "/a", changed);
  EXPECT_EQ(stale.code, 409);
  EXPECT_EQ(stale.message(),
            "Operation cannot be fulfilled on configmaps \"a\": the object has been modified; "
            "please apply your changes to the latest version and try again");
  changed["metadata"].erase("resourceVersion");
  changed["data"]["k"] = "3";
  EXPECT_EQ(Put(std::string(kMaps) + "/a", changed).code, 200);
}

TEST_F(Crud, AnUpdateThatChangesNothingKeepsTheRevision) {
  const Json first = Post(kMaps, Map("a", "1")).Tree();
  const auto again = Put(std::string(kMaps) + "/a", first);
  ASSERT_EQ(again.code, 200) << again.body;
  EXPECT_EQ(again.Tree()["metadata"]["resourceVersion"], first["metadata"]["resourceVersion"]);
}

TEST_F(Crud, DeleteAnswersAStatusAndTheObjectIsGone) {
  const Json first = Post(kMaps, Map("a", "1")).Tree();
  const auto answer = Do("DELETE", std::string(kMaps) + "/a");
  EXPECT_EQ(answer.code, 200);
  EXPECT_EQ(answer.Tree()["status"], "Success");
  EXPECT_EQ(answer.Tree()["details"]["uid"], first["metadata"]["uid"]);
  EXPECT_EQ(answer.Tree()["details"]["kind"], "configmaps");
  EXPECT_EQ(Get(std::string(kMaps) + "/a").code, 404);
}

TEST_F(Crud, FinalizersHoldADeletedObject) {
  Json map = Map("a", "1");
  map["metadata"]["finalizers"] = {"example.com/hold"};
  ASSERT_EQ(Post(kMaps, map).code, 201);
  const auto deleting = Do("DELETE", std::string(kMaps) + "/a");
  EXPECT_EQ(deleting.code, 200);
  Json object = deleting.Tree();
  EXPECT_TRUE(object["metadata"].contains("deletionTimestamp")) << deleting.body;
  EXPECT_EQ(object["metadata"]["deletionGracePeriodSeconds"], 0);
  object["metadata"].erase("finalizers");
  const auto last = Put(std::string(kMaps) + "/a", object);
  EXPECT_EQ(last.code, 200) << last.body;
  EXPECT_EQ(Get(std::string(kMaps) + "/a").code, 404);
}

TEST_F(Crud, ListPagesStayAtTheFirstRevision) {
  for (const char* name : {"a", "b", "c", "d", "e"}) {
    ASSERT_EQ(Post(kMaps, Map(name, "1")).code, 201);
  }
  const Json first = Get(std::string(kMaps) + "?limit=2").Tree();
  EXPECT_EQ(first["kind"], "ConfigMapList");
  EXPECT_EQ(first["items"].size(), 2u);
  EXPECT_FALSE(first["items"][0].contains("kind"));
  EXPECT_EQ(first["metadata"]["remainingItemCount"], 3);
  ASSERT_EQ(Post(kMaps, Map("bb", "1")).code, 201);
  std::vector<std::string> names;
  Json page = first;
  while (true) {
    for (const auto& item : page["items"]) {
      names.push_back(item["metadata"]["name"].get<std::string>());
    }
    if (!page["metadata"].contains("continue")) {
      break;
    }
    page = Get(std::string(kMaps) +
               "?limit=2&continue=" + page["metadata"]["continue"].get<std::string>())
               .Tree();
    EXPECT_EQ(page["metadata"]["resourceVersion"], first["metadata"]["resourceVersion"]);
  }
  EXPECT_EQ(names, (std::vector<std::string>{"a", "b", "c", "d", "e"}));
  EXPECT_EQ(Get(std::string(kMaps) + "?continue=abc").code, 400);
  const auto future = Get(std::string(kMaps) + "?resourceVersion=999999");
  EXPECT_EQ(future.code, 504);
  EXPECT_EQ(future.reason(), "Timeout");
}

TEST_F(Crud, SelectorsFilterListsAndWatches) {
  ASSERT_EQ(Post(kMaps, Map("a", "1")).code, 201);
  ASSERT_EQ(Post(kMaps, Map("b", "2")).code, 201);
  const Json list = Get(std::string(kMaps) + "?labelSelector=v%3D2").Tree();
  ASSERT_EQ(list["items"].size(), 1u);
  EXPECT_EQ(list["items"][0]["metadata"]["name"], "b");
  EXPECT_EQ(Get(std::string(kMaps) + "?fieldSelector=metadata.name%3Da").Tree()["items"].size(),
            1u);
  EXPECT_EQ(Get(std::string(kMaps) + "?fieldSelector=spec.x%3Da").code, 400);

  auto watch = Watch(std::string(kMaps) + "?watch=true&labelSelector=v%3D2&resourceVersion=" +
                     list["metadata"]["resourceVersion"].get<std::string>());
  Json map = Get(std::string(kMaps) + "/a").Tree();
  map["metadata"]["labels"]["v"] = "2";
  ASSERT_EQ(Put(std::string(kMaps) + "/a", map).code, 200);
  Json event = watch.Next();
  EXPECT_EQ(event["type"], "ADDED");
  map["metadata"].erase("resourceVersion");
  map["metadata"]["labels"]["v"] = "1";
  const Json after = Put(std::string(kMaps) + "/a", map).Tree();
  event = watch.Next();
  EXPECT_EQ(event["type"], "DELETED");
  EXPECT_EQ(event["object"]["metadata"]["labels"]["v"], "2");
  EXPECT_EQ(event["object"]["metadata"]["resourceVersion"], after["metadata"]["resourceVersion"]);
}

TEST_F(Crud, WatchListMarksTheEndOfTheInitialObjects) {
  ASSERT_EQ(Post(kMaps, Map("a", "1")).code, 201);
  auto watch = Watch(std::string(kMaps) +
                     "?watch=true&sendInitialEvents=true&allowWatchBookmarks=true&"
                     "resourceVersionMatch=NotOlderThan");
  EXPECT_EQ(watch.Next()["type"], "ADDED");
  const Json bookmark = watch.Next();
  EXPECT_EQ(bookmark["type"], "BOOKMARK");
  EXPECT_EQ(bookmark["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
  const Json created = Post(kMaps, Map("b", "1")).Tree();
  const Json event = watch.Next();
  EXPECT_EQ(event["type"], "ADDED");
  EXPECT_EQ(event["object"], created);
  ASSERT_EQ(Do("DELETE", std::string(kMaps) + "/b").code, 200);
  EXPECT_EQ(watch.Next()["type"], "DELETED");
  EXPECT_EQ(Get(std::string(kMaps) + "?watch=true&sendInitialEvents=true").code, 422);
}

// What this process writes its own watches need not parse; the fixture compares each tree.
TEST_F(Crud, WatchesOfThisProcessGetTheTreesOfTheWriters) {
  EXPECT_EQ(fresh_trees_->size(), 0U);
  ASSERT_EQ(
      Post("/api/v1/namespaces/ns/serviceaccounts", {{"metadata", {{"name", "default"}}}}).code,
      201);
  EXPECT_EQ(fresh_trees_->size(), 0U) << "nobody reads them";
  auto watch =
      Watch("/api/v1/pods?watch=1&resourceVersion=" + std::to_string(store_->CurrentRevision()));
  auto table = Do("GET", "/api/v1/pods?watch=1", "",
                  {{"accept", "application/json;as=Table;v=v1;g=meta.k8s.io"}});
  testing::WatchReader rows(std::move(table.stream));
  const Json pod = {{"metadata", {{"name", "p"}}},
                    {"spec", {{"containers", Json::array({{{"name", "c"}, {"image", "i"}}})}}}};
  ASSERT_EQ(Post("/api/v1/namespaces/ns/pods", pod).code, 201);
  const Json binding = {{"metadata", {{"name", "p"}}}, {"target", {{"name", "n"}}}};
  ASSERT_EQ(Post("/api/v1/namespaces/ns/pods/p/binding", binding).code, 201);
  ASSERT_EQ(Patch("/api/v1/namespaces/ns/pods/p/status", "application/merge-patch+json",
                  {{"status", {{"phase", "Running"}}}})
                .code,
            200);
  for (const char* expected : {"ADDED", "MODIFIED", "MODIFIED"}) {
    EXPECT_EQ(watch.Next()["type"], expected);
    EXPECT_NE(rows.Next(), nullptr);
  }
  EXPECT_EQ(watch.trees(), 3);
  EXPECT_EQ(rows.trees(), 0) << "no tree stands for a table";
  ASSERT_EQ(Do("DELETE", "/api/v1/namespaces/ns/pods/p?gracePeriodSeconds=0").code, 200);
  EXPECT_EQ(watch.Next()["type"], "DELETED");
  EXPECT_EQ(watch.trees(), 3) << "a deleted object's last state has a revision of its own";
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (fresh_trees_->size() > 0 && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  EXPECT_EQ(fresh_trees_->size(), 0U) << "trees outlive a pause in writing";
}

TEST_F(Crud, ARolledBackStateComesWithoutTheTreeOfItsFirstRevision) {
  auto watch = Watch("/api/v1/configmaps?watch=1&resourceVersion=" +
                     std::to_string(store_->CurrentRevision()));
  ASSERT_EQ(Post(kMaps, Map("a", "1")).code, 201);
  const auto then = store_->CurrentRevision();
  EXPECT_EQ(watch.Next()["type"], "ADDED");
  ASSERT_EQ(Do("DELETE", std::string(kMaps) + "/a").code, 200);
  EXPECT_EQ(watch.Next()["type"], "DELETED");
  ASSERT_TRUE(store_->Rollback("/registry/core/configmaps/", then).ok());
  const Json again = watch.Next();
  EXPECT_EQ(again["type"], "ADDED");
  EXPECT_EQ(again["object"]["metadata"]["resourceVersion"],
            std::to_string(store_->CurrentRevision()));
}

TEST_F(Crud, TreesOfWritersAreBounded) {
  auto watch = Watch("/api/v1/configmaps?watch=1");
  for (int i = 0; i < 300; ++i) {
    ASSERT_EQ(Post(kMaps, Map("c" + std::to_string(i), "v")).code, 201);
  }
  EXPECT_LE(fresh_trees_->size(), 256U);
  for (int i = 0; i < 300; ++i) {
    EXPECT_EQ(watch.Next()["object"]["metadata"]["name"], "c" + std::to_string(i));
  }
  EXPECT_LE(watch.trees(), 256);
  EXPECT_GT(watch.trees(), 0);
}

TEST_F(Crud, DeleteCollectionTakesWhatTheSelectorNames) {
  ASSERT_EQ(Post(kMaps, Map("a", "1")).code, 201);
  ASSERT_EQ(Post(kMaps, Map("b", "2")).code, 201);
  ASSERT_EQ(Post(kMaps, Map("c", "2")).code, 201);
  const auto answer = Do("DELETE", std::string(kMaps) + "?labelSelector=v%3D2");
  EXPECT_EQ(answer.code, 200);
  EXPECT_EQ(answer.Tree()["items"].size(), 2u);
  EXPECT_EQ(Get(kMaps).Tree()["items"].size(), 1u);
}

TEST_F(Crud, EverythingIsThereAfterARestart) {
  const auto before = Post(kMaps, Map("a", "7"));
  Restart();
  EXPECT_EQ(Get(std::string(kMaps) + "/a").body, before.body);
  EXPECT_EQ(Get(std::string(kMaps) + "?labelSelector=v%3D7").Tree()["items"].size(), 1u);
  const auto partial =
      Do("GET", std::string(kMaps) + "/a", "",
         {{"accept", "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"}});
  EXPECT_EQ(partial.Tree()["metadata"], before.Tree()["metadata"]);
}

TEST_F(Crud, DryRunWritesNothing) {
  const auto answer = Post(std::string(kMaps) + "?dryRun=All", Map("a", "1"));
  EXPECT_EQ(answer.code, 201);
  EXPECT_EQ(Get(std::string(kMaps) + "/a").code, 404);
  EXPECT_EQ(Post(std::string(kMaps) + "?dryRun=Some", Map("a", "1")).code, 422);
}

TEST_F(Crud, GenerateNameMakesDifferentNames) {
  Json map = Map("", "1");
  map["metadata"].erase("name");
  map["metadata"]["generateName"] = "x-";
  const Json a = Post(kMaps, map).Tree();
  const Json b = Post(kMaps, map).Tree();
  EXPECT_EQ(a["metadata"]["name"].get<std::string>().size(), 7u);
  EXPECT_NE(a["metadata"]["name"], b["metadata"]["name"]);
}

TEST_F(Crud, FieldValidationWarnsOrRefuses) {
  Json map = Map("a", "1");
  map["nonsense"] = 1;
  const auto warned = Post(kMaps, map);
  EXPECT_EQ(warned.code, 201);
  EXPECT_EQ(warned.Header("Warning"), "299 - \"unknown field \\\"nonsense\\\"\"");
  map["metadata"]["name"] = "b";
  const auto refused = Post(std::string(kMaps) + "?fieldValidation=Strict", map);
  EXPECT_EQ(refused.code, 400);
  EXPECT_EQ(refused.message(),
            "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: strict decoding error: "
            "unknown field \"nonsense\"");
}

TEST_F(Crud, ApplyTellsKeysThatStandTwice) {
  const std::string body =
      "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\ndata:\n  k: one\n  k: two\n";
  const std::string why =
      "error converting YAML to JSON: yaml: unmarshal errors:\n  line 7: key \"k\" already set in "
      "map";
  const std::string url = std::string(kMaps) + "/a?fieldManager=m";
  const std::vector<std::pair<std::string, std::string>> yaml = {
      {"content-type", "application/apply-patch+yaml"}};
  const auto refused = Do("PATCH", url + "&fieldValidation=Strict", body, yaml);
  EXPECT_EQ(refused.code, 400);
  EXPECT_EQ(refused.message(), "error strict decoding YAML: " + why);
  EXPECT_EQ(Get(std::string(kMaps) + "/a").code, 404);
  const auto ignored = Do("PATCH", url + "&fieldValidation=Ignore", body, yaml);
  EXPECT_EQ(ignored.code, 201) << ignored.body;
  EXPECT_EQ(ignored.Header("Warning"), "");
  const auto warned = Do("PATCH", url, body, yaml);
  EXPECT_EQ(warned.code, 200) << warned.body;
  EXPECT_NE(warned.Header("Warning").find("already set in map"), std::string::npos);
}

TEST_F(Crud, EventsAreSelectedByWhoReportsThem) {
  const std::string strict = "/apis/events.k8s.io/v1/namespaces/ns/events";
  const std::string core = "/api/v1/namespaces/ns/events";
  ASSERT_EQ(Post(strict, {{"apiVersion", "events.k8s.io/v1"},
                          {"kind", "Event"},
                          {"metadata", {{"name", "new"}}},
                          {"eventTime", "2026-01-01T00:00:00.000000Z"},
                          {"action", "Do"},
                          {"reason", "Test"},
                          {"type", "Normal"},
                          {"reportingController", "one"},
                          {"reportingInstance", "one-1"},
                          {"regarding", {{"namespace", "ns"}, {"kind", "Pod"}}}})
                .code,
            201);
  ASSERT_EQ(Post(core, {{"apiVersion", "v1"},
                        {"kind", "Event"},
                        {"metadata", {{"name", "old"}}},
                        {"source", {{"component", "two"}}},
                        {"involvedObject", {{"namespace", "ns"}, {"kind", "Node"}}}})
                .code,
            201);
  const auto names = [&](const std::string& url) {
    const Json list = Get(url).Tree();
    std::string all;
    for (const auto& item : list["items"]) {
      all += item["metadata"]["name"].get<std::string>() + " ";
    }
    return all;
  };
  EXPECT_EQ(names(core + "?fieldSelector=source%3Done"), "new ");
  EXPECT_EQ(names(core + "?fieldSelector=source%3Dtwo"), "old ");
  EXPECT_EQ(names(core + "?fieldSelector=reportingComponent%3Done"), "new ");
  EXPECT_EQ(names(strict + "?fieldSelector=reportingController%3Done"), "new ");
  EXPECT_EQ(names(strict + "?fieldSelector=regarding.kind%3DNode"), "old ");
  // Each version knows its own names only.
  EXPECT_EQ(Get(strict + "?fieldSelector=involvedObject.kind%3DNode").code, 400);
  EXPECT_EQ(Get(core + "?fieldSelector=reportingController%3Done").code, 400);
}

Json Condition(const char* type) {
  return {{"type", type}, {"status", "True"}, {"reason", "Test"}};
}

TEST_F(Crud, ASigningRequestsConditionsComeThroughItsSubresources) {
  // base64 of PEM blocks whose inside is nothing.
  const std::string all = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
  const Json request = {{"apiVersion", "certificates.k8s.io/v1"},
                        {"kind", "CertificateSigningRequest"},
                        {"metadata", {{"name", "a"}}},
                        {"spec",
                         {{"request",
                           "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0KQUFBQQotLS0tLUVORCBDRVJ"
                           "USUZJQ0FURSBSRVFVRVNULS0tLS0K"},
                          {"signerName", "example.com/test"},
                          {"usages", {"client auth"}}}}};
  ASSERT_EQ(Post(all, request).code, 201);
  const std::string url = all + "/a";
  const auto merge = "application/merge-patch+json";
  const auto patched =
      Patch(url + "/approval", merge, {{"status", {{"conditions", {Condition("Test")}}}}});
  ASSERT_EQ(patched.code, 200) << patched.body;
  Json tree = patched.Tree();
  ASSERT_EQ(tree["status"]["conditions"].size(), 1u);
  EXPECT_TRUE(tree["status"]["conditions"][0].contains("lastTransitionTime"));
  tree["status"]["conditions"].push_back(Condition("Approved"));
  tree = Put(url + "/approval", tree).Tree();
  ASSERT_EQ(tree["status"]["conditions"].size(), 2u);
  const auto certificate = Patch(
      url + "/status", merge,
      {{"status",
        {{"certificate",
          "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCkFBQUEKLS0tLS1FTkQgQ0VSVElGSUNBVEUtLS0tLQo="}}}});
  ASSERT_EQ(certificate.code, 200) << certificate.body;
  tree = certificate.Tree();
  EXPECT_EQ(tree["status"]["conditions"].size(), 2u);
  tree["status"]["conditions"].push_back(Condition("More"));
  EXPECT_EQ(Put(url + "/status", tree).Tree()["status"]["conditions"].size(), 3u);
  // What is decided stays, and only /approval decides.
  const auto both =
      Patch(url + "/approval", merge,
            {{"status", {{"conditions", {Condition("Approved"), Condition("Denied")}}}}});
  EXPECT_EQ(both.code, 422);
  EXPECT_NE(both.message().find("mutually exclusive"), std::string::npos);
  const auto removed = Patch(url + "/approval", merge, {{"status", {{"conditions", nullptr}}}});
  EXPECT_EQ(removed.code, 422);
  EXPECT_NE(removed.message().find("updates may not remove a condition of type \"Approved\""),
            std::string::npos);
  Json other = request;
  other["metadata"]["name"] = "b";
  ASSERT_EQ(Post(all, other).code, 201);
  const auto sneaked =
      Patch(all + "/b/status", merge, {{"status", {{"conditions", {Condition("Approved")}}}}});
  EXPECT_EQ(sneaked.code, 422);
  EXPECT_NE(sneaked.message().find("updates may not add a condition of type \"Approved\""),
            std::string::npos);
}

TEST_F(Crud, TablesShowTheKindsColumns) {
  ASSERT_EQ(Post(kMaps, Map("a", "1")).code, 201);
  const Json table =
      Do("GET", kMaps, "", {{"accept", "application/json;as=Table;v=v1;g=meta.k8s.io"}}).Tree();
  EXPECT_EQ(table["kind"], "Table");
  ASSERT_EQ(table["rows"].size(), 1u);
  EXPECT_EQ(table["rows"][0]["cells"][0], "a");
  EXPECT_EQ(table["rows"][0]["object"]["kind"], "PartialObjectMetadata");
  EXPECT_EQ(table["columnDefinitions"].size(), table["rows"][0]["cells"].size());
}

TEST_F(Crud, DiscoveryNamesWhatIsServed) {
  EXPECT_EQ(Get("/api").Tree()["versions"][0], "v1");
  const Json core = Get("/api/v1").Tree();
  bool found = false;
  for (const auto& resource : core["resources"]) {
    found = found || (resource["name"] == "configmaps" && resource["kind"] == "ConfigMap");
  }
  EXPECT_TRUE(found);
  const auto aggregated = Do(
      "GET", "/apis", "",
      {{"accept",
        "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"}});
  EXPECT_EQ(aggregated.content_type,
            "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList");
  EXPECT_EQ(aggregated.Tree()["kind"], "APIGroupDiscoveryList");
  EXPECT_EQ(Get("/version").Tree()["minor"], "36");
}

}  // namespace
}  // namespace sublet::apiserver
