#include "apiserver/handlers/testing/api_fixture.h"

namespace sublet::apiserver {
namespace {

using kube::Json;
using testing::Answer;
using testing::ApiFixture;

constexpr const char* kTabs = "/apis/stable.example.com/v1/namespaces/ns/crontabs";

Json TabDefinition() {
  auto tree = kube::ParseJson(R"({
    "apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition",
    "metadata":{"name":"crontabs.stable.example.com"},
    "spec":{"group":"stable.example.com","scope":"Namespaced",
      "names":{"plural":"crontabs","singular":"crontab","kind":"CronTab","shortNames":["ct"],
               "categories":["all"]},
      "versions":[
        {"name":"v1","served":true,"storage":true,
         "schema":{"openAPIV3Schema":{"type":"object","properties":{
           "spec":{"type":"object","required":["cronSpec"],"properties":{
             "cronSpec":{"type":"string","pattern":"^[0-9*/ ]+$"},
             "image":{"type":"string","default":"busybox"},
             "replicas":{"type":"integer","minimum":1,"maximum":10},
             "mode":{"type":"string","enum":["a","b"]},
             "port":{"x-kubernetes-int-or-string":true},
             "tags":{"type":"array","x-kubernetes-list-type":"set","items":{"type":"string"}},
             "free":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}},
           "status":{"type":"object","properties":{"replicas":{"type":"integer"},
                                                   "labelSelector":{"type":"string"}}}}}},
         "additionalPrinterColumns":[
           {"name":"Spec","type":"string","jsonPath":".spec.cronSpec"},
           {"name":"Replicas","type":"integer","jsonPath":".spec.replicas"}],
         "selectableFields":[{"jsonPath":".spec.mode"}],
         "subresources":{"status":{},"scale":{"specReplicasPath":".spec.replicas",
           "statusReplicasPath":".status.replicas","labelSelectorPath":".status.labelSelector"}}},
        {"name":"v1beta1","served":true,"storage":false,"deprecated":true,
         "schema":{"openAPIV3Schema":{"type":"object",
           "x-kubernetes-preserve-unknown-fields":true}}}]}})");
  return std::move(*tree);
}

class Custom : public ApiFixture {
 protected:
  Custom() {
    MakeNamespace("ns");
    MakeDefinition(TabDefinition());
  }
  static Json Tab(const std::string& name, Json spec) {
    return {{"apiVersion", "stable.example.com/v1"},
            {"kind", "CronTab"},
            {"metadata", {{"name", name}}},
            {"spec", std::move(spec)}};
  }
};

TEST_F(Custom, ObjectsArePrunedAndDefaulted) {
  const auto answer = Post(
      kTabs, Tab("a", {{"cronSpec", "* * * * *"}, {"bogus", 1}, {"free", {{"x", {{"y", 1}}}}}}));
  ASSERT_EQ(answer.code, 201) << answer.body;
  const Json tree = answer.Tree();
  EXPECT_EQ(tree["spec"]["image"], "busybox");
  EXPECT_FALSE(tree["spec"].contains("bogus"));
  EXPECT_EQ(tree["spec"]["free"]["x"]["y"], 1);
  EXPECT_EQ(tree["metadata"]["generation"], 1);
  EXPECT_NE(answer.Header("Warning").find("unknown field"), std::string::npos);
}

// A default of a field without a type: nothing else in the schema has one.
TEST_F(Custom, ADefaultThatCameLaterIsReadOfStoredObjects) {
  Json definition = TabDefinition();
  Json& fields = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
                           ["spec"]["properties"];
  fields["image"].erase("default");
  const auto change = [&] {
    const Json patch = {{"spec", {{"versions", definition["spec"]["versions"]}}}};
    const auto answer =
        Patch("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/crontabs.stable.example.com",
              "application/merge-patch+json", patch);
    ASSERT_EQ(answer.code, 200) << answer.body;
  };
  change();
  ASSERT_EQ(Post(kTabs, Tab("a", {{"cronSpec", "*"}})).code, 201);
  fields["port"]["default"] = 80;
  change();
  const auto read = GetUntil(std::string(kTabs) + "/a", [](const Answer& answer) {
    return answer.Tree()["spec"].contains("port");
  });
  EXPECT_EQ(read.Tree()["spec"]["port"], 80);
}

TEST_F(Custom, ValidationUsesKubernetesSentences) {
  const auto missing = Post(kTabs, Tab("a", {{"replicas", 3}}));
  EXPECT_EQ(missing.code, 422);
  EXPECT_EQ(missing.message(),
            "CronTab.stable.example.com \"a\" is invalid: spec.cronSpec: Required value");
  const auto type = Post(kTabs, Tab("a", {{"cronSpec", 5}}));
  EXPECT_EQ(type.message(),
            "CronTab.stable.example.com \"a\" is invalid: spec.cronSpec: Invalid value: "
            "\"integer\": spec.cronSpec in body must be of type string: \"integer\"");
  const auto range = Post(kTabs, Tab("a", {{"cronSpec", "*"}, {"replicas", 11}}));
  EXPECT_EQ(range.message(),
            "CronTab.stable.example.com \"a\" is invalid: spec.replicas: Invalid value: 11: "
            "spec.replicas in body should be less than or equal to 10");
  const auto choice = Post(kTabs, Tab("a", {{"cronSpec", "*"}, {"mode", "c"}}));
  EXPECT_EQ(choice.message(),
            "CronTab.stable.example.com \"a\" is invalid: spec.mode: Unsupported value: \"c\": "
            "supported values: \"a\", \"b\"");
  const auto twice = Post(kTabs, Tab("a", {{"cronSpec", "*"}, {"tags", {"x", "y", "x"}}}));
  EXPECT_EQ(twice.message(),
            "CronTab.stable.example.com \"a\" is invalid: spec.tags[2]: Duplicate value: \"x\"");
  const auto pattern = Post(kTabs, Tab("a", {{"cronSpec", "hello"}}));
  EXPECT_NE(pattern.message().find("spec.cronSpec in body should match '^[0-9*/ ]+$'"),
            std::string::npos);
}

TEST_F(Custom, StatusAndSpecAreWrittenApart) {
  Json tab = Tab("a", {{"cronSpec", "*"}, {"replicas", 2}});
  tab["status"] = {{"replicas", 9}};
  const Json created = Post(kTabs, tab).Tree();
  EXPECT_FALSE(created.contains("status"));
  Json status = created;
  status["status"] = {{"replicas", 2}, {"labelSelector", "app=x"}};
  status["spec"]["replicas"] = 5;
  const auto written = Put(std::string(kTabs) + "/a/status", status);
  ASSERT_EQ(written.code, 200) << written.body;
  EXPECT_EQ(written.Tree()["spec"]["replicas"], 2);
  EXPECT_EQ(written.Tree()["status"]["replicas"], 2);
  EXPECT_EQ(written.Tree()["metadata"]["generation"], 1);
  const auto patched = Patch(std::string(kTabs) + "/a", "application/merge-patch+json",
                             {{"spec", {{"replicas", 3}}}});
  ASSERT_EQ(patched.code, 200) << patched.body;
  EXPECT_EQ(patched.Tree()["metadata"]["generation"], 2);
  EXPECT_EQ(patched.Tree()["status"]["replicas"], 2);
}

TEST_F(Custom, ScaleReadsAndWritesTheNamedPaths) {
  ASSERT_EQ(Post(kTabs, Tab("a", {{"cronSpec", "*"}, {"replicas", 2}})).code, 201);
  Json scale = Get(std::string(kTabs) + "/a/scale").Tree();
  EXPECT_EQ(scale["kind"], "Scale");
  EXPECT_EQ(scale["spec"]["replicas"], 2);
  scale["spec"]["replicas"] = 4;
  const auto written = Put(std::string(kTabs) + "/a/scale", scale);
  ASSERT_EQ(written.code, 200) << written.body;
  EXPECT_EQ(Get(std::string(kTabs) + "/a").Tree()["spec"]["replicas"], 4);
  EXPECT_EQ(Patch(std::string(kTabs) + "/a/scale", "application/merge-patch+json",
                  {{"spec", {{"replicas", 11}}}})
                .code,
            422);
}

TEST_F(Custom, VersionsDifferInApiVersionOnly) {
  ASSERT_EQ(Post(kTabs, Tab("a", {{"cronSpec", "*"}})).code, 201);
  const auto old = Get("/apis/stable.example.com/v1beta1/namespaces/ns/crontabs/a");
  EXPECT_EQ(old.code, 200);
  EXPECT_EQ(old.Tree()["apiVersion"], "stable.example.com/v1beta1");
  EXPECT_EQ(old.Tree()["spec"]["image"], "busybox");
  EXPECT_EQ(old.Header("Warning"), "299 - \"stable.example.com/v1beta1 CronTab is deprecated\"");
  const Json list = Get(kTabs).Tree();
  EXPECT_EQ(list["kind"], "CronTabList");
  EXPECT_EQ(list["items"][0]["kind"], "CronTab");
}

TEST_F(Custom, SelectableFieldsAndColumns) {
  ASSERT_EQ(Post(kTabs, Tab("a", {{"cronSpec", "*"}, {"mode", "a"}})).code, 201);
  ASSERT_EQ(Post(kTabs, Tab("b", {{"cronSpec", "*"}, {"mode", "b"}, {"replicas", 7}})).code, 201);
  const Json list = Get(std::string(kTabs) + "?fieldSelector=spec.mode%3Db").Tree();
  ASSERT_EQ(list["items"].size(), 1u);
  EXPECT_EQ(list["items"][0]["metadata"]["name"], "b");
  EXPECT_EQ(Get(std::string(kTabs) + "?fieldSelector=spec.image%3Db").code, 400);
  const Json table =
      Do("GET", kTabs, "", {{"accept", "application/json;as=Table;v=v1;g=meta.k8s.io"}}).Tree();
  EXPECT_EQ(table["rows"][1]["cells"], Json::array({"b", "*", 7}));
}

TEST_F(Custom, DiscoveryAndOpenApiFollow) {
  const Json group = Get("/apis/stable.example.com").Tree();
  EXPECT_EQ(group["preferredVersion"]["version"], "v1");
  const Json resources = Get("/apis/stable.example.com/v1").Tree();
  EXPECT_EQ(resources["resources"].size(), 3u);
  const Json index = Get("/openapi/v3").Tree();
  const std::string url =
      index["paths"]["apis/stable.example.com/v1"]["serverRelativeURL"].get<std::string>();
  const auto document = Get(url);
  ASSERT_EQ(document.code, 200);
  const Json tree = document.Tree();
  const Json& schema = tree["components"]["schemas"]["com.example.stable.v1.CronTab"];
  EXPECT_EQ(schema["properties"]["spec"]["properties"]["replicas"]["maximum"], 10);
  EXPECT_EQ(schema["x-kubernetes-group-version-kind"][0]["kind"], "CronTab");
  EXPECT_TRUE(schema["properties"]["apiVersion"]["description"].get<std::string>().starts_with(
      "APIVersion defines"));
  const Json& metadata =
      tree["components"]["schemas"]["io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"];
  EXPECT_TRUE(metadata["properties"]["name"].contains("description"));
  const Json& patch =
      tree["paths"]["/apis/stable.example.com/v1/namespaces/{namespace}/crontabs/{name}"]["patch"];
  EXPECT_EQ(patch["x-kubernetes-group-version-kind"]["kind"], "CronTab");
  EXPECT_EQ(Get("/openapi/v3/apis/stable.example.com/v1?hash=WRONG").code, 301);
}

TEST_F(Custom, ServedVersionsHaveApiServices) {
  const std::string all = "/apis/apiregistration.k8s.io/v1/apiservices";
  const auto names = [](const Answer& answer) {
    std::string found;
    const Json list = answer.Tree();
    for (const auto& item : list["items"]) {
      found += item["metadata"]["name"].get<std::string>() + " ";
    }
    return found;
  };
  const auto wait_for = [&](const std::string& wanted) {
    return names(GetUntil(all, [&](const Answer& answer) { return names(answer) == wanted; }));
  };
  // Somebody's own is left alone.
  ASSERT_EQ(Post(all, {{"apiVersion", "apiregistration.k8s.io/v1"},
                       {"kind", "APIService"},
                       {"metadata", {{"name", "v1.other.example.com"}}},
                       {"spec",
                        {{"group", "other.example.com"},
                         {"version", "v1"},
                         {"service", {{"name", "s"}, {"namespace", "ns"}}},
                         {"groupPriorityMinimum", 1},
                         {"versionPriority", 1}}}})
                .code,
            201);
  const std::string served =
      "v1.other.example.com v1.stable.example.com v1beta1.stable.example.com ";
  EXPECT_EQ(wait_for(served), served);
  const Json service = Get(all + "/v1.stable.example.com").Tree();
  EXPECT_EQ(service["status"]["conditions"][0]["reason"], "Local");
  EXPECT_EQ(service["spec"]["groupPriorityMinimum"], 1000);
  EXPECT_FALSE(service["spec"].contains("service"));
  ASSERT_EQ(Do("DELETE",
               "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/"
               "crontabs.stable.example.com")
                .code,
            200);
  EXPECT_EQ(wait_for("v1.other.example.com "), "v1.other.example.com ");
}

TEST_F(Custom, ApplyTracksOwners) {
  const auto first = Do("PATCH", std::string(kTabs) + "/a?fieldManager=one",
                        Tab("a", {{"cronSpec", "*"}, {"replicas", 2}}).dump(),
                        {{"content-type", "application/apply-patch+yaml"}});
  ASSERT_EQ(first.code, 201) << first.body;
  const auto conflict = Do("PATCH", std::string(kTabs) + "/a?fieldManager=two",
                           Tab("a", {{"cronSpec", "*"}, {"replicas", 3}}).dump(),
                           {{"content-type", "application/apply-patch+yaml"}});
  EXPECT_EQ(conflict.code, 409);
  EXPECT_EQ(conflict.message(),
            "Apply failed with 1 conflict: conflict with \"one\": .spec.replicas");
  const auto forced = Do("PATCH", std::string(kTabs) + "/a?fieldManager=two&force=true",
                         Tab("a", {{"cronSpec", "*"}, {"replicas", 3}}).dump(),
                         {{"content-type", "application/apply-patch+yaml"}});
  EXPECT_EQ(forced.code, 200) << forced.body;
  EXPECT_EQ(forced.Tree()["spec"]["replicas"], 3);
}

TEST_F(Custom, StrategicPatchIsRefused) {
  ASSERT_EQ(Post(kTabs, Tab("a", {{"cronSpec", "*"}})).code, 201);
  EXPECT_EQ(
      Patch(std::string(kTabs) + "/a", "application/strategic-merge-patch+json", Json::object())
          .code,
      415);
  Json tab = Get(std::string(kTabs) + "/a").Tree();
  tab["metadata"].erase("resourceVersion");
  const auto unconditional = Put(std::string(kTabs) + "/a", tab);
  EXPECT_EQ(unconditional.code, 422);
}

TEST_F(Custom, DeletingTheDefinitionRemovesItsObjects) {
  ASSERT_EQ(Post(kTabs, Tab("a", {{"cronSpec", "*"}})).code, 201);
  const std::string path =
      "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/crontabs.stable.example.com";
  EXPECT_EQ(Do("DELETE", path).code, 200);
  EXPECT_EQ(GetUntil(path, [](const auto& now) { return now.code == 404; }).code, 404);
  EXPECT_EQ(GetUntil(kTabs, [](const auto& now) { return now.code == 404; }).code, 404);
  EXPECT_EQ(store_->Count("/registry/stable.example.com/crontabs/"), 0u);
}

TEST_F(Custom, ARestartServesWhatWasDefined) {
  const auto before = Post(kTabs, Tab("a", {{"cronSpec", "*"}}));
  Restart();
  EXPECT_EQ(Get(std::string(kTabs) + "/a").Tree(), before.Tree());
}

TEST_F(Custom, BadDefinitionsAreRefused) {
  const std::string path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
  Json bad = TabDefinition();
  bad["metadata"]["name"] = "others.stable.example.com";
  const auto name = Post(path, bad);
  EXPECT_EQ(name.code, 422);
  EXPECT_NE(name.message().find("must be spec.names.plural+\".\"+spec.group"), std::string::npos);
  bad = TabDefinition();
  bad["spec"]["names"]["plural"] = "tabs";
  bad["metadata"]["name"] = "tabs.stable.example.com";
  bad["spec"]["versions"].erase(1);
  bad["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"].erase("type");
  const auto schema = Post(path, bad);
  EXPECT_NE(schema.message().find(
                "spec.validation.openAPIV3Schema.properties[spec].type: Required value: must not "
                "be empty for specified object fields"),
            std::string::npos)
      << schema.message();
  bad = TabDefinition();
  bad["spec"]["versions"][1]["storage"] = true;
  EXPECT_NE(
      Post(path, bad).message().find("must have exactly one version marked as storage version"),
      std::string::npos);
}

}  // namespace
}  // namespace sublet::apiserver
