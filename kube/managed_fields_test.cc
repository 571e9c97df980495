// Field ownership and server-side apply: testdata/managed_fields.txt holds stories, one a line,
// with what the reference field manager made of each step.
#include "kube/managed_fields.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "kube/field_set.h"
#include "kube/object.h"
#include "kube/schema/builder.h"
#include "kube/timestamp.h"

namespace sublet::kube {
namespace {

Json Comparable(Json object) {
  Json* entries = Find(object, {"metadata", "managedFields"});
  if (entries != nullptr && entries->is_array()) {
    for (Json& entry : *entries) {
      EraseMember(&entry, "time");
    }
    std::sort(entries->begin(), entries->end(),
              [](const Json& a, const Json& b) { return Dump(a) < Dump(b); });
  }
  return object;
}

FieldManagerContext ContextFor(const std::string& kind) {
  FieldManagerContext context;
  const std::string group = kind == "Deployment" ? "apps"
                            : kind == "Role"     ? "rbac.authorization.k8s.io"
                                                 : "";
  context.gvk = {group, "v1", kind};
  context.type = schema::FindType(group, "v1", kind);
  context.is_custom = true;  // the reference run starts from untyped empty objects
  context.now = *ParseTime("2026-01-01T00:00:00Z");
  return context;
}

TEST(ManagedFields, TellTheStoriesOfTheReference) {
  const char* source = std::getenv("SUBLET_SOURCE_DIR");
  std::ifstream file(std::string(source != nullptr ? source : ".") +
                     "/kube/testdata/managed_fields.txt");
  ASSERT_TRUE(file.good());
  int stories = 0;
  for (std::string line; std::getline(file, line); ++stories) {
    const Json story = Json::parse(line);
    FieldManagerContext context = ContextFor(story["kind"].get<std::string>());
    Json live;
    for (std::size_t i = 0; i < story["ops"].size(); ++i) {
      const Json& op = story["ops"][i];
      const Json& result = story["results"][i];
      const std::string where = story["name"].get<std::string>() + " step " + std::to_string(i);
      context.now += std::chrono::seconds(1);
      Json object = op["object"];
      object.emplace("apiVersion", context.gvk.ApiVersion());
      object.emplace("kind", context.gvk.kind);
      const Json* before = live.is_null() ? nullptr : &live;
      const auto manager = op["manager"].get<std::string>();
      Result<Json> done = Json();
      if (op["op"] == "apply") {
        done = ApplyObject(context, before, object, manager, op.value("force", false));
      } else {
        TrackUpdate(context, before, manager, &object);
        done = object;
      }
      if (result.contains("error")) {
        ASSERT_FALSE(done.ok()) << where;
        EXPECT_EQ(done.error().message(), result["error"].get<std::string>()) << where;
        if (result.contains("status")) {
          EXPECT_EQ(done.error().code(), result["status"]["code"].get<int>()) << where;
        }
        continue;
      }
      ASSERT_TRUE(done.ok()) << where << ": " << done.error().message();
      EXPECT_EQ(Comparable(*done), Comparable(result["live"]))
          << where << Json::diff(Comparable(result["live"]), Comparable(*done)).dump(1);
      live = *done;
    }
  }
  EXPECT_GE(stories, 29);
}

TEST(ManagedFields, ConflictsCarryOneCausePerPath) {
  FieldManagerContext context = ContextFor("ConfigMap");
  const Json first = Json::parse(
      R"({"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"x":"1","y":"2"}})");
  const Json live = *ApplyObject(context, nullptr, first, "a", false);
  Json second = first;
  second["data"] = {{"x", "3"}, {"y", "4"}};
  const auto done = ApplyObject(context, &live, second, "b", false);
  ASSERT_FALSE(done.ok());
  EXPECT_EQ(done.error().reason(), Reason::kConflict);
  EXPECT_EQ(done.error().details().causes,
            (std::vector<StatusCause>{{"FieldManagerConflict", "conflict with \"a\"", ".data.x"},
                                      {"FieldManagerConflict", "conflict with \"a\"", ".data.y"}}));
}

TEST(ManagedFields, ApplyWithoutEffectKeepsTheTime) {
  FieldManagerContext context = ContextFor("ConfigMap");
  const Json config = Json::parse(
      R"({"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"x":"1"}})");
  const Json live = *ApplyObject(context, nullptr, config, "a", false);
  context.now += std::chrono::hours(1);
  EXPECT_EQ(*ApplyObject(context, &live, config, "a", false), live);
  Json same = live;
  TrackUpdate(context, &live, "b", &same);
  EXPECT_EQ(same, live);
}

TEST(ManagedFields, StatusBelongsToItsSubresource) {
  FieldManagerContext context = ContextFor("Deployment");
  context.is_custom = false;
  context.has_status = true;
  Json object = Json::parse(R"({"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"a",
      "labels":{"l":"1"}},"spec":{"replicas":1},"status":{"replicas":1}})");
  TrackUpdate(context, nullptr, "kubectl", &object);
  const Json& mine = object["metadata"]["managedFields"];
  ASSERT_EQ(mine.size(), 1u);
  EXPECT_FALSE(mine[0]["fieldsV1"].contains("f:status"));
  EXPECT_EQ(mine[0]["fieldsV1"]["f:metadata"]["f:labels"], Json::parse(R"({".":{},"f:l":{}})"));
  const Json live = object;
  context.subresource = "status";
  object["status"]["replicas"] = 2;
  object["spec"]["replicas"] = 9;
  TrackUpdate(context, &live, "controller", &object);
  const Json& both = object["metadata"]["managedFields"];
  ASSERT_EQ(both.size(), 2u);
  EXPECT_EQ(both[0]["subresource"], "status");
  EXPECT_EQ(both[0]["fieldsV1"], Json::parse(R"({"f:status":{"f:replicas":{}}})"));
}

TEST(ManagedFields, EntriesOfVanishedVersionsGo) {
  FieldManagerContext context = ContextFor("ConfigMap");
  context.is_served = [](std::string_view version) { return version == "v1"; };
  Json live = Json::parse(R"({"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a",
      "managedFields":[{"manager":"old","operation":"Update","apiVersion":"v0","fieldsType":"FieldsV1",
      "fieldsV1":{"f:data":{"f:x":{}}}}]},"data":{"x":"1"}})");
  Json object = live;
  object["data"]["y"] = "2";
  TrackUpdate(context, &live, "new", &object);
  ASSERT_EQ(object["metadata"]["managedFields"].size(), 1u);
  EXPECT_EQ(object["metadata"]["managedFields"][0]["manager"], "new");
}

TEST(ManagedFields, OldestUpdatersBecomeAncientChanges) {
  FieldManagerContext context = ContextFor("ConfigMap");
  Json live;
  for (int i = 0; i < 13; ++i) {
    Json object =
        live.is_null()
            ? Json{{"apiVersion", "v1"}, {"kind", "ConfigMap"}, {"metadata", {{"name", "a"}}}}
            : live;
    object["data"]["k" + std::to_string(i)] = "v";
    context.now += std::chrono::seconds(1);
    TrackUpdate(context, live.is_null() ? nullptr : &live, "m" + std::to_string(i), &object);
    live = object;
  }
  const Json& entries = live["metadata"]["managedFields"];
  ASSERT_EQ(entries.size(), 10u);
  EXPECT_EQ(entries[0]["manager"], "ancient-changes");
  EXPECT_EQ(entries[0]["time"], "2026-01-01T00:00:04Z");
  EXPECT_EQ(entries[0]["fieldsV1"],
            Json::parse(R"({"f:data":{".":{},"f:k0":{},"f:k1":{},"f:k2":{},"f:k3":{}}})"));
}

TEST(ManagedFields, CustomResourcesMergeByTheirSchema) {
  const Json schema = Json::parse(R"({"type":"object","properties":{"spec":{"type":"object",
      "x-kubernetes-preserve-unknown-fields":true,"properties":{
        "items":{"type":"array","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["name"],
          "items":{"type":"object","properties":{"name":{"type":"string"},"v":{"type":"integer"}}}},
        "tags":{"type":"array","x-kubernetes-list-type":"set","items":{"type":"string"}}}}}})");
  const auto compiled = schema::CompileCrdSchema(&schema);
  FieldManagerContext context;
  context.gvk = {"g", "v1", "K"};
  context.type = (*compiled)->root();
  context.is_custom = true;
  const auto object = [](const char* spec) {
    return Json{{"apiVersion", "g/v1"},
                {"kind", "K"},
                {"metadata", {{"name", "x"}}},
                {"spec", Json::parse(spec)}};
  };
  Json live = *ApplyObject(
      context, nullptr, object(R"({"items":[{"name":"a","v":1}],"tags":["x"],"free":{"q":[1,2]}})"),
      "one", false);
  live = *ApplyObject(context, &live,
                      object(R"({"items":[{"name":"b","v":2}],"tags":["y"],"free":{"r":1}})"),
                      "two", false);
  EXPECT_EQ(live["spec"], Json::parse(R"({"items":[{"name":"a","v":1},{"name":"b","v":2}],
      "tags":["x","y"],"free":{"q":[1,2],"r":1}})"));
  live = *ApplyObject(context, &live, object("{}"), "one", false);
  EXPECT_EQ(live["spec"],
            Json::parse(R"({"items":[{"name":"b","v":2}],"tags":["y"],"free":{"r":1}})"));
}

TEST(FieldSet, SetAlgebra) {
  const Json a = Json::parse(R"({"f:x":{".":{},"f:y":{}},"f:z":{}})");
  const Json b = Json::parse(R"({"f:x":{}})");
  EXPECT_EQ(SetDifference(a, b), Json::parse(R"({"f:x":{"f:y":{}},"f:z":{}})"));
  Json below = a;
  SubtractBelow(b, &below);
  EXPECT_EQ(below, Json::parse(R"({"f:z":{}})"));
  Json child = a;
  Subtract(Json::parse(R"({"f:x":{"f:y":{}}})"), &child);
  EXPECT_EQ(child, Json::parse(R"({"f:x":{},"f:z":{}})"));
  EXPECT_EQ(SetIntersection(a, b), b);
  EXPECT_EQ(SetUnion(b, Json::parse(R"({"f:x":{"f:y":{}},"f:z":{}})")), a);
  EXPECT_EQ(SetDifference(a, a), Json());
  EXPECT_TRUE(IsFieldSet(a));
  EXPECT_FALSE(IsFieldSet(Json::parse(R"({"x":{}})")));
  EXPECT_FALSE(IsFieldSet(Json::parse(R"({"k:{":{}})")));
}

}  // namespace
}  // namespace sublet::kube
