#include "config/tenant_config.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace sublet::config {
namespace {

std::string ErrorOf(std::string_view yaml) {
  const auto parsed = ParseTenantConfig(yaml, "values.yaml");
  return parsed.ok() ? "" : parsed.error().message();
}

TEST(TenantConfig, EmptyFilesGiveTheDefaults) {
  const auto config = ParseTenantConfig("", "values.yaml");
  ASSERT_TRUE(config.ok());
  EXPECT_EQ(config->pod_security, "baseline");
  EXPECT_TRUE(config->set_owner);
  EXPECT_TRUE(config->control_plane.scheduler_enabled);
}

TEST(TenantConfig, ReadsTheSeedsFile) {
  const auto config = ParseTenantConfig(R"(
experimental:
  syncSettings:
    setOwner: false
sync:
  toHost:
    pods:
      translateImage:
        "nginx:1.27": "local/web:1"
  fromHost:
    nodes:
      enabled: true
      selector: {labels: {pool: gpu}}
controlPlane:
  scheduler:
    profiles:
    - {schedulerName: kai-scheduler, profile: kai-0.9}
policies: {gpu: {devices: 2, memory: 40Gi}}
)",
                                        "values.yaml");
  ASSERT_TRUE(config.ok()) << config.error().message();
  EXPECT_FALSE(config->set_owner);
  EXPECT_EQ(config->translate_images.at("nginx:1.27"), "local/web:1");
  EXPECT_EQ(config->node_labels.at("pool"), "gpu");
  EXPECT_EQ(config->control_plane.scheduler_profiles[0].profile, "kai-0.9");
  EXPECT_EQ(config->gpu_devices, 2);
  EXPECT_EQ(config->gpu_memory_bytes, 40ll << 30);
}

TEST(TenantConfig, AnUnknownKeyNamesFileLineAndTheNearestOne) {
  EXPECT_EQ(ErrorOf("sync:\n  toHost:\n    pod:\n      x: 1\n"),
            "values.yaml:3: unknown key sync.toHost.pod; did you mean pods? allowed here: pods, "
            "services, endpoints, endpointSlices, persistentVolumeClaims, configMaps, secrets, "
            "serviceAccounts, ingresses, networkPolicies, podDisruptionBudgets, storageClasses, "
            "persistentVolumes, priorityClasses");
}

TEST(TenantConfig, ClassesGoOneWayOnly) {
  const auto own =
      ParseTenantConfig("sync: {toHost: {storageClasses: {enabled: true}}}\n", "values.yaml");
  ASSERT_TRUE(own.ok()) << own.error().message();
  EXPECT_TRUE(own->storage_classes_to_host);
  EXPECT_FALSE(own->storage_classes);
  EXPECT_EQ(ErrorOf("sync: {toHost: {storageClasses: {enabled: true}},\n"
                    "  fromHost: {storageClasses: {enabled: true}}}\n"),
            "values.yaml: sync.toHost.storageClasses and sync.fromHost.storageClasses cannot both "
            "be on");
}

TEST(TenantConfig, EveryProblemIsReportedAtOnce) {
  const std::string text = ErrorOf("policies:\n  podSecurityStandard: strict\nfoo: 1\n");
  EXPECT_NE(text.find("values.yaml:2: policies.podSecurityStandard must be one of: privileged, "
                      "baseline, restricted"),
            std::string::npos);
  EXPECT_NE(text.find("values.yaml:3: unknown key foo"), std::string::npos);
}

TEST(TenantConfig, BadTypesAndBrokenYamlNameTheLine) {
  EXPECT_EQ(ErrorOf("experimental: {syncSettings: {setOwner: maybe}}\n"),
            "values.yaml:1: experimental.syncSettings.setOwner must be true or false");
  EXPECT_NE(ErrorOf("a: [1\n").find("values.yaml:"), std::string::npos);
  EXPECT_NE(ErrorOf("- a\n").find("must be a map"), std::string::npos);
  EXPECT_NE(ErrorOf("sync: 7\n").find("sync must be a map of: toHost, fromHost"),
            std::string::npos);
  EXPECT_NE(ErrorOf("policies: {gpu: {devices: -1}}\n").find("0 or more"), std::string::npos);
}

TEST(TenantConfig, SetAndLaterFilesWin) {
  auto merged =
      MergeValues("policies: {gpu: {devices: 1}}\n", "policies: {gpu: {memory: 1Gi}}\n", "b.yaml");
  ASSERT_TRUE(merged.ok());
  merged = SetValue(*merged, "policies.gpu.devices=3");
  ASSERT_TRUE(merged.ok());
  const auto config = ParseTenantConfig(*merged, "values");
  ASSERT_TRUE(config.ok()) << config.error().message();
  EXPECT_EQ(config->gpu_devices, 3);
  EXPECT_EQ(config->gpu_memory_bytes, 1ll << 30);
  EXPECT_FALSE(SetValue("", "nothing").ok());
}

TEST(TenantConfig, SchedulerVersionsMapToProfiles) {
  EXPECT_EQ(*ProfileOfVersion("v0.7.11"), "kai-0.7");
  EXPECT_EQ(*ProfileOfVersion("0.9.3"), "kai-0.9");
  EXPECT_EQ(*ProfileOfVersion("v0.14.0"), "kai-0.13");
  EXPECT_NE(ProfileOfVersion("v9.9").error().message().find("known: v0.5"), std::string::npos);
}

}  // namespace
}  // namespace sublet::config
