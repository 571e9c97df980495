// The generated schema tables, decoding through them, and the registry of kinds.
#include "kube/schema/schema.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "kube/kinds/registry.h"
#include "kube/kinds/write_path.h"
#include "kube/object.h"
#include "kube/timestamp.h"
#include "kube/typed.h"

namespace sublet::kube {
namespace {

std::string TestData(const char* name) {
  const char* source = std::getenv("SUBLET_SOURCE_DIR");
  return std::string(source != nullptr ? source : ".") + "/kube/testdata/" + name;
}

TEST(Schema, KnowsFieldsKeysAndNumbers) {
  const auto container = schema::FindType("apps", "v1", "Deployment")
                             .FindField("spec")
                             .type()
                             .FindField("template")
                             .type()
                             .FindField("spec")
                             .type()
                             .FindField("containers");
  EXPECT_TRUE(container.Has(schema::kRequired));
  EXPECT_TRUE(container.Has(schema::kPatchMerge));
  EXPECT_EQ(container.merge_key(), "name");
  EXPECT_EQ(container.number(), 2);
  const auto ports = container.type().element().FindField("ports");
  EXPECT_EQ(ports.type().list_keys(), "containerPort,protocol");
  EXPECT_TRUE(ports.type().Has(schema::kListMap));
  EXPECT_EQ(DefaultTextOf(ports.type().element(), "protocol"), "\"TCP\"");
  EXPECT_EQ(container.type().GoName(), "[]v1.Container");
  EXPECT_TRUE(schema::FindType("", "v1", "DeleteOptions"));
  EXPECT_FALSE(schema::FindType("", "v1", "Nothing"));
  EXPECT_TRUE(schema::FindType("", "v1", "Pod")
                  .FindField("spec")
                  .type()
                  .FindField("nodeSelector")
                  .type()
                  .Has(schema::kAtomic));
}

// Each line: what a client sent, what the reference types make of it, strict errors, the error.
TEST(Typed, NormalizesAsTheReferenceTypesDo) {
  std::ifstream file(TestData("typed.txt"));
  ASSERT_TRUE(file.good());
  int cases = 0;
  for (std::string line; std::getline(file, line); ++cases) {
    const Json c = Json::parse(line);
    Json object = c["in"];
    const GroupVersionKind kind = KindOf(object);
    std::vector<std::string> unknown;
    const auto done =
        NormalizeTyped(schema::FindType(kind.group, kind.version, kind.kind), &object, &unknown);
    if (c.contains("error")) {
      ASSERT_FALSE(done.ok()) << line;
      EXPECT_EQ(done.error().message(), c["error"].get<std::string>()) << line;
      continue;
    }
    ASSERT_TRUE(done.ok()) << line << done.error().message();
    EXPECT_EQ(object, c["out"]) << Json::diff(c["out"], object);
    std::vector<std::string> strict = c.contains("strict")
                                          ? c["strict"].get<std::vector<std::string>>()
                                          : std::vector<std::string>();
    std::sort(strict.begin(), strict.end());
    std::sort(unknown.begin(), unknown.end());
    EXPECT_EQ(unknown, strict) << line;
    Json again = object;
    ASSERT_TRUE(NormalizeTyped(schema::FindType(kind.group, kind.version, kind.kind), &again).ok());
    EXPECT_EQ(again, object) << "not idempotent: " << line;
  }
  EXPECT_GT(cases, 40);
}

TEST(Registry, ListsEveryGaKindWithItsNames) {
  EXPECT_EQ(BuiltinGroups().size(), 21u);
  EXPECT_EQ(BuiltinGroups()[0].group, "");
  const auto pods = FindBuiltinResource("", "v1", "pods");
  ASSERT_NE(pods, nullptr);
  EXPECT_EQ(pods->gvk.kind, "Pod");
  EXPECT_EQ(pods->short_names, std::vector<std::string>{"po"});
  EXPECT_EQ(pods->categories, std::vector<std::string>{"all"});
  EXPECT_TRUE(pods->has_status);
  EXPECT_TRUE(pods->has_generation);
  ASSERT_NE(pods->FindSubresource("eviction"), nullptr);
  EXPECT_EQ(pods->FindSubresource("eviction")->kind,
            (GroupVersionKind{"policy", "v1", "Eviction"}));
  EXPECT_EQ(FindBuiltinResource("apps", "v1", "deployments")->FindSubresource("scale")->kind,
            (GroupVersionKind{"autoscaling", "v1", "Scale"}));
  EXPECT_EQ(FindBuiltinKind("events.k8s.io", "v1", "Event")->storage,
            (GroupResource{"", "events"}));
  for (const KindPtr& kind : BuiltinKinds()) {
    EXPECT_TRUE(kind->type) << kind->resource;
    EXPECT_TRUE(!kind->HasVerb("list") ||
                schema::FindType(kind->gvk.group, kind->gvk.version, kind->list_kind))
        << kind->list_kind;
  }
}

class WritePath : public ::testing::Test {
 protected:
  KindPtr config_map_ = FindBuiltinResource("", "v1", "configmaps");
  KindPtr deployment_ = FindBuiltinResource("apps", "v1", "deployments");
  // A whole deployment with its defaults; `metadata` and `replicas` as given.
  Json Deployment(const char* metadata, int replicas, const char* status) const {
    Json object = Json::parse(R"({"apiVersion":"apps/v1","kind":"Deployment","spec":{
        "selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},
        "spec":{"containers":[{"name":"c","image":"i"}]}}}})");
    object["metadata"] = Json::parse(metadata);
    object["spec"]["replicas"] = replicas;
    object["status"] = Json::parse(status);
    deployment_->strategy->Default(&object);
    return object;
  }

  WriteContext context_{.now = *ParseTime("2026-01-01T00:00:00Z"), .namespace_name = "n"};
  std::vector<std::string> warnings_;
};

TEST_F(WritePath, CreateFillsMetadata) {
  Json object = Json::parse(R"({"apiVersion":"v1","kind":"ConfigMap",
      "metadata":{"generateName":"a-","uid":"x","generation":7,"deletionTimestamp":"2020-01-01T00:00:00Z"}})");
  ASSERT_TRUE(BeforeCreate(*config_map_, context_, &object, &warnings_).ok());
  EXPECT_TRUE(NameOf(object).starts_with("a-"));
  EXPECT_EQ(NamespaceOf(object), "n");
  EXPECT_EQ(UidOf(object).size(), 36u);
  EXPECT_EQ(FindString(object, {"metadata", "creationTimestamp"}), "2026-01-01T00:00:00Z");
  // A kind that does not count generations keeps what it was sent.
  EXPECT_EQ(FindInt(object, {"metadata", "generation"}), 7);
  EXPECT_FALSE(IsDeleting(object));
}

TEST_F(WritePath, FinalizersOfBuiltInKindsAreStandardOrQualified) {
  Json object = Json::parse(R"({"apiVersion":"v1","kind":"ConfigMap",
      "metadata":{"name":"a","finalizers":["plain","orphan","example.com/x"]}})");
  const auto refused = BeforeCreate(*config_map_, context_, &object, &warnings_);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().message(),
            "ConfigMap \"a\" is invalid: metadata.finalizers[0]: Invalid value: \"plain\": name is "
            "neither a standard finalizer name nor is it fully qualified");
}

TEST_F(WritePath, CreateErrorsAreKubernetes) {
  const struct {
    const char* metadata;
    int code;
    const char* message;
  } cases[] = {
      {R"({"name":"a","resourceVersion":"5"})", 500,
       "resourceVersion should not be set on objects to be created"},
      {R"({"name":"a","namespace":"m"})", 400,
       "the namespace of the provided object does not match the namespace sent on the request"},
      {R"({})", 422,
       "ConfigMap \"\" is invalid: metadata.name: Required value: name or generateName is "
       "required"},
      {R"({"name":"a","ownerReferences":[{"apiVersion":"v1","kind":"A","name":"x","uid":""}]})",
       422,
       "ConfigMap \"a\" is invalid: metadata.ownerReferences.uid: Invalid value: \"\": must not be "
       "empty"},
      {R"({"name":"a","finalizers":["orphan","foregroundDeletion"]})", 422,
       "ConfigMap \"a\" is invalid: metadata.finalizers: Invalid value: "
       "[\"orphan\",\"foregroundDeletion\"]: finalizer foregroundDeletion and orphan cannot be "
       "both "
       "set"},
  };
  for (const auto& c : cases) {
    Json object = {{"metadata", Json::parse(c.metadata)}};
    const auto done = BeforeCreate(*config_map_, context_, &object, &warnings_);
    ASSERT_FALSE(done.ok()) << c.message;
    EXPECT_EQ(done.error().message(), c.message);
    EXPECT_EQ(done.error().code(), c.code);
  }
}

TEST_F(WritePath, UpdateKeepsSystemFieldsAndCountsGenerations) {
  Json old = Deployment(R"({"name":"d","namespace":"n","uid":"u","generation":3,
      "creationTimestamp":"2025-01-01T00:00:00Z","resourceVersion":"5"})",
                        1, R"({"replicas":1})");
  Json object =
      Deployment(R"({"name":"d","generation":9,"resourceVersion":"5"})", 1, R"({"replicas":7})");
  Json same = object;
  ASSERT_TRUE(BeforeUpdate(*deployment_, context_, "", old, &same, &warnings_).ok());
  EXPECT_TRUE(IsUnchanged(old, same)) << same;
  object["spec"]["replicas"] = 2;
  ASSERT_TRUE(BeforeUpdate(*deployment_, context_, "", old, &object, &warnings_).ok());
  EXPECT_EQ(GenerationOf(object), 4);
  EXPECT_EQ(FindInt(object, {"status", "replicas"}), 1);
  EXPECT_EQ(UidOf(object), "u");
  Json status = old;
  status["status"]["replicas"] = 5;
  status["spec"]["replicas"] = 9;
  ASSERT_TRUE(BeforeUpdate(*deployment_, context_, "status", old, &status, &warnings_).ok());
  EXPECT_EQ(FindInt(status, {"status", "replicas"}), 5);
  EXPECT_EQ(FindInt(status, {"spec", "replicas"}), 1);
  EXPECT_EQ(GenerationOf(status), 3);
}

TEST_F(WritePath, NoNewFinalizersWhileDeleting) {
  Json old = Deployment(R"({"name":"a","namespace":"n","uid":"u","generation":1})", 1, "{}");
  MarkDeleting(*deployment_, context_.now, 30, &old);
  EXPECT_EQ(FindString(old, {"metadata", "deletionTimestamp"}), "2026-01-01T00:00:30Z");
  EXPECT_EQ(GenerationOf(old), 2);
  Json object = old;
  AddFinalizer(&object, "x/y");
  const auto done = BeforeUpdate(*deployment_, context_, "", old, &object, &warnings_);
  ASSERT_FALSE(done.ok());
  EXPECT_EQ(
      done.error().message(),
      "Deployment.apps \"a\" is invalid: metadata.finalizers: Forbidden: no new finalizers can "
      "be added if the object is being deleted, found new finalizers []string{\"x/y\"}");
}

}  // namespace
}  // namespace sublet::kube
