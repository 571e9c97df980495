#include "cli/tenant/objects.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "cli/host_session.h"
#include "kube/object.h"

namespace sublet::cli {
namespace {

using kube::Json;

std::vector<Json> Objects(const config::TenantConfig& config = {}) {
  TenantSpec spec;
  spec.name = "team-a";
  spec.host_namespace = "sublet-team-a";
  spec.image = "localhost/sublet:1";
  return TenantObjects(spec, config);
}

const Json* Named(const std::vector<Json>& objects, std::string_view kind, std::string_view name) {
  for (const Json& object : objects) {
    if (kube::FindString(object, {"kind"}) == kind && kube::NameOf(object) == name) {
      return &object;
    }
  }
  return nullptr;
}

TEST(TenantObjects, ThePodIsSmallNonRootAndNamedAsTheFieldExpects) {
  const auto objects = Objects();
  const Json* set = Named(objects, "StatefulSet", "team-a");
  ASSERT_NE(set, nullptr);
  EXPECT_EQ(kube::LabelOf(*set, "app"), "sublet");
  EXPECT_EQ(kube::LabelOf(*set, "release"), "team-a");
  const Json& pod = (*set)["spec"]["template"]["spec"];
  EXPECT_EQ(pod["containers"].size(), 1u);
  EXPECT_EQ(pod["containers"][0]["name"], "syncer");
  EXPECT_EQ(pod["containers"][0]["securityContext"]["readOnlyRootFilesystem"], true);
  EXPECT_EQ(pod["securityContext"]["runAsNonRoot"], true);
  EXPECT_EQ(pod["initContainers"].size(), 1u);
}

TEST(TenantObjects, RightsOutsideTheNamespaceAreReadOnly) {
  const auto objects = Objects();
  const Json* role = Named(objects, "ClusterRole", "sublet-team-a-sublet-team-a");
  ASSERT_NE(role, nullptr);
  for (const Json& rule : (*role)["rules"]) {
    EXPECT_EQ(rule["verbs"], Json({"get", "list", "watch"})) << rule.dump();
    for (const Json& resource : rule["resources"]) {
      EXPECT_NE(resource, "pods");
      EXPECT_NE(resource, "secrets");
    }
  }
}

TEST(TenantObjects, EveryListIsAList) {
  // nlohmann reads some brace shapes as objects; the API would refuse those.
  for (const Json& object : Objects()) {
    if (const Json* rules = kube::Find(object, {"rules"})) {
      for (const Json& rule : *rules) {
        EXPECT_TRUE(rule["apiGroups"].is_array()) << object.dump();
        EXPECT_TRUE(rule["resources"].is_array()) << object.dump();
        EXPECT_TRUE(rule["verbs"].is_array()) << object.dump();
      }
    }
    for (const char* list : {"subjects"}) {
      if (object.contains(list)) {
        EXPECT_TRUE(object[list].is_array());
        EXPECT_TRUE(object[list][0].is_object()) << object.dump();
      }
    }
    if (const Json* ports = kube::Find(object, {"spec", "ports"})) {
      EXPECT_TRUE(ports->is_array() && (*ports)[0].is_object()) << object.dump();
    }
  }
}

TEST(TenantObjects, PoliciesAddTheirObjects) {
  config::TenantConfig config;
  config.quota_enabled = config.limit_range_enabled = config.network_policy = true;
  config.quota["count/pods"] = "20";
  const auto objects = Objects(config);
  ASSERT_NE(Named(objects, "ResourceQuota", "sublet-team-a"), nullptr);
  EXPECT_NE(Named(objects, "LimitRange", "sublet-team-a"), nullptr);
  EXPECT_NE(Named(objects, "NetworkPolicy", "sublet-work-team-a"), nullptr);
  EXPECT_EQ(Named(Objects(), "ResourceQuota", "sublet-team-a"), nullptr);
}

TEST(HostObjects, AreThreeDefinitionsAndOneController) {
  const auto definitions = HostObjects();
  ASSERT_EQ(definitions.size(), 3u);
  for (const Json& definition : definitions) {
    EXPECT_EQ(kube::FindString(definition, {"kind"}), "CustomResourceDefinition");
  }
  EXPECT_NE(Named(NodeUsageObjects("x"), "Deployment", "sublet-node-usage"), nullptr);
}

TEST(TenantNames, SayWhatIsWrong) {
  EXPECT_TRUE(CheckTenantName("team-a").ok());
  EXPECT_FALSE(CheckTenantName("Team").ok());
  EXPECT_FALSE(CheckTenantName("").ok());
  EXPECT_FALSE(CheckTenantName("1a").ok());
  EXPECT_FALSE(CheckTenantName(std::string(41, 'a')).ok());
}

TEST(Contexts, NamesLeadBackToTenantAndParent) {
  const auto context = ParseTenantContext(TenantContextName("a", "sublet-a", "my_host_ctx"));
  ASSERT_TRUE(context.has_value());
  EXPECT_EQ(context->name, "a");
  EXPECT_EQ(context->host_namespace, "sublet-a");
  EXPECT_EQ(context->parent, "my_host_ctx");
  EXPECT_FALSE(ParseTenantContext("kind-x").has_value());
}

}  // namespace
}  // namespace sublet::cli
