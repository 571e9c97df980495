#include "syncer/names.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace sublet::syncer {
namespace {

using kube::Json;

const Tenant kTenant{"tenant-a", "sublet-tenant-a"};

TEST(Names, GoldenVectors) {
  EXPECT_EQ(HostName(kTenant, "web-0", "default"), "web-0-x-default-x-tenant-a");
  EXPECT_EQ(HostName(kTenant, "a-very-long-statefulset-name-for-training-0", "team-research"),
            "a-very-long-statefulset-name-for-training-0-x-team-r-387308b841");
  EXPECT_EQ(HostNameCluster(kTenant, "high-priority"),
            "sublet-high-priority-x-sublet-tenant-a-x-tenant-a");
  EXPECT_EQ(ShortHostName(kTenant, "claim", "default"), "v632uac7dkyjhh");
  EXPECT_EQ(ShortHostName(kTenant, "web-0", "default"), "v3exzii02hn259");
  EXPECT_EQ(HostLabelKey(kTenant, "release"), "sublet.dev/label-tenant-a-x-a4d451ec23");
  EXPECT_EQ(NamespaceLabelKey(kTenant, "team"), "sublet.dev/ns-label-tenant-a-x-ca8b22d0db");
}

TEST(Names, ShortenOnlyPast63AndNeverEndAPartInADot) {
  EXPECT_EQ(SafeName(std::string(63, 'a')), std::string(63, 'a'));
  EXPECT_EQ(SafeName(std::string(64, 'a')).size(), 63u);
  const std::string dotted = SafeName(std::string(51, 'a') + "." + std::string(20, 'b'));
  EXPECT_EQ(dotted.find(".-"), std::string::npos);
  EXPECT_EQ(dotted.size(), 62u);
}

TEST(Names, UserLabelsStayAndMarkersOfATenantNeverArriveAsMarkers) {
  const Json pod = {
      {"metadata",
       {{"name", "a"},
        {"namespace", "default"},
        {"uid", "u1"},
        {"labels",
         {{"app", "web"},
          {"release", "r1"},
          {"sublet.dev/managed-by", "other"},
          {"sidecar.istio.io/inject", "true"},
          {"app.kubernetes.io/name", "web"}}},
        {"annotations",
         {{"note", "x"}, {"cdi.k8s.io/gpu", "all"}, {"sublet.dev/object-name", "forged"}}}}}};
  const Json labels = HostLabels(kTenant, pod, {});
  EXPECT_EQ(labels["app"], "web");
  EXPECT_EQ(labels["app.kubernetes.io/name"], "web");
  EXPECT_EQ(labels["sublet.dev/label-tenant-a-x-a4d451ec23"], "r1");
  EXPECT_EQ(labels["sublet.dev/managed-by"], "tenant-a");
  EXPECT_EQ(labels["sublet.dev/namespace"], "default");
  EXPECT_FALSE(labels.contains("sidecar.istio.io/inject"));
  EXPECT_FALSE(labels.contains("release"));

  const Json annotations =
      HostAnnotations(kTenant, pod, "/v1, Kind=Pod", "a-x-default-x-tenant-a", {});
  EXPECT_EQ(annotations["note"], "x");
  EXPECT_EQ(annotations["sublet.dev/object-name"], "a");
  EXPECT_EQ(annotations["sublet.dev/object-kind"], "/v1, Kind=Pod");
  EXPECT_FALSE(annotations.contains("cdi.k8s.io/gpu"));
}

TEST(Names, ConfiguredKeysTravelToo) {
  EXPECT_FALSE(MayTravel("example.com/team", {}));
  EXPECT_TRUE(MayTravel("example.com/team", {"example.com/"}));
  EXPECT_TRUE(MayTravel("example.com/team", {"example.com/team"}));
  EXPECT_FALSE(MayTravel("example.com/team2", {"example.com/team"}));
}

TEST(Names, SelectorsAreTranslatedAndBoundToTheTenant) {
  const Json selector = {{"matchLabels", {{"release", "x"}, {"app", "web"}}},
                         {"matchExpressions", {{{"key", "release"}, {"operator", "Exists"}}}}};
  const Json host = HostLabelSelector(kTenant, selector, "team");
  EXPECT_EQ(host["matchLabels"]["sublet.dev/label-tenant-a-x-a4d451ec23"], "x");
  EXPECT_EQ(host["matchLabels"]["app"], "web");
  EXPECT_EQ(host["matchLabels"]["sublet.dev/managed-by"], "tenant-a");
  EXPECT_EQ(host["matchLabels"]["sublet.dev/namespace"], "team");
  EXPECT_EQ(host["matchExpressions"][0]["key"], "sublet.dev/label-tenant-a-x-a4d451ec23");
}

}  // namespace
}  // namespace sublet::syncer
