// Patches on values, and CRD schemas.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "kube/json_patch.h"
#include "kube/schema/builder.h"
#include "kube/strategic_merge_patch.h"
#include "kube/typed.h"

namespace sublet::kube {
namespace {

TEST(JsonPatch, Operations) {
  const struct {
    const char* target;
    const char* patch;
    const char* result;  // nullptr: refused with 422
  } cases[] = {
      {R"({"a":1})", R"([{"op":"add","path":"/b","value":[1]}])", R"({"a":1,"b":[1]})"},
      {R"({"b":[1,3]})", R"([{"op":"add","path":"/b/1","value":2}])", R"({"b":[1,2,3]})"},
      {R"({"b":[1]})", R"([{"op":"add","path":"/b/-","value":2}])", R"({"b":[1,2]})"},
      {R"({"b":[1]})", R"([{"op":"add","path":"/b/2","value":2}])", nullptr},
      {R"({"b":[1,2]})", R"([{"op":"remove","path":"/b/-1"}])", R"({"b":[1]})"},
      {R"({"a":1})", R"([{"op":"add","path":"/x/y","value":2}])", nullptr},
      {R"({"a":1})", R"([{"op":"remove","path":"/b"}])", nullptr},
      {R"({"a":1})", R"([{"op":"replace","path":"/b","value":1}])", R"({"a":1,"b":1})"},
      {R"({"a":1})", R"([{"op":"replace","path":"/b/c","value":1}])", nullptr},
      {R"({"a":[1]})", R"([{"op":"replace","path":"/a/1","value":1}])", nullptr},
      {R"({"a":{"b/c":1,"d~e":2}})",
       R"([{"op":"replace","path":"/a/b~1c","value":7},{"op":"remove","path":"/a/d~0e"}])",
       R"({"a":{"b/c":7}})"},
      {R"({"a":1})",
       R"([{"op":"test","path":"/a","value":1},{"op":"replace","path":"/a","value":2}])",
       R"({"a":2})"},
      {R"({"a":1})",
       R"([{"op":"replace","path":"/a","value":2},{"op":"test","path":"/a","value":1}])", nullptr},
      {R"({"a":1})", R"([{"op":"test","path":"/b","value":null}])", R"({"a":1})"},
      {R"({"a":{"x":1}})", R"([{"op":"move","from":"/a/x","path":"/y"}])", R"({"a":{},"y":1})"},
      {R"({"a":{"x":1}})", R"([{"op":"copy","from":"/a","path":"/b"}])",
       R"({"a":{"x":1},"b":{"x":1}})"},
      {R"({"a":1})", R"([{"op":"frob","path":"/a"}])", nullptr},
      {R"({"a":1})", R"([{"op":"add","path":"","value":{"z":1}}])", R"({"z":1})"},
  };
  for (const auto& c : cases) {
    Json target = Json::parse(c.target);
    const auto done = ApplyJsonPatch(Json::parse(c.patch), &target);
    ASSERT_EQ(done.ok(), c.result != nullptr) << c.patch;
    if (c.result != nullptr) {
      EXPECT_EQ(target, Json::parse(c.result)) << c.patch;
    } else {
      EXPECT_EQ(done.error().code(), 422);
      EXPECT_EQ(target, Json::parse(c.target)) << "changed by a refused patch";
    }
  }
  Json target = Json::object();
  EXPECT_EQ(ApplyJsonPatch(Json::object(), &target).error().code(), 400);
  Json many = Json::array();
  for (int i = 0; i < 10001; ++i) {
    many.push_back({{"op", "test"}, {"path", "/x"}, {"value", nullptr}});
  }
  EXPECT_EQ(ApplyJsonPatch(many, &target).error().message(),
            "The allowed maximum operations in a JSON patch is 10000, got 10001");
}

TEST(MergePatch, FollowsTheRfc) {
  const struct {
    const char* target;
    const char* patch;
    const char* result;
  } cases[] = {{R"({"a":"b"})", R"({"a":"c"})", R"({"a":"c"})"},
               {R"({"a":"b","b":"c"})", R"({"a":null})", R"({"b":"c"})"},
               {R"({"a":["b"]})", R"({"a":"c"})", R"({"a":"c"})"},
               {R"({"a":{"b":"c"}})", R"({"a":{"b":"d","c":null}})", R"({"a":{"b":"d"}})"},
               {R"({"a":"foo"})", R"({"a":{"bb":{"ccc":null}}})", R"({"a":{"bb":{}}})"},
               {R"({})", R"({"a":{"b":{"c":null}}})", R"({"a":{"b":{}}})"}};
  for (const auto& c : cases) {
    Json target = Json::parse(c.target);
    ApplyMergePatch(Json::parse(c.patch), &target);
    EXPECT_EQ(target, Json::parse(c.result)) << c.patch;
  }
}

// Each line: the original, the patch and what the reference implementation made of them.
TEST(StrategicMergePatch, AgreesWithTheReference) {
  const char* source = std::getenv("SUBLET_SOURCE_DIR");
  std::ifstream file(std::string(source != nullptr ? source : ".") +
                     "/kube/testdata/strategic_merge.txt");
  ASSERT_TRUE(file.good());
  int cases = 0;
  for (std::string line; std::getline(file, line); ++cases) {
    const Json c = Json::parse(line);
    const auto kind = c["kind"].get<std::string>();
    Json target = c["o"];
    const auto done = ApplyStrategicMergePatch(
        schema::FindType(kind == "Deployment" ? "apps" : "", "v1", kind), c["p"], &target);
    if (c.contains("error")) {
      ASSERT_FALSE(done.ok()) << line;
      EXPECT_EQ(done.error().message(), c["error"].get<std::string>());
    } else {
      ASSERT_TRUE(done.ok()) << line << done.error().message();
      EXPECT_EQ(target, c["r"]) << line;
    }
  }
  EXPECT_GT(cases, 30);
}

TEST(CrdSchema, PrunesAndDefaults) {
  const Json schema = Json::parse(R"({"type":"object","properties":{
      "spec":{"type":"object","default":{},"properties":{
        "size":{"type":"integer","default":3},
        "mode":{"type":"string","default":"a","nullable":true},
        "tags":{"type":"object","additionalProperties":{"type":"string"}},
        "free":{"type":"object","x-kubernetes-preserve-unknown-fields":true,
                "properties":{"known":{"type":"object","properties":{"x":{"type":"string"}}}}},
        "items":{"type":"array","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["name"],
          "items":{"type":"object","properties":{"name":{"type":"string"},"port":{"type":"integer","default":80}}}},
        "template":{"type":"object","x-kubernetes-embedded-resource":true,
                    "x-kubernetes-preserve-unknown-fields":true}}},
      "metadata":{"type":"object"}}})");
  const auto compiled = schema::CompileCrdSchema(&schema);
  ASSERT_TRUE(compiled.ok());
  const schema::Type root = (*compiled)->root();
  EXPECT_EQ(root.FindField("metadata").type(), schema::ObjectMetaType());
  const auto items = root.FindField("spec").type().FindField("items").type();
  EXPECT_TRUE(items.Has(schema::kListMap));
  EXPECT_EQ(items.list_keys(), "name");
  Json object = Json::parse(R"({"apiVersion":"g/v1","kind":"K","metadata":{"name":"x","odd":1},
      "bogus":1,"spec":{"size":null,"mode":null,"junk":{"a":1},"tags":{"a":"b"},
      "free":{"anything":[1],"known":{"x":"y","z":1}},"items":[{"name":"a","no":1}],
      "template":{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","bad":1},"spec":{"q":1}}}})");
  std::vector<std::string> unknown;
  ASSERT_TRUE(NormalizeTyped(root, &object, &unknown).ok());
  DefaultStructural(root, &object);
  EXPECT_EQ(object, Json::parse(R"({"apiVersion":"g/v1","kind":"K","metadata":{"name":"x"},
      "spec":{"size":3,"mode":null,"tags":{"a":"b"},"free":{"anything":[1],"known":{"x":"y"}},
      "items":[{"name":"a","port":80}],
      "template":{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p"},"spec":{"q":1}}}})"));
  EXPECT_EQ(unknown,
            (std::vector<std::string>{
                "unknown field \"bogus\"", "unknown field \"metadata.odd\"",
                "unknown field \"spec.free.known.z\"", "unknown field \"spec.items[0].no\"",
                "unknown field \"spec.junk\"", "unknown field \"spec.template.metadata.bad\""}));
  Json empty = Json::object();
  DefaultStructural(root, &empty);
  EXPECT_EQ(empty, Json::parse(R"({"spec":{"size":3,"mode":"a"}})"));
}

TEST(CrdSchema, WithoutOneEverythingIsKept) {
  const auto compiled = schema::CompileCrdSchema(nullptr);
  Json object = Json::parse(R"({"apiVersion":"g/v1","metadata":{"name":"x"},"any":{"b":[1]}})");
  const Json before = object;
  ASSERT_TRUE(NormalizeTyped((*compiled)->root(), &object).ok());
  EXPECT_EQ(object, before);
}

TEST(CrdSchema, DepthIsBounded) {
  Json schema = {{"type", "object"}};
  for (int i = 0; i < 300; ++i) {
    Json outer = {{"type", "object"}};
    outer["properties"]["x"] = std::move(schema);
    schema = std::move(outer);
  }
  EXPECT_FALSE(schema::CompileCrdSchema(&schema).ok());
}

}  // namespace
}  // namespace sublet::kube
